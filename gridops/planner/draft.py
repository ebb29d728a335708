"""The plan in the making: the board, who sits where so far, and who still looks for a seat.

Mutable, and seen by the planner only: `begin` seats whoever may stay, `place` moves the rest through it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gridops.base.ids import Digest, HostId, ProfileName, ReplicaId, replica_key, split_replica
from gridops.base.units import counted
from gridops.model.plan import Assignment, Cause, CauseKind, Choice, HostLine, Launch, Seat
from gridops.model.profile import Downtime, Profile
from gridops.planner.capacity import Board, Offer, admits, bad_company, residency_claim
from gridops.planner.host_board import Claim, HostBoard
from gridops.planner.incumbents import Incumbent, Verdict, names_of, process_of
from gridops.planner.recall import Shelf
from gridops.planner.sizing import Size
from gridops.planner.targets import Targets
from gridops.planner.world import World


class Seated(NamedTuple):
    """A replica with its seat. `dip`: it is down while it changes, because its former self has to go first."""

    assignment: Assignment
    launch: Launch
    origin: Incumbent | None = None
    cause: Cause | None = None
    dip: bool = False


class Item(NamedTuple):
    """A replica that looks for a seat: missing, changed, or on its way from where it stands."""

    replica: ReplicaId
    profile: Profile
    cause: Cause
    origin: Incumbent | None = None
    pin: HostId | None = None
    """The only host that will do."""

    @property
    def home(self) -> HostId | None:
        """Where it stands until it has the seat that it looks for."""
        return self.origin.host if self.origin is not None else None

    @property
    def changes(self) -> bool:
        """Its command changed: its own place is tried first."""
        return self.origin is not None and self.origin.verdict is Verdict.CHANGE


@dataclass(slots=True)
class Draft:
    world: World
    board: Board
    seats: dict[ReplicaId, Seated] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)
    """Who still looks."""
    waiting: list[HostLine] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    evaluated: int = 0
    sizes: Mapping[ProfileName, Size] = field(default_factory=dict)
    """How many replicas of each declared profile are wanted."""
    watched: ReplicaId | None = None
    """Whose choice is recorded with everything, however large the fleet is."""
    _of: dict[ProfileName, dict[ReplicaId, Seated]] = field(default_factory=dict)

    def of(self, profile: ProfileName) -> Collection[Seated]:
        """Seats of one profile, held ones included."""
        return self._of.get(profile, {}).values()

    def give(self, seated: Seated) -> None:
        """The replica has this seat now."""
        replica = seated.assignment.replica
        self.seats[replica] = seated
        self._of.setdefault(seated.assignment.profile, {})[replica] = seated

    def lift(self, replica: ReplicaId, *, comes: bool = False) -> Seated:
        """Take the replica's seat away. What runs there is on its way out; what would have come (`comes`) is not."""
        seated = self.seats.pop(replica)
        del self._of[seated.assignment.profile][replica]
        host, origin = seated.assignment.seat.host, seated.origin
        self.board.take(host, replica, runs=not comes and origin is not None and origin.host == host and origin.runs)
        return seated

    def stay(self, origin: Incumbent) -> None:
        """Let a replica that was to leave stand where it stood."""
        board = self.board.hosts.get(origin.host)
        if board is not None and origin.verdict is not Verdict.RELEASE:
            self.board.back(origin.host, origin.claim)
            self.give(Seated(origin.assignment, origin.launch, origin))

    def may_return(self, origin: Incumbent) -> bool:
        """Its old place was not given to others meanwhile: it could stand there again if it lost its new one.

        Beside those who stand there as they stood, it may as before; beside one that came, or that changes in place,
        only where there is room for both.
        """
        board = self.board.hosts.get(origin.host)
        if board is None or origin.verdict is Verdict.RELEASE:
            return True
        others = (self.seats[r] for r in board.desired if r != origin.replica)
        as_before = all(s.origin is not None and s.assignment == s.origin.assignment for s in others)
        return as_before or admits(board, origin.claim, self.world)

    def sit(self, item: Item, host: HostId, offer: Offer, launch: Launch) -> None:
        """Give the item the seat on offer; where it stood before is left."""
        before = self.board.hosts.get(item.origin.host) if item.origin is not None else None
        if item.origin is not None and before is not None and item.replica in before.desired:
            self.board.take(item.origin.host, item.replica, runs=item.origin.runs)
        claim = offer.claim if offer.claim.replica == item.replica else offer.claim._replace(replica=item.replica)
        self.board.put(host, claim)
        self.board.hosts[host].fetch(launch.artifact)
        assignment = assign(claim, host, self.world.recall.digests.of(launch))
        dip = offer.breaks and item.origin is not None and item.origin.ready
        self.give(Seated(assignment, launch, item.origin, item.cause, dip))


