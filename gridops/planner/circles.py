"""Whether a rearrangement can be carried out: nobody comes up before there is room, and nobody leaves before that.

Called by `search` before a state counts as a result. Whoever has lost its place is stopped first; whoever moves stands
twice for a while, and keeps its old place until it serves from the new one.
"""

from __future__ import annotations

from gridops.base.units import PPM
from gridops.planner.constants_room import EASE_TRIES, PIECES_LOOKED_AT
from gridops.planner.permit import Permit
from gridops.planner.pieces import Spot
from gridops.planner.puzzle import Puzzle


def deadlocked(puzzle: Puzzle) -> bool:
    """Do pieces wait for each other's places in a circle?"""
    return bool(stuck(puzzle))


def stuck(puzzle: Puzzle) -> list[int]:
    """Pieces that never come up where they are to stand, since they wait for each other's places."""
    if not puzzle.moved:
        return []
    pieces, at = puzzle.pieces, puzzle.at
    moves = {
        n: (s, home)
        for n, s in enumerate(at)
        if s is not None and (home := pieces[n].home) is not None and s is not home
    }
    room = _Room(puzzle)
    for _, home in moves.values():
        room.give(home, -1)
    # Where there is room for all beside those who are to leave, whoever comes does so at once.
    tight = {home.host for _, home in moves.values() if room.lacks(home)}
    waiting = sorted(n for host in tight for n in puzzle.on[host] if at[n] is not pieces[n].home)
    if not waiting:
        return []
    for n in waiting:
        if (spot := at[n]) is not None:
            room.give(spot, 1)
    for spot, home in moves.values():
        if spot.host not in tight:
            room.give(home, 1)
    return room.stuck(waiting, moves)


def untie(puzzle: Puzzle, tied: list[int]) -> None:
    """Let these stand where they stood, if there is room for them, and the others where it is left."""
    pieces, kinds = puzzle.pieces, puzzle.kinds
    order = sorted(tied, key=lambda n: (-kinds[pieces[n].kind].weight, -kinds[pieces[n].kind].size, n))
    hosts = sorted({puzzle.take(n).host for n in order})
    late = list[int]()
    for n in order:
        home, kind = pieces[n].home, pieces[n].kind
        if home is not None and puzzle.fits(n, home.host) is home and not puzzle.breaks(kind, home.host):
            puzzle.put(n, home)
        else:
            late.append(n)
    for n in late:
        kind = pieces[n].kind
        spot = puzzle.best(kind, hosts) or puzzle.best(kind, puzzle.roomy(0))
        if spot is not None:
            puzzle.put(n, spot)


def ease(puzzle: Puzzle, tied: list[int], permit: Permit) -> bool:
    """Let one of these do without its place so that others come up: who matters least for how many it frees.

    False: nobody of them may, or it helps nobody.
    """
    pieces, kinds = puzzle.pieces, puzzle.kinds
    order = sorted(tied, key=lambda n: (kinds[pieces[n].kind].weight, -kinds[pieces[n].kind].size, n))
    least, chosen = 0, -1
    for n in order[:EASE_TRIES]:
        mark, weight = len(puzzle.journal), kinds[pieces[n].kind].weight
        if chosen >= 0 and weight * PPM // len(tied) >= least:
            break
        puzzle.take(n)
        puzzle.work += len(pieces) // PIECES_LOOKED_AT
        freed = len(tied) - len(stuck(puzzle))
        if freed > 0 and permit.allows(mark) and (chosen < 0 or weight * PPM // freed < least):
            least, chosen = weight * PPM // freed, n
        puzzle.undo(mark)
    if chosen < 0:
        return False
    puzzle.take(chosen)
    home, kind = pieces[chosen].home, pieces[chosen].kind
    if home is not None and puzzle.fits(chosen, home.host) is home and not puzzle.breaks(kind, home.host):
        puzzle.put(chosen, home)
    return True


class _Room:
    """What is free on hosts beside those who stand at home, as arrivals come up one after the other."""

    def __init__(self, puzzle: Puzzle) -> None:
        self._puzzle, self._ground = puzzle, puzzle.ground
        self._free: dict[int, list[int]] = {}
        self._gpu: dict[int, list[int]] = {}
        """Of this, what GPU work may use."""
        self._slots: dict[int, int] = {}

    def lacks(self, home: Spot) -> bool:
        """The host holds more now than it can, where this one stands."""
        host, option, pools = home
        free, gpu = self._free[host], self._gpu[host]
        if self._slots[host] < 0 or (option.ram and free[self._ground.ram[host]] < 0):
            return True
        return any(free[column] < 0 or (option.gpu and gpu[column] < 0) for column in pools)

    def stuck(self, waiting: list[int], moves: dict[int, tuple[Spot, Spot]]) -> list[int]:
        """Those of them that never come up. `moves`: where those who stand elsewhere go, and where they stand."""
        while waiting:
            left = []
            for n in waiting:
                spot = self._puzzle.at[n]
                assert spot is not None, "whoever waits has a spot"
                if not self._comes_up(spot):
                    left.append(n)
                    continue
                self.give(spot, -1)
                if n in moves:
                    self.give(moves[n][1], 1)
            if len(left) == len(waiting):
                return left
            waiting = left
        return []

    def give(self, spot: Spot, sign: int) -> None:
        """A seat is free, or taken where the sign is negative."""
        host, option, pools = spot
        free, need = self._free.get(host), sign * option.need
        if free is None:
            ground = self._ground
            free = self._free[host] = list(ground.free[host])
            self._gpu[host], self._slots[host] = list(ground.gpu[host]), ground.slots[host]
        self._slots[host] += sign
        for column in pools:
            free[column] += need
        if option.ram:
            free[self._ground.ram[host]] += sign * option.ram
        if option.gpu:
            for column in pools:
                self._gpu[host][column] += need

    def _comes_up(self, spot: Spot) -> bool:
        host, option, pools = spot
        if self._slots[host] <= 0:
            return False
        free, need = self._free[host], option.need
        for column in pools:
            if free[column] < need or (option.gpu and self._gpu[host][column] < need):
                return False
        return not option.ram or free[self._ground.ram[host]] >= option.ram
