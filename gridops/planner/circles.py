"""Whether a rearrangement can be carried out: nobody comes up before there is room, and nobody leaves before that.

Called by `search` before a state counts as a result. Whoever has lost its place is stopped first; whoever moves stands
twice for a while, and keeps its old place until it serves from the new one.
"""

from __future__ import annotations

from collections import defaultdict

from gridops.planner.pieces import Spot
from gridops.planner.puzzle import Puzzle


def deadlocked(puzzle: Puzzle) -> bool:
    """Do pieces wait for each other's places in a circle?"""
    movers = [
        n for n, s in enumerate(puzzle.at) if s is not None and (h := puzzle.pieces[n].home) is not None and s is not h
    ]
    if not movers:
        return False
    return _Queue(puzzle, movers).stuck()


class _Queue:
    """What is free beside those who stand at home, as arrivals come up one after the other."""

    def __init__(self, puzzle: Puzzle, movers: list[int]) -> None:
        self.puzzle = puzzle
        self._taken: defaultdict[tuple[int, int], int] = defaultdict(int)
        self._gpu: defaultdict[tuple[int, int], int] = defaultdict(int)
        """Of this, what counts against the share of a pool that GPU work may use."""
        self._seats: defaultdict[int, int] = defaultdict(int)
        sources = {self._home(n).host for n in movers}
        # Who arrives where nobody leaves comes up at once.
        self.waiting = [
            n
            for n, s in enumerate(puzzle.at)
            if s is not None and s is not puzzle.pieces[n].home and (s.host in sources or n in movers)
        ]
        for n in self.waiting:
            self._claim(self._spot(n), -1)
        for n in movers:
            self._claim(self._home(n), 1)

    def stuck(self) -> bool:
        while self.waiting:
            left = []
            for n in self.waiting:
                if not self._comes_up(self._spot(n)):
                    left.append(n)
                    continue
                self._claim(self._spot(n), 1)
                if self.puzzle.pieces[n].home is not None:
                    self._claim(self._home(n), -1)
            if len(left) == len(self.waiting):
                return True
            self.waiting = left
        return False

    def _claim(self, spot: Spot, sign: int) -> None:
        self._seats[spot.host] += sign
        for column, amount in self._parts(spot):
            self._taken[spot.host, column] += sign * amount
        for column in spot.pools if spot.option.gpu else ():
            self._gpu[spot.host, column] += sign * spot.option.need

    def _comes_up(self, spot: Spot) -> bool:
        ground, host = self.puzzle.ground, spot.host
        if ground.slots[host] - self._seats[host] <= 0:
            return False
        gpu = spot.pools if spot.option.gpu else ()
        return all(ground.free[host][c] - self._taken[host, c] >= amount for c, amount in self._parts(spot)) and all(
            ground.gpu[host][c] - self._gpu[host, c] >= spot.option.need for c in gpu
        )

    def _parts(self, spot: Spot) -> list[tuple[int, int]]:
        parts = [(c, spot.option.need) for c in spot.pools]
        return [*parts, (self.puzzle.ground.ram[spot.host], spot.option.ram)] if spot.option.ram else parts

    def _spot(self, n: int) -> Spot:
        spot = self.puzzle.at[n]
        assert spot is not None, "it stands"
        return spot

    def _home(self, n: int) -> Spot:
        home = self.puzzle.pieces[n].home
        assert home is not None, "it is a mover"
        return home
