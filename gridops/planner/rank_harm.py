"""What a seat costs requests: the parts of `rank`'s harm, in request-milliseconds, for all hosts at once.

A request-millisecond is one request kept waiting, or served longer, for a millisecond. Until a replica serves, as
many requests wait as are offered to it, and at least one: that is what it is started for. Once it serves, a slower
host costs its extra time on the requests that really come, over the horizon. So files that are there decide where
little is asked, and a faster host where much is. Without a forecast a nominal rate stands in. Called by `openings`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gridops.base.units import PPM
from gridops.model.fleet import HostClass
from gridops.model.learned import TimeKind
from gridops.model.profile import Artifact, Profile
from gridops.model.snapshot import ResidencyState
from gridops.planner.constants import (
    FAILED_START_MS,
    HORIZON_MAX_MS,
    HORIZON_MS,
    HOT_PPM,
    NOMINAL_MLANES,
    OWNER_RETURNS_PPM,
    START_MAX_MS,
    THROTTLES_MORE_PPM,
    WAITING_MLANES,
)
from gridops.planner.grid import Grid, Ints
from gridops.planner.learned import Key, blend, experience_of
from gridops.planner.pressure import MILLI, is_asked, known, offered
from gridops.planner.recall import Shelf
from gridops.planner.speed import Speeds
from gridops.planner.terrain import Terrain, level
from gridops.planner.world import HostView, Standing


class Exposure(NamedTuple):
    """How many requests a replica's seat concerns."""

    waiting_mlanes: int
    """Requests that wait while it does not serve."""
    served_part: int
    """Request-milliseconds over the horizon for each whole part of slowness; the busier, the more for each request."""

    def of_waiting(self, ms: int) -> int:
        """The same for one row."""
        return min(ms, START_MAX_MS) * self.waiting_mlanes // MILLI

    def while_waiting(self, ms: Ints) -> Ints:
        cost: Ints = np.minimum(ms, START_MAX_MS) * self.waiting_mlanes // MILLI
        return cost


class Fetch(NamedTuple):
    """Fetching what is missing, per row: the time with the link to itself, the bytes, and whether others slow it."""

    alone_ms: Ints
    size_bytes: Ints
    shared: Ints
    """1 where the time is known to be the link's: others take their share of it."""


