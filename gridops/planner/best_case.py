"""How good a rearrangement can possibly be: a bound on what must stay unmet, so that a search knows when to stop.

Called by `search`. Three views of the same question, each too hopeful in its own way: room for every kind taken by
itself; all slots as one, and all memory that sums of sizes can fill; and how many may come if only so many may go. The
largest of the bounds holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import gcd

from gridops.planner.constants_room import FILL_CELLS
from gridops.planner.permit import Limits
from gridops.planner.puzzle import Puzzle

FAR = 1 << 40
"""More slots than anybody counts."""

Sizes = tuple[tuple[int, int], ...]
"""What one of a kind takes on a host, and at most how many of it."""


def least_unmet(puzzle: Puzzle, limits: Limits) -> int:
    """Unmet weight that no rearrangement within the limits can be below."""
    total = puzzle.unmet + sum(puzzle.kinds[p.kind].weight for n, p in enumerate(puzzle.pieces) if puzzle.at[n])
    step = gcd(*(puzzle.kinds[p.kind].weight for p in puzzle.pieces)) or 1
    least = max(0, total - _by_traffic(puzzle, limits))
    # The other takes a look at every host; where this one is reached already, it has nothing to add.
    if least < puzzle.unmet:
        least = max(least, total - _by_size(puzzle))
    return -(-least // step) * step


def _by_size(puzzle: Puzzle) -> int:
    """Weight that memory and slots can carry: fractions allowed, each kind only as often as hosts can hold it."""
    many: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for piece, spot in zip(puzzle.pieces, puzzle.at, strict=True):
        many[piece.kind] = many.get(piece.kind, 0) + 1
        if spot is not None:
            size = spot.option.need * len(spot.pools)
            sizes[piece.kind] = min(size, sizes.get(piece.kind, size))
    # Headroom is only for those who are at home.
    memory, slots = all_room(puzzle, {p.home.host for p in puzzle.pieces if p.home is not None})
    used = usable(puzzle, many)
    room = [sum(max(0, free[c]) for c in columns) for free, columns in zip(memory, used, strict=True)]
    items = []
    for kind in sorted(many):
        count, weight = many[kind], puzzle.kinds[kind].weight
        size = min((o.need * o.count for os in puzzle.kinds[kind].options.values() for o in os), default=FAR << 20)
        if kind in puzzle.loose:
            count = min(count, _most(puzzle, kind, memory, slots))
        size = min(size, sizes.get(kind, size))
        items.append((weight, max(1, size), count))
    left, found = sum(_fillable(puzzle, many, room)), 0
    for weight, size, count in sorted(items, key=lambda i: -i[0] / i[1]):
        fit = min(count, left // size)
        found, left = found + fit * weight, left - fit * size
        if fit < count:
            found += weight * left // size
            break
    seats = sum(min(s, FAR) for s in slots)
    taken = 0
    for weight, _, count in sorted(items, reverse=True):
        fit = min(count, seats)
        taken, seats = taken + fit * weight, seats - fit
    return min(found, taken)


def _fillable(puzzle: Puzzle, many: dict[int, int], room: list[int]) -> list[int]:
    """How much of each host's room pieces can take at most: sums of their sizes, and nothing between those."""
    ways: list[dict[tuple[int, int], int]] = [{} for _ in room]
    for kind in sorted(many):
        rules = puzzle.kinds[kind]
        for host, options in rules.options.items():
            ways[host] |= {(kind, o.need * o.count): min(many[kind], rules.most_here) for o in options}
    for piece, spot in zip(puzzle.pieces, puzzle.at, strict=True):
        for one in (piece.home, spot):
            if one is not None:
                ways[one.host][piece.kind, one.option.need * len(one.pools)] = many[piece.kind]
    known: dict[tuple[int, Sizes], int] = {}
    found = []
    for whole, here in zip(room, ways, strict=True):
        key = whole, tuple(sorted((size, count) for (_, size), count in here.items()))
        if key not in known:
            known[key] = _fill(*key)
        found.append(known[key])
    return found


