"""The draft as a puzzle: which replicas may be moved for others, where they stand, and what the hosts have besides.

Who may be disturbed: replicas that run by the plan, on hosts that are open, past their minimum residency, neither
pinned nor in doubt. In large fleets only hosts that matter to those who look are taken in, so that the work stays
bounded however large the fleet is. Called by `room`; decides nothing about who goes where (`ground`: what hosts have).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from gridops.base.ids import HostId, ProfileName, ReplicaId, replica_key
from gridops.model.plan import CauseKind
from gridops.model.profile import FootprintSource, Profile
from gridops.model.snapshot import Residency, ResidencyState
from gridops.planner.draft import Draft, Item, Seated
from gridops.planner.eligible import is_gpu_work
from gridops.planner.grid import ENDLESS
from gridops.planner.ground import Numbers, barred_by_price, ground_of
from gridops.planner.harm import Harm, Needs, Urgency
from gridops.planner.incumbents import Incumbent, Verdict, names_of, residency_of
from gridops.planner.openings import Opening
from gridops.planner.pieces import Kind, Option, Options, Piece, Spot
from gridops.planner.puzzle import Puzzle
from gridops.planner.seats import Seats
from gridops.planner.targets import count
from gridops.planner.vicinity import rows_near
from gridops.planner.world import Standing, clock

SOURCES = tuple(FootprintSource)


class Mover(NamedTuple):
    """A piece with the replica it stands for: seated now, or wanting."""

    replica: ReplicaId
    profile: ProfileName
    seated: Seated | None
    item: Item | None


@dataclass(slots=True)
class Movers:
    """Replicas and hosts by number, both ways."""

    seats: Seats
    rows: list[int]
    """Rows of the grid that take part, in order: the puzzle's hosts."""
    puzzle: Puzzle
    movers: list[Mover]
    before: list[Spot | None] = field(default_factory=list)
    """Where every piece stood at first."""


def gather_movers(
    seats: Seats, wanting: Sequence[Item], *, rows: Sequence[int] | None = None, seated: Sequence[Item] = ()
) -> Movers:
    """The puzzle of the draft as it stands, with those who are wanting as loose pieces.

    `seated`: items that have a seat and for whose sake it is made, too: their hosts matter as well.
    """
    seats.grid.refresh()
    return _Maker(seats, wanting, rows_near(seats, (*wanting, *seated)) if rows is None else sorted(rows)).made()


def is_meek(draft: Draft, item: Item, needs: Needs) -> bool:
    """Nothing but an inference asks for it: it takes what is free, and nobody gives way to it."""
    placed = len(draft.of(item.profile.name))
    return needs.urgency(item.profile, placed, count(item.profile, draft.world)) < Urgency.ASKED


def option_of(opening: Opening, row: int, start_ms: int) -> Option | None:
    fitting = opening.fittings[int(opening.grid.shape[row])]
    if fitting is None:
        return None
    minimum = opening.grid.world.planning.footprint.minimum_for_displacement
    bounded = fitting.way.gpu and any(opening.grid.gpu[row, c] < ENDLESS for c in fitting.columns)
    return Option(
        config=opening.position,
        columns=fitting.columns,
        groups=fitting.groups,
        count=opening.count,
        need=fitting.per_pool,
        ram=fitting.ram,
        gpu=bounded,
        start_ms=start_ms,
        missing=opening.missing(row),
        aside=int(opening.grid.ram[row]) in fitting.columns and len(opening.grid.views[row].rooms) > 1,
        firm=SOURCES.index(opening.config.footprint.source) <= SOURCES.index(minimum),
    )


