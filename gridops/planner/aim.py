"""From a placement to aim for to a state of the puzzle: who of each kind goes where, and what the rules say to it.

Whoever stands where its kind is to stand stays; the others come after it, and who has no place there looks for one
elsewhere. What the rules do not excuse goes back, and of those who would wait for each other's places in a circle some
do without one. Called by `search`, which keeps the state or does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from gridops.planner.circles import ease, stuck
from gridops.planner.columns import Content
from gridops.planner.constants_room import DIVE_ROWS, EASES, HOMES_PER_MOVE, UNTIES
from gridops.planner.permit import Limits, Permit
from gridops.planner.puzzle import Puzzle


def may_aim(puzzle: Puzzle, limits: Limits) -> bool:
    """So much may be moved that a placement far from this one can be reached, and it is found in time."""
    homes = sum(1 for p in puzzle.pieces if p.home is not None)
    small = len(puzzle.on) + len({p.kind for p in puzzle.pieces}) <= DIVE_ROWS
    return small and limits.rounds > 0 and limits.drops > 0 and limits.moves * HOMES_PER_MOVE >= homes


def arrange(puzzle: Puzzle, permit: Permit, contents: Mapping[int, Content]) -> None:
    """Turn the puzzle to these contents, as far as there is room and the rules admit it."""
    pieces, kinds = puzzle.pieces, puzzle.kinds
    for n, spot in enumerate(puzzle.at):
        if spot is not None:
            puzzle.take(n)
    seats = _stay(puzzle, contents)
    loose = (n for ns in puzzle.loose.values() for n in ns)
    order = sorted(
        loose,
        key=lambda n: (-kinds[pieces[n].kind].weight, -kinds[pieces[n].kind].size, pieces[n].home is None, n),
    )
    late = [n for n in order if not _come(puzzle, n, seats.get(pieces[n].kind, []))]
    _elsewhere(puzzle, [*late, *_too_close(puzzle)])
    permit.settle()
    for _ in range(UNTIES):
        sorry = [k for k in puzzle.gone if not permit.excused((k,))]
        if not sorry:
            break
        _send_back(puzzle, permit, sorry)
        permit.settle()
    for _ in range(EASES):
        tied = stuck(puzzle)
        if not tied or not ease(puzzle, tied, permit):
            break


def _stay(puzzle: Puzzle, contents: Mapping[int, Content]) -> dict[int, list[int]]:
    """Let those stay who may. Returns hosts that are to get somebody, by kind."""
    wanted = {host: list(content) for host, content in contents.items()}
    for n, piece in enumerate(puzzle.pieces):
        home = piece.home
        if home is not None and piece.kind in wanted.get(home.host, ()) and puzzle.fits(n, home.host) is home:
            wanted[home.host].remove(piece.kind)
            puzzle.put(n, home)
    seats: dict[int, list[int]] = {}
    for host in sorted(wanted):
        for kind in wanted[host]:
            seats.setdefault(kind, []).append(host)
    return seats


def _come(puzzle: Puzzle, n: int, hosts: list[int]) -> bool:
    for host in hosts:
        spot = puzzle.fits(n, host)
        if spot is not None:
            puzzle.put(n, spot)
            hosts.remove(host)
            return True
    return False


def _too_close(puzzle: Puzzle) -> list[int]:
    """Of kinds that lack failure domains, those who share one go, newcomers first."""
    out, pieces = list[int](), puzzle.pieces
    for kind, rules in enumerate(puzzle.kinds):
        if rules.domains is None or not puzzle.missing(kind):
            continue
        here = [n for n, p in enumerate(pieces) if p.kind == kind and puzzle.at[n] is not None]
        for n in sorted(here, key=lambda n: (puzzle.at[n] is pieces[n].home, -n)):
            spot = puzzle.at[n]
            if spot is not None and puzzle.missing(kind):
                where = rules.domains[spot.host]
                if where < 0 or puzzle.domains[kind][where] > 1:
                    puzzle.take(n)
                    out.append(n)
    return out


def _elsewhere(puzzle: Puzzle, late: list[int]) -> None:
    """Who found no place there goes home, or wherever there is room."""
    for n in late:
        piece = puzzle.pieces[n]
        spot = puzzle.fits(n, piece.home.host) if piece.home is not None else None
        if spot is None or puzzle.breaks(piece.kind, spot.host):
            kind = puzzle.kinds[piece.kind]
            spot = puzzle.best(piece.kind, puzzle.roomy(0 if kind.on_ram else kind.size))
        if spot is not None:
            puzzle.put(n, spot)


def _send_back(puzzle: Puzzle, permit: Permit, kinds: list[int]) -> None:
    """One of each of these kinds that lost its place gets it back from whoever came there."""
    pieces, out = puzzle.pieces, list[int]()

    def worth(m: int) -> tuple[int, int]:
        return puzzle.kinds[pieces[m].kind].weight, m

    for kind in kinds:
        for n in permit.homes[kind]:
            home = pieces[n].home
            if puzzle.at[n] is not None or home is None:
                continue
            come = sorted((m for m in puzzle.on[home.host] if puzzle.at[m] is not pieces[m].home), key=worth)
            while puzzle.fits(n, home.host) is not home and come:
                out.append(come.pop(0))
                puzzle.take(out[-1])
            if puzzle.fits(n, home.host) is home:
                puzzle.put(n, home)
                break
    _elsewhere(puzzle, sorted(out, key=worth, reverse=True))
