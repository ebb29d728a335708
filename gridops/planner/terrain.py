"""What hosts are, as arrays: one row per host, one column per memory pool. Nothing here changes while a plan is made.

The half of `grid` that is made from views alone. The next plan takes it over as it is, or with the rows of those hosts
that are not what they were (`terrain_of`). Shapes: H hosts in order of their names, D the most pools any host has.
Bytes are int64; a pool that a host does not have has no room at all.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gridops.base.ids import Digest, HostId
from gridops.footprint.ledger import DeviceRoom
from gridops.model.snapshot import ResidencyState
from gridops.planner.rank import UNKNOWN_PRICE_MICRO
from gridops.planner.recall import Shelf
from gridops.planner.world import HostView, World

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

ENDLESS = 1 << 62
"""Stands for "no limit" in a column of bytes or counts."""

MIB = 20
"""Bits of a mebibyte: bytes times a million would not fit 64 bits on the largest hosts."""

FEW = 24
"""Rows that are looked up one by one, which costs less than arrays do. Changes nothing but time."""

ZERO: Ints = np.array(0, np.int64)
"""Nothing, as an array without dimensions: beside a short column that costs half of what a number does."""

MIB_BITS: Ints = np.array(MIB, np.int64)
"""The same for `MIB`."""

Shape: TypeAlias = tuple[object, ...]
"""What placement rules read of a host besides its name, its state and what it holds."""

Runs: TypeAlias = tuple[int, ResidencyState]


class Terrain:
    """Arrays over hosts, made from their views."""

    def __init__(self, views: tuple[HostView, ...]) -> None:
        self.views = views
        self.ids: tuple[HostId, ...] = tuple(v.host.id for v in views)
        self.row: dict[HostId, int] = {h: n for n, h in enumerate(self.ids)}
        size, self.width = len(views), max((len(v.rooms) for v in views), default=0) or 1
        empty = (size, self.width)
        self.raw, self.open = np.full(empty, -ENDLESS, np.int64), np.full(empty, -ENDLESS, np.int64)
        self.gpu, self.whole = np.full(empty, ENDLESS, np.int64), np.zeros(empty, np.int64)
        self.ram: Ints = np.full(size, -1, np.int64)
        self.accepts: Bools = np.zeros(size, np.bool_)
        self.limit: Ints = np.zeros(size, np.int64)
        self.disk: Ints = np.zeros(size, np.int64)
        self.price: Ints = np.zeros(size, np.int64)
        self.download: Ints = np.zeros(size, np.int64)
        """Bits per second; 0 where nobody knows."""
        self.cached: dict[Digest, list[int]] = {}
        self.runs: dict[Digest, list[Runs]] = {}
        self._shapes: list[Shape] = [()] * size
        for n, view in enumerate(views):
            self._read(n, view)
            for digest in view.cached:
                self.cached.setdefault(digest, []).append(n)
            for residency in view.ours:
                if residency.identity is not None:
                    self.runs.setdefault(residency.identity, []).append((n, residency.state))
        self._number()

    def changed(self, views: tuple[HostView, ...], rows: Iterable[int]) -> Terrain:
        """The same hosts, some of which (rows) are not what they were."""
        made = object.__new__(Terrain)
        for name, value in self.__dict__.items():
            setattr(made, name, value.copy() if isinstance(value, np.ndarray) else value)
        made.views, made._shapes = views, list(self._shapes)
        made.cached, made.runs = dict(self.cached), dict(self.runs)
        for n in rows:
            made._forget(n, self.views[n])
            made._read(n, views[n])
            for digest in views[n].cached:
                made.cached[digest] = sorted([*made.cached.get(digest, ()), n])
            for residency in views[n].ours:
                if residency.identity is not None:
                    here = list(made.runs.get(residency.identity, ()))
                    # As many of one host as it has, in its order.
                    insort(here, (n, residency.state), key=lambda entry: entry[0])
                    made.runs[residency.identity] = here
        if made._shapes != self._shapes:
            made._number()
        made._sum_up()
        return made

    def domains(self, level: str) -> tuple[Ints, dict[str, int]]:
        """Number of each host's failure domain at a level (-1: none), and the numbers by name."""
        if level not in self._levels:
            numbers: dict[str, int] = {}
            names = [str(v.host.id) if level == "host" else v.host.domain(level) for v in self.views]
            column = [-1 if name is None else numbers.setdefault(name, len(numbers)) for name in names]
            self._levels[level] = np.array(column, np.int64), numbers
        return self._levels[level]

    def _read(self, n: int, view: HostView) -> None:
        for c, room in enumerate(view.rooms):
            self.whole[n, c] = room.total_bytes - room.reserve_bytes
            raw = room.total_bytes - room.reserve_bytes - room.external_bytes
            self.raw[n, c], self.open[n, c] = raw, raw - room.headroom_bytes
            if room.gpu_bytes is not None:
                self.gpu[n, c] = room.gpu_bytes
            if room is view.ram:
                self.ram[n] = c
        host = view.host
        self.accepts[n] = view.closed is None
        self.limit[n], self.disk[n] = bound(host.max_replicas), bound(view.disk_bytes)
        stated = host.price_per_hour_micro
        self.price[n] = UNKNOWN_PRICE_MICRO if stated is None else stated
        self.download[n] = next((link.rate_bps for link in host.links if link.name == "download"), 0)
        self._shapes[n] = shape_of(view)

    def _forget(self, n: int, view: HostView) -> None:
        self.raw[n], self.open[n], self.gpu[n], self.ram[n], self.whole[n] = -ENDLESS, -ENDLESS, ENDLESS, -1, 0
        for digest in view.cached:
            self.cached[digest] = [row for row in self.cached[digest] if row != n]
        for residency in view.ours:
            if residency.identity is not None:
                self.runs[residency.identity] = [r for r in self.runs[residency.identity] if r[0] != n]

    def _number(self) -> None:
        """Hosts that no rule but those about names, state and contents can tell apart share a shape."""
        found: dict[Shape, int] = {}
        self.examples: list[HostView] = []
        numbers = []
        for view, shape in zip(self.views, self._shapes, strict=True):
            known = found.setdefault(shape, len(found))
            if known == len(self.examples):
                self.examples.append(view)
            numbers.append(known)
        self.shape: Ints = np.array(numbers, np.int64)
        self.shapes = object()
        """The same object for as long as every host has the shape it had."""
        self._sum_up()

    def _sum_up(self) -> None:
        self.priced = any(v.host.price_per_hour_micro for v in self.views)
        self._levels: dict[str, tuple[Ints, dict[str, int]]] = {}


