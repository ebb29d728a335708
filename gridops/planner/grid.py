"""The board as arrays: one row per host, one column per memory pool, so that all hosts are compared at once.

Mirrors `capacity.Board`, which stays the truth: whatever changes there is read again, row by row, before the next
question. What hosts are is `terrain`'s; here is what they hold. Made by `seats`; read by whatever looks at all hosts at
once. Shapes as there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gridops.base.ids import Digest, HostId, ProfileName
from gridops.model.profile import Profile
from gridops.model.snapshot import ResidencyState
from gridops.planner.capacity import Board
from gridops.planner.host_board import HostBoard
from gridops.planner.recall import Shelf
from gridops.planner.terrain import ENDLESS, MIB, Bools, Ints, Terrain, anywhere, shape_of, terrain_of
from gridops.planner.world import HostView, World

__all__ = ["ENDLESS", "MIB", "Bools", "Grid", "Ints", "anywhere", "shape_of"]

STATES_KEPT = 100_000
"""States of hosts whose numbers are kept for the next plan. Double: some megabytes; half: made anew more often."""


@dataclass(slots=True)
class Company:
    """Who is where: for each profile the hosts (rows) on which it has residencies, with how many."""

    rows: dict[ProfileName, dict[int, int]]
    _own: set[ProfileName] = field(default_factory=set)
    """Profiles whose hosts nobody else counts in the same mapping."""

    def copy(self) -> Company:
        """The same once more. Neither sees what the other counts from now on."""
        self._own = set()
        return Company(dict(self.rows))

    def count(self, name: ProfileName, row: int, by: int) -> None:
        if name not in self._own:
            self._own.add(name)
            self.rows[name] = dict(self.rows.get(name, {}))
        here = self.rows[name]
        here[row] = here.get(row, 0) + by
        if not here[row]:
            del here[row]

    def of(self, name: ProfileName) -> Mapping[int, int]:
        return self.rows.get(name, {})


@dataclass(frozen=True, slots=True)
class _Start:
    """The rows as they were before anybody looked for a seat, and the boards that they were read from."""

    origins: tuple[HostBoard | None, ...]
    columns: tuple[Ints, ...]
    flags: tuple[Bools, ...]
    names: list[tuple[ProfileName, ...]]
    company: Company


class Grid:
    """Arrays over hosts. `refresh` brings the rows up to date that have changed on the board since."""

    def __init__(self, world: World, board: Board) -> None:
        self.world, self.board = world, board
        self.terrain = terrain = terrain_of(world)
        self.ids: tuple[HostId, ...] = terrain.ids
        self.views: tuple[HostView, ...] = tuple(world.hosts.values())
        self.row, self.width = terrain.row, terrain.width
        self.shape, self.examples = terrain.shape, terrain.examples
        self.raw, self.open, self.gpu, self.ram = terrain.raw, terrain.open, terrain.gpu, terrain.ram
        self.accepts, self.limit = terrain.accepts, terrain.limit
        self.price, self.priced, self.download = terrain.price, terrain.priced, terrain.download
        self.all_rows: Ints = np.arange(len(self.ids))
        self._files: dict[Digest, Bools] = {}
        self._fetched: dict[Digest, set[int]] = {}
        self._state: Ints | None = None
        """The number of each row's state, once somebody asked."""
        self.numbers = _numbers(world, terrain)
        """States of hosts that there have been, by shape and room."""
        self._shunned = _exclusions(world)
        self._sociable = any(p.colocation.max is not None for p in world.profiles.values())
        self.shared = anywhere(self.gpu != ENDLESS)
        """Some host shares its memory between GPU work and other work."""
        self._begin()
        self._read_to = len(board.log)
        """How far the board's log has been read."""
        self.seen = self.began = 0
        """Changes that were noted since."""
        self._log: Ints = np.zeros(64, np.int64)

    def _begin(self) -> None:
        """Read the board; of rows that are as the last plan began with, what it read."""
        shelf: Shelf[_Start] = self.world.recall.shelf("grid")
        origins, last = tuple(b.origin for b in self.board.rows), shelf.last("all")
        size, empty = len(self.ids), (len(self.ids), self.width)
        if last is not None and len(last.origins) == size and last.columns[0].shape == empty:
            self._take(last.columns, last.flags)
            self._names, self.company = list(last.names), last.company.copy()
            old: tuple[HostBoard | None, ...] = last.origins
        else:
            # What is planned (desired) and what runs besides (live), all work and GPU work.
            pools = tuple(np.zeros(empty, np.int64) for _ in range(4))
            counts = (np.zeros(size, np.int64), np.zeros(size, np.int64), np.full(size, ENDLESS, np.int64))
            flags = (np.zeros(size, np.bool_), np.zeros(size, np.bool_))
            self._take((*pools, *counts, self.terrain.disk), flags)
            self._names, self.company = [()] * size, Company({})
            old = tuple(None if b.holds_anything() else b.origin for b in self.board.rows)
        changed = last is None or last.columns[0].shape != empty
        for n, (was, now) in enumerate(zip(old, origins, strict=True)):
            if now is None or now is not was:
                self._read(n)
                changed = True
            elif self.board.rows[n].artifacts:
                self._fetches(n, self.board.rows[n])
        if last is not None and not changed:
            self.start: _Start = shelf.put("all", (), last)
            return
        columns = self.used, self.used_gpu, self.live, self.live_gpu, self.present, self.distinct, self.sociable
        start = _Start(
            origins, (*columns, self.disk_free), (self.leaving, self.holds), list(self._names), self.company.copy()
        )
        self._take(start.columns, start.flags)
        self.start = shelf.put("all", (), start)
        """The same object for as long as every row begins as it did."""

    def _take(self, columns: tuple[Ints, ...], flags: tuple[Bools, ...]) -> None:
        """Begin with copies of these."""
        made = [c.copy() for c in columns]
        self.used, self.used_gpu, self.live, self.live_gpu = made[:4]
        self.present, self.distinct, self.sociable, self.disk_free = made[4:]
        self.leaving, self.holds = (f.copy() for f in flags)
        self.by_pool: Ints = np.subtract(self.open.T, self.used.T, order="C")
        """What is free, pool by pool: what is compared over hosts lies together."""
        self.free: Ints = self.by_pool.T
        # What holds on all hosts need not be looked at host by host; these only ever become stricter.
        self.crowded = anywhere(self.present >= self.limit)
        """Some host has no slot left, or had none."""
        self.departs = anywhere(self.leaving)
        """Something is on its way out somewhere, or was."""
        self.least_disk = int(self.disk_free[self.disk_free.argmin()]) if len(self.disk_free) else 0
        """No host has less room on its disk."""

    # -- what does not change while a plan is made -----------------------------------------------------------------

    def domains(self, level: str) -> tuple[Ints, dict[str, int]]:
        """Number of each host's failure domain at a level (-1: none), and the numbers by name."""
        return self.terrain.domains(level)

    def runs(self, launch: Digest) -> list[tuple[int, ResidencyState]]:
        """Rows on which exactly this launch has a residency, and its state."""
        return self.terrain.runs.get(launch, [])

    def cached(self, files: tuple[Digest, ...]) -> Bools:
        """Hosts that have all of these files now."""
        found = np.ones(len(self.ids), np.bool_)
        for digest in files:
            here = np.zeros(len(self.ids), np.bool_)
            here[self.terrain.cached.get(digest, [])] = True
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
            column[self.terrain.cached.get(file, [])] = True
            column[list(self._fetched.get(file, ()))] = True
            self._files[file] = column
        return self._files[file]

    @property
    def known_states(self) -> int:
        """How many states there have been."""
        return len(self.numbers)

    def plain(self, profile: Profile) -> bool:
        """No rule speaks about which others are on a host, neither the profile's nor anybody's."""
        return profile.colocation.max is None and not self.shunned(profile) and not self._sociable

    def states(self, rows: Ints) -> Ints:
        """A number for each of these hosts, equal for hosts of equal shape and room."""
        if self._state is None:
            self._state = self._first_states()
        found: Ints = self._state[rows]
        return found

    def _first_states(self) -> Ints:
        """Of all rows, when they are asked for the first time; those that begin alike as the last plan found them."""
        shelf: Shelf[tuple[_Start, Ints]] = self.world.recall.shelf("first states")
        begins = self.seen == self.began
        last = shelf.get("all", (self.numbers,)) if begins else None
        if last is None:
            known: Ints = np.array([self._state_of(n) for n in range(len(self.ids))], np.int64)
        else:
            known = last[1].copy()
            for n, (was, now) in enumerate(zip(last[0].origins, self.start.origins, strict=True)):
                if now is None or now is not was:
                    known[n] = self._state_of(n)
        if begins:
            shelf.put("all", (self.numbers,), (self.start, known))
        return known.copy()

    def _state_of(self, n: int) -> int:
        return self.numbers.setdefault((self.shape.item(n), self.free[n].tobytes()), len(self.numbers))

    def refresh(self) -> None:
        """Read again what has changed on the board."""
        log = self.board.log
        if self._read_to < len(log):
            rows = list(dict.fromkeys(log[self._read_to :]))
            for n in rows:
                self._read(n)
            self._note(rows)
            self._read_to = len(log)

    def changed(self, since: int) -> Ints:
        """Rows that have changed since so many changes were noted, newest last."""
        return self._log[since : self.seen]

    def _note(self, rows: list[int]) -> None:
        end = self.seen + len(rows)
        if end > len(self._log):
            self._log = np.concatenate([self._log, np.zeros(end, np.int64)])
        if len(rows) == 1:
            self._log[self.seen] = rows[0]
        else:
            self._log[self.seen : end] = rows
        self.seen = end

    def _read(self, n: int) -> None:
        here: HostBoard = self.board.rows[n]
        for c, taken in enumerate(here.taken()):
            self.used[n, c] = self.live[n, c] = taken
            self.by_pool[c, n] = self.open.item(n, c) - taken
        if here.leaving or self.shared:
            for c, (desired, live) in enumerate(here.sums()):
                self.used_gpu[n, c] = desired[1]
                self.live[n, c], self.live_gpu[n, c] = live
        names = tuple(here.profiles())
        if names != self._names[n]:
            self._meet(n, names)
        self.sociable[n] = self._company_kept(names) if self._sociable else ENDLESS
        self.leaving[n], self.holds[n] = bool(here.leaving), here.is_paid()
        self.departs = self.departs or bool(here.leaving)
        self.disk_free[n] = free = int(self.terrain.disk[n]) - here.disk_bytes
        self.least_disk = min(self.least_disk, free)
        if self._state is not None:
            self._state[n] = self._state_of(n)
        self._fetches(n, here)

    def _meet(self, n: int, names: tuple[ProfileName, ...]) -> None:
        """Other profiles are on the host than before."""
        old = self._names[n]
        self._names[n] = names
        if names[: len(old)] == old:  # most often one has come
            old, new = (), names[len(old) :]
        else:
            new = names
        for name in old:
            self.company.count(name, n, -1)
        for name in new:
            self.company.count(name, n, 1)
        self.present[n], self.distinct[n] = len(names), len(set(names))
        self.crowded = self.crowded or bool(len(names) >= self.limit[n])

    def _company_kept(self, names: tuple[ProfileName, ...]) -> int:
        """How many profiles those who are there put up with on their host."""
        profiles = self.world.profiles
        most = [p.colocation.max for name in names if (p := profiles.get(name)) is not None]
        return min((m for m in most if m is not None), default=ENDLESS)

    def _fetches(self, n: int, here: HostBoard) -> None:
        for digest in here.artifacts:
            if (rows := self._fetched.get(digest)) is None:
                self._fetched[digest] = {n}
            else:
                rows.add(n)
            if digest in self._files:
                self._files[digest][n] = True


def _numbers(world: World, terrain: Terrain) -> dict[tuple[int, bytes], int]:
    """Numbers of states that stay the same from plan to plan, until there are too many of them."""
    shelf: Shelf[dict[tuple[int, bytes], int]] = world.recall.shelf("states")
    known = shelf.get("all", (terrain.shapes,))
    return known if known and len(known) < STATES_KEPT else shelf.put("all", (terrain.shapes,), {})


def _exclusions(world: World) -> Mapping[ProfileName, tuple[ProfileName, ...]]:
    found: dict[ProfileName, set[ProfileName]] = {}
    for profile in world.profiles.values():
        for other in profile.colocation.exclude:
            found.setdefault(profile.name, set()).add(other)
            found.setdefault(other, set()).add(profile.name)
    return {name: tuple(sorted(others - {name})) for name, others in found.items()}
