"""Where a config may run, over all hosts at once: what each host answers about room, kept until something changes.

One `Opening` stands for one config of one profile: the hosts that the rules allow (rows), how it would run on them,
and for each of them whether it fits, whether it has to wait, and how much would be left. Answers here are a filter;
the seat itself is always made by `capacity.Board.offer`, and a property test holds the two against each other.
Called by `seats`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np

from gridops.base.ids import Digest
from gridops.base.units import PPM
from gridops.footprint.need import identity
from gridops.model.plan import Launch
from gridops.model.profile import Profile
from gridops.model.snapshot import ResidencyState
from gridops.planner.capacity import on_ram
from gridops.planner.constants import START_MAX_MS
from gridops.planner.eligible import Way, suits
from gridops.planner.grid import ENDLESS, Bools, Grid, Ints
from gridops.planner.learned import key_of
from gridops.planner.rank_harm import Fetch, Harms
from gridops.planner.scarce import Scarcity
from gridops.planner.together import sets


@dataclass(frozen=True, slots=True)
class Fitting:
    """How a config runs on all hosts of one shape: pools by column instead of by name."""

    way: Way
    launch: Digest
    columns: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    """Sets of pools of which `count` may work together, in the order they are tried."""
    per_pool: int
    """Bytes on each pool of a seat; where the pool is the RAM, the host's part included."""
    ram: int
    """Bytes on the host's RAM on top."""