def terrain_of(world: World) -> Terrain:
    """What the world's hosts are; from the last plan's, where most of them are what they were."""
    shelf: Shelf[Terrain] = world.recall.shelf("terrain")
    views, last = tuple(world.hosts.values()), shelf.last("all")
    if last is not None and last.ids == tuple(world.hosts):
        rows = [n for n, (old, new) in enumerate(zip(last.views, views, strict=True)) if old.traits is not new.traits]
        if not rows:
            return shelf.put("all", (), last)
        width = max((len(v.rooms) for v in views), default=0) or 1
        if len(rows) * 4 < len(views) and width == last.width:
            return shelf.put("all", (), last.changed(views, rows))
    return shelf.put("all", (), Terrain(views))


def shape_of(view: HostView) -> Shape:
    """Everything of a host that `eligible.suits` reads."""
    place = {r.id: n for n, r in enumerate(view.rooms)}
    rooms = tuple(
        (r.kind, r.model, r.total_bytes, tuple(sorted(place[p] for p in r.peers if p in place)), *_topology(r))
        for r in view.rooms
    )
    ram = None if view.ram is None else place[view.ram.id]
    known = (view.measured, view.places(view.rooms)) if view.measured else ()
    return view.runtimes, view.host.tags, view.host.tier, rooms, ram, known


def _topology(room: DeviceRoom) -> tuple[object, ...]:
    return room.backend, room.numa, room.pcie_bps, room.parent is not None


def bound(value: int | None) -> int:
    return ENDLESS if value is None else value


def anywhere(where: Bools) -> bool:
    """Whether it holds anywhere. For short columns this costs a tenth of what `any` does."""
    return bool(np.count_nonzero(where))


def is_nothing(column: Ints) -> bool:
    """Zero on every row."""
    return not column[0] if column.strides == (0,) and len(column) else not anywhere(column != 0)


def slim(column: Ints) -> Ints:
    """The same numbers; where all are equal, one in memory. Not to be written to."""
    if column.strides == (0,) or not len(column) or column[0] != column[-1] or anywhere(column != column[0]):
        return column
    return level(int(column[0]), len(column))


def level(value: int, size: int) -> Ints:
    """So many equal numbers, one in memory. Not to be written to."""
    found: Ints = np.ndarray((size,), np.int64, np.array([value], np.int64), strides=(0,))
    found.flags.writeable = False
    return found


def counts_at(counts: Mapping[int, int], rows: Ints, size: int) -> Ints:
    """The count of each of these rows. A few rows are looked up, many are spread out first."""
    if len(rows) * 4 < len(counts) or len(rows) < FEW:
        return np.array([counts.get(r, 0) for r in rows.tolist()], np.int64)
    spread = np.zeros(size, np.int64)
    spread[list(counts)] = list(counts.values())
    return spread[rows]
