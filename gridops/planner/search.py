"""Local search over a puzzle: first as much weight as there is room for, then the same weight with a sooner start.

After a direct phase (`chains`) it goes on in steps: small ones (`steps`), and large ones between them (`ruin`). A step
is kept if it makes the state not much worse; how much falls to nothing (threshold accepting: Dueck and Scheuer, J.
Comp. Phys. 90, 1990). Weight goes with the price of the room that is taken (`prices`), so that nobody sits where others
have to; the second half never gives up weight. Work is counted where it is done (`Puzzle.work`), never in seconds, and
chance is a counter, so that the same puzzle gives the same answer everywhere. It comes in cycles whose length follows
from the puzzle alone: more work goes on where less has stopped, and is never worse. Called by `room`.
"""

from __future__ import annotations

from gridops.base.units import PPM
from gridops.planner.aim import arrange, may_aim
from gridops.planner.best_case import least_unmet
from gridops.planner.chains import Chains
from gridops.planner.circles import deadlocked, stuck, untie
from gridops.planner.constants_room import (
    COOL_OFF,
    DIVE_WORK,
    DIVES,
    FIRST_CYCLE,
    HANDFUL,
    LONGEST_CYCLE,
    PIECES_LOOKED_AT,
    RENT_PPM,
    RUIN_EVERY,
    SHORTEST_CYCLE,
    SLOWER_PPM,
    STAYS,
    STAYS_LESS,
    UNMET_PPM,
    UNTIES,
    WORK_PER_MOVE,
    WORSE_PPM,
)
from gridops.planner.dive import Dive
from gridops.planner.draws import Draws
from gridops.planner.permit import Limits, Permit
from gridops.planner.prices import rents
from gridops.planner.puzzle import PARTS, Puzzle
from gridops.planner.ruin import Ruin
from gridops.planner.steps import Steps

FAR = 1 << 60
"""More than any start-up time, claim or price."""


