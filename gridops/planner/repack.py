"""Move a standing replica for a new one that has a seat but would start late there, when that pays.

The new one waits until the other serves from its new host, so both starts count; what is left of the gain must exceed
a margin, else whoever is new takes what is free at once. Called by `room` where nobody is without a seat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gridops.base.ids import ReplicaId, replica_key
from gridops.model.profile import Profile
from gridops.planner.constants_room import BETTER_HOSTS, GAIN_MS, NEWCOMERS, PUZZLE_HOSTS
from gridops.planner.grid import ENDLESS, Ints
from gridops.planner.movers import Movers, is_home
from gridops.planner.permit import Limits, Permit
from gridops.planner.seats import Seats


class Late(NamedTuple):
    """A new replica with what it could gain at most, and the better hosts (rows), best first."""

    gain_ms: int
    replica: ReplicaId
    rows: tuple[int, ...]


def late(seats: Seats) -> list[Late]:
    """New replicas that would start much sooner on another host that somebody stands on."""
    draft, grid = seats.draft, seats.grid
    grid.refresh()
    if not any(is_home(s) for s in draft.seats.values()):
        return []
    found: list[Late] = []
    for replica in sorted((r for r, s in draft.seats.items() if s.cause is not None), key=replica_key):
        seated = draft.seats[replica]
        profile = draft.world.profiles.get(seated.assignment.profile)
        row = grid.row.get(seated.assignment.seat.host)
        if profile is None or row is None:
            continue
        starts = _starts(seats, profile)
        if starts[row] - starts[starts.argmin()] < GAIN_MS:
            continue
        better = np.flatnonzero((starts + GAIN_MS <= starts[row]) & grid.holds)
        if len(better):
            first = better[np.argsort(starts[better], kind="stable")[:BETTER_HOSTS]].tolist()
            found.append(Late(int(starts[row] - starts[first[0]]), replica, tuple(first)))
    return sorted(found, key=lambda f: (-f.gain_ms, replica_key(f.replica)))[:NEWCOMERS]


def _starts(seats: Seats, profile: Profile) -> Ints:
    """How soon it would start on each host."""
    openings = seats.lasting(profile)
    if len(openings) == 1 and len(openings[0].rows) == len(seats.grid.ids):
        return openings[0].start_ms
    starts = np.full(len(seats.grid.ids), ENDLESS, np.int64)
    for opening in openings:
        starts[opening.rows] = np.minimum(starts[opening.rows], opening.start_ms)
    return starts


def rows_for(seats: Seats, found: Sequence[Late]) -> list[int]:
    """Where they stand, where they would rather stand, and the roomiest hosts for those who would have to go."""
    grid, draft = seats.grid, seats.draft
    chosen = {grid.row[draft.seats[f.replica].assignment.seat.host] for f in found} | {r for f in found for r in f.rows}
    grid.refresh()
    free = np.where(grid.open > -ENDLESS, grid.open - grid.used, 0).max(1)
    for row in np.argsort(-free, kind="stable").tolist():
        if len(chosen) >= PUZZLE_HOSTS:
            break
        chosen.add(row)
    return sorted(chosen)


class Repack:
    def __init__(self, movers: Movers, limits: Limits) -> None:
        self.movers, self.puzzle = movers, movers.puzzle
        self.permit = Permit(self.puzzle, limits)
        self.tries = 0

    def run(self, found: Sequence[Late]) -> int:
        """Seat each of them better where that pays. Returns how many hosts were tried."""
        number = {m.replica: n for n, m in enumerate(self.movers.movers)}
        host = {row: n for n, row in enumerate(self.movers.rows)}
        for one in found:
            if one.replica in number:
                self._seat(number[one.replica], [host[r] for r in one.rows])
        self.puzzle.journal.clear()
        return self.tries

    def _seat(self, n: int, hosts: Sequence[int]) -> None:
        puzzle = self.puzzle
        for host in hosts:
            self.tries += 1
            mark, before = len(puzzle.journal), puzzle.value
            if self._push_in(n, host) and self.permit.allows(mark):
                now = puzzle.value
                if now[:3] <= before[:3] and now[3] + GAIN_MS <= before[3]:
                    return
            puzzle.undo(mark)

    def _push_in(self, n: int, host: int) -> bool:
        """The new one takes a place from whoever stands there and finds another seat at once."""
        puzzle, kind = self.puzzle, self.puzzle.pieces[n].kind
        puzzle.take(n)
        out = sorted((m for m in puzzle.on[host] if puzzle.pieces[m].home is not None), key=self._burden)
        gone: list[int] = []
        while (spot := puzzle.seat(kind, host)) is None or puzzle.breaks(kind, host):
            if not out:
                return False
            gone.append(out.pop(0))
            puzzle.take(gone[-1])
        puzzle.put(n, spot)
        for m in gone:
            number = puzzle.pieces[m].kind
            # It comes up elsewhere before the new one gets its place.
            there = [h for h in puzzle.roomy(0) if h != host]
            new = puzzle.best(number, there)
            if new is None:
                return False
            puzzle.put(m, new)
        return True

    def _burden(self, n: int) -> tuple[int, int, int]:
        """Who is moved first: whoever is quickest to start again, then by claim."""
        piece = self.puzzle.pieces[n]
        return piece.back_ms, piece.claim, n