def begin(world: World, targets: Targets) -> Draft:
    """Seat everybody who may stay, in order of importance; whoever does not fit any more looks for a new place.

    Those who must leave keep their memory until they have somewhere to go.
    """
    staying = [i for i in targets.wanted if i.verdict <= Verdict.CHANGE]
    leaving = [i for i in targets.wanted if i.verdict is Verdict.LEAVE]
    homes = _Homes(world, targets)
    draft = Draft(world, Board.of(world, homes.known()), sizes=targets.sizes)
    homes.seat_as_before(draft)
    _hold_the_rest(draft, targets, homes.settled)
    pushed: list[Incumbent] = []
    new = [i for i in staying if i.host not in homes.settled]
    for incumbent in sorted(new, key=lambda i: importance(world, i)):
        refused = None if world.mass_stale else _no_longer_fits(draft, incumbent)
        if refused is None:
            _remain(draft, incumbent)
        else:
            pushed.append(refused)
    homes.remember(draft, {i.host for i in pushed})
    for incumbent in (*leaving, *pushed):
        _remain(draft, incumbent)
    changed = [i for i in staying if i.verdict is Verdict.CHANGE and i.replica not in {p.replica for p in pushed}]
    released = [i for i in targets.wanted if i.verdict is Verdict.RELEASE]
    for incumbent in (*changed, *pushed, *leaving, *released):
        assert incumbent.cause is not None, "a verdict other than STAY has a cause"
        profile = world.profiles[incumbent.assignment.profile]
        # A pin holds a replica on its host while it changes, too.
        pin = incumbent.host if incumbent.pinned and incumbent.verdict is Verdict.CHANGE else incumbent.only_to
        draft.items.append(Item(incumbent.replica, profile, incumbent.cause, incumbent, pin))
    draft.items += [Item(m.replica, world.profiles[split_replica(m.replica)[0]], m.cause) for m in targets.missing]
    return draft


def assign(claim: Claim, host: HostId, launch: Digest) -> Assignment:
    return Assignment(
        replica=claim.replica,
        profile=claim.profile,
        seat=Seat(host=host, devices=claim.devices),
        launch=launch,
        device_bytes=claim.device_bytes,
        host_bytes=claim.host_bytes,
    )


def may_dip(item: Item) -> bool:
    """Break-before-make is for profiles that allow downtime, and costs nothing where nothing serves."""
    return item.profile.downtime is Downtime.ALLOWED or item.origin is None or not item.origin.ready


def is_same_place(origin: Incumbent, claim: Claim, launch: Launch) -> bool:
    """Nothing would be started there: the process goes on, with all that it was started with, whatever it is called.

    As what it is and with what it takes, it may be given its place once more; that changes nothing.
    """
    same = origin.assignment.seat.devices == claim.devices and process_of(origin.launch) == process_of(launch)
    return same and (origin.launch != launch or origin.claim != claim)


