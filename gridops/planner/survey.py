"""Why a profile fits on no host, over all hosts at once: how many hosts each reason keeps out, and which is nearest.

Says by arrays what `why.lines_for` says host by host, in the same order of rules, for plans that are too large to
carry a line per host; a property test holds the two against each other. Called by `why`; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId, ProfileName, ReplicaId
from gridops.model.fleet import DeviceKind
from gridops.model.plan import HostLine
from gridops.model.profile import Profile
from gridops.model.snapshot import ResidencyState
from gridops.planner.capacity import Ask, Offer
from gridops.planner.eligible import judge
from gridops.planner.grid import Bools, Grid, Ints, anywhere
from gridops.planner.openings import Opening
from gridops.planner.rank import UNKNOWN_PRICE_MICRO
from gridops.planner.seats import Seats
from gridops.planner.world import HostView

STRUCTURAL, CAPACITY, WAITING = range(3)

BEFORE_NAMES = frozenset(
    c.code for c in (codes.NO_RUNTIME, codes.WRONG_BACKEND, codes.MISSING_TAG, codes.FORBIDDEN_TAG, codes.TIER_TOO_LOW)
)
"""Rules that `eligible` asks before it looks at names of hosts; the other rules about shapes come after."""

LACKS_CARDS = frozenset(c.code for c in (codes.NO_DEVICES, codes.UNEQUAL_DEVICES, codes.INSUFFICIENT_DEVICE_MEMORY))
"""Hosts that refuse for these would do if they had more or larger cards."""

FITS = "fits"


@dataclass(frozen=True, slots=True)
class Reason:
    """One code: on how many hosts, and on which of them the least is missing."""

    hosts: int
    nearest: HostId
    short_bytes: int
    """0 where it is not about bytes."""


@dataclass(frozen=True, slots=True)
class Tally:
    """All hosts by reason. `most_devices` and `all_devices` are of the hosts that have too few.

    `most_bytes` and `all_bytes` are of the cards of hosts that lack devices or memory on them, were they empty.
    """

    reasons: dict[str, Reason]
    most_devices: int = 0
    all_devices: int = 0
    most_bytes: int = 0
    all_bytes: int = 0

    @property
    def hosts(self) -> int:
        return sum(r.hosts for r in self.reasons.values())


def stage(code: str) -> int:
    """Which kind of reason a placement code is, by its range."""
    return STRUCTURAL if code < "GO520" else CAPACITY if code < "GO540" else WAITING


def progress(code: str) -> int:
    """How far a host came: capacity is nearer than waiting, and both nearer than a rule that forbids for good."""
    return {STRUCTURAL: 0, WAITING: 1, CAPACITY: 2}[stage(code)] + int(is_memory(code))


def is_memory(code: str) -> bool:
    return code in (codes.INSUFFICIENT_DEVICE_MEMORY.code, codes.INSUFFICIENT_HOST_MEMORY.code)


def missing_bytes(line: HostLine) -> int | None:
    """By how many bytes a line misses; None when it is not about bytes."""
    return line.need - line.have if line.unit == "bytes" and line.need is not None and line.have is not None else None


def cards_bytes(view: HostView) -> int:
    """What a host's whole cards could give to one new replica together, if nothing of ours stood there."""
    return sum(max(0, r.open_bytes) for r in view.rooms if r.kind is DeviceKind.GPU and r.parent is None)


def tally_of(lines: Iterable[HostLine], hosts: Mapping[HostId, HostView]) -> Tally:
    """The same from one line per host."""
    groups: dict[str, list[HostLine]] = {}
    for line in lines:
        groups.setdefault(line.code, []).append(line)
    reasons = {}
    for code in sorted(groups):
        short, nearest = min((missing_bytes(line) or 0, line.host) for line in groups[code])
        reasons[code] = Reason(len(groups[code]), nearest, short)
    have = [line.have or 0 for line in groups.get(codes.NO_DEVICES.code, ())]
    cards = [cards_bytes(hosts[line.host]) for code in sorted(LACKS_CARDS) for line in groups.get(code, ())]
    return Tally(reasons, max(have, default=0), sum(have), max(cards, default=0), sum(cards))


