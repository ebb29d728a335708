"""Where a config may run and how soon it would serve there, as far as nothing that is planned changes it.

One `Prospect` stands for one config of one profile on all hosts: the hosts that the rules allow (rows), how it would
run on them, and the parts of the harm that last as long as the plan is made. The next plan takes it over where profile
and hosts are what they were. `openings` adds what hosts have room for; made by `seats`.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from gridops.base.ids import Digest
from gridops.footprint.need import Need, need
from gridops.model.profile import Profile
from gridops.model.snapshot import ResidencyState
from gridops.planner.eligible import Way
from gridops.planner.fittings import fittings_of
from gridops.planner.grid import ENDLESS, Bools, Grid, Ints
from gridops.planner.rank_harm import Fetch, Harms
from gridops.planner.terrain import is_nothing, level, slim


class Prospect:
    """One config of one profile on all hosts."""

    def __init__(self, harms: Harms, profile: Profile, position: int) -> None:
        grid = harms.grid
        self.profile, self.config, self.position = profile, profile.configs[position], position
        self.count = self.config.devices.count
        known = need(self.config, grid.world.planning)
        self.seat_bytes = known.device_bytes * self.count if isinstance(known, Need) else 0
        """On all pools of a seat, as far as the config itself says; 0 where it does not."""
        self.size_bytes = sum(f.size_bytes for f in self.config.artifact.files)
        """Bytes where none of its files is there."""
        self.fittings = fittings_of(grid, profile, position)
        some = self.fittings.some
        self.kind = self.fittings.key
        self._shape = grid.shape
        self._ways: dict[int, Way] = {}
        allowed = self._allowed(grid)
        self.rows: Ints = grid.all_rows
        self.place: Ints = grid.all_rows
        if np.count_nonzero(allowed) < len(grid.ids):
            self.rows = allowed.nonzero()[0]
            self.place = np.full(len(grid.ids), -1, np.int64)
            self.place[self.rows] = np.arange(len(self.rows))
        shape = grid.shape[self.rows]
        self.need: Ints = self.fittings.over(shape, lambda f: f.per_pool)
        self.ram_need: Ints = self.fittings.over(shape, lambda f: f.ram)
        self.needs_ram = not is_nothing(self.ram_need)
        self.gpu = next((f.way.gpu for f in some), False)
        # Configs that may use any of their pools need no look at groups.
        self.loose = all(len(f.groups) == 1 and f.groups[0] == f.columns for f in some)
        about = harms.experience.about(profile, self.config)
        fetch = harms.fetch(profile, position, about, self.rows)
        self.fetch = Fetch(slim(fetch.alone_ms), slim(fetch.size_bytes), slim(fetch.shared))
        self.contended = not is_nothing(self.fetch.shared)
        self.exposure = harms.exposure(profile, position)
        lasting = harms.lasting(profile, about, self.rows, self.exposure, gpu=self.gpu)
        self.failing, self.slower, self.broken = (slim(part) for part in lasting)
        # Where more than the start differs between hosts, equal harm may have unequal parts.
        self.mixed = not (is_nothing(self.failing) and is_nothing(self.slower) and is_nothing(self.broken))
        self.warm: Ints = slim(harms.warm_ms(profile, about, self.rows))
        self.running: Ints = slim(self._runs(grid))
        # With the link to itself, so that it stays true whatever else of the plan is moved (`room`).
        self.start_ms: Ints = np.minimum(self.fetch.alone_ms + self.warm, self.running)

    @cached_property
    def usable(self) -> Bools:
        """Row x pool."""
        found: Bools = self.fittings.usable[self._shape[self.rows]]
        return found

    @cached_property
    def wanted(self) -> Ints:
        """Pool x row: bytes that a pool of the seat needs free. For whoever asks all rows again and again."""
        return self.fittings.wanted.take(self._shape[self.rows], 1)

    def way(self, grid: Grid, row: int) -> Way:
        """How it would run on the host of this row, with that host's own pools."""
        way = self._ways.get(row)
        if way is None:
            fitting = self.fittings.of[int(self._shape[row])]
            assert fitting is not None, "only rows that suit are asked"
            rooms = grid.views[row].rooms
            there = tuple([rooms[c] for c in fitting.columns])
            way = self._ways[row] = Way(fitting.way.launch, fitting.way.need, there, fitting.way.gpu)
        return way

    def launch(self, row: int) -> Digest:
        fitting = self.fittings.of[int(self._shape[row])]
        assert fitting is not None, "only rows that suit are asked"
        return fitting.launch

    def _allowed(self, grid: Grid) -> Bools:
        suited = np.array([f is not None for f in self.fittings.of], np.bool_)
        found = grid.accepts & suited[grid.shape] if len(suited) else np.zeros(0, np.bool_)
        rules = self.profile.placement
        if rules.allow_hosts:
            chosen = np.zeros(len(found), np.bool_)
            chosen[[grid.row[h] for h in rules.allow_hosts if h in grid.row]] = True
            found &= chosen
        if rules.deny_hosts:
            found[[grid.row[h] for h in rules.deny_hosts if h in grid.row]] = False
        # This very command has failed there before.
        for launch in self.fittings.launches:
            for n, state in grid.runs(launch):
                if state is ResidencyState.FAILED and found[n] and self.launch(n) == launch:
                    found[n] = False
        return found

    def _runs(self, grid: Grid) -> Ints:
        """Milliseconds until what runs or starts there serves, on each row; endless where nothing does."""
        if not any(map(grid.runs, self.fittings.launches)):
            return level(ENDLESS, len(self.rows))
        found: Ints = np.full(len(self.rows), ENDLESS, np.int64)
        for launch in self.fittings.launches:
            for n, state in grid.runs(launch):
                at = self.place[n]
                if at < 0 or self.launch(n) != launch:
                    continue
                if state is ResidencyState.READY:
                    found[at] = 0
                elif state in (ResidencyState.WARMING, ResidencyState.LOADING):
                    found[at] = min(found[at], self.warm[at] // 2)
        return found
