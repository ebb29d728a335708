"""A fleet whose commits must be signed, its controller, and somebody who can push whatever they like.

The repository, the objects and the controller are real; only time is a test's. `SignedDesk` is the desk of the
controller's tests with a root that demands signatures, and `Writer` makes commits below what git itself would make.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridops.base.ids import CommitId, PersonName
from gridops.trust import amend
from gridops.trust.keys import PersonSigner
from gridops.trust.root import RoleName, Root, RootChain, seal_root
from tests.builders.commits import header, name_of, signed, unsigned, with_header
from tests.controller.fleet import NOW, Desk, Fleet

THIEF = PersonSigner.from_seed(b"t" * 32)
JON = PersonSigner.from_seed(b"j" * 32)
BOT = PersonSigner.from_seed(b"b" * 32)


@dataclass
class Writer:
    """Whoever may push to a repository."""

    path: Path

    def git(self, *args: str, stdin: bytes = b"") -> str:
        ran = subprocess.run(["git", *args], cwd=self.path, input=stdin, capture_output=True, check=True)
        return ran.stdout.decode().strip()

    @property
    def tip(self) -> CommitId:
        return CommitId(self.git("rev-parse", "main"))

    def tree_with(self, files: dict[str, str | None], on: str = "main") -> str:
        """The tree of a commit with some files written or removed, made without a work tree."""
        self.git("read-tree", f"{on}^{{tree}}")
        for path, text in files.items():
            if text is None:
                self.git("update-index", "--force-remove", path)
                continue
            oid = self.git("hash-object", "-w", "--stdin", stdin=text.encode())
            self.git("update-index", "--add", "--cacheinfo", f"100644,{oid},{path}")
        return self.git("write-tree")

    def object(self, kind: str, raw: bytes) -> str:
        """Any object, well formed or not."""
        return self.git("hash-object", "-t", kind, "-w", "--stdin", "--literally", stdin=raw)

    def tree_of(self, entries: Sequence[tuple[str, bytes, str]]) -> str:
        """A tree with exactly these entries: mode, name, object."""
        raw = b"".join(mode.encode() + b" " + name + b"\x00" + bytes.fromhex(oid) for mode, name, oid in entries)
        return self.object("tree", raw)

    def replaced(self, folder: str, tree: str, on: str = "main") -> str:
        """The root tree of a commit with one of its folders exchanged."""
        lines = self.git("ls-tree", "-z", f"{on}^{{tree}}").split("\x00")
        entries = []
        for line in filter(None, lines):
            facts, _, name = line.partition("\t")
            mode, _, oid = facts.split()
            entries.append((mode.lstrip("0"), name.encode(), tree if name == folder else oid))
        return self.tree_of(entries)

    def commit(self, raw: bytes) -> CommitId:
        """Store a commit and move the branch to it, by force."""
        made = self.object("commit", raw)
        assert made == name_of(raw)
        self.git("update-ref", "refs/heads/main", made)
        return CommitId(made)

    def push(self, files: dict[str, str | None], by: PersonSigner | None, *more: str, on: str = "main") -> CommitId:
        """An ordinary commit on top, signed or not; `more` are further parents."""
        raw = unsigned([self.git("rev-parse", on), *more], tree=self.tree_with(files, on))
        return self.commit(raw if by is None else signed(raw, by))


class SignedDesk(Desk):
    """A desk whose fleet demands signed commits, with one signed commit in force."""

    writer: Writer

    @classmethod
    def opened(cls, path: Path) -> SignedDesk:
        fleet = Fleet(path)
        fleet.begin()
        desk = cls(fleet)
        desk.writer = Writer(fleet.path)
        desk.turn_on()
        return desk

    @property
    def chain(self) -> RootChain:
        """The documents in force."""
        return self.controller.soft.chain

    @property
    def roots(self) -> list[str]:
        return list(self.state.roots)

    @property
    def mira(self) -> PersonSigner:
        return self.fleet.person

    def next_root(self, root: Root, *signers: PersonSigner) -> dict[str, str | None]:
        """The file of the next root document."""
        text = seal_root(root, *(signers or (self.fleet.root_signer,)))
        return {f"policies/trust/root/{root.version}.json": text}

    def turn_on(self) -> None:
        self.writer.push(self.next_root(amend.signing_commits(self.chain, True, NOW)), None)
        self.look()
        assert self.force == self.writer.tip

    def added(self, name: str, signer: PersonSigner, *roles: RoleName) -> Root:
        return amend.added(self.chain, PersonName(name), signer.public, roles or (RoleName.CHANGE,), NOW)

    @property
    def force(self) -> CommitId:
        """The commit in force."""
        assert self.state.accepted is not None
        return CommitId(self.state.accepted.commit)

    def alarm(self) -> str:
        """What the alarm about the newest commit says, or nothing."""
        standing = self.state.alarms.get("intake_refused")
        return standing.text if standing is not None else ""

    def said(self) -> dict[str, Any]:
        """All that must be as before when a commit was not believed."""
        state = self.state
        return {
            "accepted": state.accepted,
            "roots": tuple(state.roots),
            "scopes": {name: book.target for name, book in state.scopes.items()},
            "outboxes": {host: book.outbox for host, book in state.hosts.items()},
            "refused": state.refused,
        }


__all__ = ["BOT", "JON", "THIEF", "SignedDesk", "Writer", "header", "with_header"]