class Survey:
    """Asks about one profile after the other on the finished board."""

    def __init__(self, seats: Seats) -> None:
        self._seats = seats
        seats.grid.refresh()
        names = [view.closed.code if view.closed is not None else "" for view in seats.grid.views]
        self._closed = {code: np.array([n == code for n in names], np.bool_) for code in sorted(set(names) - {""})}
        self._cards: Ints = np.array([cards_bytes(view) for view in seats.grid.views], np.int64)
        self._examples = tuple(replace(view, closed=None) for view in seats.grid.examples)

    def tally(self, profile: Profile, pin: HostId | None) -> Tally:
        """Every declared host by the reason why it does not take one more replica of the profile."""
        seats, grid = self._seats, self._seats.grid
        nameless = replace(profile, placement=replace(profile.placement, allow_hosts=(), deny_hosts=()))
        planning = seats.draft.world.planning
        found = []
        for opening in seats.lasting(profile):
            # What forbids it on any host of a shape, whatever its name and state.
            lines = {
                n: line
                for n, (view, fitting) in enumerate(zip(self._examples, opening.fittings, strict=True))
                if fitting is None and isinstance(line := judge(nameless, opening.config, view, planning), HostLine)
            }
            found.append(_Answers(seats, opening, lines, self._closed))
        if not found:
            # Every host says the same (`why.nothing_to_start`).
            reason = Reason(len(grid.ids), grid.ids[0], 0) if grid.ids else None
            return Tally({} if reason is None else {codes.FOOTPRINT_UNKNOWN.code: reason})
        best = found[0]
        for other in found[1:]:
            best.improve(other)
        if pin is not None:
            best.set(np.arange(len(grid.ids)) != grid.row.get(pin, -1), codes.PINNED_ELSEWHERE.code)
        return best.tally(grid, self._cards)