def _fill(room: int, sizes: Sizes) -> int:
    """The largest sum of sizes that is no more than the room, or a little more than that: sizes count in cells."""
    cell = max(1, room // FILL_CELLS)
    last = room // cell
    sums, most = 1, 0
    for size, count in sizes:
        cells, left = size // cell, min(count, room // max(1, size))
        if not cells:
            return room
        most += left
        # So many of one size are 1, 2, 4, ... of it and a rest: every number of them is a sum of those.
        step = 1
        while left:
            step = min(step, left)
            sums |= sums << cells * step
            left, step = left - step, 2 * step
        sums &= (2 << last) - 1
    # Each piece may be short of a cell; those who fit at once are no more than the smallest of them would be.
    most = min(most, room // max(1, min((size for size, _ in sizes), default=room)))
    return min(room, (sums.bit_length() - 1 + most) * cell)


def usable(puzzle: Puzzle, kinds: Iterable[int]) -> list[set[int]]:
    """Pools of each host that anybody could use."""
    found = [set[int]() for _ in puzzle.ground.slots]
    for kind in kinds:
        for host, options in puzzle.kinds[kind].options.items():
            for option in options:
                found[host].update(option.columns)
    for piece, spot in zip(puzzle.pieces, puzzle.at, strict=True):
        for one in (piece.home, spot):
            if one is not None:
                found[one.host].update(one.pools)
    return found


def all_room(puzzle: Puzzle, homes: Collection[int]) -> tuple[list[list[int]], list[int]]:
    """Memory and slots of every host without any piece; the headroom with it on these hosts."""
    memory, slots = [list(f) for f in puzzle.ground.free], list(puzzle.ground.slots)
    for spot in puzzle.at:
        if spot is None:
            continue
        slots[spot.host] += 1
        for column in spot.pools:
            memory[spot.host][column] += spot.option.need
        if spot.option.ram:
            memory[spot.host][puzzle.ground.ram[spot.host]] += spot.option.ram
    for host in sorted(homes):
        slack = puzzle.ground.slack[host]
        memory[host] = [f + s if s < FAR << 20 else f for f, s in zip(memory[host], slack, strict=True)]
    return memory, slots


def _most(puzzle: Puzzle, kind: int, memory: list[list[int]], slots: list[int]) -> int:
    """How many of the kind could stand if they had every host for themselves."""
    rules, found = puzzle.kinds[kind], 0
    for host, options in rules.options.items():
        here = 0
        for option in options:
            fitting = sum(max(0, memory[host][c]) // max(1, option.need) for c in option.columns)
            here = max(here, fitting // option.count)
        found += min(here, max(0, slots[host]), rules.most_here)
    homeless = [p for p in puzzle.pieces if p.kind == kind and p.home is not None and p.home.host not in rules.options]
    return found + len(homeless)


def _by_traffic(puzzle: Puzzle, limits: Limits) -> int:
    """Weight that can stand when each newcomer takes a slot that is free or was given up, and few may be given up."""
    kinds = puzzle.kinds
    standing = [kinds[p.kind].weight for p in puzzle.pieces if p.home is not None]
    coming = sorted((kinds[p.kind].weight for p in puzzle.pieces if p.home is None), reverse=True)
    going = sorted(standing)[: limits.drops]
    settled = sum(1 for n, p in enumerate(puzzle.pieces) if p.home is not None and puzzle.at[n])
    seats = sum(min(s, FAR) for s in puzzle.ground.slots) + sum(1 for s in puzzle.at if s) - settled
    seats -= len(standing) - settled
    found = base = sum(standing) + sum(coming[: max(0, seats)])
    if seats < 0:
        return sum(standing) + sum(coming)
    for n, weight in enumerate(going):
        if seats + n >= len(coming):
            break
        base += coming[seats + n] - weight
        found = max(found, base)
    return found
