"""The controller's journal: what was decided and what was heard, in order, each row chained to the one before it.

The controller's shell appends before it sends or acknowledges anything, and replays it at its start; state is never
stored beside it except as a snapshot from which replay may begin. Rows are written in one transaction under the
writer's term: once a newer writer has taken its term, the older one's append fails and nothing is written.

A journal that cannot be written must stop the controller: after `Failed` no further append is tried, because what is
on the disk is then uncertain. Nothing here knows what the values mean.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from gridops.base import canon, limits
from gridops.base.errors import BadSetup, Bug, Busy, DiskFault, Failed, NoRoom
from gridops.base.ids import Digest
from gridops.disk.moored import Moored
from gridops.protocol.messages import Term
from gridops.store.database import NotWhole, checkpoint, connect, quarantine, refused, transaction
from gridops.store.errors import StaleWriter, TooLarge

MIGRATIONS = (
    """
    CREATE TABLE rows (
        n INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, epoch INTEGER NOT NULL, counter INTEGER NOT NULL,
        kind TEXT NOT NULL, value BLOB NOT NULL, digest TEXT NOT NULL
    ) STRICT;
    CREATE TABLE snapshots (n INTEGER PRIMARY KEY, value BLOB NOT NULL, digest TEXT NOT NULL) STRICT;
    CREATE TABLE guard (
        one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL, counter INTEGER NOT NULL,
        first INTEGER NOT NULL, before TEXT NOT NULL, last INTEGER NOT NULL, tip TEXT NOT NULL, digest TEXT NOT NULL
    ) STRICT;
    """,
)
START = Digest("sha256:" + "0" * 64)
"""What the first row of a journal names as the one before."""
_KIND = re.compile(r"[a-z][a-z0-9_.-]{0,62}")
_PAGE = 500
_TRIM = 10_000


@dataclass(frozen=True, slots=True)
class Entry:
    """What a caller appends. `value` is plain values, or what `to_bytes` wrote of a record."""

    kind: str
    at_ms: int
    value: Any

    @property
    def raw(self) -> bytes:
        """The canonical bytes that are kept. Raises NotCanonical."""
        return self.value if isinstance(self.value, bytes) else canon.dumps(self.value)


@dataclass(frozen=True, slots=True)
class Row:
    """One journalled entry, verified against the chain."""

    n: int
    at_ms: int
    term: Term
    kind: str
    raw: bytes
    prev: Digest
    digest: Digest

    @property
    def value(self) -> Any:
        return json.loads(self.raw)


@dataclass(frozen=True, slots=True)
class Saved:
    """A snapshot: the caller's state after row `n`."""

    n: int
    value: Any


@dataclass(frozen=True, slots=True)
class _Guard:
    """Who may write, and which rows there are: `before` is the digest of the row before `first`, `tip` of `last`."""

    term: Term
    first: int
    before: Digest
    last: int
    tip: Digest

    def digest(self) -> Digest:
        return canon.digest([self.term.epoch, self.term.counter, self.first, self.before, self.last, self.tip])


