"""What room is worth: a price for each host's memory and slots, so that nobody takes what others need more.

Where models want more than there is, hosts are not alike: one that few can use is cheap, one that many wait for is
dear. The prices are multipliers of the linear relaxation (weight against memory, slots and how many are wanted), found
by subgradient steps (Held, Wolfe and Crowder, "Validation of subgradient optimization", Math. Programming 6, 1974).
They only say where to look first: no rule and no result depends on them being right. Integers, so that they are the
same on every machine. Called by `search`; hosts of several pools count as one, as in `best_case`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gridops.planner.best_case import all_room, usable
from gridops.planner.constants_room import PRICE_SHRINKS_PPM, PRICE_STEPS
from gridops.planner.grid import Ints
from gridops.planner.puzzle import PARTS, Puzzle

WHOLE = 1 << 16
"""All of a host's memory, or of its slots."""

SCALE = 1 << 20
"""What the heaviest kind weighs while prices are found."""

SLOTS = 64
"""More slots than anybody pays for."""


@dataclass(frozen=True, slots=True)
class _Market:
    """Kinds (rows) and hosts (columns) by what one takes of the other."""

    weight: Ints
    """Of each kind, as a column."""
    wanted: Ints
    """Pieces of each kind."""
    memory: Ints
    """Share of the host's memory that one of the kind takes."""
    slot: Ints
    """Share of the host's slots that anybody takes."""
    most: Ints
    """How many of the kind the host could hold; 0 where it may not stand."""


def rents(puzzle: Puzzle) -> dict[int, list[int]]:
    """By kind, what a seat on each host costs beyond the cheapest one, in parts of a unit of weight."""
    kinds = sorted({p.kind for p in puzzle.pieces})
    heaviest = max(1, *(puzzle.kinds[k].weight for k in kinds))
    market = _market(puzzle, kinds, heaviest)
    memory, slots = _prices(market)
    cost = (market.memory * memory + market.slot * slots) >> 16
    found: dict[int, list[int]] = {}
    for n, kind in enumerate(kinds):
        hosts = puzzle.kinds[kind].hosts
        row: list[int] = (cost[n] * heaviest // (SCALE // PARTS)).tolist()
        least, allowed = min((row[h] for h in hosts), default=0), puzzle.kinds[kind].options
        found[kind] = [price - least if h in allowed else 0 for h, price in enumerate(row)]
    return found


def _market(puzzle: Puzzle, kinds: list[int], heaviest: int) -> _Market:
    memory, slots = all_room(puzzle, range(len(puzzle.on)))
    used = usable(puzzle, kinds)
    room = [max(1, sum(max(0, free[c]) for c in columns)) for free, columns in zip(memory, used, strict=True)]
    count = dict.fromkeys(kinds, 0)
    for piece in puzzle.pieces:
        count[piece.kind] += 1
    share, most = np.zeros((len(kinds), len(room)), np.int64), np.zeros((len(kinds), len(room)), np.int64)
    for n, kind in enumerate(kinds):
        rules = puzzle.kinds[kind]
        for host, options in rules.options.items():
            size = max(1, options[0].need * options[0].count)
            share[n, host] = min(WHOLE, size * WHOLE // room[host])
            most[n, host] = max(0, min(rules.most_here, count[kind], room[host] // size, slots[host]))
    return _Market(
        weight=np.array([[puzzle.kinds[k].weight * SCALE // heaviest] for k in kinds], np.int64),
        wanted=np.array([count[k] for k in kinds], np.int64),
        memory=share,
        slot=np.array([WHOLE // max(1, min(s, SLOTS)) for s in slots], np.int64),
        most=most,
    )


def _prices(market: _Market) -> tuple[Ints, Ints]:
    """Of all memory and of all slots of each host: raised where more is taken than there is, lowered where less."""
    kinds, hosts = market.most.shape
    memory, slots, rank = np.zeros(hosts, np.int64), np.zeros(hosts, np.int64), np.zeros(kinds, np.int64)
    sums, step, settled = (np.zeros(hosts, np.int64), np.zeros(hosts, np.int64)), int(market.weight.mean()), 0
    for turn in range(PRICE_STEPS):
        cost = (market.memory * memory + market.slot * slots) >> 16
        here = np.where(market.weight - (rank // market.wanted)[:, None] > cost, market.most, 0)
        memory = _moved(memory, (market.memory * here).sum(0) - WHOLE, step)
        slots = _moved(slots, market.slot * here.sum(0) - WHOLE, step)
        rank = _moved(rank, here.sum(1) * WHOLE // market.wanted - WHOLE, step)
        step = step * PRICE_SHRINKS_PPM // 1_000_000
        if turn >= PRICE_STEPS * 2 // 3:
            sums[0][:] += memory
            sums[1][:] += slots
            settled += 1
    return sums[0] // max(1, settled), sums[1] // max(1, settled)


def _moved(price: Ints, lack: Ints, step: int) -> Ints:
    """A step up where it lacks, down where it is left over, and never below nothing."""
    bounded = np.minimum(np.maximum(lack, -WHOLE), 2 * WHOLE)
    return np.maximum(0, price + (bounded * step >> 16))
