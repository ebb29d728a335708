"""How a config runs on hosts of each shape: pools by column instead of by name. The same until shapes change.

Asked once for a config and remembered from plan to plan; `prospects` and `scarce` read it. Knows nothing of what hosts
are called, hold or have free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gridops.base.ids import Digest
from gridops.model.profile import Profile
from gridops.planner.capacity import on_ram
from gridops.planner.eligible import Way, suits, wanted_of
from gridops.planner.grid import ENDLESS, Bools, Grid, Ints
from gridops.planner.recall import Shelf
from gridops.planner.terrain import level, slim
from gridops.planner.together import sets


class Fitting(NamedTuple):
    """How a config runs on all hosts of one shape."""

    way: Way
    launch: Digest
    columns: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    """Sets of pools of which `count` may work together, in the order they are tried."""
    per_pool: int
    """Bytes on each pool of a seat; where the pool is the RAM, the host's part included."""
    ram: int
    """Bytes on the host's RAM on top."""


@dataclass(frozen=True, slots=True)
class Fittings:
    """By shape; None where the config does not suit."""

    of: tuple[Fitting | None, ...]
    wanted: Ints
    """Pool x shape: bytes that a pool of the seat needs free; endless where the config cannot use the pool."""

    @property
    def usable(self) -> Bools:
        """Shape x pool."""
        return self.wanted.T < ENDLESS

    @property
    def key(self) -> tuple[int, bytes, bytes]:
        """Equal for configs that take the same on hosts of every shape."""
        count = next((f.way.launch.devices.count for f in self.of if f is not None), 0)
        return count, self.wanted.tobytes(), self.column(lambda f: f.ram).tobytes()

    def over(self, shape: Ints, value: Callable[[Fitting], int]) -> Ints:
        """One number for each of these shapes, which suit. Where all are equal, one in memory."""
        known = {value(f) for f in self.some}
        return level(known.pop(), len(shape)) if len(known) == 1 else slim(self.column(value)[shape])

    @property
    def some(self) -> list[Fitting]:
        return [f for f in self.of if f is not None]

    def column(self, value: Callable[[Fitting], int]) -> Ints:
        """One number per shape; 0 for shapes that do not suit."""
        return np.array([0 if f is None else value(f) for f in self.of], np.int64)


def fittings_of(grid: Grid, profile: Profile, position: int) -> Fittings:
    """How the config at this position runs on hosts of each shape."""
    shelf: Shelf[Fittings] = grid.world.recall.shelf("fittings")
    sources = profile, grid.terrain.shapes
    return shelf.of((profile.name, position), sources, lambda: _find(grid, profile, position))


def _find(grid: Grid, profile: Profile, position: int) -> Fittings:
    shapes, digests = len(grid.examples), grid.world.recall.digests
    asked = wanted_of(profile, profile.configs[position], grid.world.planning)
    found: list[Fitting | None] = []
    wanted = [[ENDLESS] * shapes for _ in range(grid.width)]
    for n, view in enumerate(grid.examples):
        way = suits(asked, view)
        if way is None:
            found.append(None)
            continue
        column = {r.id: c for c, r in enumerate(view.rooms)}
        columns = tuple([column[r.id] for r in way.rooms])
        groups = tuple(tuple([column[r.id] for r in s]) for s in sets(way.rooms, way.launch.devices))
        host_bytes, shared = way.need.host_bytes, on_ram(view, way)
        per_pool = way.need.device_bytes + (host_bytes if shared else 0)
        found.append(Fitting(way, digests.of(way.launch), columns, groups, per_pool, 0 if shared else host_bytes))
        for c in columns:
            wanted[c][n] = per_pool
    return Fittings(tuple(found), np.array(wanted, np.int64).reshape(grid.width, shapes))