class Journal:
    """One open journal. Safe to use from several threads; a transaction is one call."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.term: Term | None = None
        """Taken by `take_term`."""
        self._connection = connection
        self._lock = threading.Lock()
        self._broken: Exception | None = None
        self._moored = Moored(path, path.with_name(path.name + "-wal"))

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Open or begin a journal, and check it. Raises Damaged (saying where it is kept), Busy, BadSetup or Failed."""
        path = Path(path)
        journal = None
        try:
            journal = cls(path, connect(path, MIGRATIONS))
            with journal._reading(NotWhole):
                journal._verify()
        except BaseException as error:
            if journal is not None:
                journal.close()
            if isinstance(error, NotWhole):
                raise quarantine(path, str(error)) from error
            raise
        return journal

    @property
    def head(self) -> int:
        """Number of the newest row; 0 when there is none: an empty journal knows nothing, so nothing is sure."""
        with self._reading(Failed), self._lock:
            return self._guard().last

    def append(self, rows: Sequence[Entry], term: Term) -> int:
        """Write all rows or none, durably; the number of the newest. Raises StaleWriter, TooLarge, Busy or Failed."""
        values = [_value(row, at) for at, row in enumerate(rows)]
        with self._lock:
            try:
                with self._writing_as(term, "journal.append") as connection:
                    guard = self._guard()
                    n, prev = guard.last, guard.tip
                    for row, value in zip(rows, values, strict=True):
                        n += 1
                        prev = _row_digest(n, row.at_ms, term, row.kind, value, prev)
                        connection.execute(
                            "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)",
                            (n, row.at_ms, term.epoch, term.counter, row.kind, value, prev),
                        )
                    self._put(replace(guard, last=n, tip=prev))
                return n
            except (sqlite3.Error, NotWhole) as error:
                self._stop(error, "write")

    def replay(self, after: int = 0) -> Iterator[Row]:
        """Rows behind number `after`, oldest first, each checked against the chain. Raises Failed."""
        with self._reading(Failed):
            yield from self._read(after)

    def take_term(self, epoch: int, above: int = 0) -> Term:
        """The next term of an epoch, durable from now on; whoever held one before can write no more.

        The counter rises at every call and is above `above`: a rebuilt controller must outrank what hosts remember.
        """
        with self._lock:
            try:
                with self._writing("journal.term"):
                    guard = self._guard()
                    if epoch < guard.term.epoch:
                        raise BadSetup(
                            f"{self.path} was written in controller epoch {guard.term.epoch}, the root says {epoch}",
                            hints=("the newest root document is missing: fetch it before starting the controller",),
                        )
                    term = Term(epoch=epoch, counter=max(guard.term.counter, above) + 1)
                    self._put(replace(guard, term=term))
            except (sqlite3.Error, NotWhole) as error:
                self._stop(error, "write")
            self.term = term
            return term

    def save_snapshot(self, n: int, value: Any) -> None:
        """Keep the state after row `n`, and forget what lies beyond the bounds. Needs a term."""
        if self.term is None:
            raise Bug("a snapshot is saved before a term was taken")
        raw = canon.dumps(value)
        with self._lock:
            try:
                with self._writing_as(self.term, "journal.snapshot") as connection:
                    row = self._digest_of(n, self._guard())
                    if n < 1 or row is None:
                        raise Bug(f"a snapshot after row {n}, which does not exist")
                    digest = _snapshot_digest(n, row, raw)
                    connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (n, raw, digest))
                    self._forget()
                checkpoint(self._connection)
            except (sqlite3.Error, NotWhole) as error:
                self._stop(error, "write")

    def latest_snapshot(self) -> Saved | None:
        """The newest snapshot; replay begins behind its `n`. Raises Failed if it does not verify."""
        with self._reading(Failed), self._lock:
            return self._snapshot()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def _reading(self, damage: type[Exception]) -> Iterator[None]:
        try:
            yield
        except NotWhole as error:
            if damage is NotWhole:
                raise
            raise damage(f"the journal {self.path} is damaged: {error}") from error
        except sqlite3.Error as error:
            raise refused(error, "read", self.path, damage) from error

    @contextlib.contextmanager
    def _writing(self, what: str) -> Iterator[sqlite3.Connection]:
        if self._broken is not None:
            kind = type(self._broken) if isinstance(self._broken, NoRoom | DiskFault) else Failed
            raise kind(f"nothing more is written to {self.path} since it failed: {self._broken}")
        adrift = self._moored.adrift()
        if adrift is not None:
            gone = f"{adrift} was deleted or replaced while this controller writes it"
            self._broken = Failed(
                f"{gone}: what is promised now would be lost at its end",
                hints=("make it anew, no engine restarts: gridops controller rebuild",),
            )
            raise self._broken
        with transaction(self._connection, what) as connection:
            yield connection

    @contextlib.contextmanager
    def _writing_as(self, term: Term, what: str) -> Iterator[sqlite3.Connection]:
        """A transaction that goes on only if `term` is still the newest; asked inside it, so nobody comes between."""
        with self._writing(what) as connection:
            held = self._guard().term
            if held != term:
                raise StaleWriter(
                    f"{self.path} belongs to term {held.epoch}.{held.counter} now, "
                    f"this writer holds {term.epoch}.{term.counter}",
                    hints=("another controller has taken over; this one issues nothing more",),
                )
            yield connection

    def _stop(self, error: Exception, what: str) -> NoReturn:
        told = refused(error, what, self.path) if isinstance(error, sqlite3.Error) else None
        told = told or Failed(f"the journal {self.path} is damaged: {error}")
        if not isinstance(told, Busy):
            self._broken = told
        raise told from error

    def _guard(self) -> _Guard:
        query = "SELECT epoch, counter, first, before, last, tip, digest FROM guard"
        found = self._connection.execute(query).fetchone()
        if found is None:
            return _Guard(Term(epoch=0, counter=0), 1, START, 0, START)
        guard = _Guard(Term(epoch=found[0], counter=found[1]), *found[2:6])
        if guard.digest() != found[6]:
            raise NotWhole("its guard row does not match its digest")
        return guard

    def _digest_of(self, n: int, guard: _Guard) -> Digest | None:
        if n == guard.first - 1:
            return guard.before
        found = self._connection.execute("SELECT digest FROM rows WHERE n = ?", (n,)).fetchone()
        return found[0] if found is not None else None

    def _put(self, guard: _Guard) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO guard VALUES (1, ?, ?, ?, ?, ?, ?, ?)",
            (
                guard.term.epoch,
                guard.term.counter,
                guard.first,
                guard.before,
                guard.last,
                guard.tip,
                guard.digest(),
            ),
        )

    def _snapshot(self) -> Saved | None:
        query = "SELECT n, value, digest FROM snapshots ORDER BY n DESC LIMIT 1"
        found = self._connection.execute(query).fetchone()
        if found is None:
            return None
        n, raw, digest = found
        row = self._digest_of(n, self._guard())
        if row is None or digest != _snapshot_digest(n, row, raw):
            raise NotWhole(f"the snapshot after row {n} does not match its digest")
        return Saved(n, json.loads(raw))

    def _read(self, after: int) -> Iterator[Row]:
        with self._lock:
            guard = self._guard()
            n = max(after, guard.first - 1)
            prev = self._digest_of(n, guard)
        while prev is not None:
            with self._lock:
                page = self._connection.execute(
                    "SELECT n, at_ms, epoch, counter, kind, value, digest FROM rows WHERE n > ? ORDER BY n LIMIT ?",
                    (n, _PAGE),
                ).fetchall()
            for number, at_ms, epoch, counter, kind, raw, digest in page:
                term = Term(epoch=epoch, counter=counter)
                if digest != _row_digest(number, at_ms, term, kind, raw, prev):
                    raise NotWhole(f"row {number} does not follow row {n}")
                yield Row(number, at_ms, term, kind, raw, prev, digest)
                n, prev = number, digest
            if len(page) < _PAGE:
                return

    def _verify(self) -> None:
        snapshot, guard = self._snapshot(), self._guard()
        short = snapshot is None or guard.last - guard.first < limits.JOURNAL_ROWS_CHECKED
        last = guard.first - 1 if short or snapshot is None else snapshot.n
        tip = self._digest_of(last, guard)
        for row in self._read(last):
            last, tip = row.n, row.digest
        if (last, tip) != (guard.last, guard.tip):
            raise NotWhole(f"its rows end with number {last}, the guard row says {guard.last}")

    def _forget(self) -> None:
        """Inside a transaction: old snapshots, and rows that neither a snapshot nor the bound keeps."""
        kept = self._connection.execute(
            "SELECT n FROM snapshots ORDER BY n DESC LIMIT ?", (limits.SNAPSHOTS_KEPT,)
        ).fetchall()
        oldest = kept[-1][0]
        self._connection.execute("DELETE FROM snapshots WHERE n < ?", (oldest,))
        guard = self._guard()
        last = min(guard.last - limits.JOURNAL_ROWS_KEPT, oldest - 1, guard.first + _TRIM)
        if last < guard.first:
            return
        before = self._digest_of(last, guard)
        if before is None:
            raise NotWhole(f"row {last} is missing")
        self._connection.execute("DELETE FROM rows WHERE n <= ?", (last,))
        self._put(replace(guard, first=last + 1, before=before))


def _value(entry: Entry, at: int) -> bytes:
    if _KIND.fullmatch(entry.kind) is None:
        raise Bug(f"`{entry.kind}` is not a kind of journal row")
    raw = entry.raw
    if len(raw) > limits.JOURNAL_VALUE_BYTES:
        raise TooLarge(at, entry.kind, len(raw), limits.JOURNAL_VALUE_BYTES)
    return raw


def _row_digest(n: int, at_ms: int, term: Term, kind: str, value: bytes, prev: str) -> Digest:
    # The kind holds no character that JSON would escape, so this is the canonical form, at a tenth of its price.
    head = f'{{"at_ms":{at_ms},"counter":{term.counter},"epoch":{term.epoch},"kind":"{kind}","n":{n},"prev":"{prev}"}}'
    return canon.digest_bytes(head.encode() + b"\n" + value)


def _snapshot_digest(n: int, row: str, raw: bytes) -> Digest:
    return canon.digest_bytes(f'{{"n":{n},"row":"{row}"}}\n'.encode() + raw)
