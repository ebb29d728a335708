"""Make room for replicas that found no seat: others move over several hosts, or the less important give way.

Turns the draft into a puzzle of small integers (`puzzle`), lets `search` improve it within the counts of the policy,
and seats on the real board what that found. Nothing happens where everybody has a seat: a placement that is complete is
never taken apart for a better one. Called by `planner.plan` after `place`.

Who may be disturbed: replicas that run by the plan, on hosts that are open, past their minimum residency, neither
pinned nor in doubt. Nobody loses a place to somebody who is not more important, and one of a profile always stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gridops.base.ids import HostId, ProfileName, ReplicaId, replica_key
from gridops.model.plan import Cause, CauseKind
from gridops.planner.capacity import Ask, Offer
from gridops.planner.draft import Item, Seated
from gridops.planner.eligible import Way, is_gpu_work
from gridops.planner.grid import ENDLESS, Grid
from gridops.planner.incumbents import Incumbent, Verdict, names_of, residency_of
from gridops.planner.openings import Opening
from gridops.planner.order import stakes
from gridops.planner.place import seat
from gridops.planner.puzzle import Ground, Kind, Option, Piece, Puzzle, Spot
from gridops.planner.search import Limits, Search
from gridops.planner.seats import Seats
from gridops.planner.world import Standing, clock

DROPS = 64
"""Standing replicas that one plan may take away to make room; larger changes converge over later plans.
Source: allocator-facts.md, planner policy. Doubling it makes longer waves, halving it more plans."""


def make_room(seats: Seats, left: Sequence[Item]) -> tuple[Item, ...]:
    """Seat more of those who are left, if rearranging others allows it. Returns who still has no seat."""
    draft = seats.draft
    wanting = [i for i in left if _wants(i)]
    if not wanting or draft.world.mass_stale:
        return tuple(left)
    maker = _Maker(seats, wanting)
    if not maker.hopeful():
        return tuple(left)
    planning, moves = draft.world.planning, draft.world.budgets.moves
    search = Search(maker.puzzle, Limits(rounds=planning.search.moves, moves=moves.per_plan, drops=DROPS))
    draft.evaluated += search.run()
    lost = maker.carry_out()
    still = [i for i in wanting if not maker.seated(i)] + list(lost)
    # The search keeps failure domains apart; where that is not feasible, a seat in the same one is better than none.
    return (*(i for i in left if i not in wanting), *seat(seats, still))


def _wants(item: Item) -> bool:
    """It may go anywhere: it stands nowhere, or on a host that it should leave."""
    return item.pin is None and (item.origin is None or item.origin.verdict in (Verdict.RELEASE, Verdict.LEAVE))


@dataclass(frozen=True, slots=True)
class _Mover:
    """A piece with the replica it stands for: seated now, or wanting."""

    replica: ReplicaId
    profile: ProfileName
    seated: Seated | None
    item: Item | None


class _Maker:
    """Draft to puzzle and back."""

    def __init__(self, seats: Seats, wanting: Sequence[Item]) -> None:
        self.seats, self.draft = seats, seats.draft
        self.grid: Grid = seats.grid
        self.grid.refresh()
        self.names = sorted(self.draft.world.profiles)
        self.kind = {name: n for n, name in enumerate(self.names)}
        # Foreign models are company too: they count from -2 downwards.
        strangers = sorted(set(self.grid.company.rows) - set(self.names))
        self.number = self.kind | {name: -2 - n for n, name in enumerate(strangers)}
        self.movers: list[_Mover] = []
        self.pieces: list[Piece] = []
        spots: list[Spot | None] = []
        anchored: set[int] = set()
        kinds = [self._kind_of(name) for name in self.names]
        at_stake = stakes(self.draft, sorted({*self.draft.seats, *(i.replica for i in wanting)}), seats.width)
        for replica in sorted(self.draft.seats, key=replica_key):
            seated = self.draft.seats[replica]
            if (spot := self._movable(seated)) is not None:
                self.movers.append(_Mover(replica, seated.assignment.profile, seated, None))
                home = spot if seated.origin is not None and seated.cause is None else None
                kind = self.kind[seated.assignment.profile]
                serves = home is not None and self._serves(seated)
                self.pieces.append(Piece(kind, home, at_stake.get(replica, 0), serves))
                spots.append(spot)
            elif self._serves(seated) and seated.assignment.profile in self.kind:
                anchored.add(self.kind[seated.assignment.profile])
        for item in wanting:
            self.movers.append(_Mover(item.replica, item.profile.name, None, item))
            self.pieces.append(Piece(self.kind[item.profile.name], None, at_stake.get(item.replica, 0)))
            spots.append(None)
        self.puzzle = Puzzle(kinds, self.pieces, self._ground(spots), frozenset(anchored))
        for n, spot in enumerate(spots):
            if spot is not None:
                self.puzzle.put(n, spot)
        self.before = list(self.puzzle.at)
        self._spread_out()
        self.puzzle.journal.clear()

    def _spread_out(self) -> None:
        """Let newcomers stand up whose failure domains are too few: the search seats them where they count."""
        for n, piece in enumerate(self.pieces):
            if piece.home is None and self.puzzle.at[n] is not None and self.puzzle.missing(piece.kind):
                self.puzzle.take(n)

    def hopeful(self) -> bool:
        """Is there any host that the rules allow for somebody who has no seat?"""
        return any(self.puzzle.at[n] is None and self.puzzle.kinds[p.kind].options for n, p in enumerate(self.pieces))

    def seated(self, item: Item) -> bool:
        """Did the search find a seat for it?"""
        return any(m.item is item and self.puzzle.at[n] is not None for n, m in enumerate(self.movers))

    # -- into the puzzle ---------------------------------------------------------------------------------------------

    def _kind_of(self, name: ProfileName) -> Kind:
        profile = self.draft.world.profiles[name]
        options: dict[int, list[Option]] = {}
        for opening in self.seats.openings(profile):
            for row, start in zip(opening.rows.tolist(), opening.start_ms.tolist(), strict=True):
                if (option := _option(opening, row, start)) is not None and self._affordable(row):
                    options.setdefault(row, []).append(option)
        spread = profile.spread
        return Kind(
            weight=profile.priority,
            options={row: tuple(found) for row, found in sorted(options.items())},
            most_here=profile.max_per_host if profile.max_per_host is not None else ENDLESS,
            domains=tuple(self.grid.domains(spread.by)[0].tolist()) if spread is not None else None,
            spread=min(spread.min, self.draft.sizes[name].replicas) if spread is not None else 0,
            shuns=frozenset(self.number[n] for n in self.grid.shunned(profile) if n in self.number),
            company=profile.colocation.max if profile.colocation.max is not None else ENDLESS,
        )

    def _affordable(self, row: int) -> bool:
        """Under a price ceiling only hosts that are paid for already: which others fit it together is `place`'s."""
        return self.draft.world.budgets.price is None or bool(self.grid.holds[row]) or not self.grid.price[row]

    def _movable(self, seated: Seated) -> Spot | None:
        """Where it stands, as a spot; None when it must not be touched."""
        assignment, world = seated.assignment, self.draft.world
        profile, view = world.profiles.get(assignment.profile), world.hosts.get(assignment.seat.host)
        if profile is None or view is None or view.standing not in (Standing.OPEN, Standing.THROTTLED):
            return None
        origin = seated.origin
        if origin is not None and seated.cause is None:
            settled = origin.verdict is Verdict.STAY and not origin.pinned and not origin.stuck
            if not settled or not self._rested(seated):
                return None
        elif view.host.id in profile.placement.pins or (origin is not None and not _free(origin, view.host.id)):
            return None
        column = {r.id: n for n, r in enumerate(view.rooms)}
        if any(d not in column for d in assignment.seat.devices):
            return None
        row, pools = self.grid.row[view.host.id], tuple(column[d] for d in assignment.seat.devices)
        start = missing = 0
        if origin is None or seated.cause is not None:
            found = [o for o in self._options(profile.name, row) if o.need == assignment.device_bytes]
            if not found:
                return None
            start, missing = found[0].start_ms, found[0].missing
        gpu = is_gpu_work(seated.launch.backend)
        config = next((n for n, c in enumerate(profile.configs) if c.name == seated.launch.config), 0)
        need, ram = assignment.device_bytes, assignment.host_bytes
        return Spot(row, Option(config, pools, (pools,), len(pools), need, ram, gpu, start, missing), pools)

    def _serves(self, seated: Seated) -> bool:
        """It is ready where it stands; without any report, whatever the parent placed counts as such."""
        origin, world = seated.origin, self.draft.world
        if origin is None or seated.assignment.seat.host != origin.host:
            return False
        view = world.hosts.get(origin.host)
        heard = view is not None and view.standing not in (Standing.SILENT, Standing.LOST, Standing.NOT_SERVING)
        return world.hypothetical or (origin.ready and heard)

    def _options(self, name: ProfileName, row: int) -> list[Option]:
        found = []
        for opening in self.seats.openings(self.draft.world.profiles[name]):
            place = int(opening.place[row])
            if place >= 0 and (option := _option(opening, row, int(opening.start_ms[place]))) is not None:
                found.append(option)
        return found

    def _rested(self, seated: Seated) -> bool:
        """It has stood for its minimum residency, or nobody knows since when it stands."""
        world, origin = self.draft.world, seated.origin
        assert origin is not None
        view = world.hosts.get(origin.host)
        here = residency_of(view, names_of(world, origin.replica, origin.former), origin.assignment.launch)
        if here is None or here.since_ms is None:
            return True
        return clock(world.inputs) - here.since_ms >= world.profiles[seated.assignment.profile].timing.min_residency_ms

    def _ground(self, spots: Sequence[Spot | None]) -> Ground:
        """What every host has left beside the pieces."""
        grid = self.grid
        free = (grid.open - grid.used).tolist()
        gpu = (grid.gpu - grid.used_gpu).tolist()
        slots, disk = (grid.limit - grid.present).tolist(), grid.disk_free.tolist()
        counts: list[dict[int, int]] = [{} for _ in grid.ids]
        for name, rows in sorted(grid.company.rows.items()):
            for row, many in rows.items():
                counts[row][self.number[name]] = many
        for piece, spot in zip(self.pieces, spots, strict=True):
            if spot is None:
                continue
            row, option = spot.host, spot.option
            for column in spot.pools:
                free[row][column] += option.need
                gpu[row][column] += option.need if option.gpu else 0
            if option.ram:
                free[row][int(grid.ram[row])] += option.ram
            slots[row] += 1
            disk[row] += option.missing
            _one_less(counts[row], piece.kind)
        for mover in self.movers:
            # Whoever is to leave does not count where it stands: it would count twice once it has a seat.
            origin = mover.item.origin if mover.item is not None else None
            stands = grid.row.get(origin.host) if origin is not None else None
            if stands is not None and mover.replica in grid.board.rows[stands].desired:
                _one_less(counts[stands], self.kind[mover.profile])
        slack = (grid.raw - grid.open).tolist()
        return Ground(free, slack, gpu, grid.ram.tolist(), slots, disk, counts)

    # -- and back ----------------------------------------------------------------------------------------------------

    def carry_out(self) -> tuple[Item, ...]:
        """Seat on the board what the search found. Returns those who lost their seat, as items that look for one."""
        changed = [n for n, spot in enumerate(self.puzzle.at) if spot is not self.before[n]]
        arrivals = sorted({self.movers[n].replica for n in changed if self.movers[n].item is not None})
        lost: list[Item] = []
        lifted: list[tuple[int, Seated]] = []
        for n in changed:
            seated = self.movers[n].seated
            if seated is not None:
                lifted.append((n, self.draft.lift(seated.assignment.replica)))
        for n, seated in lifted:
            if self.puzzle.at[n] is None:
                lost.append(self._lost(seated, arrivals))
                if seated.origin is not None and seated.cause is not None:
                    self.draft.stay(seated.origin)
        for n in changed:
            spot = self.puzzle.at[n]
            if spot is not None:
                self._sit(self.movers[n], spot, arrivals)
        return tuple(lost)

    def _sit(self, mover: _Mover, spot: Spot, arrivals: Sequence[ReplicaId]) -> None:
        host = self.grid.ids[spot.host]
        item = mover.item or self._item(mover, arrivals)
        opening = next(o for o in self.seats.openings(item.profile) if o.position == spot.option.config)
        way = opening.way(spot.host)
        rooms = self.grid.views[spot.host].rooms
        exact = Way(way.launch, way.need, tuple(rooms[c] for c in spot.pools), way.gpu)
        offer = self.draft.board.offer(host, Ask(item.replica, item.profile, exact))
        assert isinstance(offer, Offer), f"the puzzle was more hopeful than the board: {offer}"
        self.draft.sit(item, host, offer, way.launch)

    def _item(self, mover: _Mover, arrivals: Sequence[ReplicaId]) -> Item:
        seated = mover.seated
        assert seated is not None
        profile = self.draft.world.profiles[mover.profile]
        if seated.cause is not None:
            return Item(mover.replica, profile, seated.cause, seated.origin)
        assert seated.origin is not None, "who is new has a cause"
        cause = Cause(kind=CauseKind.REBALANCE, detail=f"makes room for {_names(arrivals)}")
        return Item(mover.replica, profile, cause, replace(seated.origin, verdict=Verdict.LEAVE, cause=cause))

    def _lost(self, seated: Seated, arrivals: Sequence[ReplicaId]) -> Item:
        replica = seated.assignment.replica
        profile = self.draft.world.profiles[seated.assignment.profile]
        if seated.cause is not None:
            return Item(replica, profile, seated.cause, seated.origin)
        assert seated.origin is not None, "who is new has a cause"
        cause = Cause(kind=CauseKind.DISPLACED, detail=f"gives way to {_names(arrivals)}")
        return Item(replica, profile, cause, replace(seated.origin, verdict=Verdict.RELEASE, cause=cause))


def _one_less(counts: dict[int, int], kind: int) -> None:
    counts[kind] -= 1
    if not counts[kind]:
        del counts[kind]


def _free(origin: Incumbent, host: HostId) -> bool:
    """It came to the host because it had to leave another, and might as well have come to a third."""
    return origin.verdict in (Verdict.LEAVE, Verdict.RELEASE) and origin.only_to is None and origin.host != host


def _option(opening: Opening, row: int, start_ms: int) -> Option | None:
    fitting = opening.fittings[int(opening.grid.shape[row])]
    if fitting is None:
        return None
    return Option(
        config=opening.position,
        columns=fitting.columns,
        groups=fitting.groups,
        count=opening.count,
        need=fitting.per_pool,
        ram=fitting.ram,
        gpu=fitting.way.gpu,
        start_ms=start_ms,
        missing=opening.missing(row),
    )


def _names(replicas: Sequence[ReplicaId]) -> str:
    shown = ", ".join(replicas[:3])
    return shown + (f" and {len(replicas) - 3} more" if len(replicas) > 3 else "")
