"""How many wanted replicas would lose a place if a replica took its seat on this host.

The measure is the fragmentation gradient of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads
with Fragmentation Gradient Descent" (USENIX ATC 2023), section 4, counted in whole replicas of everything that a
replica takes. For each kind that is wanted: how many more of it the host could still hold, by its devices and by its
RAM, whichever runs out first. A place costs as many replicas as want such a place, divided by all places of the kind
that empty hosts have. So a host that few can use is taken first; RAM is kept beside devices for who needs both; a large
gap is kept for who needs it, the more so the fewer there are. Used by `openings`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gridops.model.profile import Profile
from gridops.planner.constants import SCARCE_KINDS
from gridops.planner.fittings import Takes, fittings_of
from gridops.planner.grid import ENDLESS, Bools, Grid, Ints, anywhere
from gridops.planner.recall import Shelf
from gridops.planner.world import HostView

NANO = 1_000_000_000
"""Prices are summed up in billionths of a replica, so that rounding tells nobody apart."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Replicas of equal need: bytes on each of `count` pools and of RAM on top, and on which pools."""

    count: int
    need: Ints
    """By shape of host; where the pool is the RAM, the host's part included."""
    ram: Ints
    """By shape of host."""
    usable: Bools
    """Shape x pool."""
    key: tuple[int, bytes, bytes, bytes]
    """The same, to compare by."""


class Scarcity:
    """What the profiles of the scope want of hosts, by kind."""

    def __init__(self, grid: Grid) -> None:
        shelf: Shelf[tuple[_Kind | None]] = grid.world.recall.shelf("kinds")
        wanted: dict[tuple[int, bytes, bytes, bytes], int] = {}
        kinds: dict[tuple[int, bytes, bytes, bytes], _Kind] = {}
        known: dict[Takes, _Kind] = {}
        for profile in grid.world.profiles.values():
            # As the last plan found it, where hosts have the shapes they had.
            sources = profile, grid.terrain.shapes
            kind = shelf.of(profile.name, sources, lambda asked=profile: (_kind(grid, asked, known),))[0]  # type: ignore[misc]
            if kind is not None and profile.replicas_max:
                kinds[kind.key] = kind
                wanted[kind.key] = wanted.get(kind.key, 0) + max(1, profile.replicas_min)
        self._ram_column: Ints = np.array([_ram_column(v) for v in grid.examples], np.int64)
        self._take(grid, [kinds[key] for key in sorted(wanted)])
        price = np.array([wanted[key] * NANO for key in sorted(wanted)], np.int64) // np.maximum(self._places(grid), 1)
        dearest = np.sort(np.argsort(-price, kind="stable")[:SCARCE_KINDS])
        self._take(grid, [kinds[sorted(wanted)[n]] for n in dearest.tolist()])
        self.price: Ints = price[dearest]
        self._numbers: dict[tuple[int, bytes], int] | None = None
        self._worths: Ints = np.zeros(0, np.int64)

    def of_states(self, grid: Grid, states: Ints, rows: Ints) -> Ints:
        """`worth` of hosts as they stand, each of these states by one of these rows."""
        if self._numbers is not grid.numbers:
            self._numbers, self._worths = grid.numbers, np.zeros(0, np.int64)
        if (more := grid.known_states - len(self._worths)) > 0:
            self._worths = np.concatenate([self._worths, np.full(more, -1, np.int64)])
        unknown = self._worths[states] < 0
        if anywhere(unknown):
            asked = rows[unknown]
            self._worths[states[unknown]] = self.worth(grid.shape[asked], np.maximum(grid.free[asked], 0))
        return self._worths[states]

    def worth(self, shape: Ints, free: Ints) -> Ints:
        """What the places are worth that hosts of these shapes have with so much free (rows x pools), in billionths."""
        worth: Ints = (self._hold(shape, free) * self.price[:, None]).sum(0)
        return worth

    def _take(self, grid: Grid, chosen: list[_Kind]) -> None:
        many, shapes = len(chosen), len(grid.examples)
        self.count: Ints = np.array([k.count for k in chosen], np.int64)
        self.need: Ints = np.array([k.need for k in chosen], np.int64).reshape(many, shapes)
        self.ram: Ints = np.array([k.ram for k in chosen], np.int64).reshape(many, shapes)
        usable = np.array([k.usable for k in chosen], np.bool_).reshape(many, shapes, grid.width)
        self._wanted: Ints = np.where(usable, self.need[:, :, None], ENDLESS)
        """Kind x shape x pool: what one of the kind takes there; more than there is where it cannot be."""
        self._together = anywhere(self.count != 1)

    def _hold(self, shape: Ints, free: Ints) -> Ints:
        """How many replicas each kind could have there: kinds x rows."""
        fit = free[None] // self._wanted[:, shape]
        replicas: Ints = np.add.reduce(fit, 2)
        if self._together:
            together = np.add.reduce(fit > 0, 2) // self.count[:, None]
            replicas = np.where(self.count[:, None] == 1, replicas, together)
        ram = self.ram[:, shape]
        if anywhere(ram > 0):
            left = free[np.arange(len(free)), self._ram_column[shape]]
            replicas = np.minimum(replicas, np.where(ram > 0, left // np.maximum(ram, 1), ENDLESS))
        return replicas

    def _places(self, grid: Grid) -> Ints:
        """All places of each kind on empty hosts."""
        many = np.bincount(grid.shape, minlength=len(grid.examples))
        free = np.zeros((len(grid.examples), grid.width), np.int64)
        for n, view in enumerate(grid.examples):
            free[n, : len(view.rooms)] = [room.total_bytes for room in view.rooms]
        places: Ints = (self._hold(np.arange(len(grid.examples)), free) * many).sum(1)
        return places


def scarcity_of(grid: Grid) -> Scarcity:
    """What the profiles want of these hosts; as it was, where neither are others."""
    shelf: Shelf[Scarcity] = grid.world.recall.shelf("scarcity")
    return shelf.of("all", (grid.terrain.shapes, *grid.world.profiles.values()), lambda: Scarcity(grid))


def _kind(grid: Grid, profile: Profile, known: dict[Takes, _Kind]) -> _Kind | None:
    """`known`: of others that take the same."""
    for position, config in enumerate(profile.configs):
        fittings = fittings_of(grid, profile, position)
        if fittings.some:
            if (like := known.get(fittings.key)) is not None:
                return like
            each = np.maximum(fittings.column(lambda f: f.per_pool), 1)
            ram, count, usable = fittings.column(lambda f: f.ram), config.devices.count, fittings.usable
            key = count, each.tobytes(), ram.tobytes(), usable.tobytes()
            return known.setdefault(fittings.key, _Kind(count, each, ram, usable, key))
    return None


def _ram_column(view: HostView) -> int:
    return next((n for n, r in enumerate(view.rooms) if r is view.ram), 0)
