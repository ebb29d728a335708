"""Large steps of the search: empty a few related hosts and fill them again in another order.

Large neighbourhood search (Shaw, "Using Constraint Programming and Local Search Methods to Solve Vehicle Routing
Problems", CP 1998). The first host is one that a loose piece could use, the others such as their residents could use;
seats are taken where the room is worth least (`prices`). Called by `search`, which keeps the step or undoes it.
"""

from __future__ import annotations

from gridops.planner.constants_room import HOSTS_LOOKED_AT, LUCK, OUTSIDE
from gridops.planner.draws import Draws
from gridops.planner.pieces import Spot
from gridops.planner.puzzle import PARTS, Puzzle
from gridops.planner.steps import whoever_waits


class Ruin:
    def __init__(self, puzzle: Puzzle, draws: Draws) -> None:
        self.puzzle, self.draws = puzzle, draws
        # Those who have a home first, then those who matter more; taken from the end.
        pieces = puzzle.pieces
        order = sorted(range(len(pieces)), key=lambda n: (pieces[n].home is not None, pieces[n].claim, -n))
        self._turn = [0] * len(pieces)
        for rank, n in enumerate(order):
            self._turn[n] = rank

    def step(self) -> bool:
        """Empty and fill some hosts. False: nobody is loose, or nowhere allowed."""
        puzzle, chosen = self.puzzle, self._choose()
        if not chosen:
            return False
        queues = self._callers(chosen)
        for host in chosen:
            for n in sorted(puzzle.on[host]):
                puzzle.take(n)
                queues.setdefault(puzzle.pieces[n].kind, []).append(n)
        self._repair(queues, chosen)
        return True

    # -- empty -------------------------------------------------------------------------------------------------------

    def _choose(self) -> list[int]:
        """A host that a loose piece could use, and others that its residents could use."""
        puzzle, draws = self.puzzle, self.draws
        if not puzzle.loose:
            return []
        wanted = whoever_waits(puzzle, draws)
        piece = puzzle.pieces[wanted]
        where = puzzle.kinds[piece.kind].hosts
        if piece.home is not None and draws.below(2):
            chosen = [piece.home.host]
        elif where:
            chosen = [where[draws.below(len(where))]]
        else:
            return []
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

    def _callers(self, chosen: list[int]) -> dict[int, list[int]]:
        """Loose pieces that could use one of the hosts, as many as those could hold."""
        puzzle, found = self.puzzle, dict[int, list[int]]()
        for kind, pieces in puzzle.loose.items():
            options, most = puzzle.kinds[kind].options, puzzle.kinds[kind].most_here
            here = [h for h in chosen if h in options]
            if here:
                found[kind] = sorted(pieces)[: len(here) * most] if most < len(pieces) else sorted(pieces)
        return found

    # -- fill --------------------------------------------------------------------------------------------------------

    def _repair(self, queues: dict[int, list[int]], chosen: list[int]) -> None:
        """Greedy, in an order that differs from time to time: mostly by weight, else by size."""
        puzzle, draws, pieces = self.puzzle, self.draws, self.puzzle.pieces
        by_size, order = not draws.below(4), list[tuple[int, int]]()
        for kind, queue in queues.items():
            base = puzzle.kinds[kind].size if by_size else puzzle.kinds[kind].weight * PARTS
            order += [(-(base * (512 + luck) >> 10), kind) for luck in draws.some(len(queue), LUCK)]
            if len(queue) > 1:
                queue.sort(key=self._turn.__getitem__)
        hosts = chosen + self._outside(chosen, min((puzzle.kinds[k].size for k in queues), default=0))
        failed = set[int]()
        for _, kind in sorted(order):
            n = queues[kind].pop()
            home = pieces[n].home
            if home is None and kind in failed:
                continue
            spot = puzzle.fits(n, home.host) if home is not None and draws.below(4) else None
            if home is None or spot is not home or puzzle.breaks(kind, home.host):
                spot = self._cheapest(n, hosts) if kind not in failed else None
            if spot is None:
                failed.add(kind)
                continue
            puzzle.put(n, spot)

    def _cheapest(self, n: int, hosts: list[int]) -> Spot | None:
        """The seat that takes the least valuable room."""
        puzzle, number = self.puzzle, self.puzzle.pieces[n].kind
        kind, room, rents = puzzle.kinds[number], puzzle.room, puzzle.rents[number]
        options, size = kind.options, 0 if kind.on_ram else kind.size
        best: Spot | None = None
        for host in [h for h in hosts if room[h] >= size and h in options]:
            if best is not None and rents[host] >= rents[best.host]:
                continue
            if puzzle.breaks(number, host):
                continue
            spot = puzzle.fits(n, host)
            if spot is not None:
                best = spot
        return best

    def _outside(self, chosen: list[int], least: int) -> list[int]:
        """Other hosts with room for the smallest of them, a few of those where there are many."""
        self.puzzle.work += len(self.puzzle.room) // HOSTS_LOOKED_AT
        found = [h for h in self.puzzle.roomy(least) if h not in chosen]
        if len(found) <= OUTSIDE:
            return found
        first, step = self.draws.below(len(found)), len(found) // OUTSIDE
        return [found[(first + n * step) % len(found)] for n in range(OUTSIDE)]
