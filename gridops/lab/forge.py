"""The operators' repository where every commit is signed, as git keeps it: objects by name, and a branch.

The product's own intake reads it (`controller.intake`, `controller.lineage`, `trust.line`): what is modelled is git
alone, which objects there are and which commit follows which. `tests/lab/test_twins.py` holds it against real git.
Who may push, and lies, is in `pusher`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from gridops.base.codes import commits as codes
from gridops.base.errors import Refusal
from gridops.base.ids import CommitId
from gridops.files.git import Checkout, CommitTree, Entry
from gridops.files.git_run import GitDir
from gridops.files.objects import Objects
from gridops.trust import sshsig
from gridops.trust.keys import PersonSigner

NOWHERE = GitDir(Path("/lab/git"), Path("/lab/git"), None)
Files = Mapping[str, bytes]
Kept = dict[str, tuple[str, bytes]]
"""Objects by name: of what kind, and what is in it."""


class _Objects(Objects):
    """What git would say of objects."""

    def __init__(self, kept: Kept) -> None:
        super().__init__(NOWHERE)
        self.kept = kept

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing was started."""

    def each(self, oids: Sequence[str], kind: str, most: int) -> Iterator[bytes]:
        for oid, size in zip(oids, self.sizes(oids, kind), strict=True):
            if size > most:
                raise Refusal(codes.COMMIT_UNREADABLE.code, f"{kind} {oid[:12]} has {size} bytes, at most {most}")
            yield self.kept[oid][1]

    def sizes(self, oids: Sequence[str], kind: str) -> tuple[int, ...]:
        for oid in oids:
            if self.kept.get(oid, ("", b""))[0] != kind:
                raise Refusal(codes.COMMIT_UNREADABLE.code, f"{kind} {oid[:12]} is missing or damaged", subject=oid)
        return tuple(len(self.kept[oid][1]) for oid in oids)


class Forge(Checkout):
    """The repository that everybody pushes to. `tip` is where its branch stands."""

    def __init__(self) -> None:
        self.where = NOWHERE
        self.tip = CommitId("")
        self.kept: Kept = {}
        self._files: dict[CommitId, dict[str, bytes]] = {}
        self._parents: dict[CommitId, tuple[CommitId, ...]] = {}

    # --- what people do ---------------------------------------------------------------------------------------------

    def commit(self, files: Files, parents: Sequence[CommitId], subject: str, signer: PersonSigner | None) -> CommitId:
        """One more commit; no branch moves. Without a signer it is not signed."""
        who = b"mira <mira@example.invalid> 1796000000 +0000"
        lines = [b"tree " + self._tree(files).encode(), *(b"parent " + p.encode() for p in parents)]
        raw = b"\n".join([*lines, b"author " + who, b"committer " + who]) + b"\n\n" + subject.encode() + b"\n"
        if signer is not None:
            block = sshsig.armor(signer.sign_for("git", raw)).rstrip("\n").replace("\n", "\n ")
            head, message = raw.split(b"\n\n", 1)
            raw = head + b"\ngpgsig " + block.encode() + b"\n\n" + message
        commit = CommitId(self._keep("commit", raw))
        self._files[commit], self._parents[commit] = dict(files), tuple(parents)
        return commit

    def files(self, commit: CommitId) -> dict[str, bytes]:
        return dict(self._files[commit])

    def _tree(self, files: Files) -> str:
        here: dict[bytes, tuple[bytes, str]] = {}
        below: dict[str, dict[str, bytes]] = {}
        for path, raw in files.items():
            folder, slash, rest = path.partition("/")
            if slash:
                below.setdefault(folder, {})[rest] = raw
            else:
                here[path.encode()] = (b"100644", self._keep("blob", raw))
        for folder, inside in below.items():
            here[folder.encode()] = (b"40000", self._tree(inside))
        # Git sorts folders as if their names ended with a slash.
        order = sorted(here, key=lambda name: name + (b"/" if here[name][0] == b"40000" else b""))
        entries = (here[name][0] + b" " + name + b"\x00" + bytes.fromhex(here[name][1]) for name in order)
        return self._keep("tree", b"".join(entries))

    def _keep(self, kind: str, raw: bytes) -> str:
        oid = hashlib.sha1(f"{kind} {len(raw)}\x00".encode() + raw, usedforsecurity=False).hexdigest()
        self.kept[oid] = (kind, raw)
        return oid

    # --- what git answers -------------------------------------------------------------------------------------------

    def resolve(self, revision: str) -> CommitId | None:
        name, _, back = revision.partition("~")
        found = CommitId(name) if name in self._parents else None
        for _ in range(int(back or 0)):
            found = next(iter(self._parents[found]), None) if found is not None else None
        return found

    def objects(self) -> Objects:
        return _Objects(self.kept)

    def tree(self, commit: CommitId) -> CommitTree:
        files = self._files[commit]
        return CommitTree(self.where, commit, {p: Entry("100644", "", len(raw)) for p, raw in files.items()}, files)

    def subject(self, commit: CommitId) -> str:
        return self.kept[commit][1].partition(b"\n\n")[2].decode().partition("\n")[0]

    def author(self, commit: CommitId) -> str:
        return "mira"

    def is_ancestor(self, older: CommitId, newer: CommitId) -> bool:
        pending, seen = [newer], set[CommitId]()
        while pending:
            at = pending.pop()
            if at == older:
                return True
            pending += [p for p in self._parents.get(at, ()) if p not in seen]
            seen.update(self._parents.get(at, ()))
        return False

    def first_parents(self, tip: CommitId, most: int, *without: str) -> tuple[CommitId, ...]:
        left_out = [CommitId(revision.removeprefix("^")) for revision in without]
        return tuple(reversed(tuple(islice(self._back(tip, left_out), most))))

    def _back(self, at: CommitId | None, left_out: Sequence[CommitId]) -> Iterator[CommitId]:
        while at is not None and not any(self.is_ancestor(at, other) for other in left_out):
            yield at
            at = next(iter(self._parents[at]), None)

    def changed(self, older: CommitId, newer: CommitId) -> tuple[str, ...]:
        before, after = self._files[older], self._files[newer]
        return tuple(sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p)))

    def head_of_file(self, commit: CommitId, path: str, size: int) -> bytes:
        return self._files[commit].get(path, b"")[:size]
