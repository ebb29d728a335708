"""Where a config may run, over all hosts at once: what each host answers about room, kept until something changes.

One `Opening` stands for one config of one profile: its `Prospect`, and for each host of that whether it fits, whether
it has to wait, and how much would be left. Hosts are asked when somebody looks for a seat. Answers here are a filter;
the seat itself is always made by `capacity.Board.offer`, and a property test holds the two against each other.
Called by `seats`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gridops.base.units import PPM
from gridops.planner.constants import START_MAX_MS
from gridops.planner.eligible import Way
from gridops.planner.grid import ENDLESS, Bools, Ints, anywhere
from gridops.planner.prospects import Prospect
from gridops.planner.rank_harm import Harms
from gridops.planner.scarce import NANO, Scarcity
from gridops.planner.terrain import FEW, ZERO, counts_at

ALL_AT_ONCE = 200
"""Rows that are all asked again when any has changed: of 64 or 128 that takes two thirds of what picking some out does,
of 250 as much. Changes nothing but time."""


class Answers(NamedTuple):
    """What all hosts said at one time. Not to be written to."""

    fits: Bools
    waits: Bools
    left: Ints
    soon_ms: Ints
    wait_ms: Ints
    harm: Ints
    level: int | None
    """The harm of every host, where all are alike."""


class Strands:
    """What a seat takes from others, for each state of a host (`grid.states`); it depends on nothing else."""

    def __init__(self) -> None:
        self.lost: Ints = np.zeros(0, np.int64)


class Opening:
    """One config of one profile on all hosts."""

    # Every plan makes one for each config, and so many attributes fit no dictionary that instances share.
    __slots__ = (
        *("_harms", "_known_files", "_named", "_plain", "_scarcity", "_seen", "_shared", "_shares_times"),
        *("_shares_waits", "_steady", "_strands", "_waiting", "_wanted", "config", "count", "everywhere", "fits"),
        *("fittings", "gpu", "grid", "harm", "left", "level", "loose", "mixed", "need", "place", "position"),
        *("profile", "prospect", "ram_need", "rows", "soon_ms", "start_ms", "wait_ms", "waits"),
    )

    def __init__(self, prospect: Prospect, harms: Harms, scarcity: Scarcity, strands: Strands) -> None:
        self.prospect, self.grid = prospect, harms.grid
        self.profile, self.config, self.position = prospect.profile, prospect.config, prospect.position
        self.rows, self.place, self.fittings = prospect.rows, prospect.place, prospect.fittings.of
        self.count, self.gpu, self.loose, self.mixed = prospect.count, prospect.gpu, prospect.loose, prospect.mixed
        self.need, self.ram_need = prospect.need, prospect.ram_need
        self._wanted = prospect.fittings.wanted
        self.everywhere = prospect.rows is prospect.place
        """Every host is one of its rows, at the place of its row."""
        self.start_ms = prospect.start_ms
        self._harms, self._scarcity, self._strands = harms, scarcity, strands
        self._known_files: list[tuple[Bools, int]] | None = None
        self._plain = self.grid.plain(self.profile)
        self._named = not self._plain or self.profile.max_per_host is not None
        self._seen, self._shared, self._shares_waits, self._shares_times = -1, False, False, False
        self._waiting = False
        """Somewhere it would have to wait, or would have had to."""
        self._steady = not prospect.contended and len(self.rows) <= ALL_AT_ONCE
        """While nobody waits, only room changes, and all rows may be asked for it at once."""
        self.level: int | None = None
        """The harm on every row, where it is the same."""

    @property
    def _files(self) -> list[tuple[Bools, int]]:
        """Of each file the hosts that have it or will have it, and its bytes. Not asked for while no disk is short."""
        if self._known_files is None:
            self._known_files = [(self.grid.has(f.sha256), f.size_bytes) for f in self.config.artifact.files]
        return self._known_files

    @property
    def asked(self) -> bool:
        """Hosts have been asked for room."""
        return self._seen >= 0

    def ask(self) -> None:
        """Ask all hosts."""
        size = len(self.rows)
        self.fits, self.waits = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        self.soon_ms, self.wait_ms = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.harm: Ints = np.zeros(size, np.int64)
        self.left: Ints = np.zeros(size, np.int64)
        self._seen = self.grid.seen
        everywhere = np.arange(size)
        self._look(everywhere)
        self._time(everywhere)
        self.level = int(self.harm[0]) if size and not anywhere(self.harm != self.harm[0]) else None

    def answers(self) -> Answers:
        """What hosts say now, for a plan that begins as this one stands."""
        self._shared = self._shares_waits = self._shares_times = True
        return Answers(self.fits, self.waits, self.left, self.soon_ms, self.wait_ms, self.harm, self.level)

    def begin(self, answers: Answers) -> None:
        """What hosts said when the plan began."""
        self.fits, self.waits, self.left, self.soon_ms, self.wait_ms, self.harm, self.level = answers
        self._seen, self._shared, self._shares_waits, self._shares_times = self.grid.began, True, True, True
        self._waiting = anywhere(self.waits)

    def _own(self) -> None:
        """Something is about to change: what is shared becomes a copy."""
        if self._shared:
            self._shared = False
            self.fits, self.left = self.fits.copy(), self.left.copy()

    def _own_times(self) -> None:
        """The same for what only transfers and waiting change."""
        if self._shares_times:
            self._shares_times = False
            self.soon_ms, self.wait_ms, self.harm = self.soon_ms.copy(), self.wait_ms.copy(), self.harm.copy()

    def way(self, row: int) -> Way:
        """How it would run on the host of this row, with that host's own pools."""
        return self.prospect.way(self.grid, row)

    def missing(self, row: int) -> int:
        """Bytes that the host of this row would have to fetch."""
        return sum(0 if has[row] else size for has, size in self._files)

    def refresh(self) -> None:
        """Ask those hosts again that have changed since, or all of a few."""
        grid = self.grid
        if self._seen == grid.seen:
            return
        if self._steady and not (self._waiting or grid.departs):
            self._seen = grid.seen
            self._look_everywhere()
            return
        at, self._seen = grid.changed(self._seen), grid.seen
        if not self.everywhere:
            at = self.place[at]
            at = at[at >= 0]
        if len(at) > len(self.rows):
            at = np.unique(at)  # some have changed more than once
        if len(at):
            self._own()
            busy = self._waiting and anywhere(self.waits[at])
            self._look(at)
            if self.prospect.contended or busy or (self._waiting and anywhere(self.waits[at])):
                self._own_times()
                self._time(at)
                self.level = None

    # -- time and harm -----------------------------------------------------------------------------------------------

    def _time(self, at: Ints) -> None:
        """How soon it serves, and what that and the rest costs requests, on the rows at these places."""
        fetch = self.prospect.fetch.alone_ms[at]
        if self.prospect.contended:
            fetch = self._beside_others(at, fetch)
        self.soon_ms[at] = np.minimum(fetch + self.prospect.warm[at], self.prospect.running[at])
        if not self._waiting and not self.prospect.mixed:
            self.harm[at] = self.prospect.exposure.while_waiting(self.soon_ms[at])
            return
        self.wait_ms[at] = 0
        for place in at[self.waits[at]].tolist():
            self.wait_ms[place] = self._harms.drain_ms(int(self.rows[place]))
        self.harm[at] = sum(self.parts(at))

    def _beside_others(self, at: Ints, alone: Ints) -> Ints:
        """Transfers under way share the link; those that this plan has for the host already take their turn first."""
        size, shared = self.prospect.fetch.size_bytes[at], self.prospect.fetch.shared[at]
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
        known, cost = self.prospect, self.prospect.exposure.while_waiting
        waiting, starting = cost(self.wait_ms[at]), cost(self.soon_ms[at])
        return waiting, starting, known.failing[at], known.slower[at], known.broken[at]

    @property
    def told_by_harm(self) -> bool:
        """Rows of equal harm have equal parts of it."""
        return not (self.mixed or self._waiting)

    def parts_of(self, place: int) -> tuple[int, int, int, int, int]:
        """The same for one place."""
        known, cost = self.prospect, self.prospect.exposure.of_waiting
        if not known.mixed:
            if not self._waiting:
                return 0, self.level if self.level is not None else int(self.harm[place]), 0, 0, 0
            return cost(int(self.wait_ms[place])), cost(int(self.soon_ms[place])), 0, 0, 0
        waiting, starting = cost(int(self.wait_ms[place])), cost(int(self.soon_ms[place]))
        return waiting, starting, int(known.failing[place]), int(known.slower[place]), int(known.broken[place])

    def fetch_ms(self, at: Ints) -> Ints:
        """How long the missing files take to come, on the rows at these places; nothing where they are."""
        return self._beside_others(at, self.prospect.fetch.alone_ms[at])

    def warm_ms(self, at: Ints) -> Ints:
        return np.take(self.prospect.warm, at)

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
        return int(self.prospect.exposure.while_waiting(drain)[0])

    def stranded(self, at: Ints) -> Ints:
        """What a seat on these rows would take from others (`scarce`). Hosts in equal states are asked once."""
        states, known = self.grid.states(at if self.everywhere else self.rows[at]), self._strands
        if (more := self.grid.known_states - len(known.lost)) > 0:
            known.lost = np.concatenate([known.lost, np.full(more, -ENDLESS, np.int64)])
        found: Ints = known.lost[states]
        if len(found) and found.item(found.argmin()) == -ENDLESS:
            unknown = np.flatnonzero(found == -ENDLESS)
            # One row of each state, whichever comes last.
            fresh = dict(zip(states[unknown].tolist(), at[unknown].tolist(), strict=True))
            numbers, places = np.array(list(fresh)), np.array(list(fresh.values()))
            known.lost[numbers] = self._strand(places, numbers)
            found = known.lost[states]
        return found

    def stranded_of(self, place: int) -> int:
        """The same for one place."""
        return int(self.stranded(np.array([place]))[0])

    def _strand(self, at: Ints, states: Ints) -> Ints:
        grid, rows, need = self.grid, self.rows[at], self.need[at][:, None]
        before, shapes = np.maximum(grid.free[rows], 0), grid.shape[rows]
        room = before >= self._wanted.take(shapes, 1).T
        after, free = before.copy(), np.where(room, before, ENDLESS)
        if self.count == 1:
            after[np.arange(len(rows)), free.argmin(1)] -= need[:, 0]
        else:
            order = np.argsort(free, axis=1, kind="stable")[:, : self.count]
            np.put_along_axis(after, order, np.take_along_axis(before, order, 1) - need, 1)
        if self.prospect.needs_ram:
            after[np.arange(len(rows)), grid.ram[rows]] -= self.ram_need[at]
        after = np.maximum(after, 0)
        lost: Ints = self._scarcity.of_states(grid, states, rows) - self._scarcity.worth(shapes, after)
        return lost // (NANO // PPM)

    # -- room --------------------------------------------------------------------------------------------------------

    def _look(self, at: Ints) -> None:
        """Answer for the rows at these places: counts, company, disk, and memory in both sums."""
        grid, rows = self.grid, at if self.everywhere else self.rows[at]
        left, able = self._now(at, rows, grid.by_pool.take(rows, 1), self._wanted.take(grid.shape[rows], 1))
        self.fits[at] = able
        if grid.departs:
            self._look_again(at, rows, left, able)
        self.left[at] = left

    def _look_everywhere(self) -> None:
        """The same for all rows, while nothing is on its way out."""
        grid, rows = self.grid, self.rows
        free = grid.by_pool if self.everywhere else grid.by_pool.take(rows, 1)
        self._shared = False
        self.left, self.fits = self._now(grid.all_rows[: len(rows)], rows, free, self.prospect.wanted)

    def _now(self, at: Ints, rows: Ints, free: Ints, wanted: Ints) -> tuple[Ints, Bools]:
        """What would be left on these rows, and whether there is room, beside all that shall stand there."""
        grid = self.grid
        left, able = self._memory(at, rows, (free, wanted), (grid.by_pool, grid.used_gpu))
        if grid.crowded:
            able &= (grid.present < grid.limit)[rows]
        if self._named:
            able &= self._counts(rows)
        if self.prospect.size_bytes > grid.least_disk:
            able &= self._disk(rows)
        return left, able

    def _look_again(self, at: Ints, rows: Ints, left: Ints, able: Bools) -> None:
        """While others are on their way out, the sum of what runs is the other ledger."""
        grid, waits = self.grid, np.zeros(len(at), np.bool_)
        busy = (grid.leaving[rows] & able).nonzero()[0]
        if len(busy):
            chosen, left_live = rows[busy], (grid.open - grid.live).T
            pools = left_live.take(chosen, 1), self._wanted.take(grid.shape[chosen], 1)
            beside, now = self._memory(at[busy], chosen, pools, (left_live, grid.live_gpu))
            left[busy] = np.where(now, beside, left[busy])
            boards = grid.board.rows
            waits[busy] = ~now | [grid.board.crowded_now(boards[r], self.profile, None) for r in rows[busy].tolist()]
            self._waiting = True
        if self._shares_waits:
            self._shares_waits, self.waits = False, self.waits.copy()
        self.waits[at] = waits

    def _counts(self, rows: Ints) -> Bools:
        """Counts and company, where rules speak of either."""
        grid, profile = self.grid, self.profile
        counts, most_here = grid.company.of(profile.name), profile.max_per_host
        if self._plain and len(counts) == 1:
            ((row, many),) = counts.items()
            if most_here is not None and many < most_here:
                return np.ones(len(rows), np.bool_)
            elsewhere: Bools = rows != grid.all_rows[row, ...]
            return elsewhere
        if self._plain and len(rows) < FEW:
            assert most_here is not None, "counts are asked where a rule speaks of them"
            return np.array([counts.get(r, 0) < most_here for r in rows.tolist()], np.bool_)
        here = counts_at(counts, rows, len(grid.ids))
        found: Bools = here < (most_here if most_here is not None else ENDLESS)
        if self._plain:
            return found
        others = grid.distinct[rows] - (here > 0)
        most = profile.colocation.max if profile.colocation.max is not None else ENDLESS
        found &= (others == 0) | (others + 1 <= np.minimum(grid.sociable[rows], most))
        for name in grid.shunned(profile):
            if there := grid.company.of(name):
                found &= counts_at(there, rows, len(grid.ids)) == 0
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

    def _memory(self, at: Ints, rows: Ints, pools: tuple[Ints, Ints], ledger: tuple[Ints, Ints]) -> tuple[Ints, Bools]:
        """What would be left on the fullest pool of the seat, and whether there is a seat.

        `pools`: what is free and what is wanted, pool x row; `ledger`: what is free on all hosts (pool x host), and
        what GPU work takes there.
        """
        grid, (free, wanted), (left, used_gpu) = self.grid, pools, ledger
        if self.gpu and grid.shared:
            free = np.minimum(free, (grid.gpu[rows] - used_gpu[rows]).T)
        rest = free - wanted
        if self.loose and self.count == 1:
            # Read without a sign, what is less than nothing is more than anything.
            least: Ints = np.minimum.reduce(rest.view(np.uint64), 0).view(np.int64)
            enough: Bools = least >= ZERO
        elif self.loose:
            able = rest >= 0
            enough = np.add.reduce(able, 0) >= self.count
            least = np.minimum.reduce(np.where(able, rest, ENDLESS), 0)
        else:
            enough, tightest = self._grouped(rows, free.T, rest.T >= 0)
            least = tightest - self.need[at]
        if self.prospect.needs_ram:
            needed = self.ram_need[at]
            enough &= (needed <= 0) | (left[grid.ram[rows], rows] >= needed)
        return least, enough

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
