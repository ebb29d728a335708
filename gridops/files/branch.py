"""One branch that gridops writes by itself: new commits through plumbing, moved by compare-and-swap.

Called by `files.projection` only. It must never touch a person's branch, run a merge, or lose a file another writer
added: each try starts again from the newest tip, and a lost race is tried again a bounded number of times.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gridops.base.errors import Busy, Failed
from gridops.base.ids import CommitId
from gridops.files.git import Checkout
from gridops.files.git_follow import Followed, follow, place_of
from gridops.files.git_run import Ran, ask, first_line, run

TRIES = 8
AUTHOR = "gridops"
EMAIL = "gridops@localhost"
"""Fixed, so that equal plans on equal parents are equal commits on every machine."""
_NOTHING = "0" * 40


@dataclass(frozen=True, slots=True)
class Writing:
    """Files to add or replace in one commit. `at_ms` dates it; None takes the date of the commit before."""

    files: Mapping[str, bytes]
    message: str
    at_ms: int | None = None


class Branch:
    """A branch by name. It need not exist yet."""

    def __init__(self, checkout: Checkout, name: str) -> None:
        if name.startswith("-") or run(checkout.where, "check-ref-format", f"refs/heads/{name}").status != 0:
            raise Failed(f"`{name}` is no name for a branch")
        self.checkout = checkout
        self.name = name
        self.ref = f"refs/heads/{name}"

    def newest(self) -> CommitId | None:
        """The newest tip known here, local or as a remote was last seen: for readers.

        Ancestry decides; dates only where histories are unrelated (they are those of the content, and may run back).
        """
        patterns = (self.ref, f"refs/gridops/fetched/{self.name}", f"refs/remotes/*/{self.name}")
        form = "--format=%(committerdate:unix) %(objectname)"
        found = [line.split() for line in ask(self.checkout.where, "for-each-ref", form, *patterns).text.splitlines()]
        best, best_date = self.local(), -1
        for date, name in found:
            tip = CommitId(name)
            if tip == best:
                best_date = int(date)
        for date, name in found:
            tip = CommitId(name)
            if best is None or (tip != best and self._newer(tip, int(date), best, best_date)):
                best, best_date = tip, int(date)
        return best

    def _newer(self, tip: CommitId, date: int, best: CommitId, best_date: int) -> bool:
        if self.checkout.is_ancestor(best, tip):
            return True
        return date > best_date and not self.checkout.is_ancestor(tip, best)

    def local(self) -> CommitId | None:
        return self.checkout.resolve(self.ref)

    def commit(self, writing: Writing, *, orphan: bool = False) -> CommitId | None:
        """Write one commit on the tip (or without parents). None when the tip holds exactly these files already.

        Where the branch does not exist, its history goes on from what a remote is known to have. Raises Busy when
        others kept moving the branch, Failed when a person's uncommitted work on these very files is in the way.
        """
        last = ""
        for _ in range(TRIES):
            local = self.local()
            tip = local or self.newest()
            tree = self._tree(tip, writing.files)
            if tip is not None and tree == self._tree_of(tip):
                return None
            made = self._make(tree, None if orphan else tip, self._date(writing, tip), writing.message)
            moved = self._move(made, local, writing.files)
            if moved.status == 0:
                return made
            last = first_line(moved.err)
        raise Busy(f"branch {self.name} kept moving; gave up after {TRIES} tries: {last}")

    def _move(self, made: CommitId, old: CommitId | None, files: Mapping[str, bytes]) -> Ran:
        """Compare-and-swap of the ref; a work tree that shows the branch is brought along, or put back."""
        place = place_of(self.checkout.where, self.ref)
        followed: Followed | None = None if place is None else follow(place, old, files)
        moved = run(self.checkout.where, "update-ref", "-m", "gridops", self.ref, made, old or _NOTHING)
        if moved.status != 0:
            if followed is not None:
                followed.undo()
            if not any(sign in moved.err for sign in ("but expected", "already exists", "unable to resolve", ".lock")):
                raise Failed(f"branch {self.name}: {first_line(moved.err)}")
        return moved

    def _tree(self, tip: CommitId | None, files: Mapping[str, bytes]) -> str:
        where = self.checkout.where
        lines = []
        for path in sorted(files):
            oid = ask(where, "hash-object", "-w", "--stdin", "--no-filters", stdin=files[path]).text
            lines.append(f"100644 {oid}\t{path}\0")
        with tempfile.TemporaryDirectory(prefix="gridops-index-") as folder:
            env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            ask(where, "read-tree", tip if tip is not None else "--empty", env=env)
            ask(where, "update-index", "-z", "--index-info", stdin="".join(lines).encode(), env=env)
            return ask(where, "write-tree", env=env).text

    def _tree_of(self, commit: CommitId) -> str:
        return ask(self.checkout.where, "rev-parse", "--verify", commit + "^{tree}").text

    def _date(self, writing: Writing, tip: CommitId | None) -> int:
        if writing.at_ms is not None:
            return writing.at_ms // 1000
        return 0 if tip is None else self.checkout.committed_ms(tip) // 1000

    def _make(self, tree: str, parent: CommitId | None, at_s: int, message: str) -> CommitId:
        env = {
            f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", AUTHOR), ("EMAIL", EMAIL), ("DATE", f"@{at_s} +0000"))
        }
        parents = () if parent is None else ("-p", parent)
        args = ("commit-tree", tree, *parents, "-F", "-")
        return CommitId(ask(self.checkout.where, *args, stdin=message.encode() + b"\n", env=env).text)
