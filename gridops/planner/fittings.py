"""How a config runs on hosts of each shape: pools by column instead of by name. The same until shapes change.

Asked once for a config and remembered from plan to plan; `prospects` and `scarce` read it. Knows nothing of what hosts
are called, hold or have free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from gridops.base.ids import Digest
from gridops.footprint.ledger import DeviceRoom
from gridops.footprint.need import Need
from gridops.model.profile import Profile
from gridops.planner.capacity import on_ram
from gridops.planner.eligible import Wanted, Way, suits, wanted_of
from gridops.planner.grid import ENDLESS, Bools, Grid, Ints
from gridops.planner.recall import Shelf
from gridops.planner.terrain import level, slim
from gridops.planner.together import sets
from gridops.planner.world import HostView


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


Takes: TypeAlias = tuple[int, bytes, tuple[int, ...]]
"""What a config takes on hosts of every shape: pools of a seat, bytes by pool, and RAM on top."""


@dataclass(frozen=True, slots=True)
class Fittings:
    """By shape; None where the config does not suit."""

    of: tuple[Fitting | None, ...]
    wanted: Ints
    """Pool x shape: bytes that a pool of the seat needs free; endless where the config cannot use the pool."""
    key: Takes
    """Equal for configs that take the same on hosts of every shape."""

    some: tuple[Fitting, ...]
    """Those that there are."""
    launches: tuple[Digest, ...]
    """Every command that it may be, in order."""

    @classmethod
    def made(cls, of: tuple[Fitting | None, ...], wanted: Ints) -> Fittings:
        some = tuple([f for f in of if f is not None])
        count = some[0].way.launch.devices.count if some else 0
        rams = tuple([0 if f is None else f.ram for f in of])
        return cls(of, wanted, (count, wanted.tobytes(), rams), some, tuple(sorted({f.launch for f in some})))

    @property
    def usable(self) -> Bools:
        """Shape x pool."""
        return self.wanted.T < ENDLESS

    def over(self, shape: Ints, value: Callable[[Fitting], int]) -> Ints:
        """One number for each of these shapes, which suit. Where all are equal, one in memory."""
        known = {value(f) for f in self.some}
        return level(known.pop(), len(shape)) if len(known) == 1 else slim(self.column(value)[shape])

    def column(self, value: Callable[[Fitting], int]) -> Ints:
        """One number per shape; 0 for shapes that do not suit."""
        return np.array([0 if f is None else value(f) for f in self.of], np.int64)


def fittings_of(grid: Grid, profile: Profile, position: int) -> Fittings:
    """How the config at this position runs on hosts of each shape."""
    shelf: Shelf[Fittings] = grid.world.recall.shelf("fittings")
    sources = profile, grid.terrain.shapes
    return shelf.of((profile.name, position), sources, lambda: _find(grid, profile, position))


class _Site(NamedTuple):
    """Where on hosts of one shape a config runs, whatever it needs there."""

    backend: str
    gpu: bool
    rooms: tuple[DeviceRoom, ...]
    columns: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    shared: bool
    """The pool is the RAM."""


def _find(grid: Grid, profile: Profile, position: int) -> Fittings:
    shapes, digests = len(grid.examples), grid.world.recall.digests
    asked = wanted_of(profile, profile.configs[position], grid.world.planning, grid.world.signed)
    found: list[Fitting | None] = []
    wanted = [[ENDLESS] * shapes for _ in range(grid.width)]
    for n, (view, usual) in enumerate(zip(grid.examples, _sites(grid, asked), strict=True)):
        way = suits(asked, view) if view.measured else None
        site, needs = (usual, asked.need) if way is None else (_site(view, way), way.need)
        if site is None or not isinstance(needs, Need):
            found.append(None)
            continue
        host_bytes, launch = needs.host_bytes, asked.launch(site.backend)
        per_pool = needs.device_bytes + (host_bytes if site.shared else 0)
        here, ram = Way(launch, needs, site.rooms, site.gpu), 0 if site.shared else host_bytes
        found.append(Fitting(here, digests.of(launch), site.columns, site.groups, per_pool, ram))
        for c in site.columns:
            wanted[c][n] = per_pool
    return Fittings.made(tuple(found), np.array(wanted, np.int64).reshape(grid.width, shapes))


def _sites(grid: Grid, asked: Wanted) -> tuple[_Site | None, ...]:
    """By shape, for hosts on which nothing was measured: the same for all configs of which the rules read the same."""
    if not isinstance(asked.need, Need) or asked.divisor is not None:
        return (None,) * len(grid.examples)
    config, rules = asked.config, asked.profile.placement
    key = (
        (config.engine, config.backends, config.devices, bool(asked.need.host_bytes)),
        (rules.require_tags, rules.forbid_tags, rules.tier),
        _unsigned(asked, asked.need),
    )

    def look() -> tuple[_Site | None, ...]:
        ways = [(v, None if v.measured else suits(asked, v)) for v in grid.examples]
        return tuple(None if way is None else _site(view, way) for view, way in ways)

    shelf: Shelf[tuple[_Site | None, ...]] = grid.world.recall.shelf("sites")
    return shelf.of(key, (grid.terrain.shapes,), look)


def _unsigned(asked: Wanted, here: Need) -> tuple[tuple[str, bool], ...]:
    """Where people did not sign it: the backends, and whether on the host's RAM. Nothing without a catalog."""
    if asked.signed is None:
        return ()
    ways = ((backend, shared) for backend in asked.config.backends for shared in (False, True))
    return tuple(way for way in ways if asked.unsigned(way[0], here, shared=way[1]) is not None)


def _site(view: HostView, way: Way) -> _Site:
    column = {r.id: c for c, r in enumerate(view.rooms)}
    columns = tuple([column[r.id] for r in way.rooms])
    groups = tuple(tuple([column[r.id] for r in s]) for s in sets(way.rooms, way.launch.devices))
    return _Site(way.launch.backend, way.gpu, way.rooms, columns, groups, on_ram(view, way))
