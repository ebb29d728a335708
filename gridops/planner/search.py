"""Local search over a puzzle: empty a few related hosts, fill them again in another order, keep what is not worse.

Large neighbourhood search (Shaw, "Using Constraint Programming and Local Search Methods to Solve Vehicle Routing
Problems", CP 1998) after a direct phase (`chains`), with record-to-record acceptance (Dueck, "New optimization
heuristics", J. Comp. Phys. 104, 1993). Work is counted in rounds, never in seconds, and chance is a counter of its own,
so that the same puzzle gives the same answer everywhere. Rounds come in cycles whose length follows from the puzzle
alone: more rounds go on where fewer have stopped, and are never worse. Called by `room`.
"""

from __future__ import annotations

from gridops.base.units import PPM
from gridops.planner.best_case import least_unmet
from gridops.planner.chains import Chains
from gridops.planner.circles import deadlocked
from gridops.planner.permit import Limits, Permit
from gridops.planner.puzzle import Puzzle

_MULTIPLIER, _INCREMENT, _MASK = 6_364_136_223_846_793_005, 1_442_695_040_888_963_407, (1 << 64) - 1

ROUNDS_PER_MOVE = 4
"""Rounds that one move of `planning.search.moves` pays for."""

FIRST = 4
"""Rounds for each piece in the first cycle, eight times as many for one that stands: there the way to something better
leads through states that are not allowed. Each later cycle is twice as long, and begins only if the last brought
something."""

SHORTEST, LONGEST = 260, 3_200
"""Rounds of a cycle at least and at most."""

WORSE = 2
"""How many of the heaviest pieces may be unmet beyond the best known state when a cycle begins; falls to nothing."""

SLOWER_PPM = 20_000
"""How much slower than the best known state the start may be, in a cycle's second half; falls to nothing."""

WEIGHT_MS = 10_000
"""How much start-up time a unit of weight is worth while the search goes through worse states."""

OUTSIDE = 16
"""Hosts besides the emptied ones that a round looks at."""

UNMET_PPM = 600_000
"""Share of a cycle's rounds that go into unmet weight; the rest goes into start-up time."""

LUCK = 1024
"""How far chance may lift somebody in the order of a repair: from 512 parts up to three times as many."""

STALE = 150
"""Rounds without a new best after which the search returns to it."""


class Draws:
    """Numbers that look random and never change: a linear congruential generator (Knuth, TAOCP 2, 3.3.4)."""

    def __init__(self) -> None:
        self._state = 0x9E3779B97F4A7C15

    def below(self, bound: int) -> int:
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        return (self._state >> 33) % bound

    def some(self, count: int, bound: int) -> list[int]:
        """So many of them."""
        state, found = self._state, list[int]()
        for _ in range(count):
            state = (state * _MULTIPLIER + _INCREMENT) & _MASK
            found.append((state >> 33) % bound)
        self._state = state
        return found


