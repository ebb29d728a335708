"""Which hosts a search takes in where the fleet is too large for all of them. Called by `movers`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gridops.planner.constants_room import PUZZLE_HOSTS
from gridops.planner.draft import Item
from gridops.planner.grid import ENDLESS
from gridops.planner.seats import Seats


def rows_near(seats: Seats, wanting: Sequence[Item]) -> list[int]:
    """Hosts that matter to those who look: with most room for each, then with the least important residents, and the
    roomiest of all for those who would have to go there."""
    grid, draft = seats.grid, seats.draft
    if len(grid.ids) <= PUZZLE_HOSTS:
        return list(range(len(grid.ids)))
    profiles = {i.profile.name: i.profile for i in wanting}
    free = np.where(grid.present < grid.limit, np.where(grid.open > -ENDLESS, grid.open - grid.used, 0).max(1), 0)
    weakest = np.full(len(grid.ids), ENDLESS, np.int64)
    for seated in draft.seats.values():
        row = grid.row.get(seated.assignment.seat.host)
        profile = draft.world.profiles.get(seated.assignment.profile)
        if row is not None and profile is not None:
            weakest[row] = min(weakest[row], profile.priority)
    share = max(2, PUZZLE_HOSTS // (3 * len(profiles)))
    chosen = {grid.row[i.pin] for i in wanting if i.pin in grid.row}
    for name in sorted(profiles):
        allowed = sorted({int(r) for o in seats.lasting(profiles[name]) for r in o.rows})
        rows = np.array(allowed, np.int64)
        if len(rows) and len(chosen) < 2 * PUZZLE_HOSTS // 3:
            chosen.update(rows[np.argsort(-free[rows], kind="stable")[:share]].tolist())
            chosen.update(rows[np.lexsort((-free[rows], weakest[rows]))[:share]].tolist())
    for row in np.argsort(-free, kind="stable").tolist():
        if len(chosen) >= PUZZLE_HOSTS:
            break
        chosen.add(row)
    return sorted(chosen)
