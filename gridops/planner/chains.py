"""Make room directly: whoever is loose takes a place from those who can stand elsewhere or matter less.

Most important first; whoever is pushed out looks for a seat in the same way (ejection chains of a bounded depth).

Deterministic and short: hosts are compared by what their weakest residents are worth, and only the best few are tried.
What it leaves is the start of `search`. Called by `search` before its rounds.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from gridops.planner.constants_room import CHAIN_DEPTH, CHAIN_HOSTS, CHAIN_TRIES
from gridops.planner.permit import Permit
from gridops.planner.pieces import Option
from gridops.planner.puzzle import Puzzle


class Loss(NamedTuple):
    """What a seat on a host costs at least: what those are worth who have to go, less is better."""

    weight: int
    claim: int
    back_ms: int
    many: int


class Chains:
    def __init__(self, puzzle: Puzzle, permit: Permit) -> None:
        self.puzzle, self.permit = puzzle, permit
        self.tries = 0
        self._queues: dict[int, list[tuple[Loss, int]]] = {}
        self._order: list[int] | None = None
        self._worth = [(puzzle.kinds[p.kind].weight, p.claim, p.back_ms, n) for n, p in enumerate(puzzle.pieces)]
        self._lowest = min((puzzle.kinds[p.kind].weight for p in puzzle.pieces), default=0)

    def run(self) -> int:
        """Seat whom it can. Returns how many seats were tried."""
        puzzle, kinds, pieces = self.puzzle, self.puzzle.kinds, self.puzzle.pieces
        loose = sorted(
            (n for ns in puzzle.loose.values() for n in ns),
            key=lambda n: (-kinds[pieces[n].kind].weight, -pieces[n].claim, -kinds[pieces[n].kind].size, n),
        )
        hopeless: set[int] = set()
        for n in loose:
            kind = pieces[n].kind
            if puzzle.at[n] is None and kind not in hopeless and not self._settle(n):
                hopeless.add(kind)
        return self.tries

    def _settle(self, n: int) -> bool:
        """Find a seat for a loose piece; whatever is done for it makes the whole better, or is undone."""
        puzzle, kind = self.puzzle, self.puzzle.pieces[n].kind
        mark = len(puzzle.journal)
        self.tries += 1
        if self._direct(n):
            if self.permit.allows(mark):
                return True
            puzzle.undo(mark)
        if not self._hope():
            return False
        before, queue, spent = puzzle.value, self._queue(kind), list[tuple[Loss, int]]()
        done = False
        while queue and len(spent) < CHAIN_TRIES and not done:
            loss, host = heapq.heappop(queue)
            now = self._loss(kind, host)
            if now is None:
                continue
            if now != loss:
                heapq.heappush(queue, (now, host))
                continue
            spent.append((now, host))
            done = self._push_in(n, host, CHAIN_DEPTH) and puzzle.value < before and self.permit.allows(mark)
            if not done:
                puzzle.undo(mark)
        for entry in spent:
            heapq.heappush(queue, entry)
        return done

    def _hope(self) -> bool:
        """May anybody still be moved or dropped?"""
        puzzle, limits = self.puzzle, self.permit.limits
        return puzzle.dropped < limits.drops or any(s > 0 for s in puzzle.ground.slots)

    def _direct(self, n: int) -> bool:
        """Take a seat that is free. Where none can be, the kind's options are not asked for."""
        puzzle, kind = self.puzzle, self.puzzle.pieces[n].kind
        if max(puzzle.room, default=-1) < puzzle.kinds[kind].least:
            return False
        spot = puzzle.best(kind, puzzle.roomy(0 if puzzle.kinds[kind].on_ram else puzzle.kinds[kind].size))
        if spot is None:
            return False
        puzzle.put(n, spot)
        return True

    def _push_in(self, n: int, host: int, depth: int) -> bool:
        """Seat the piece on the host whoever has to go, and look where those could stand."""
        puzzle, kind = self.puzzle, self.puzzle.pieces[n].kind
        self.tries += 1
        out: list[int] = []
        spot = puzzle.seat(kind, host)
        for m in self._weakest(host):
            if spot is not None:
                break
            puzzle.take(m)
            out.append(m)
            spot = puzzle.seat(kind, host)
        if spot is None or puzzle.breaks(kind, host):
            return False
        for m in reversed(out[:-1]):
            back = puzzle.fits(m, host)
            if back is None:
                continue
            puzzle.put(m, back)
            again = puzzle.seat(kind, host)
            if again is None:
                puzzle.take(m)
            else:
                spot = again
                out.remove(m)
        puzzle.put(n, spot)
        for m in sorted(out, key=lambda m: (-puzzle.kinds[puzzle.pieces[m].kind].weight, m)):
            if not self._direct(m) and depth > 1 and self._may_push(m, n):
                self._further(m, host, depth - 1)
        return True

    def _may_push(self, m: int, n: int) -> bool:
        """A chain goes down in weight, so that it ends."""
        kinds, pieces = self.puzzle.kinds, self.puzzle.pieces
        return kinds[pieces[m].kind].weight <= kinds[pieces[n].kind].weight

    def _further(self, m: int, without: int, depth: int) -> None:
        """Whoever was pushed out takes a place from somebody who matters less."""
        puzzle, kind = self.puzzle, self.puzzle.pieces[m].kind
        if puzzle.kinds[kind].weight <= self._lowest:
            return
        queue, mark, before = self._queue(kind), len(puzzle.journal), puzzle.value
        first = next((e for e in queue[:CHAIN_TRIES] if e[1] != without), None)
        if first is None or first[0].weight >= puzzle.kinds[kind].weight:
            return
        if not self._push_in(m, first[1], depth) or puzzle.value >= before:
            puzzle.undo(mark)

    # -- what is lost where ------------------------------------------------------------------------------------------

    def _queue(self, kind: int) -> list[tuple[Loss, int]]:
        """Hosts by what a seat there costs; entries may be out of date and are compared again when taken."""
        if kind not in self._queues:
            allowed, found = self.puzzle.kinds[kind].options, list[tuple[Loss, int]]()
            for host in self._by_weakest():
                if len(found) >= CHAIN_HOSTS:
                    break
                if host in allowed and (loss := self._loss(kind, host)) is not None:
                    found.append((loss, host))
            heapq.heapify(found)
            self._queues[kind] = found
        return self._queues[kind]

    def _by_weakest(self) -> list[int]:
        """All hosts with residents who may go, those with the least important first."""
        if self._order is None:
            puzzle, found = self.puzzle, list[tuple[int, int, int]]()
            for host, residents in enumerate(puzzle.on):
                if residents:
                    least = min((puzzle.kinds[puzzle.pieces[n].kind].weight, puzzle.pieces[n].claim) for n in residents)
                    found.append((*least, host))
            self._order = [host for *_, host in sorted(found)]
        return self._order

    def _weakest(self, host: int) -> list[int]:
        return sorted(self.puzzle.on[host], key=self._worth.__getitem__)

    def _loss(self, kind: int, host: int) -> Loss | None:
        """What those are worth who have to go at least for a seat of the kind; None if that is not enough.

        Where as many of the kind stand as may, another of them would only take the place of its like.
        """
        puzzle, option = self.puzzle, self.puzzle.kinds[kind].options[host][0]
        if puzzle.ground.counts[host].get(kind, 0) >= puzzle.kinds[kind].most_here:
            return None
        free, slots = list(puzzle.ground.free[host]), puzzle.ground.slots[host]
        weight = claim = back = many = 0
        for n in self._weakest(host):
            if slots > 0 and _enough(free, option):
                break
            spot = puzzle.at[n]
            assert spot is not None, "who is on a host has a spot"
            for column in spot.pools:
                free[column] += spot.option.need
            slots += 1
            own, its_claim, its_back, _ = self._worth[n]
            weight, claim, back, many = weight + own, claim + own * its_claim, back + its_back, many + 1
        return Loss(weight, claim, back, many) if slots > 0 and _enough(free, option) else None


def _enough(free: list[int], option: Option) -> bool:
    lacking, need = option.count, option.need
    for column in option.columns:
        if free[column] >= need:
            lacking -= 1
            if not lacking:
                return True
    return False