class Search:
    """One search. `run` leaves the puzzle in the best state found and returns the moves that its work comes to."""

    def __init__(self, puzzle: Puzzle, limits: Limits) -> None:
        self.puzzle, self.limits, self.draws = puzzle, limits, Draws()
        self.permit = Permit(puzzle, limits)
        self.small, self.large = Steps(puzzle, self.draws), Ruin(puzzle, self.draws)
        self.best, self.record = list(puzzle.at), puzzle.value
        self._goal, self._worse_ppm = 0, WORSE_PPM
        self._look = len(puzzle.pieces) // PIECES_LOOKED_AT

    def run(self) -> int:
        puzzle = self.puzzle
        began, most = puzzle.work, self.limits.rounds * WORK_PER_MOVE
        puzzle.work += Chains(puzzle, self.permit).run()
        self._keep()
        if puzzle.value != self.record:
            self._back()
        self._goal = least_unmet(puzzle, self.limits)
        length = FIRST_CYCLE * len(puzzle.pieces) * len(puzzle.on)
        length = min(LONGEST_CYCLE, max(SHORTEST_CYCLE, length))
        if puzzle.unmet > self._goal and may_aim(puzzle, self.limits):
            self._aim(began, most)
            length = min(length, LONGEST_CYCLE // 2)
        few = len(puzzle.pieces) * len(puzzle.on) <= HANDFUL
        while (spent := puzzle.work - began) < most and self._wishes():
            before = self.record
            self._cycle(length, most - spent)
            if self.record < before:
                length = min(LONGEST_CYCLE, 2 * length)
            elif few and self.record[1] > self._goal:
                # Prices of a handful of places are rough and bar some of them: once more without, and bolder.
                few, self._worse_ppm = False, PPM
                puzzle.charge({kind: [0] * len(puzzle.on) for kind in range(len(puzzle.kinds))})
            else:
                break
        self._back()
        self._settle()
        return -(-(puzzle.work - began) // WORK_PER_MOVE)

    def _aim(self, began: int, most: int) -> None:
        """Look for a good placement without asking how to get there, and go as far there as the rules admit.

        Cut off like everything else: whoever may work less does the same things first.
        """
        puzzle = self.puzzle
        for n, stays in enumerate((STAYS, STAYS_LESS), 1):
            dive = Dive(puzzle, self.permit, stays)
            for _ in range(DIVES):
                contents = dive.run(most - (puzzle.work - began))
                if not contents:
                    return
                arrange(puzzle, self.permit, contents)
                if self.permit.allows(0):
                    self._keep()
                self._back()
                if self.record[1] <= self._goal:
                    return
                if puzzle.work - began > n * DIVE_WORK or not dive.missed(contents):
                    break

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
        """Remember this state if it is the best so far and can be carried out, once circles in it are untied.

        If it is not, the state is as it was; if it is, this is where the search goes on.
        """
        puzzle = self.puzzle
        if puzzle.value >= self.record:
            return False
        puzzle.work += self._look
        mark = len(puzzle.journal)
        for _ in range(UNTIES):
            if puzzle.value >= self.record or not self.permit.is_result():
                break
            tied = stuck(puzzle)
            if not tied:
                self.best, self.record = list(puzzle.at), puzzle.value
                self._settle()
                return True
            untie(puzzle, tied)
            if not self.permit.allows(mark):
                break
        puzzle.undo(mark)
        return False

    def _settle(self) -> None:
        """Pieces of one kind are alike: let those stand where it costs nothing, if all else stays as good."""
        self.permit.settle()
        allowed = self.permit.allows(0) and self.permit.is_result()
        if self.puzzle.value > self.record or not allowed or deadlocked(self.puzzle):
            self._back()
        self.best, self.record = list(self.puzzle.at), self.puzzle.value
        self.puzzle.journal.clear()

    def _back(self) -> None:
        self.puzzle.restore(self.best)
        self.puzzle.journal.clear()

    def _cycle(self, length: int, most: int) -> None:
        """First weight, then start-up time, each from the best state there is."""
        half, before, began = length * UNMET_PPM // PPM, self.record, self.puzzle.work
        if self.record[1] > self._goal:
            if not self.puzzle.rents:
                self.puzzle.charge(rents(self.puzzle))
            self._for_weight(half, most)
            self._back()
        most -= self.puzzle.work - began
        # Where nothing starts later than it must, and nothing came or went, nothing is left to be found.
        if most > 0 and (self.record < before or self.record[3] > self._least_start()):
            self._for_start(length - half, most)
            self._back()

    def _for_weight(self, length: int, most: int) -> None:
        puzzle, record = self.puzzle, self.record
        weights = sum(puzzle.kinds[p.kind].weight for p in puzzle.pieces)
        worse = weights * PARTS * self._worse_ppm // (PPM * len(puzzle.pieces))
        energy, number, patience = self._weighed(), 0, 0
        began, end, moved = puzzle.work, min(length, most), puzzle.moved
        while (spent := puzzle.work - began) < end:
            mark, number = len(puzzle.journal), number + 1
            puzzle.work += 1
            if self.small.step(False) if number % RUIN_EVERY else self.large.step():
                now = self._weighed()
                # What gains nothing leaves half of the moves to what does.
                spares = now < energy or puzzle.moved <= max(moved, self.limits.moves // 2)
                if spares and now - energy <= worse * (length - spent) // length and self.permit.allows(mark):
                    puzzle.journal.clear()
                    energy, moved = now, puzzle.moved
                    if spent >= patience and puzzle.value[:3] < record[:3]:
                        if self._keep():
                            puzzle.journal.clear()
                            energy, moved = self._weighed(), puzzle.moved
                        patience, record = spent + self._look * COOL_OFF, self.record
                        if record[1] <= self._goal:
                            return
                    continue
            puzzle.undo(mark)
        if most >= length:
            self._keep()

    def _weighed(self) -> int:
        puzzle = self.puzzle
        return puzzle.short * FAR + puzzle.unmet * PARTS + puzzle.rent * RENT_PPM // PPM

    def _for_start(self, length: int, most: int) -> None:
        puzzle = self.puzzle
        self._settle()
        started = sum(1 for n, s in enumerate(puzzle.at) if s is not None and s is not puzzle.pieces[n].home)
        slower = puzzle.start_ms * SLOWER_PPM // (PPM * max(1, started))
        before, energy, patience = puzzle.value[:3], puzzle.start_ms, 0
        began, end = puzzle.work, min(length, most)
        while (spent := puzzle.work - began) < end:
            mark = len(puzzle.journal)
            puzzle.work += 1
            if self.small.step(True) and puzzle.value[:3] <= before:
                now = puzzle.start_ms
                if now - energy <= slower * (length - spent) // length and self.permit.allows(mark):
                    puzzle.journal.clear()
                    energy = now
                    if spent >= patience and puzzle.value < self.record:
                        if self._keep():
                            puzzle.journal.clear()
                            energy = puzzle.start_ms
                        patience = spent + self._look * COOL_OFF
                    continue
            puzzle.undo(mark)
        if most >= length:
            self._keep()