class Opening:
    """One config of one profile on all hosts."""

    def __init__(self, harms: Harms, scarcity: Scarcity, profile: Profile, position: int) -> None:
        config, grid = profile.configs[position], harms.grid
        self.grid, self.profile, self.config, self.position = grid, profile, config, position
        self.count = config.devices.count
        self._scarcity, self._harms = scarcity, harms
        planning = grid.world.planning
        ways = [suits(profile, config, view, planning) for view in grid.examples]
        launches: dict[str, tuple[Launch, Digest]] = {}
        self.fittings: list[Fitting | None] = [
            None if way is None else _fitting(way, grid, n, launches) for n, way in enumerate(ways)
        ]
        self.rows: Ints = np.flatnonzero(self._allowed())
        if len(self.rows) == len(grid.ids):
            self.rows = self.place = grid.all_rows
        else:
            self.place = np.full(len(grid.ids), -1, np.int64)
            self.place[self.rows] = np.arange(len(self.rows))
        shape = grid.shape[self.rows]
        self.need: Ints = _slim(_column(self.fittings, lambda f: f.per_pool)[shape])
        self.ram_need: Ints = _slim(_column(self.fittings, lambda f: f.ram)[shape])
        self.gpu = next((f.way.gpu for f in self.fittings if f is not None), False)
        # Configs that may use any of their pools need no look at groups.
        self.loose = all(f is None or (len(f.groups) == 1 and f.groups[0] == f.columns) for f in self.fittings)
        usable = np.zeros((len(self.fittings), grid.width), np.bool_)
        for n, fitting in enumerate(self.fittings):
            if fitting is not None:
                usable[n, list(fitting.columns)] = True
        self.usable: Bools = usable[shape]
        fetch = harms.fetch(profile, position, self.rows)
        self._fetch = Fetch(_slim(fetch.alone_ms), _slim(fetch.size_bytes), _slim(fetch.shared))
        self._exposure = harms.exposure(profile)
        lasting = harms.lasting(profile, position, self.rows, gpu=self.gpu)
        self._failing, self._slower, self._broken = (_slim(part) for part in lasting)
        self._warm: Ints = _slim(harms.warm_ms(profile, key_of(profile, config), self.rows))
        self._running: Ints = _slim(self._runs())
        # With the link to itself, so that it stays true whatever else of the plan is moved (`room`).
        self.start_ms: Ints = np.minimum(self._fetch.alone_ms + self._warm, self._running)
        self._files = [(grid.has(f.sha256), f.size_bytes) for f in config.artifact.files]
        size = len(self.rows)
        self.fits, self.waits = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        self.soon_ms, self.wait_ms = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.harm: Ints = np.zeros(size, np.int64)
        self._contended = bool(self._fetch.shared.any())
        self._plain = grid.plain(profile)
        self._need_ram = bool(self.ram_need.any())
        # Where more than the start differs between hosts, equal harm may have unequal parts.
        self.mixed = bool(self._failing.any() or self._slower.any() or self._broken.any())
        self.left: Ints = np.zeros(size, np.int64)
        self._lost: Ints = np.zeros(0, np.int64)
        """What a seat takes from others, for each state of a host (`grid.states`)."""
        self._seen, self._shared = grid.seen, False
        self._look(np.arange(size))
        self._time(np.arange(size))

    def again(self, harms: Harms) -> Opening:
        """The same for a plan that begins as this one's did; a copy as soon as it changes."""
        made = copy(self)
        made.grid, made._harms, made._seen = harms.grid, harms, harms.grid.seen
        made._files = [(made.grid.has(f.sha256), f.size_bytes) for f in self.config.artifact.files]
        self._shared = made._shared = True
        return made

    def _own(self) -> None:
        """Something is about to change: what is shared becomes a copy."""
        if self._shared:
            self._shared = False
            self.fits, self.waits, self.left = self.fits.copy(), self.waits.copy(), self.left.copy()
            self.soon_ms, self.wait_ms, self.harm = self.soon_ms.copy(), self.wait_ms.copy(), self.harm.copy()

    def way(self, row: int) -> Way:
        """How it would run on the host of this row, with that host's own pools."""
        fitting = self.fittings[int(self.grid.shape[row])]
        assert fitting is not None, "only rows that suit are asked"
        rooms = self.grid.views[row].rooms
        return Way(fitting.way.launch, fitting.way.need, tuple(rooms[c] for c in fitting.columns), fitting.way.gpu)

    def launch(self, row: int) -> Digest:
        fitting = self.fittings[int(self.grid.shape[row])]
        assert fitting is not None, "only rows that suit are asked"
        return fitting.launch

    def missing(self, row: int) -> int:
        """Bytes that the host of this row would have to fetch."""
        return sum(0 if has[row] else size for has, size in self._files)

    def refresh(self) -> None:
        """Ask those hosts again that have changed since."""
        grid = self.grid
        if self._seen == grid.seen:
            return
        found, self._seen = self.place[grid.changed(self._seen)], grid.seen
        marked = np.zeros(len(self.rows), np.bool_)
        marked[found[found >= 0]] = True
        at = np.flatnonzero(marked)
        if len(at):
            self._own()
            busy = self.waits[at].any()
            self._look(at)
            if self._contended or busy or self.waits[at].any():
                self._time(at)

    # -- rules that do not change ------------------------------------------------------------------------------------

    def _allowed(self) -> Bools:
        grid, profile = self.grid, self.profile
        suited = np.array([f is not None for f in self.fittings], np.bool_)
        found = grid.accepts & suited[grid.shape] if len(suited) else np.zeros(0, np.bool_)
        rules = profile.placement
        if rules.allow_hosts:
            chosen = np.zeros(len(found), np.bool_)
            chosen[[grid.row[h] for h in rules.allow_hosts if h in grid.row]] = True
            found &= chosen
        found[[grid.row[h] for h in rules.deny_hosts if h in grid.row]] = False
        # This very command has failed there before.
        for launch in sorted({f.launch for f in self.fittings if f is not None}):
            failed = [n for n, state in grid.runs(launch) if state is ResidencyState.FAILED and found[n]]
            found[[n for n in failed if self.launch(n) == launch]] = False
        return found

    def _runs(self) -> Ints:
        """Milliseconds until what runs or starts there serves, on each row; endless where nothing does."""
        grid = self.grid
        found: Ints = np.full(len(self.rows), ENDLESS, np.int64)
        for launch in sorted({f.launch for f in self.fittings if f is not None}):
            for n, state in grid.runs(launch):
                at = self.place[n]
                if at < 0 or self.launch(n) != launch:
                    continue
                if state is ResidencyState.READY:
                    found[at] = 0
                elif state in (ResidencyState.WARMING, ResidencyState.LOADING):
                    found[at] = min(found[at], self._warm[at] // 2)
        return found

    # -- time and harm -----------------------------------------------------------------------------------------------

    def _time(self, at: Ints) -> None:
        """How soon it serves, and what that and the rest costs requests, on the rows at these places."""
        fetch = self._fetch.alone_ms[at]
        if self._contended:
            fetch = self._beside_others(at, fetch)
        self.soon_ms[at] = np.minimum(fetch + self._warm[at], self._running[at])
        self.wait_ms[at] = 0
        for place in at[self.waits[at]].tolist():
            self.wait_ms[place] = self._harms.drain_ms(int(self.rows[place]))
        self.harm[at] = sum(self.parts(at))

    def _beside_others(self, at: Ints, alone: Ints) -> Ints:
        """Transfers under way share the link; those that this plan has for the host already take their turn first."""
        size, shared = self._fetch.size_bytes[at], self._fetch.shared[at]
        found: Ints = alone * (1 + self._harms.active[self.rows[at]] * shared)
        for n in np.flatnonzero((size > 0) & (shared > 0)).tolist():
            if planned := self._planned(int(self.rows[at[n]])):
                found[n] = min(START_MAX_MS, int(found[n]) * (int(size[n]) + planned) // int(size[n]))
        return found

    def _planned(self, row: int) -> int:
        """Bytes that this plan fetches there for others."""
        board = self.grid.board.rows[row]
        if not board.disk_bytes:
            return 0
        own = sum(f.size_bytes for f in self.config.artifact.files if f.sha256 in board.artifacts)
        return max(0, board.disk_bytes - own)

    def parts(self, at: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """What the harm at these places is made of, in the order of `rank`."""
        cost = self._exposure.while_waiting
        return cost(self.wait_ms[at]), cost(self.soon_ms[at]), self._failing[at], self._slower[at], self._broken[at]

    def parts_of(self, place: int) -> tuple[int, int, int, int, int]:
        """The same for one place."""
        waiting = self._exposure.of_waiting(int(self.wait_ms[place]))
        starting = self._exposure.of_waiting(int(self.soon_ms[place]))
        return waiting, starting, int(self._failing[place]), int(self._slower[place]), int(self._broken[place])

    def fetch_ms(self, at: Ints) -> Ints:
        """How long the missing files take to come, on the rows at these places; nothing where they are."""
        return self._beside_others(at, self._fetch.alone_ms[at])

    def warm_ms(self, at: Ints) -> Ints:
        return np.take(self._warm, at)

    def lacking(self) -> Ints:
        """Bytes that each row's host neither has nor will fetch by this plan."""
        found = np.zeros(len(self.rows), np.int64)
        for has, size in self._files:
            found += np.where(has[self.rows], 0, size)
        return found

    def if_waits(self, waits: bool, place: int) -> int:
        """Harm of waiting there that is not counted yet, where the host's own replica asks for a place."""
        if not waits or self.waits[place]:
            return 0
        drain = np.array([self._harms.drain_ms(int(self.rows[place]))])
        return int(self._exposure.while_waiting(drain)[0])

    def stranded(self, at: Ints) -> Ints:
        """What a seat on these rows would take from others, in MiB (`scarce`). Hosts in equal states are asked once."""
        states = self.grid.states(self.rows[at])
        if (more := self.grid.known_states - len(self._lost)) > 0:
            self._lost = np.concatenate([self._lost, np.full(more, -ENDLESS, np.int64)])
        found: Ints = self._lost[states]
        if len(found) and found.min() == -ENDLESS:
            unknown = np.flatnonzero(found == -ENDLESS)
            # One row of each state, whichever comes last.
            fresh = dict(zip(states[unknown].tolist(), at[unknown].tolist(), strict=True))
            numbers, places = np.array(list(fresh)), np.array(list(fresh.values()))
            self._lost[numbers] = self._strand(places, numbers)
            found = self._lost[states]
        return found

    def stranded_of(self, place: int) -> int:
        """The same for one place."""
        state = self.grid.state(int(self.rows[place]))
        known = int(self._lost[state]) if 0 <= state < len(self._lost) else -ENDLESS
        return known if known != -ENDLESS else int(self.stranded(np.array([place]))[0])

    def _strand(self, at: Ints, states: Ints) -> Ints:
        grid, rows, need = self.grid, self.rows[at], self.need[at][:, None]
        before, kinds = np.maximum(grid.free[rows], 0), grid.shape[rows]
        room = self.usable[at] & (before >= need)
        order = np.argsort(np.where(room, before, ENDLESS), axis=1, kind="stable")[:, : self.count]
        after = before.copy()
        np.put_along_axis(after, order, np.take_along_axis(before, order, 1) - need, 1)
        after = np.maximum(after, 0)
        lost: Ints = self._scarcity.of_states(grid, states, rows) - self._scarcity.usable_mib(kinds, after)
        return lost // PPM

    # -- room --------------------------------------------------------------------------------------------------------

    def _look(self, at: Ints) -> None:
        """Answer for the rows at these places: counts, company, disk, and memory in both sums."""
        grid, rows = self.grid, self.rows[at]
        able = self._counts(rows) & self._disk(rows)
        left, room = self._memory(at, rows, grid.free, grid.used_gpu)
        self.fits[at] = able & room
        waits = np.zeros(len(at), np.bool_)
        busy = np.flatnonzero(grid.leaving[rows] & self.fits[at])
        if len(busy):
            # While others are on their way out, the sum of what runs is the other ledger.
            beside, now = self._memory(at[busy], rows[busy], grid.open - grid.live, grid.live_gpu)
            left[busy] = np.where(now, beside, left[busy])
            boards = grid.board.rows
            waits[busy] = ~now | [grid.board.crowded_now(boards[r], self.profile, None) for r in rows[busy].tolist()]
        self.left[at], self.waits[at] = left, waits

    def _counts(self, rows: Ints) -> Bools:
        grid, profile = self.grid, self.profile
        found: Bools = grid.present[rows] < grid.limit[rows]
        if self._plain and profile.max_per_host is None:
            return found
        here = _at(grid.company.of(profile.name), rows, len(grid.ids))
        if profile.max_per_host is not None:
            found &= here < profile.max_per_host
        if self._plain:
            return found
        others = grid.distinct[rows] - (here > 0)
        most = profile.colocation.max if profile.colocation.max is not None else ENDLESS
        found &= (others == 0) | (others + 1 <= np.minimum(grid.sociable[rows], most))
        for name in grid.shunned(profile):
            if there := grid.company.of(name):
                found &= _at(there, rows, len(grid.ids)) == 0
        return found

    def _disk(self, rows: Ints) -> Bools:
        free = self.grid.disk_free[rows]
        if len(self._files) == 1:
            ((has, size),) = self._files
            alone: Bools = has[rows] | (free >= size)
            return alone if size else np.ones(len(rows), np.bool_)
        missing = np.zeros(len(rows), np.int64)
        for has, size in self._files:
            missing += np.where(has[rows], 0, size)
        found: Bools = (missing == 0) | (missing <= free)
        return found

    def _memory(self, at: Ints, rows: Ints, left: Ints, used_gpu: Ints) -> tuple[Ints, Bools]:
        """What would be left on the fullest pool of the seat, and whether there is a seat."""
        grid = self.grid
        free = left[rows]
        if self.gpu and grid.shared:
            free = np.minimum(free, grid.gpu[rows] - used_gpu[rows])
        room = self.usable[at] & (free >= self.need[at][:, None])
        if self.loose:
            enough: Bools = np.asarray(room.sum(1) >= self.count)
            tightest = np.where(room, free, ENDLESS).min(1)
        else:
            enough, tightest = self._grouped(rows, free, room)
        if self._need_ram:
            needs_ram = self.ram_need[at] > 0
            ram = grid.ram[rows]
            ram_free = left[rows, ram]
            enough &= ~needs_ram | (ram_free >= self.ram_need[at])
        return tightest - self.need[at], enough

    def _grouped(self, rows: Ints, free: Ints, room: Bools) -> tuple[Bools, Ints]:
        """As above where only some sets of pools may work together: the tightest set with room for all."""
        enough, tightest = np.zeros(len(rows), np.bool_), np.full(len(rows), ENDLESS, np.int64)
        shapes = self.grid.shape[rows]
        for shape in np.unique(shapes):
            fitting = self.fittings[shape]
            assert fitting is not None, "only rows that suit are asked"
            here = np.flatnonzero(shapes == shape)
            for group in fitting.groups:
                columns = list(group)
                good = room[np.ix_(here, columns)]
                able = good.sum(1) >= self.count
                least = np.where(good, free[np.ix_(here, columns)], ENDLESS).min(1)
                tightest[here[able]] = np.minimum(tightest[here[able]], least[able])
                enough[here[able]] = True
        return enough, tightest


def _fitting(way: Way, grid: Grid, shape: int, launches: dict[str, tuple[Launch, Digest]]) -> Fitting:
    backend = way.launch.backend
    if backend not in launches:
        launches[backend] = way.launch, identity(way.launch)
    view = grid.examples[shape]
    column = {r.id: n for n, r in enumerate(view.rooms)}
    columns = tuple(column[r.id] for r in way.rooms)
    groups = tuple(tuple(column[r.id] for r in s) for s in sets(way.rooms, way.launch.devices))
    shared, host_bytes = on_ram(view, way), way.need.host_bytes
    per_pool = way.need.device_bytes + (host_bytes if shared else 0)
    return Fitting(way, launches[backend][1], columns, groups, per_pool, 0 if shared else host_bytes)


def _slim(column: Ints) -> Ints:
    """The same numbers; where all are equal, one in memory. Not to be written to."""
    if len(column) and (column == column[0]).all():
        slim: Ints = np.broadcast_to(column[:1].copy(), column.shape)
        return slim
    return column


def _column(fittings: list[Fitting | None], of: Callable[[Fitting], int]) -> Ints:
    """One number per shape; 0 for shapes that do not suit."""
    return np.array([0 if f is None else of(f) for f in fittings], np.int64)


def _at(counts: Mapping[int, int], rows: Ints, size: int) -> Ints:
    """The count of each of these rows. A few rows are looked up, many are spread out first."""
    if len(rows) * 4 < len(counts) or len(rows) < 16:
        return np.array([counts.get(r, 0) for r in rows.tolist()], np.int64)
    spread = np.zeros(size, np.int64)
    spread[list(counts)] = list(counts.values())
    return spread[rows]
