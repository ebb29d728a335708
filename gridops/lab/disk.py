"""Disks that fail at the worst moment: a journal's and a ledger's, with a crash before or after any write.

The journal model keeps rows as the bytes they would be on a disk and lets only the newest term write, like
`store.journal`; the ledger model keeps the newest memory of a host. What is kept survives every crash; what was never
written is gone with its process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gridops.base import canon
from gridops.controller.statedir import Kept
from gridops.lab.dice import Dice
from gridops.lab.strikes import Crashed, Strikes
from gridops.protocol.messages import Term
from gridops.store.errors import StaleWriter
from gridops.store.journal import START, Entry, Row, Saved
from gridops_agent.core.state import Host

_NOWHERE = Path("/lab/journal")


@dataclass(slots=True)
class Platter:
    """What a journal's disk holds."""

    rows: list[tuple[int, Term, str, bytes]] = field(default_factory=list)
    """Time, term, kind, value; the number is the place, from 1."""
    term: Term = field(default_factory=lambda: Term(epoch=0, counter=0))
    ends: list[int] = field(default_factory=list)
    """How many rows there were after each write: what is written at once is on a disk, and in a copy of it, at once."""
    saved: tuple[int, bytes] | None = None
    accepted: Kept | None = None
    """Beside the journal, and not lost with it."""
    strikes: Strikes = field(default_factory=Strikes)


class Journal:
    """One controller's hand on a platter."""

    path = _NOWHERE

    def __init__(self, platter: Platter, fate: Callable[[], bool | None]) -> None:
        """`fate` is asked at each write: None to go on, or whether the write stands before the process is gone."""
        self._platter = platter
        self._fate = fate

    def append(self, rows: Sequence[Entry], term: Term) -> int:
        platter = self._platter
        raw = [(row.at_ms, term, row.kind, row.raw) for row in rows]
        if term != platter.term:
            raise StaleWriter(f"the journal belongs to term {platter.term} now, this writer holds {term}")
        platter.strikes.step(lambda: self._write(raw))
        return len(platter.rows)

    def _write(self, raw: list[tuple[int, Term, str, bytes]]) -> None:
        fate = self._fate()
        if fate is not False:
            self._platter.rows.extend(raw)
            self._platter.ends.append(len(self._platter.rows))
        if fate is not None:
            raise Crashed(written=fate)

    def replay(self, after: int = 0) -> Iterator[Row]:
        for n, (at_ms, term, kind, value) in enumerate(self._platter.rows[after:], after + 1):
            yield Row(n, at_ms, term, kind, value, START, START)

    def take_term(self, epoch: int, above: int = 0) -> Term:
        term = Term(epoch=epoch, counter=max(self._platter.term.counter, above) + 1)

        def write() -> None:
            self._platter.term = term

        self._platter.strikes.step(write)
        return term

    def save_snapshot(self, n: int, value: Any) -> None:
        self._platter.saved = (n, canon.dumps(value))

    def latest_snapshot(self) -> Saved | None:
        saved = self._platter.saved
        return None if saved is None else Saved(saved[0], json.loads(saved[1]))


class Authority:
    """The right to write to a platter. The lock of a machine is the lab's own doing: two may believe to have it."""

    def __init__(self, journal: Journal, epoch: int) -> None:
        self.journal = journal
        self.term = journal.take_term(epoch)

    def raise_above(self, counter: int) -> Term:
        self.term = self.journal.take_term(self.term.epoch, above=counter)
        return self.term

    def renew(self, epoch: int) -> Term:
        self.term = self.journal.take_term(epoch)
        return self.term

    def close(self) -> None:
        """Nothing is held."""


class Ledger:
    """What one host's disk remembers of it."""

    def __init__(self, host: Host, dice: Dice, crash_ppm: int, strikes: Strikes) -> None:
        self.strikes = strikes
        self.kept = host
        self.crash_ppm = crash_ppm
        self.writes = 0
        self._dice = dice

    def write(self, host: Host) -> None:
        """Keep a new memory, or be gone before or after that. Raises Crashed, or Failed when the disk says no."""
        self.writes += 1
        self.strikes.step(lambda: self._write(host))

    def _write(self, host: Host) -> None:
        crash = self._dice.happens(self.crash_ppm)
        written = not crash or self._dice.happens(500_000)
        if written:
            self.kept = host
        if crash:
            raise Crashed(written)
