"""What is accepted only ever goes on: commits, root documents, catalogs, for controller and hosts alike (rule S12).

Read from the rows of the journal and from what hosts know, never by asking the product what follows what: which
commits people made, and which of them is behind which, `people.Repository` knows.
"""

from __future__ import annotations

from collections.abc import Callable

from gridops.base.ids import CommitId, HostId
from gridops.controller.core import rows as r
from gridops.controller.core.row_kinds import decode
from gridops.lab.broken import Broken
from gridops.lab.disk import Platter
from gridops.lab.host import LabHost

_READ = frozenset({"intent_accepted", "root_taken", "catalog_taken"})


class Acceptance:
    """What controller and hosts have accepted so far. `follows` says whether people made a commit after another."""

    def __init__(self, platter: Platter, follows: Callable[[CommitId | None, CommitId], bool]) -> None:
        self._platter = platter
        self._follows = follows
        self._read = 0
        self._commit: CommitId | None = None
        self._roots: list[str] = []
        self._catalog = 0
        self._hosts: dict[HostId, tuple[tuple[str, ...], int]] = {}

    @property
    def commit(self) -> CommitId | None:
        """The commit in force, by the journal."""
        return self._commit

    def look(self) -> None:
        """Judge every new row. Raises Broken."""
        self._read = min(self._read, len(self._platter.rows))  # people made the journal anew
        while self._read < len(self._platter.rows):
            _, _, kind, value = self._platter.rows[self._read]
            self._read += 1
            if kind not in _READ:
                continue
            match decode(kind, value):
                case r.IntentAccepted(commit=commit):
                    if not self._follows(self._commit, commit):
                        raise Broken("S12", f"commit {commit} was accepted after {self._commit}, and does not follow")
                    self._commit = commit
                case r.RootTaken(version=version, text=text):
                    self._root(version, text)
                case r.CatalogTaken(version=version):
                    if version < self._catalog:
                        raise Broken("S12", f"catalog {version} was accepted after {self._catalog}")
                    self._catalog = version

    def forget_rows(self, *, anew: bool) -> None:
        """The journal was replaced. What was accepted stays so; one that people made anew may accept more at once."""
        self._read = 0 if anew else len(self._platter.rows)

    def on_host(self, at: LabHost) -> None:
        """What one host knows now. Raises Broken."""
        roots, floor = at.host.roots, at.host.known.floor
        before, least = self._hosts.get(at.name, ((), 0))
        if roots is not before and roots[: len(before)] != before:
            raise Broken("S12", f"{at.name} went back from root {len(before)} to {len(roots)}, or took another one")
        if len(roots) != at.host.chain.root.version:
            raise Broken("S12", f"{at.name} goes by root {at.host.chain.root.version} and knows {len(roots)}")
        if floor < least or (at.host.known.catalog is not None and at.host.known.catalog.version < least):
            raise Broken("S12", f"{at.name} went back from catalog {least} to {floor}")
        self._hosts[at.name] = roots, floor

    def _root(self, version: int, text: str) -> None:
        known = self._roots
        if version <= len(known) and known[version - 1] == text:
            return  # a journal that was made anew begins with what was known
        if version != len(known) + 1:
            raise Broken("S12", f"root {version} was accepted after {len(known)}")
        known.append(text)
