"""What every host of a puzzle has left beside its pieces: memory, slots, disk, company and what it would cost.

Called by `movers`, which says who is a piece. Everybody else, planned or not, is ground here and does not move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gridops.base.ids import ProfileName
from gridops.planner.draft import Draft, Item
from gridops.planner.grid import Grid
from gridops.planner.pieces import Ground, Spot
from gridops.planner.rank import UNKNOWN_PRICE_MICRO

Stands: TypeAlias = tuple[int, Spot | None, Item | None]
"""A piece: its kind, where it stands, and the item that it is if it looks for a seat."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the puzzle calls hosts (by row of the grid) and profiles, those of other plans included."""

    host: Mapping[int, int]
    profile: Mapping[ProfileName, int]


def ground_of(draft: Draft, grid: Grid, rows: Sequence[int], numbers: Numbers, pieces: Sequence[Stands]) -> Ground:
    """The hosts of these rows without the pieces."""
    at, boards = np.array(rows, np.int64), draft.board.rows

    def column(values: np.ndarray) -> list[int]:
        found: list[int] = values[at].tolist()
        return found

    def table(values: np.ndarray) -> list[list[int]]:
        found: list[list[int]] = values[at].tolist()
        return found

    ground = Ground(
        free=table(grid.open - grid.used),
        slack=table(grid.raw - grid.open),
        gpu=table(grid.gpu - grid.used_gpu),
        ram=column(grid.ram),
        slots=column(grid.limit - grid.present),
        disk=column(grid.disk_free),
        counts=[{} for _ in rows],
        price=[0] * len(rows),
        held=[len(boards[row].desired) + (len(boards[row].kept) if boards[row].is_paid() else 0) for row in rows],
    )
    for name, there in sorted(grid.company.rows.items()):
        for row, many in there.items():
            if (host := numbers.host.get(row)) is not None:
                ground.counts[host][numbers.profile[name]] = many
    for kind, spot, _ in pieces:
        if spot is not None:
            _lift(ground, kind, spot)
    for kind, _, item in pieces:
        # Whoever is to leave does not count where it stands: it would count twice once it has a seat.
        row = grid.row.get(item.origin.host, -1) if item is not None and item.origin is not None else -1
        if item is not None and row in numbers.host and item.replica in boards[row].desired:
            _one_less(ground.counts[numbers.host[row]], kind)
    _prices(draft, grid, rows, ground, {spot.host for _, spot, _ in pieces if spot is not None})
    return ground


def barred_by_price(draft: Draft, grid: Grid, rows: Sequence[int], ground: Ground) -> frozenset[int]:
    """Hosts that nobody new may open: of unknown price where that is refused, and all while it costs too much."""
    ceiling = draft.world.budgets.price
    if ceiling is None:
        return frozenset()
    over = draft.board.price_micro > ceiling.max_per_hour_micro
    unknown = (grid.price[list(rows)] == UNKNOWN_PRICE_MICRO) & (ceiling.unknown == "refuse")
    return frozenset(h for h, held in enumerate(ground.held) if not held and (over or bool(unknown[h])))


def _lift(ground: Ground, kind: int, spot: Spot) -> None:
    """The piece does not stand there: it is no ground."""
    host, option, pools = spot
    for column in pools:
        ground.free[host][column] += option.need
        ground.gpu[host][column] += option.need if option.gpu else 0
    if option.ram:
        ground.free[host][ground.ram[host]] += option.ram
    ground.slots[host] += 1
    ground.disk[host] += option.missing
    ground.held[host] -= 1
    _one_less(ground.counts[host], kind)


def _prices(draft: Draft, grid: Grid, rows: Sequence[int], ground: Ground, left: set[int]) -> None:
    """What hosts cost, and what is left to spend once those are given back on which only pieces stood (`left`)."""
    ceiling = draft.world.budgets.price
    if ceiling is None:
        return
    known = [0 if p == UNKNOWN_PRICE_MICRO else p for p in grid.price[list(rows)].tolist()]
    ground.price[:] = known
    emptied = {host for host in left if not ground.held[host]}
    ground.money = ceiling.max_per_hour_micro - draft.board.price_micro + sum(known[h] for h in emptied)


def _one_less(counts: dict[int, int], kind: int) -> None:
    counts[kind] -= 1
    if not counts[kind]:
        del counts[kind]