class Harms:
    """Answers about one world's hosts; what they share is looked up once."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.experience = experience_of(grid.world)
        self._speeds = Speeds(grid.terrain, self.experience)
        self._entries = known(grid.world)
        shelf: Shelf[tuple[Ints, Ints]] = grid.world.recall.shelf("unrest")
        self.active, self._chance = shelf.of("all", (grid.terrain,), lambda: _unrest(grid.terrain))
        """Transfers that a host reports under way, and the chance that it is interrupted."""
        self._restless, self._linked = bool(self._chance.any()), bool(grid.download.any())

    def exposure(self, profile: Profile, position: int) -> Exposure:
        """By the forecast where one speaks of the profile, else nominal. One replica serves no more than its lanes, and
        those are the lanes of the config that it would run with."""
        world = self.grid.world
        lanes = max(1, profile.configs[position].lanes) * MILLI
        entry, forecast = self._entries.get(profile.name), world.inputs.forecast
        if entry is None or forecast is None:
            total, horizon = NOMINAL_MLANES, HORIZON_MS
        else:
            total = offered(profile, entry, entry.rate_mrpm.likely) if is_asked(world, profile, entry) else 0
            horizon = min(HORIZON_MAX_MS, max(0, forecast.horizon_ms))
        mine = min(total, lanes)
        busy = total * PPM * PPM // (lanes * max(1, profile.demand.utilization_ppm))
        hot = min(HOT_PPM, max(PPM, busy))
        served = mine * horizon * hot // (MILLI * PPM)
        return Exposure(max(WAITING_MLANES, mine), min(SERVED_MOST, served))

    def warm_ms(self, profile: Profile, about: Key | None, rows: Ints) -> Ints:
        """From the start of the process until it answers."""
        if not self.experience.times(TimeKind.WARM, about):
            return level(profile.timing.warm_ms, len(rows))
        found = np.full(len(rows), profile.timing.warm_ms, np.int64)
        self._learn(found, TimeKind.WARM, about, rows)
        return found

    def fetch(self, profile: Profile, position: int, about: Key | None, rows: Ints) -> Fetch:
        """What would have to be fetched, by what was learned, else by the link, else by the profile's own guess."""
        grid, config = self.grid, profile.configs[position]
        whole = sum(f.size_bytes for f in config.artifact.files)
        if not self._linked and not self.experience.times(TimeKind.FETCH, about) and self._nowhere(config.artifact):
            parts = min(profile.timing.load_ms, START_MAX_MS), whole, 0
            return Fetch(*(level(part, len(rows)) for part in parts))
        size, here = np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_)
        for file in config.artifact.files:
            there = grid.cached((file.sha256,))[rows]
            size += np.where(there, 0, file.size_bytes)
            here &= there
        if not self._linked and not self.experience.times(TimeKind.FETCH, about):
            alone_ms = np.where(here, 0, min(profile.timing.load_ms, START_MAX_MS))
            return Fetch(alone_ms, np.where(here, 0, size), level(0, len(rows)))
        rate = grid.download[rows]
        known_rate = rate > 0
        alone: Ints = np.where(known_rate, size * 8_000 // np.maximum(rate, 1), profile.timing.load_ms)
        full = np.where(known_rate, whole * 8_000 // np.maximum(rate, 1), profile.timing.load_ms)
        learned = self._learn(full, TimeKind.FETCH, about, rows)
        if len(learned):
            # Part of the files takes its part of the time.
            alone[learned] = full[learned] * size[learned] // whole if whole else full[learned]
        shared = known_rate.copy()
        shared[learned] = True
        alone = np.minimum(alone, START_MAX_MS)
        return Fetch(np.where(here, 0, alone), np.where(here, 0, size), (shared & ~here).astype(np.int64))

    def lasting(
        self, profile: Profile, about: Key | None, rows: Ints, exposure: Exposure, *, gpu: bool
    ) -> tuple[Ints, Ints, Ints]:
        """The parts that do not change while a plan is made: failing, slower, interrupted."""
        failing = slower = level(0, len(rows))
        if failed := self.experience.failures(about):
            tries = np.zeros(len(self.grid.ids), np.int64)
            for host, count in failed.items():
                if (row := self.grid.row.get(host)) is not None:
                    tries[row] = count
            failing = exposure.while_waiting(tries[rows] * FAILED_START_MS)
        if (ratios := self._speeds.slower_ppm(profile, about, gpu=gpu)) is not None:
            slower = ratios[rows] * exposure.served_part // PPM
        if not self._restless:
            return failing, slower, level(0, len(rows))
        lost = self._chance[rows] * min(profile.timing.warm_ms, START_MAX_MS)
        # Never nothing: where nothing takes time, a person's machine still comes last.
        broken = np.maximum(exposure.while_waiting(lost // PPM), np.minimum(self._chance[rows], 1))
        return failing, slower, np.where(self._chance[rows] > 0, broken, 0)

    def _nowhere(self, artifact: Artifact) -> bool:
        """It has files, and no host has any of them."""
        cached = self.grid.terrain.cached
        return bool(artifact.files) and not any(cached.get(f.sha256) for f in artifact.files)

    def drain_ms(self, row: int) -> int:
        """How long what leaves the host may take to leave."""
        leaving = self.grid.board.rows[row].leaving
        found = [p.timing.drain_ms for c in leaving if (p := self.grid.world.profiles.get(c.profile)) is not None]
        return max(found, default=0) or DRAIN_MS

    def _learn(self, found: Ints, kind: TimeKind, about: Key | None, rows: Ints) -> Ints:
        """Blend what is known into a column of priors. Returns the positions that learned something."""
        times = self.experience.times(kind, about)
        if not times:
            return np.zeros(0, np.int64)
        place = {int(row): n for n, row in enumerate(rows.tolist())}
        at = []
        for host, time in sorted(times.items()):
            n = place.get(self.grid.row.get(host, -1))
            if n is not None:
                found[n] = blend(int(found[n]), time)
                at.append(n)
        return np.array(at, np.int64)


SERVED_MOST = 10**12
"""Keeps products within 64 bits."""

DRAIN_MS = 120_000
"""Where no profile says how long the leaving may take: the default of profiles."""


def _unrest(terrain: Terrain) -> tuple[Ints, Ints]:
    views = terrain.views
    return np.array([_active(v) for v in views], np.int64), np.array([_chance(v) for v in views], np.int64)


def _active(view: HostView) -> int:
    return sum(1 for r in view.ours if r.state is ResidencyState.LOADING)


def _chance(view: HostView) -> int:
    """Of being interrupted within the horizon, in ppm."""
    if view.host.host_class is HostClass.OPPORTUNISTIC:
        return OWNER_RETURNS_PPM
    return THROTTLES_MORE_PPM if view.standing is Standing.THROTTLED else 0