class _Homes:
    """Hosts by who stands on them, so that those where everybody stays as before need not be looked at again.

    How a host stands after `begin` follows from its view and its incumbents alone, each with its profile, as long as
    all of them stay and nothing else is there.
    """

    def __init__(self, world: World, targets: Targets) -> None:
        self._world = world
        self._shelf: Shelf[tuple[HostBoard, tuple[Seated, ...]]] = world.recall.shelf("boards")
        here: dict[HostId, list[Incumbent]] = {}
        for incumbent in targets.wanted:
            here.setdefault(incumbent.host, []).append(incumbent)
        self._sources = {
            host: (view.traits, *here.get(host, ()))
            for host, view in world.hosts.items()
            if not view.external and not view.stuck
        }
        self._here = here
        self.settled: dict[HostId, tuple[Seated, ...]] = {}

    def known(self) -> dict[HostId, HostBoard]:
        """Boards of the hosts about which everything is known."""
        found: dict[HostId, HostBoard] = {}
        for host, sources in self._sources.items():
            entry = self._shelf.get(host, sources) if self._shelf else None
            if entry is not None:
                found[host], self.settled[host] = entry
        return found

    def seat_as_before(self, draft: Draft) -> None:
        for host, seated in self.settled.items():
            if seated:
                draft.board.price_micro += self._world.hosts[host].host.price_per_hour_micro or 0
                for seat in seated:
                    draft.give(seat)

    def remember(self, draft: Draft, pushed: set[HostId]) -> None:
        """How the other hosts stand, where everybody stays."""
        if self._world.mass_stale:
            return
        for host, sources in self._sources.items():
            if host in self.settled or host in pushed:
                continue
            if all(i.verdict is Verdict.STAY and i.again is None for i in self._here.get(host, ())):
                board = draft.board.hosts[host]
                seated = tuple(draft.seats[r] for r in board.desired)
                self._shelf.put(host, sources, (board.keep(), seated))


def _hold_the_rest(draft: Draft, targets: Targets, settled: Collection[HostId]) -> None:
    """Put on the board what runs and is in no plan: what can leave will, what nobody can vouch for stays."""
    planned = {
        (i.host, name, i.assignment.launch)
        for i in targets.wanted
        if i.verdict is not Verdict.RELEASE and i.host not in settled
        for name in names_of(draft.world, i.replica, i.former)
    }
    for host, board in draft.board.hosts.items():
        if host in settled:
            continue
        for residency in board.view.stuck:
            if (host, residency.replica, residency.identity) not in planned:
                draft.board.hold(host, residency_claim(residency), stuck=True)
        for residency in board.view.ours:
            if (host, residency.replica, residency.identity) not in planned:
                draft.board.hold(host, residency_claim(residency), stuck=False)


def importance(world: World, incumbent: Incumbent) -> tuple[bool, bool, int, str, tuple[str, int]]:
    """The order in which incumbents keep their place: nobody can vouch for, pinned, priority, names."""
    profile = world.profiles.get(incumbent.assignment.profile)
    priority = profile.priority if profile is not None else 0
    key = replica_key(incumbent.replica)
    return not incumbent.stuck, not incumbent.pinned, -priority, incumbent.assignment.profile, key


def _no_longer_fits(draft: Draft, incumbent: Incumbent) -> Incumbent | None:
    """The incumbent with the verdict LEAVE when counts, company or memory no longer admit it beside those seated."""
    world, board = draft.world, draft.board.hosts.get(incumbent.host)
    profile = world.profiles.get(incumbent.assignment.profile)
    if board is None or profile is None:
        return None
    host, present, limit = incumbent.host, board.profiles(), board.view.host.max_replicas
    kind, why, here_again = CauseKind.POLICY, None, False
    if limit is not None and len(present) >= limit:
        why = f"{host} may hold {counted(limit, 'residency', 'residencies')}"
    elif profile.max_per_host is not None and present.count(profile.name) >= profile.max_per_host:
        why = f"{host} may hold {counted(profile.max_per_host, 'replica')} of {profile.name}"
    elif (line := bad_company(board, profile, present, world)) is not None:
        why = f"{host}: {line.detail}"
    elif not incumbent.stuck and board.over_with(incumbent.claim):
        # Moving what nobody can vouch for would free nothing.
        kind, why = CauseKind.UNHEALTHY, f"{host} has too little memory beside its reserve and external use"
        here_again = True  # on other devices, or with another config, it might stand there all the same
    if why is None:
        return None
    # It leaves where the plan has it: a host that was taken from us, whatever is wrong with the one where it runs.
    cause = incumbent.cause if incumbent.released else Cause(kind=kind, detail=why)
    return incumbent._replace(verdict=Verdict.LEAVE, cause=cause, again=None, here_again=here_again)


def _remain(draft: Draft, incumbent: Incumbent) -> None:
    if incumbent.host in draft.board.hosts:
        draft.board.put(incumbent.host, incumbent.claim)
        if incumbent.runs is False:
            draft.board.hosts[incumbent.host].fetch(incumbent.launch.artifact)
    draft.give(Seated(incumbent.assignment, incumbent.launch, incumbent))
