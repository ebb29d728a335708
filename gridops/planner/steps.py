"""Small steps of the search: one piece comes, moves or goes, and whoever is in its way looks for another seat.

A step takes a piece to a host. Where that has no room, the others there make way: the least important one that
suffices, or as many as it takes, of whom those who still fit come back. Whoever was pushed out takes the place that was
left for it, or the cheapest seat of a few. The step itself judges nothing: `search` keeps it or undoes it. Called by
`search`; `ruin` makes the large steps.
"""

from __future__ import annotations

from gridops.planner.constants_room import HOSTS_LOOKED_AT, RARELY, REFUGES
from gridops.planner.draws import Draws
from gridops.planner.pieces import Spot
from gridops.planner.puzzle import Puzzle


def whoever_waits(puzzle: Puzzle, draws: Draws) -> int:
    """Somebody who is loose: of two kinds, of the one that is worth more for its size."""
    kinds = list(puzzle.loose)
    kind, other = kinds[draws.below(len(kinds))], kinds[draws.below(len(kinds))]
    one, two = puzzle.kinds[kind], puzzle.kinds[other]
    return min(puzzle.loose[other if two.weight * one.size > one.weight * two.size else kind])


class Steps:
    def __init__(self, puzzle: Puzzle, draws: Draws) -> None:
        self.puzzle, self.draws = puzzle, draws

    def step(self, costly: bool) -> bool:
        """Change something. `costly`: for a sooner start instead of weight. False: nothing came of it."""
        puzzle, draws = self.puzzle, self.draws
        if puzzle.loose and not draws.below(RARELY if costly else 2):
            n, left = whoever_waits(puzzle, draws), -1
            home = puzzle.pieces[n].home
            host = home.host if home is not None and draws.below(2) else self._somewhere(n, costly)
        else:
            n = self._whoever_starts() if costly and draws.below(RARELY) else draws.below(len(puzzle.pieces))
            spot, home = puzzle.at[n], puzzle.pieces[n].home
            if spot is None:
                return False
            away = home is not None and spot is not home
            host = (
                home.host if home is not None and away and not draws.below(3 - costly) else self._somewhere(n, costly)
            )
            left = spot.host
            if host == left:
                return False
            if host >= 0:
                puzzle.take(n)
        return host >= 0 and self._push_in(n, host, left, costly)

    def _whoever_starts(self) -> int:
        """Somebody who does not stand at home, if there is one to be met."""
        puzzle, draws = self.puzzle, self.draws
        at, pieces = puzzle.at, puzzle.pieces
        n = draws.below(len(pieces))
        for _ in range(RARELY):
            if at[n] is not None and at[n] is not pieces[n].home:
                break
            n = draws.below(len(pieces))
        return n

    def _somewhere(self, n: int, costly: bool) -> int:
        """Some host where it may stand; `costly`: of two the one where it starts sooner. -1: there is none."""
        kind = self.puzzle.kinds[self.puzzle.pieces[n].kind]
        hosts, options, draws = kind.hosts, kind.options, self.draws
        if not hosts:
            return -1
        host = hosts[draws.below(len(hosts))]
        if costly:
            other = hosts[draws.below(len(hosts))]
            if options[other][0].start_ms < options[host][0].start_ms:
                return other
        return host

    def _push_in(self, n: int, host: int, left: int, costly: bool) -> bool:
        """Seat the piece there, whoever has to go. `left`: where it stood until now."""
        puzzle, kind = self.puzzle, self.puzzle.pieces[n].kind
        spot, out = puzzle.fits(n, host), list[int]()
        if spot is None:
            if host not in puzzle.kinds[kind].options or not puzzle.on[host]:
                return False
            spot = self._one_out(n, host, out) or self._some_out(n, host, out)
        if spot is None or puzzle.breaks(kind, host):
            return False
        puzzle.put(n, spot)
        out.sort(key=lambda m: -puzzle.kinds[puzzle.pieces[m].kind].size)
        for m in out:
            there = puzzle.fits(m, left) if left >= 0 and not puzzle.breaks(puzzle.pieces[m].kind, left) else None
            if there is None:
                there = self._refuge(m, costly)
            if there is not None:
                puzzle.put(m, there)
        return True

    def _one_out(self, n: int, host: int, out: list[int]) -> Spot | None:
        """Somebody who takes so much that one is enough: half the time the least important of them, or any."""
        puzzle, kinds, pieces, at = self.puzzle, self.puzzle.kinds, self.puzzle.pieces, self.puzzle.at
        room = puzzle.room[host] if puzzle.room[host] >= 0 else max(puzzle.ground.free[host])
        lack = kinds[pieces[n].kind].options[host][0].need - room
        large = [m for m in sorted(puzzle.on[host]) if (s := at[m]) is not None and s.option.need >= lack]
        if not large:
            return None
        if self.draws.below(2):
            least = min(kinds[pieces[m].kind].weight for m in large)
            large = [m for m in large if kinds[pieces[m].kind].weight == least]
        out.append(large[self.draws.below(len(large))])
        puzzle.take(out[0])
        return puzzle.fits(n, host)

    def _some_out(self, n: int, host: int, out: list[int]) -> Spot | None:
        """The least important first, as many as it takes; those who still fit beside it come back."""
        puzzle, kinds, pieces = self.puzzle, self.puzzle.kinds, self.puzzle.pieces
        spot: Spot | None = None
        for m in sorted(puzzle.on[host], key=lambda m: (kinds[pieces[m].kind].weight, m)):
            out.append(m)
            puzzle.take(m)
            spot = puzzle.fits(n, host)
            if spot is not None:
                break
        if spot is None:
            return None
        for m in out[-2::-1]:
            back = puzzle.fits(m, host)
            if back is None:
                continue
            puzzle.put(m, back)
            again = puzzle.fits(n, host)
            if again is None:
                puzzle.take(m)
            else:
                spot = again
                out.remove(m)
        return spot

    def _refuge(self, n: int, costly: bool) -> Spot | None:
        """Of a few seats that are free, the cheapest; `costly`: the one where it starts soonest."""
        puzzle, number = self.puzzle, self.puzzle.pieces[n].kind
        kind, room, rents, home = puzzle.kinds[number], puzzle.room, puzzle.rents.get(number), puzzle.pieces[n].home
        hosts, size = kind.hosts, 0 if kind.on_ram else kind.size
        if not hosts:
            return None
        puzzle.work += len(hosts) // HOSTS_LOOKED_AT
        first, best, least, found = self.draws.below(len(hosts)), None, 0, 0
        for host in [h for h in hosts[first:] + hosts[:first] if room[h] >= size]:
            spot = puzzle.fits(n, host)
            if spot is None or puzzle.breaks(number, host):
                continue
            cost = (0 if spot is home else spot.option.start_ms) if costly else rents[host] if rents else 0
            if best is None or cost < least:
                best, least = spot, cost
            found += 1
            if found == REFUGES:
                break
        return best
