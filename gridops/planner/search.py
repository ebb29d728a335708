"""Local search over a puzzle: empty a few related hosts, fill them again in another order, keep what is not worse.

Large neighbourhood search (Shaw, "Using Constraint Programming and Local Search Methods to Solve Vehicle Routing
Problems", CP 1998), with chains as a special case: what is taken from one host may land on any other. Work is counted
in rounds, never in seconds, and chance is a counter of its own, so that the same puzzle gives the same answer
everywhere. Called by `improve`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gridops.base.units import PPM
from gridops.planner.puzzle import Puzzle, Spot

_MULTIPLIER, _INCREMENT, _MASK = 6_364_136_223_846_793_005, 1_442_695_040_888_963_407, (1 << 64) - 1


WORSE_PPM = 20_000
"""How much of all weight may be unmet beyond the best known state, at the beginning; falls to nothing at the end."""

UNMET_PPM = 500_000
"""Share of the rounds that go into unmet weight; the rest goes into start-up time."""

SLOWER_PPM = 20_000
"""How much slower than the best known state the start may be, in the second part; falls to nothing at the end."""

WEIGHT_MS = 10_000
"""How much start-up time a unit of weight is worth while the search goes through worse states."""

STALE = 150
"""Rounds without a new best after which the search returns to it."""


class Draws:
    """Numbers that look random and never change: a linear congruential generator (Knuth, TAOCP 2, 3.3.4)."""

    def __init__(self) -> None:
        self._state = 0x9E3779B97F4A7C15

    def below(self, bound: int) -> int:
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        return (self._state >> 33) % bound


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be tried, and how much may be disturbed."""

    rounds: int
    moves: int
    """Standing pieces that may be moved or dropped altogether."""
    drops: int


