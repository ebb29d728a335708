"""The board as arrays: one row per host, one column per memory pool, so that all hosts are compared at once.

Mirrors `capacity.Board`, which stays the truth: whatever changes there is read again, row by row, before the next
question. Used by `openings` only. Shapes: H hosts in order of their names, D the most pools any host has. Bytes are
int64; a pool that a host does not have has no room at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gridops.base.ids import Digest, HostId, ProfileName
from gridops.model.fleet import HostClass
from gridops.model.profile import Profile
from gridops.model.snapshot import ResidencyState
from gridops.planner.capacity import Board, HostBoard
from gridops.planner.world import HostView, Standing, World

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

ENDLESS = 1 << 62
"""Stands for "no limit" in a column of bytes or counts."""

UNKNOWN_PRICE_MICRO = 10**15
"""A price nobody states counts as higher than any that is stated."""

Shape: TypeAlias = tuple[object, ...]
"""What placement rules read of a host besides its name, its state and what it holds."""


@dataclass(slots=True)
class Company:
    """Who is where: for each profile the hosts (rows) on which it has residencies, with how many."""

    rows: dict[ProfileName, dict[int, int]]

    def count(self, name: ProfileName, row: int, by: int) -> None:
        here = self.rows.setdefault(name, {})
        here[row] = here.get(row, 0) + by
        if not here[row]:
            del here[row]

    def of(self, name: ProfileName) -> Mapping[int, int]:
        return self.rows.get(name, {})


class Grid:
    """Arrays over hosts. `refresh` brings the rows up to date that have changed on the board since."""

    def __init__(self, world: World, board: Board) -> None:
        self.world, self.board = world, board
        self.ids: tuple[HostId, ...] = tuple(world.hosts)
        self.views: tuple[HostView, ...] = tuple(world.hosts.values())
        self.row: dict[HostId, int] = {h: n for n, h in enumerate(self.ids)}
        size, width = len(self.ids), max((len(v.rooms) for v in self.views), default=0) or 1
        self.width = width
        self._shapes(size)
        self._limits(size, width)
        # What is planned (desired) and what runs besides (live), all work and GPU work.
        self.used, self.used_gpu = np.zeros((size, width), np.int64), np.zeros((size, width), np.int64)
        self.live, self.live_gpu = np.zeros((size, width), np.int64), np.zeros((size, width), np.int64)
        self.present: Ints = np.zeros(size, np.int64)
        self.distinct: Ints = np.zeros(size, np.int64)
        self.sociable: Ints = np.full(size, ENDLESS, np.int64)
        self.leaving: Bools = np.zeros(size, np.bool_)
        self.holds: Bools = np.zeros(size, np.bool_)
        self.disk_free: Ints = np.array([_bound(v.disk_bytes) for v in self.views], np.int64)
        self.company = Company({})
        self._names: list[tuple[ProfileName, ...]] = [()] * size
        self._files: dict[Digest, Bools] = {}
        self._cached: dict[Digest, list[int]] = {}
        self._runs: dict[Digest, list[tuple[int, ResidencyState]]] = {}
        for n, view in enumerate(self.views):
            for digest in view.cached:
                self._cached.setdefault(digest, []).append(n)
            for residency in view.ours:
                if residency.identity is not None:
                    self._runs.setdefault(residency.identity, []).append((n, residency.state))
        self._shunned = _exclusions(world)
        for n in range(size):
            self._read(n)
        self.seen = len(board.log)

    # -- what does not change while a plan is made -----------------------------------------------------------------

    def _shapes(self, size: int) -> None:
        """Hosts that no rule but those about names, state and contents can tell apart share a shape."""
        found: dict[Shape, int] = {}
        self.shape: Ints = np.zeros(size, np.int64)
        self.examples: list[HostView] = []
        for n, view in enumerate(self.views):
            known = found.setdefault(shape_of(view), len(found))
            if known == len(self.examples):
                self.examples.append(view)
            self.shape[n] = known

    def _limits(self, size: int, width: int) -> None:
        views = self.views
        self.raw, self.open = np.full((size, width), -ENDLESS, np.int64), np.full((size, width), -ENDLESS, np.int64)
        self.gpu = np.full((size, width), ENDLESS, np.int64)
        self.ram: Ints = np.full(size, -1, np.int64)
        for n, view in enumerate(views):
            for c, room in enumerate(view.rooms):
                self.raw[n, c], self.open[n, c] = room.raw_bytes, room.open_bytes
                if room.gpu_bytes is not None:
                    self.gpu[n, c] = room.gpu_bytes
                if room is view.ram:
                    self.ram[n] = c
        self.accepts: Bools = np.array([v.closed is None for v in views], np.bool_)
        self.limit: Ints = np.array([_bound(v.host.max_replicas) for v in views], np.int64)
        stated = [v.host.price_per_hour_micro for v in views]
        self.price: Ints = np.array([UNKNOWN_PRICE_MICRO if p is None else p for p in stated], np.int64)
        self.priced = any(stated)
        rates = [next((n.rate_bps for n in v.host.links if n.name == "download"), 0) for v in views]
        self.download: Ints = np.array(rates, np.int64)
        """Bits per second; 0 where nobody knows."""
        self.yields: Ints = np.array([_yields(v) for v in views], np.int64)
        self._levels: dict[str, tuple[Ints, dict[str, int]]] = {}

    def by_shape(self, of: Callable[[HostView], int]) -> Ints:
        """A column made from one answer per shape."""
        return np.array([of(v) for v in self.examples], np.int64)[self.shape] if self.examples else self.shape

    def domains(self, level: str) -> tuple[Ints, dict[str, int]]:
        """Number of each host's failure domain at a level (-1: none), and the numbers by name."""
        if level not in self._levels:
            numbers: dict[str, int] = {}
            names = [str(v.host.id) if level == "host" else v.host.domain(level) for v in self.views]
            column = [-1 if name is None else numbers.setdefault(name, len(numbers)) for name in names]
            self._levels[level] = np.array(column, np.int64), numbers
        return self._levels[level]

    def runs(self, launch: Digest) -> list[tuple[int, ResidencyState]]:
        """Rows on which exactly this launch has a residency, and its state."""
        return self._runs.get(launch, [])

    def cached(self, files: tuple[Digest, ...]) -> Bools:
        """Hosts that have all of these files now."""
        found = np.ones(len(self.ids), np.bool_)
        for digest in files:
            here = np.zeros(len(self.ids), np.bool_)
            here[self._cached.get(digest, [])] = True
            found &= here
        return found

    def shunned(self, profile: Profile) -> tuple[ProfileName, ...]:
        """Profiles that may not be met on a host, whoever of the two says so."""
        return self._shunned.get(profile.name, ())

    # -- what does ---------------------------------------------------------------------------------------------------

    def has(self, file: Digest) -> Bools:
        """Hosts that have the file or will have fetched it for somebody already."""
        if file not in self._files:
            column = np.zeros(len(self.ids), np.bool_)
            column[self._cached.get(file, [])] = True
            for host, board in self.board.hosts.items():
                if file in board.artifacts:
                    column[self.row[host]] = True
            self._files[file] = column
        return self._files[file]

    def refresh(self) -> None:
        """Read again what has changed on the board."""
        log = self.board.log
        if self.seen < len(log):
            for n in dict.fromkeys(log[self.seen :]):
                self._read(n)
            self.seen = len(log)

    def _read(self, n: int) -> None:
        here: HostBoard = self.board.rows[n]
        for c, (desired, live) in enumerate(here.sums()):
            self.used[n, c], self.used_gpu[n, c] = desired
            self.live[n, c], self.live_gpu[n, c] = live
        names = tuple(here.profiles())
        if names != self._names[n]:
            for name in self._names[n]:
                self.company.count(name, n, -1)
            for name in names:
                self.company.count(name, n, 1)
            self._names[n] = names
            self.present[n], self.distinct[n] = len(names), len(set(names))
            profiles = self.world.profiles
            most = [p.colocation.max for name in set(names) if (p := profiles.get(name)) is not None]
            self.sociable[n] = min((m for m in most if m is not None), default=ENDLESS)
        self.leaving[n], self.holds[n] = bool(here.leaving), bool(here.desired)
        self.disk_free[n] = _bound(here.view.disk_bytes) - here.disk_bytes
        for digest in here.artifacts:
            if digest in self._files:
                self._files[digest][n] = True


def shape_of(view: HostView) -> Shape:
    """Everything of a host that `eligible.suits` reads."""
    place = {r.id: n for n, r in enumerate(view.rooms)}
    rooms = tuple(
        (r.kind, r.model, r.total_bytes, tuple(sorted(place[p] for p in r.peers if p in place))) for r in view.rooms
    )
    ram = None if view.ram is None else place[view.ram.id]
    return view.runtimes, view.host.tags, view.host.tier, rooms, ram


def _exclusions(world: World) -> Mapping[ProfileName, tuple[ProfileName, ...]]:
    found: dict[ProfileName, set[ProfileName]] = {}
    for profile in world.profiles.values():
        for other in profile.colocation.exclude:
            found.setdefault(profile.name, set()).add(other)
            found.setdefault(other, set()).add(profile.name)
    return {name: tuple(sorted(others - {name})) for name, others in found.items()}


def _yields(view: HostView) -> int:
    return 2 if view.host.host_class is HostClass.OPPORTUNISTIC else int(view.standing is Standing.THROTTLED)


def _bound(value: int | None) -> int:
    return ENDLESS if value is None else value
