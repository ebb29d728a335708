"""The one writer: rows become state and then durable, in this order and in one step of the loop.

`record` folds and buffers, `flush` appends what was buffered in one transaction. Nothing may leave the process between
the two, so the loop never waits in between. If the journal cannot be written the process is finished: what it holds in
memory is then more than it may claim, and `Lost` is raised to end it. Called only from the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from gridops.base.errors import BadSetup, EdgeError
from gridops.base.record import Malformed
from gridops.controller.core.fold import fold
from gridops.controller.core.pack import pack, unpack
from gridops.controller.core.row_kinds import decode, encode, kind_of
from gridops.controller.core.rows import Row
from gridops.controller.core.state import State
from gridops.protocol.messages import Term
from gridops.store.authority import Authority
from gridops.store.errors import Damaged, TooLarge
from gridops.store.face import Right
from gridops.store.journal import Entry, Saved
from gridops.store.journal import Row as Journalled

Watcher = Callable[[int, Row, int], None]
"""Told of every durable row with its number and time, at replay and after each flush; it only looks."""


SNAPSHOT_ROWS = 5_000
"""A snapshot so often: a start replays at most this many rows, well below a second."""
NEWER = "start the gridops version that wrote it, or a newer one"
LESS = "declare less in one scope: split it in policies and fleet.d, or revert the newest commit"
REBUILD = "or make the controller's memory anew, which restarts no engine: gridops controller rebuild"


class Lost(EdgeError):
    """The journal cannot be written. The controller stops at once and issues nothing more."""

    exit_code = 1


class Stuck(Lost):
    """A row can never become part of the journal: a controller that started anew would come to it again at once."""

    exit_code = BadSetup.exit_code


class Writer:
    """Holds the write authority, the journal and the state that is its fold."""

    def __init__(self, authority: Right, watcher: Watcher | None = None) -> None:
        self.state = State()
        self._authority = authority
        self._watcher = watcher
        self._buffer: list[Entry] = []
        self._untold: list[tuple[Row, int]] = []
        self._n = 0
        self._saved = 0
        self.newest_ms = 0
        """Time of the newest row: what controller time never goes back behind."""
        self._lost: Lost | None = None

    @property
    def term(self) -> Term:
        return self._authority.term

    @property
    def length(self) -> int:
        """Number of the newest row."""
        return self._n

    @property
    def whole(self) -> bool:
        """What is in memory is what is durable: no row waits, and none was taken in by half."""
        return not self._buffer and self._lost is None

    def replay(self) -> int:
        """Fold what the journal holds, from its newest snapshot on; the number of its newest row.

        A row or a snapshot of a newer program stops the start, and so does one that cannot be taken in: BadSetup.
        """
        journal = self._authority.journal
        saved = journal.latest_snapshot()
        if saved is not None:
            self._restore(saved)
        for row in journal.replay(self._n):
            known = self._known(row)
            try:
                fold(self.state, known, row.at_ms, row.term)
            except Exception as fault:
                raise self._unusable(row.n, _cannot(row.kind, fault)) from fault
            self._tell(row.n, known, row.at_ms)
            self._n = row.n
        self.state.term = self.term
        return self._n

    def record(self, rows: Iterable[Row], at_ms: int) -> int:
        """Let rows have happened; how many. They are durable after `flush` and must not be spoken of before."""
        count = 0
        for row in rows:
            entry = Entry(kind_of(row), at_ms, encode(row))
            try:
                fold(self.state, row, at_ms, self.term)
            except Exception as fault:
                # Half a row is in the state now; what is durable is whole, and would lead here again.
                what = self._row(self._n + len(self._buffer) + 1, _cannot(entry.kind, fault))
                self._lost = Stuck(what, hints=(NEWER, REBUILD))
                raise self._lost from fault
            self._buffer.append(entry)
            self._untold.append((row, at_ms))
            self.newest_ms = max(self.newest_ms, at_ms)
            count += 1
        return count

    def flush(self) -> None:
        """Make everything recorded durable, or end."""
        if self._lost is not None:
            raise self._lost
        if not self._buffer:
            return
        before = self._n
        try:
            self._n = self._authority.journal.append(self._buffer, self.term)
            for n, (row, at_ms) in enumerate(self._untold, before + 1):
                self._tell(n, row, at_ms)
            if self._n - self._saved >= SNAPSHOT_ROWS:
                self._save()
        except TooLarge as error:
            self._lost = Stuck(self._row(self._n + error.at + 1, error.message), hints=(LESS, REBUILD))
            raise self._lost from error
        except EdgeError as error:
            raise self._unwritten(error) from error
        self._buffer.clear()
        self._untold.clear()

    def rise(self, counter: int) -> None:
        """Take a term above what hosts remember: only for a controller that people rebuilt."""
        self._take(lambda: self._authority.raise_above(counter))

    def new_epoch(self, epoch: int) -> None:
        """Take a term of a newer epoch, after people rotated the controller's key."""
        self._take(lambda: self._authority.renew(epoch))

    def _take(self, term: Callable[[], Term]) -> None:
        """Another term: a write like any other, and whoever cannot make it writes nothing more."""
        self.flush()
        try:
            self.state.term = term()
        except EdgeError as error:
            raise self._unwritten(error) from error

    def _unwritten(self, error: EdgeError) -> Lost:
        what = f"the journal cannot be written, so nothing more is issued: {error.message}"
        self._lost = Lost(what, hints=error.hints)
        return self._lost

    def close(self) -> None:
        self._authority.close()

    def _save(self) -> None:
        value = {"at_ms": self.newest_ms, **pack(self.state)}
        self._authority.journal.save_snapshot(self._n, value)
        self._saved = self._n

    def _restore(self, saved: Saved) -> None:
        try:
            self.state = unpack(saved.value)
            self.newest_ms = saved.value["at_ms"]
        except (Malformed, LookupError, TypeError, ValueError) as error:
            raise self._unusable(saved.n, f"the snapshot after it cannot be read: {error}") from error
        self._n = self._saved = saved.n

    def _known(self, row: Journalled) -> Row:
        try:
            known = decode(row.kind, row.raw)
        except Malformed as error:
            raise self._unusable(row.n, _cannot(row.kind, error)) from error
        if known is None or row.n != self._n + 1:
            what = f"this version knows no kind `{row.kind}`" if known is None else "rows before it are missing"
            raise self._unusable(row.n, what)
        return known

    def _unusable(self, n: int, what: str) -> BadSetup:
        return BadSetup(self._row(n, what), hints=(NEWER, REBUILD))

    def _row(self, n: int, what: str) -> str:
        return f"{self._authority.journal.path} row {n}: {what}"

    def _tell(self, n: int, row: Row, at_ms: int) -> None:
        self.newest_ms = max(self.newest_ms, at_ms)
        if self._watcher is not None:
            self._watcher(n, row, at_ms)


def _cannot(kind: str, fault: Exception) -> str:
    return f"a `{kind}` cannot be taken in ({type(fault).__name__}: {fault})"


def open_authority(directory: Path, epoch: int) -> tuple[Right, str | None]:
    """The write authority of a state folder; with the reason when a damaged journal was set aside on the way."""
    try:
        return Authority.open(directory, epoch), None
    except Damaged as damaged:
        return Authority.open(directory, epoch), f"the journal was damaged and is kept as {damaged.kept}"