class Search:
    """One search. `run` leaves the puzzle in the best state found and returns the rounds used."""

    def __init__(self, puzzle: Puzzle, limits: Limits) -> None:
        self.puzzle, self.limits, self.draws = puzzle, limits, Draws()
        self.hosts = len(puzzle.ground.slots)
        self.size = [self._size(k) for k in range(len(puzzle.kinds))]
        self.where = [sorted(k.options) for k in puzzle.kinds]
        self._room = np.zeros(self.hosts, np.int64)
        self._allowed = np.zeros((len(puzzle.kinds), self.hosts), np.bool_)
        for number, hosts in enumerate(self.where):
            self._allowed[number, hosts] = True
        for host in range(self.hosts):
            self._note(host)

    def run(self) -> int:
        """Rounds of destroying and repairing until they are used up or nothing is left to wish for."""
        puzzle, rounds = self.puzzle, self.limits.rounds
        best, record = list(puzzle.at), puzzle.value
        worth = sum(puzzle.kinds[p.kind].weight for p in puzzle.pieces)
        number, stale, first = 0, 0, rounds * UNMET_PPM // PPM
        while number < rounds and (puzzle.unmet or puzzle.start_ms):
            # Record-to-record travel: the current state may be a little worse than the best, less and less so; at first
            # in unmet weight, later in start-up time.
            if number < first and record[1]:
                worse = worth * WORSE_PPM * (first - number) // (first * PPM)
                allowed = (record[0], (record[1] + worse) * WEIGHT_MS + record[2])
            else:
                left = (rounds - number) * PPM // (rounds - first + 1)
                slower = record[2] * SLOWER_PPM // PPM * min(left, PPM) // PPM
                allowed = (record[0], record[1] * WEIGHT_MS + record[2] + slower)
            self._round(number >= first or number % 4 == 3, allowed)
            number += 1
            stale += 1
            if puzzle.value < record and not puzzle.deadlocked():
                best, record, stale = list(puzzle.at), puzzle.value, 0
            elif stale == STALE:
                self._restore(best)
                stale = 0
        self._restore(best)
        return number

    def _restore(self, best: list[Spot | None]) -> None:
        puzzle = self.puzzle
        changed = [n for n, spot in enumerate(puzzle.at) if spot is not best[n]]
        for n in changed:
            if puzzle.at[n] is not None:
                puzzle.take(n)
        for n in changed:
            if (spot := best[n]) is not None:
                puzzle.put(n, spot)
        puzzle.journal.clear()
        for host in range(self.hosts):
            self._note(host)

    def _round(self, costly: bool, ceiling: tuple[int, int]) -> None:
        puzzle = self.puzzle
        loose = [n for n, spot in enumerate(puzzle.at) if spot is None]
        before, mark = puzzle.value, len(puzzle.journal)
        chosen = self._choose(costly, loose)
        removed = sorted(n for host in chosen for n in puzzle.on[host])
        for n in removed:
            puzzle.take(n)
        for host in chosen:
            self._note(host)
        self._repair(removed + self._callers(loose, chosen), set(chosen), costly)
        good = puzzle.value <= before or (puzzle.short, puzzle.unmet * WEIGHT_MS + puzzle.start_ms) < ceiling
        if good and self._permitted(mark):
            puzzle.journal.clear()
            return
        touched = {s.host for n, _ in puzzle.journal[mark:] if (s := puzzle.at[n]) is not None} | set(chosen)
        puzzle.undo(mark)
        for host in sorted(touched):
            self._note(host)

    # -- destroy -----------------------------------------------------------------------------------------------------

    def _choose(self, costly: bool, loose: list[int]) -> list[int]:
        """A host that a loose (or costly) piece could use, and others that its residents could use."""
        puzzle, draws = self.puzzle, self.draws
        pool = loose
        if costly or not loose:
            pool = [n for n, s in enumerate(puzzle.at) if s is not puzzle.pieces[n].home] or loose
        wanted = pool[draws.below(len(pool))]
        piece, now = puzzle.pieces[wanted], puzzle.at[wanted]
        first = piece.home.host if piece.home is not None and draws.below(2) else self._one_of(self.where[piece.kind])
        if first is None:
            return []
        chosen = [first]
        if costly and now is not None and now.host != first:
            chosen.append(now.host)
        for _ in range(1 + draws.below(3)):
            residents = sorted(puzzle.on[chosen[draws.below(len(chosen))]])
            resident = residents[draws.below(len(residents))] if residents else wanted
            other = self._one_of(self.where[puzzle.pieces[resident].kind])
            if other is not None and other not in chosen:
                chosen.append(other)
        return chosen

    def _one_of(self, hosts: list[int]) -> int | None:
        return hosts[self.draws.below(len(hosts))] if hosts else None

    def _callers(self, loose: list[int], chosen: list[int]) -> list[int]:
        """Loose pieces that could use one of the hosts."""
        kinds = {k for k in range(len(self.puzzle.kinds)) if any(self._allowed[k, h] for h in chosen)}
        return [n for n in loose if self.puzzle.pieces[n].kind in kinds]

    # -- repair ------------------------------------------------------------------------------------------------------

    def _repair(self, pieces: list[int], chosen: set[int], costly: bool) -> None:
        """Greedy, in an order that differs from round to round: by weight, by weight for its size, or by size."""
        puzzle, draws = self.puzzle, self.draws
        way = draws.below(4)
        keyed = []
        for n in pieces:
            kind = puzzle.pieces[n].kind
            weight, size = puzzle.kinds[kind].weight, self.size[kind]
            base = (weight << 40) // size if way < 2 else weight << 20 if way == 2 else size
            luck = 768 + draws.below(512)
            keyed.append((-(base * luck >> 10), n))
        tight = not costly and draws.below(2) == 0
        failed: set[int] = set()
        for _, n in sorted(keyed):
            kind = puzzle.pieces[n].kind
            if kind in failed and puzzle.pieces[n].home is None:
                continue
            spot = self._seat(n, chosen, tight)
            if spot is None:
                failed.add(kind)
                continue
            puzzle.put(n, spot)
            self._note(spot.host)

    def _seat(self, n: int, chosen: set[int], tight: bool) -> Spot | None:
        puzzle = self.puzzle
        kind = puzzle.pieces[n].kind
        best: Spot | None = None
        least: tuple[int, ...] = ()
        for host in self._open(n, kind, chosen):
            spot = puzzle.fits(n, host)
            if spot is None or puzzle.breaks(kind, host):
                continue
            home = spot is puzzle.pieces[n].home
            start = 0 if home else spot.option.start_ms
            left = puzzle.ground.free[host][spot.pools[0]] - spot.option.need
            key = (not home, left >> 28, start, host) if tight else (start, left, host)
            if best is None or key < least:
                best, least = spot, key
        return best

    def _open(self, n: int, kind: int, chosen: set[int]) -> Iterator[int]:
        """Hosts that may have room: those just emptied, and any other whose largest pool is large enough."""
        home = self.puzzle.pieces[n].home
        if home is not None:
            yield home.host
        able = self._allowed[kind] & (self._room >= self.size[kind])
        for host in np.flatnonzero(able).tolist():
            if home is None or host != home.host:
                yield host

    def _note(self, host: int) -> None:
        ground = self.puzzle.ground
        self._room[host] = max(ground.free[host], default=0) if ground.slots[host] > 0 else -1

    def _size(self, kind: int) -> int:
        """Bytes the kind takes at least on a pool."""
        return max(1, min((o.need for options in self.puzzle.kinds[kind].options.values() for o in options), default=1))

    # -- rules about what is disturbed -------------------------------------------------------------------------------

    def _permitted(self, mark: int) -> bool:
        """Nobody loses the place for somebody who is not more important, and not too many are disturbed at once."""
        puzzle, limits = self.puzzle, self.limits
        if puzzle.moved > limits.moves or puzzle.dropped > limits.drops:
            return False
        touched = {n for n, _ in puzzle.journal[mark:]}
        gone = [n for n in touched if puzzle.at[n] is None and puzzle.pieces[n].home is not None]
        if not gone:
            return True
        if any(puzzle.pieces[n].stays for n in gone):
            return False
        weights = [puzzle.kinds[puzzle.pieces[n].kind].weight for n in range(len(puzzle.at)) if self._arrived(n)]
        most = max(weights, default=0)
        if any(puzzle.kinds[puzzle.pieces[n].kind].weight >= most for n in gone):
            return False
        return all(self._served(n) for n in gone)

    def _arrived(self, n: int) -> bool:
        return self.puzzle.pieces[n].home is None and self.puzzle.at[n] is not None

    def _served(self, n: int) -> bool:
        """The piece serves nobody, or another of its kind that serves goes on standing."""
        puzzle, kind = self.puzzle, self.puzzle.pieces[n].kind
        if not puzzle.pieces[n].serves or kind in puzzle.anchored:
            return True
        return any(p.kind == kind and p.serves and puzzle.at[m] is not None for m, p in enumerate(puzzle.pieces))