class Search:
    """One search. `run` leaves the puzzle in the best state found and returns the moves used."""

    def __init__(self, puzzle: Puzzle, limits: Limits) -> None:
        self.puzzle, self.limits, self.draws = puzzle, limits, Draws()
        self.permit = Permit(puzzle, limits)
        self.best, self.record = list(puzzle.at), puzzle.value
        self._heaviest = max((puzzle.kinds[p.kind].weight for p in puzzle.pieces), default=0)
        self._goal = 0
        # Those who have a home first, then those who matter more; taken from the end.
        self._turn = [(p.home is not None, p.claim, -n) for n, p in enumerate(puzzle.pieces)]

    def run(self) -> int:
        puzzle = self.puzzle
        rounds, most = Chains(puzzle, self.permit).run(), self.limits.rounds * ROUNDS_PER_MOVE
        self._keep()
        if puzzle.value != self.record:
            self._back()
        self._goal = least_unmet(puzzle, self.limits)
        for_each, size = FIRST, sum(8 if p.home is not None else 1 for p in puzzle.pieces)
        while rounds < most and self._wishes():
            before, length = self.record, min(LONGEST, max(SHORTEST, for_each * size))
            rounds += self._cycle(length, most - rounds)
            if self.record >= before:
                break
            for_each *= 2
        self._back()
        self.permit.settle()
        if puzzle.value > self.record or not self.permit.allows(0) or deadlocked(puzzle):
            self._back()
        puzzle.journal.clear()
        return -(-rounds // ROUNDS_PER_MOVE)

    def _wishes(self) -> bool:
        """Could it be better?"""
        return self.record[1] > self._goal or self.record[3] > self._least_start()

    def _least_start(self) -> int:
        """Start-up time if each that is new stood where it starts soonest."""
        puzzle, found = self.puzzle, 0
        for n, spot in enumerate(self.best):
            if spot is not None and puzzle.pieces[n].home is None:
                found += puzzle.kinds[puzzle.pieces[n].kind].soonest
        return found

    def _keep(self) -> bool:
        """Remember this state if it is the best so far and can be carried out."""
        puzzle = self.puzzle
        if puzzle.value < self.record and not deadlocked(puzzle):
            self.best, self.record = list(puzzle.at), puzzle.value
            return True
        return False

    def _back(self) -> None:
        self.puzzle.restore(self.best)
        self.puzzle.journal.clear()

    def _cycle(self, length: int, most: int) -> int:
        """First unmet weight, then start-up time. Record-to-record travel: the state may be a little worse than the
        best known one, less and less so."""
        _puzzle, stale, half = self.puzzle, 0, length * UNMET_PPM // PPM
        start = half if self.record[1] <= self._goal else 0
        for number in range(start, length):
            if number - start >= most:
                return number - start
            record = self.record
            if number < half:
                worse = self._heaviest * WORSE * (half - number) // half
                ceiling = record[0], (record[1] + worse) * WEIGHT_MS + record[3]
            else:
                slower = record[3] * SLOWER_PPM // PPM * (length - number) // (length - half)
                ceiling = record[0], record[1] * WEIGHT_MS + record[3] + slower
            self._round(number >= half or number % 4 == 3, ceiling)
            stale += 1
            if self._keep():
                stale = 0
            elif stale >= STALE:
                self._back()
                stale = 0
        return length - start

    def _round(self, costly: bool, ceiling: tuple[int, int]) -> None:
        puzzle = self.puzzle
        before, mark = puzzle.value, len(puzzle.journal)
        chosen = self._choose(costly)
        if not chosen:
            return
        queues = self._callers(chosen)
        for host in chosen:
            for n in sorted(puzzle.on[host]):
                puzzle.take(n)
                queues.setdefault(puzzle.pieces[n].kind, []).append(n)
        self._repair(queues, chosen, costly)
        now = puzzle.value
        good = now <= before or (now[0], now[1] * WEIGHT_MS + now[3]) < ceiling
        if good and self.permit.allows(mark):
            puzzle.journal.clear()
            return
        puzzle.undo(mark)

    # -- destroy -----------------------------------------------------------------------------------------------------

    def _choose(self, costly: bool) -> list[int]:
        """A host that a loose (or costly) piece could use, and others that its residents could use."""
        puzzle, draws = self.puzzle, self.draws
        wanted = self._wanted(costly)
        if wanted is None:
            return []
        piece, now = puzzle.pieces[wanted], puzzle.at[wanted]
        where = puzzle.kinds[piece.kind].hosts
        if piece.home is not None and draws.below(2):
            chosen = [piece.home.host]
        elif where:
            chosen = [where[draws.below(len(where))]]
        else:
            return []
        if costly and now is not None and now.host != chosen[0]:
            chosen.append(now.host)
        for _ in range(1 + draws.below(2)):
            residents = sorted(puzzle.on[chosen[draws.below(len(chosen))]])
            resident = residents[draws.below(len(residents))] if residents else wanted
            where = puzzle.kinds[puzzle.pieces[resident].kind].hosts
            if not where:
                continue
            other = where[draws.below(len(where))]
            if other not in chosen:
                chosen.append(other)
        return chosen

    def _wanted(self, costly: bool) -> int | None:
        """Somebody who is loose; `costly`: somebody who is not at home, if there is one."""
        puzzle, draws = self.puzzle, self.draws
        if costly or not puzzle.loose:
            at, pieces = puzzle.at, puzzle.pieces
            for _ in range(32):
                n = draws.below(len(pieces))
                if at[n] is not pieces[n].home:
                    return n
        if not puzzle.loose:
            return None
        kinds = sorted(puzzle.loose)
        kind = kinds[draws.below(len(kinds))]
        # Of two, the one that is worth more for its size.
        other = kinds[draws.below(len(kinds))]
        one, two = puzzle.kinds[kind], puzzle.kinds[other]
        if two.weight * one.size > one.weight * two.size:
            kind = other
        return min(puzzle.loose[kind])

    def _callers(self, chosen: list[int]) -> dict[int, list[int]]:
        """Loose pieces that could use one of the hosts, as many as those could hold."""
        puzzle, found = self.puzzle, dict[int, list[int]]()
        for kind, pieces in puzzle.loose.items():
            options, most = puzzle.kinds[kind].options, puzzle.kinds[kind].most_here
            here = [h for h in chosen if h in options]
            if here:
                found[kind] = sorted(pieces)[: len(here) * most] if most < len(pieces) else sorted(pieces)
        return found

    # -- repair ------------------------------------------------------------------------------------------------------

    def _repair(self, queues: dict[int, list[int]], chosen: list[int], costly: bool) -> None:
        """Greedy, in an order that differs from round to round: by weight, by weight for its size, or by size."""
        puzzle, draws, kinds = self.puzzle, self.draws, self.puzzle.kinds
        way, keyed, pieces = draws.below(4), list[tuple[int, int]](), self.puzzle.pieces
        for kind, queue in queues.items():
            weight, size = kinds[kind].weight, kinds[kind].size
            base = (weight << 40) // size if way < 2 else weight << 20 if way == 2 else size
            keyed += [(-(base * (512 + luck) >> 10), kind) for luck in draws.some(len(queue), LUCK)]
            if len(queue) > 1:
                queue.sort(key=self._turn.__getitem__)
        tight = not costly and draws.below(2) == 0
        hosts = chosen + self._outside(chosen, min((kinds[k].size for k in queues), default=0))
        failed = set[int]()
        for _, kind in sorted(keyed):
            n = queues[kind].pop()
            home = pieces[n].home
            if home is None and kind in failed:
                continue
            spot = puzzle.fits(n, home.host) if home is not None else None
            if home is None or spot is not home or puzzle.breaks(kind, home.host):
                spot = puzzle.best(kind, hosts, tight=tight) if kind not in failed else None
            if spot is None:
                failed.add(kind)
                continue
            puzzle.put(n, spot)

    def _outside(self, chosen: list[int], least: int) -> list[int]:
        """Other hosts with room for the smallest of them, a few of those where there are many."""
        found = [h for h in self.puzzle.roomy(least) if h not in chosen]
        if len(found) <= OUTSIDE:
            return found
        first, step = self.draws.below(len(found)), len(found) // OUTSIDE
        return [found[(first + n * step) % len(found)] for n in range(OUTSIDE)]