class _Answers:
    """What each host answers to one config: a code (by number), and by how much it is short."""

    def __init__(
        self, seats: Seats, opening: Opening, lines: Mapping[int, HostLine], closed: Mapping[str, Bools]
    ) -> None:
        grid, size, profile = seats.grid, len(seats.grid.ids), opening.profile
        self.names: list[str] = [FITS]
        self.code: Ints = np.zeros(size, np.int64)
        self.short: Ints = np.zeros(size, np.int64)
        self.devices: Ints = np.zeros(size, np.int64)
        self._open: Bools = np.ones(size, np.bool_)
        self._rules(grid, profile, lines, closed)
        self._failed(grid, opening)
        self._counts(grid, profile)
        self._price(seats)
        self._disk(grid, opening)
        self._memory(seats, opening)

    def set(self, where: Bools, code: str, short: Ints | int = 0) -> None:
        """This is the answer of these hosts, whatever was said before."""
        if code not in self.names:
            self.names.append(code)
        self.code[where] = self.names.index(code)
        self.short[where] = short

    def improve(self, other: _Answers) -> None:
        """Where the other config came nearer, its answer counts. A config that fits says nothing here."""
        mine, theirs = self._progress(), other._progress()
        nearer = (theirs > mine) | ((theirs == mine) & (other.short < self.short))
        for n, code in enumerate(other.names):
            where = nearer & (other.code == n)
            if n and anywhere(where):
                self.set(where, code, other.short[where])
                self.devices[where] = other.devices[where]

    def tally(self, grid: Grid, cards: Ints) -> Tally:
        reasons = {}
        for n, code in sorted(enumerate(self.names), key=lambda pair: pair[1]):
            rows = np.flatnonzero(self.code == n)
            if n and len(rows):
                nearest = rows[np.argmin(self.short[rows])]  # rows stand in the order of host names
                reasons[code] = Reason(len(rows), grid.ids[nearest], int(self.short[nearest]))
        have = self.devices[self._is(codes.NO_DEVICES.code)]
        lacks = np.array([code in LACKS_CARDS for code in self.names], np.bool_)
        short = cards[lacks[self.code]]
        return Tally(reasons, int(have.max(initial=0)), int(have.sum()), int(short.max(initial=0)), int(short.sum()))

    def _progress(self) -> Ints:
        levels = np.array([-1, *(progress(code) for code in self.names[1:])], np.int64)
        found: Ints = levels[self.code]
        return found

    def _is(self, code: str) -> Bools:
        number = self.names.index(code) if code in self.names else -1
        found: Bools = self.code == number
        return found

    def _refuse(self, where: Bools, code: str, short: Ints | int = 0) -> None:
        """The answer of those among these hosts that no rule has refused before."""
        fresh = where & self._open
        if anywhere(fresh):
            self.set(fresh, code, short if isinstance(short, int) else short[fresh])
            self._open &= ~fresh

    # -- in the order of `eligible` and `capacity` -------------------------------------------------------------------

    def _rules(self, grid: Grid, profile: Profile, lines: Mapping[int, HostLine], closed: Mapping[str, Bools]) -> None:
        for code in (codes.OTHER_SCOPE.code, codes.EXTERNAL_HOST.code):
            if code in closed:
                self._refuse(closed[code], code)
        for n, line in lines.items():
            if line.code in BEFORE_NAMES:
                self._refuse(grid.shape == n, line.code)
        rules = profile.placement
        if rules.allow_hosts:
            named = np.zeros(len(self.code), np.bool_)
            named[[grid.row[h] for h in rules.allow_hosts if h in grid.row]] = True
            self._refuse(~named, codes.NOT_ALLOWED.code)
        if rules.deny_hosts:
            denied = np.zeros(len(self.code), np.bool_)
            denied[[grid.row[h] for h in rules.deny_hosts if h in grid.row]] = True
            self._refuse(denied, codes.DENIED.code)
        for n, line in lines.items():
            if line.code == codes.NO_DEVICES.code:
                self.devices[grid.shape == n] = line.have or 0
            self._refuse(grid.shape == n, line.code)
        for code, where in closed.items():
            self._refuse(where, code)

    def _failed(self, grid: Grid, opening: Opening) -> None:
        launches = {n: f.launch for n, f in enumerate(opening.fittings) if f is not None}
        for launch in sorted(set(launches.values())):
            rows = [n for n, state in grid.runs(launch) if state is ResidencyState.FAILED]
            if here := [n for n in rows if launches.get(int(grid.shape[n])) == launch]:
                where = np.zeros(len(self.code), np.bool_)
                where[here] = True
                self._refuse(where, codes.FAILED_HERE.code)

    def _counts(self, grid: Grid, profile: Profile) -> None:
        self._refuse(grid.present >= grid.limit, codes.MAX_REPLICAS.code)
        here = _spread(grid, profile.name)
        if profile.max_per_host is not None:
            self._refuse(here >= profile.max_per_host, codes.MAX_PER_HOST.code)
        others = grid.distinct - (here > 0)
        crowd = others + 1 > grid.sociable
        if profile.colocation.max is not None:
            crowd |= others + 1 > profile.colocation.max
        crowd &= others > 0
        for name in grid.shunned(profile):
            crowd |= _spread(grid, name) > 0
        self._refuse(crowd, codes.COLOCATION.code)

    def _price(self, seats: Seats) -> None:
        grid, ceiling = seats.grid, seats.draft.world.budgets.price
        if ceiling is None:
            return
        unknown = ~grid.holds & (grid.price == UNKNOWN_PRICE_MICRO)
        if ceiling.unknown == "refuse":
            self._refuse(unknown, codes.PRICE_UNKNOWN.code)
        dear = seats.draft.board.price_micro + grid.price > ceiling.max_per_hour_micro
        self._refuse(~grid.holds & ~unknown & dear, codes.PRICE_CEILING.code)

    def _disk(self, grid: Grid, opening: Opening) -> None:
        missing = np.zeros(len(self.code), np.int64)
        for file in opening.config.artifact.files:
            missing += np.where(grid.has(file.sha256), 0, file.size_bytes)
        full = (missing > 0) & (missing > grid.disk_free)
        self._refuse(full, codes.DISK_FULL.code, missing - np.maximum(grid.disk_free, 0))

    def _memory(self, seats: Seats, opening: Opening) -> None:
        """Too little on the devices, or on the RAM beside them; where pools work together, the board is asked."""
        grid = seats.grid
        rows = np.flatnonzero(self._open)
        at = opening.place[rows]
        rows, at = rows[at >= 0], at[at >= 0]
        if not len(rows):
            return
        if not opening.loose:
            self._ask(seats, opening, rows)
            return
        free = grid.open[rows] - grid.used[rows]
        if opening.gpu:
            free = np.minimum(free, grid.gpu[rows] - grid.used_gpu[rows])
        best = -np.sort(-np.where(opening.prospect.usable[at], free, np.iinfo(np.int64).min + 1), axis=1)
        have = best[:, opening.count - 1]
        lacks = have < opening.need[at]
        self._say(rows[lacks], codes.INSUFFICIENT_DEVICE_MEMORY.code, (opening.need[at] - np.maximum(have, 0))[lacks])
        rows, at = rows[~lacks], at[~lacks]
        ram = grid.ram[rows]
        there, needed = grid.open[rows, ram] - grid.used[rows, ram], opening.ram_need[at]
        lacks = (needed > 0) & (there < needed)
        self._say(rows[lacks], codes.INSUFFICIENT_HOST_MEMORY.code, (needed - np.maximum(there, 0))[lacks])

    def _say(self, rows: Ints, code: str, short: Ints) -> None:
        where, column = np.zeros(len(self.code), np.bool_), np.zeros(len(self.code), np.int64)
        where[rows], column[rows] = True, short
        self._refuse(where, code, column)

    def _ask(self, seats: Seats, opening: Opening, rows: Ints) -> None:
        """Hosts that are equal in shape and room are asked once."""
        grid, profile = seats.grid, opening.profile
        known: dict[tuple[int, bytes, bytes], Offer | HostLine] = {}
        for row in rows.tolist():
            free, gpu = grid.open[row] - grid.used[row], grid.gpu[row] - grid.used_gpu[row]
            key = int(grid.shape[row]), free.tobytes(), gpu.tobytes()
            if key not in known:
                ask = Ask(ReplicaId(f"{profile.name}/0"), profile, opening.way(row))
                known[key] = seats.draft.board.offer(grid.ids[row], ask)
            answer = known[key]
            if isinstance(answer, HostLine):
                self._say(np.array([row]), answer.code, np.array([missing_bytes(answer) or 0]))


def _spread(grid: Grid, name: ProfileName) -> Ints:
    """Residencies of one profile on each host."""
    column, here = np.zeros(len(grid.ids), np.int64), grid.company.of(name)
    column[list(here)] = list(here.values())
    return column
