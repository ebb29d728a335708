"""How much of a host's free memory others could no longer use if a replica took its seat there.

The measure is the fragmentation gradient of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads
with Fragmentation Gradient Descent" (USENIX ATC 2023), section 4, counted in whole replicas: for each kind that is
wanted, weighted by how many are, the memory of a host that this kind can use. What a seat takes of it is its price for
everybody else; a host that few can use is taken first, and a large gap is kept for who needs it. Used by `openings`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gridops.base.units import PPM
from gridops.model.profile import Profile
from gridops.planner.fittings import fittings_of
from gridops.planner.grid import Bools, Grid, Ints
from gridops.planner.recall import Shelf

MIB = 20
"""Bits of a mebibyte."""

KINDS = 48
"""Kinds of replicas that are told apart. More cost time for each comparison; the rarest are left out."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Replicas of equal need: bytes on each of `count` pools, and on which pools of each shape."""

    need: int
    count: int
    usable: Bools
    """Shape x pool."""
    pools: bytes
    """The same, to compare by."""


class Scarcity:
    """What the profiles of the scope want of pools, by kind."""

    def __init__(self, grid: Grid) -> None:
        shelf: Shelf[tuple[_Kind | None]] = grid.world.recall.shelf("kinds")
        found: dict[tuple[int, int, bytes], int] = {}
        kinds: dict[tuple[int, int, bytes], _Kind] = {}
        for profile in grid.world.profiles.values():
            # As the last plan found it, where hosts have the shapes they had.
            sources = profile, grid.terrain.shapes
            kind = shelf.of(profile.name, sources, lambda asked=profile: (_kind(grid, asked),))[0]  # type: ignore[misc]
            if kind is not None and profile.replicas_max:
                key = kind.need, kind.count, kind.pools
                kinds[key] = kind
                found[key] = found.get(key, 0) + max(1, profile.replicas_min)
        chosen = sorted(found, key=lambda k: (-found[k] * k[0] * k[1], k))[:KINDS]
        total = sum(found[k] for k in chosen) or 1
        self.weight: Ints = np.array([found[k] * PPM // total for k in chosen], np.int64)
        self.need: Ints = np.array([k[0] for k in chosen], np.int64)
        self.count: Ints = np.array([k[1] for k in chosen], np.int64)
        self._numbers: dict[tuple[int, bytes], int] | None = None
        self._usable: Ints = np.zeros(0, np.int64)
        shapes = len(grid.examples)
        usable = np.array([kinds[k].usable for k in chosen], np.bool_)
        self.usable: Bools = usable.reshape(len(chosen), shapes, grid.width)

    def of_states(self, grid: Grid, states: Ints, rows: Ints) -> Ints:
        """`usable_mib` of hosts as they stand, each of these states by one of these rows."""
        if self._numbers is not grid.numbers:
            self._numbers, self._usable = grid.numbers, np.zeros(0, np.int64)
        if (more := grid.known_states - len(self._usable)) > 0:
            self._usable = np.concatenate([self._usable, np.full(more, -1, np.int64)])
        unknown = self._usable[states] < 0
        if unknown.any():
            asked = rows[unknown]
            self._usable[states[unknown]] = self.usable_mib(grid.shape[asked], np.maximum(grid.free[asked], 0))
        return self._usable[states]

    def usable_mib(self, shape: Ints, free: Ints) -> Ints:
        """MiB (times a million) of free memory, rows x pools, that the kinds can use, weighted; per row."""
        if not len(self.weight):
            return np.zeros(len(free), np.int64)
        # kind x row x pool: how many replicas of the kind each pool could still hold
        fit = np.where(self.usable[:, shape, :], free[None] // self.need[:, None, None], 0)
        alone = fit.sum(2)
        together = (fit > 0).sum(2) // self.count[:, None] * self.count[:, None]
        replicas = np.where(self.count[:, None] == 1, alone, together)
        kept: Ints = (replicas * ((self.need >> MIB) * self.weight)[:, None]).sum(0)
        return kept


def scarcity_of(grid: Grid) -> Scarcity:
    """What the profiles want of these hosts; as it was, where neither are others."""
    shelf: Shelf[Scarcity] = grid.world.recall.shelf("scarcity")
    return shelf.of("all", (grid.terrain.shapes, *grid.world.profiles.values()), lambda: Scarcity(grid))


def _kind(grid: Grid, profile: Profile) -> _Kind | None:
    for position, config in enumerate(profile.configs):
        fittings = fittings_of(grid, profile, position)
        if some := fittings.some:
            amount = max(f.per_pool for f in some)
            return _Kind(amount, config.devices.count, fittings.usable, fittings.usable.tobytes())
    return None