class _Maker:
    def __init__(self, seats: Seats, wanting: Sequence[Item], rows: list[int]) -> None:
        self.seats, self.draft, self.grid = seats, seats.draft, seats.grid
        self.wanting, self.rows = wanting, rows
        self.host = {row: n for n, row in enumerate(rows)}
        world = self.draft.world
        self.names = sorted(world.profiles)
        self.kind = {name: n for n, name in enumerate(self.names)}
        # Residencies of other plans are company as well; they are no kinds.
        foreign = sorted(set(self.grid.company.rows) - set(self.names))
        self.number = self.kind | {name: -2 - n for n, name in enumerate(foreign)}
        self.needs, self.now = Needs(self.draft), clock(world.inputs)
        # Whoever is pinned looks for its own host alone, and is gathered without others of its profile.
        self.only = {i.profile.name: self.grid.row.get(i.pin, -1) for i in wanting if i.pin is not None}
        self._here: dict[ReplicaId, Residency | None] = {}
        """What runs where a replica stands."""
        self._started: dict[tuple[ProfileName, int, int], tuple[int, int]] = {}
        """Bytes of those who stand on a host, by profile and config: per device, and of RAM."""
        self._stands: dict[tuple[object, ...], Option] = {}
        """How replicas stand now: most of a profile stand alike."""
        self.movers: list[Mover] = []
        self.spots: list[Spot | None] = []

    def made(self) -> Movers:
        found: list[tuple[Mover, Spot | None]] = []
        hosts, anchored = {self.grid.ids[row] for row in self.rows}, set[int]()
        for replica in sorted(self.draft.seats, key=replica_key):
            seated = self.draft.seats[replica]
            here = seated.assignment.seat.host in hosts
            if here and (spot := self._movable(seated)) is not None:
                found.append((Mover(replica, seated.assignment.profile, seated, None), spot))
            elif seated.assignment.profile in self.kind and self._serves(seated):
                anchored.add(self.kind[seated.assignment.profile])
        found += [(Mover(item.replica, item.profile.name, None, item), None) for item in self.wanting]
        self.movers, self.spots = [m for m, _ in found], [s for _, s in found]
        stand = [(self.kind[m.profile], spot, m.item) for m, spot in zip(self.movers, self.spots, strict=True)]
        self._remember_started()
        ground = ground_of(self.draft, self.grid, self.rows, Numbers(self.host, self.number), stand)
        pieces = self._pieces()
        barred = barred_by_price(self.draft, self.grid, self.rows, ground)
        kinds = [self._kind_of(name, barred) for name in self.names]
        puzzle = Puzzle(kinds, pieces, ground, frozenset(anchored))
        for n, spot in enumerate(self.spots):
            if spot is not None:
                puzzle.put(n, spot)
        made = Movers(self.seats, self.rows, puzzle, self.movers, list(puzzle.at))
        puzzle.journal.clear()
        return made

    # -- kinds -------------------------------------------------------------------------------------------------------

    def _kind_of(self, name: ProfileName, barred: frozenset[int]) -> Kind:
        profile = self.draft.world.profiles[name]
        spread, company = profile.spread, profile.colocation.max
        numbers = self.grid.domains(spread.by)[0].tolist() if spread is not None else None
        return Kind(
            weight=profile.priority,
            least=self.seats.least(profile),
            find=partial(self._options, profile, barred),
            most_here=max(0, profile.max_per_host) if profile.max_per_host is not None else ENDLESS,
            domains=tuple(numbers[row] for row in self.rows) if numbers is not None else None,
            spread=min(spread.min, self.draft.sizes[name].replicas) if spread is not None else 0,
            shuns=frozenset(self.number[n] for n in self.grid.shunned(profile) if n in self.number),
            company=company if company is not None else ENDLESS,
        )

    def _remember_started(self) -> None:
        """What those who stand on a host take there by the process that runs: no less for being seated once more."""
        for mover in self.movers:
            origin = mover.item.origin if mover.item is not None else mover.seated.origin if mover.seated else None
            host = self.host.get(self.grid.row.get(origin.host, -1)) if origin is not None else None
            if origin is None or host is None or origin.verdict is Verdict.RELEASE:
                continue
            profile, was = self.draft.world.profiles[mover.profile], origin.assignment
            config = next((n for n, c in enumerate(profile.configs) if c.name == origin.launch.config), None)
            if config is not None:
                key = mover.profile, host, config
                need, ram = self._started.get(key, (0, 0))
                self._started[key] = max(need, was.device_bytes), max(ram, was.host_bytes)

    def _options(self, profile: Profile, barred: frozenset[int]) -> Options:
        """Hosts of one shape that start it alike share one option."""
        found: dict[int, tuple[Option, ...]] = {}
        where, grid, only = self.host, self.grid, self.only.get(profile.name)
        for opening in self.seats.lasting(profile):
            known: dict[tuple[int, int, int], tuple[Option, ...]] = {}
            rows = opening.rows
            bounded = (grid.gpu[rows].min(1) < ENDLESS).tolist() if grid.shared else [False] * len(rows)
            columns = grid.shape[rows].tolist(), opening.start_ms.tolist(), opening.lacking().tolist()
            for row, apart, *key_of in zip(rows.tolist(), bounded, *columns, strict=True):
                host = where.get(row)
                if host is None or host in barred or (only is not None and only != row):
                    continue
                key: tuple[int, int, int] = tuple(key_of)
                options = known.get(key)
                if options is None or apart:
                    option = option_of(opening, row, key_of[1])
                    options = known[key] = () if option is None else (option,)
                for option in options:
                    own = self._no_smaller(option, profile.name, host)
                    mine = options if own is option else (own,)
                    found[host] = found[host] + mine if host in found else mine
        return dict(sorted(found.items()))

    def _no_smaller(self, option: Option, name: ProfileName, host: int) -> Option:
        need, ram = self._started.get((name, host, option.config), (0, 0))
        if need <= option.need and ram <= option.ram:
            return option
        return replace(option, need=max(need, option.need), ram=max(ram, option.ram))

    # -- pieces ------------------------------------------------------------------------------------------------------

    def _pieces(self) -> list[Piece]:
        """Claims are ranks, as in `order`: urgency, then whether a live process is at work, how few of its profile come
        before it, constrained and large ones, and who suffers most."""
        turn = self._turns()
        keys, world = list[tuple[Urgency, int, int, int, int, Harm]](), self.draft.world
        harms, baseline = dict[ProfileName, Harm](), dict[ProfileName, int]()
        for mover in self.movers:
            profile = world.profiles[mover.profile]
            if mover.profile not in harms:
                harms[mover.profile] = self.needs.harm(profile)
                baseline[mover.profile] = count(profile, world)
            urgency = self.needs.urgency(profile, turn[mover.replica], baseline[mover.profile])
            # That others are constrained is no reason to disturb who stands.
            hosts, size = (0, 0) if mover.seated and is_home(mover.seated) else self.seats.width(mover.profile)
            keys.append((urgency, self._at_work(mover), -turn[mover.replica], -hosts, size, harms[mover.profile]))
        rank = {key: n for n, key in enumerate(sorted(set(keys)), 1)}
        stake = {part: n for n, part in enumerate(sorted({(k[0], k[1], k[5]) for k in keys}), 1)}
        return [
            Piece(
                kind=self.kind[mover.profile],
                home=spot if mover.seated is not None and is_home(mover.seated) else None,
                claim=rank[key],
                stake=stake[key[0], key[1], key[5]],
                meek=key[0] < Urgency.ASKED,
                serves=mover.seated is not None and is_home(mover.seated) and self._serves(mover.seated),
                back_ms=self._back(mover),
            )
            for mover, spot, key in zip(self.movers, self.spots, keys, strict=True)
        ]

    def _turns(self) -> dict[ReplicaId, int]:
        """Which of its profile everybody is."""
        turn: dict[ReplicaId, int] = {}
        others: dict[ProfileName, list[ReplicaId]] = {}
        for mover in self.movers:
            known = others.setdefault(mover.profile, [])
            if mover.item is not None:
                known.append(mover.replica)
        for name in sorted(others):
            mine = {s.assignment.replica: s.origin is None for s in self.draft.of(name)}
            mine |= dict.fromkeys(others[name], True)
            turn |= {r: n for n, r in enumerate(sorted(mine, key=lambda r: (mine[r], replica_key(r))))}
            # Of those that stand nobody comes before another: whose place is taken goes, and no other for it.
            stand = [r for r in mine if (s := self.draft.seats.get(r)) is not None and is_home(s)]
            turn |= dict.fromkeys(stand, max((turn[r] for r in stand), default=0))
        return turn

    def _back(self, mover: Mover) -> int:
        """What a start there takes, as learned or as its profile says; more where it matters more."""
        profile, seated = self.draft.world.profiles[mover.profile], mover.seated
        start_ms = profile.timing.warm_ms
        if seated is not None:
            start_ms = self.seats.harms.experience.warm_ms(profile, seated.launch, seated.assignment.seat.host)
        return start_ms * max(1, profile.priority)

    def _at_work(self, mover: Mover) -> int:
        """Failed or on its way out, idle (or new), and at work: who gives way first."""
        seated = mover.seated
        if seated is None or seated.origin is None or not is_home(seated):
            return 2
        here = self._residency(seated.origin)
        if here is None:
            return 2
        if here.state in (ResidencyState.FAILED, ResidencyState.DRAINING):
            return int(here.state is ResidencyState.DRAINING)
        return 2 + (here.in_flight > 0)

    def _residency(self, origin: Incumbent) -> Residency | None:
        if origin.replica not in self._here:
            world = self.draft.world
            names = names_of(world, origin.replica, origin.former)
            self._here[origin.replica] = residency_of(world.hosts.get(origin.host), names, origin.assignment.launch)
        return self._here[origin.replica]

    def _movable(self, seated: Seated) -> Spot | None:
        """Where it stands, as a spot; None when it must not be touched."""
        assignment, world, origin = seated.assignment, self.draft.world, seated.origin
        profile, view = world.profiles.get(assignment.profile), world.hosts.get(assignment.seat.host)
        if profile is None or view is None or view.standing not in (Standing.OPEN, Standing.THROTTLED):
            return None
        if seated.cause is not None and seated.cause.kind is CauseKind.FAILED_START:
            return None  # where it may go is not the puzzle's to say
        if origin is not None and seated.cause is None:
            settled = origin.verdict is Verdict.STAY and not origin.pinned and not origin.stuck
            if not settled or not self._rested(origin, profile):
                return None
        elif view.host.id in profile.placement.pins or (origin is not None and not _free(origin, view.host.id)):
            return None
        elif origin is not None and not self.draft.may_return(origin):
            return None  # whoever took its seat now would leave it none
        row, column = self.grid.row[view.host.id], [r.id for r in view.rooms]
        try:
            pools = tuple([column.index(d) for d in assignment.seat.devices])
        except ValueError:
            return None  # it has a device that is not there today
        start = missing = 0
        if not is_home(seated):
            found = [o for o in self._ways(profile, row) if o.need == assignment.device_bytes]
            if not found:
                return None
            start, missing = found[0].start_ms, found[0].missing
        gpu = self.grid.shared and any(self.grid.gpu[row, c] < ENDLESS for c in pools)
        key = assignment.launch, pools, assignment.device_bytes, assignment.host_bytes, gpu, start, missing
        option = self._stands.get(key)
        if option is None:
            option = self._stands[key] = self._option(seated, profile, pools, gpu, (start, missing))
        return Spot(self.host[row], option, pools)

    def _option(
        self, seated: Seated, profile: Profile, pools: tuple[int, ...], shared: bool, coming: tuple[int, int]
    ) -> Option:
        """How it stands. `coming`: how soon it starts, and what it fetches for that."""
        config = next((n for n, c in enumerate(profile.configs) if c.name == seated.launch.config), 0)
        need, ram = seated.assignment.device_bytes, seated.assignment.host_bytes
        gpu, firm = shared and is_gpu_work(seated.launch.backend), self._firm(profile, config)
        return Option(config, pools, (pools,), len(pools), need, ram, gpu, *coming, firm=firm)

    def _serves(self, seated: Seated) -> bool:
        """It is ready where it stands; without any report, whatever the parent placed counts as such."""
        origin, world = seated.origin, self.draft.world
        if origin is None or seated.assignment.seat.host != origin.host:
            return False
        view = world.hosts.get(origin.host)
        heard = view is not None and view.standing not in (Standing.SILENT, Standing.LOST, Standing.NOT_SERVING)
        return world.hypothetical or (origin.ready and heard)

    def _firm(self, profile: Profile, config: int) -> bool:
        minimum = self.draft.world.planning.footprint.minimum_for_displacement
        known = [SOURCES.index(c.footprint.source) for c in profile.configs[config : config + 1]]
        return bool(known) and known[0] <= SOURCES.index(minimum)

    def _ways(self, profile: Profile, row: int) -> list[Option]:
        found = []
        for opening in self.seats.lasting(profile):
            place = int(opening.place[row])
            if place >= 0 and (option := option_of(opening, row, int(opening.start_ms[place]))) is not None:
                found.append(option)
        return found

    def _rested(self, origin: Incumbent, profile: Profile) -> bool:
        """It has stood for its minimum residency, or nobody knows since when it stands."""
        if not profile.timing.min_residency_ms:
            return True
        here = self._residency(origin)
        if here is None or here.since_ms is None:
            return True
        return self.now - here.since_ms >= profile.timing.min_residency_ms


def is_home(seated: Seated) -> bool:
    """It stands there by the plan in force, and nothing was going to change that."""
    return seated.origin is not None and seated.cause is None


def _free(origin: Incumbent, host: HostId) -> bool:
    """It came to the host because it had to leave another, and might as well have come to a third."""
    return origin.verdict in (Verdict.LEAVE, Verdict.RELEASE) and origin.only_to is None and origin.host != host
