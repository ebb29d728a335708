"""Give seats: one pass over everybody who looks, then again while anybody found one, since leaving makes room.

For each replica all hosts are compared in every config; answers are remembered per host until something changes on
it. Whoever finds nothing keeps what it has, or is reported as unplaced. Called by `planner.plan`; `capacity` says
what fits, `rank` what is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gridops.base.ids import DeviceId, Digest, HostId, ProfileName
from gridops.footprint.need import Need, identity, need
from gridops.model.plan import Choice, HostLine, Term
from gridops.model.profile import Profile
from gridops.planner.capacity import Ask, HostBoard, Offer
from gridops.planner.draft import Draft, Item, may_dip
from gridops.planner.eligible import Way, open_way
from gridops.planner.order import in_order
from gridops.planner.rank import Rank, rank, start_of
from gridops.planner.targets import count, domain
from gridops.planner.why import rejected


@dataclass(frozen=True, slots=True)
class Opening:
    """A host that may hold a config of a profile as far as rules go; whether there is room is asked each time."""

    host: HostId
    position: int
    way: Way
    launch: Digest
    start: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """An opening with room, and how good it is."""

    rank: Rank
    opening: Opening
    offer: Offer

    @property
    def key(self) -> tuple[Rank, HostId]:
        return self.rank, self.opening.host


@dataclass(slots=True)
class Seats:
    """Finds seats. Remembers which hosts are open to which profile, and what each last answered."""

    draft: Draft
    _openings: dict[ProfileName, tuple[Opening, ...]] = field(default_factory=dict)
    _answers: dict[tuple[ProfileName, int, HostId], tuple[int, int, Offer | HostLine]] = field(default_factory=dict)

    def openings(self, profile: Profile) -> tuple[Opening, ...]:
        """Every (config, host) that the rules allow, in the order of configs and hosts."""
        found = self._openings.get(profile.name)
        if found is None:
            found = self._openings[profile.name] = tuple(self._find(profile))
        return found

    def width(self, name: ProfileName) -> tuple[int, int]:
        """How constrained and how large a profile is, for `order`."""
        profile = self.draft.world.profiles[name]
        hosts = {o.host for o in self.openings(profile)}
        sizes = [
            n.device_bytes * c.devices.count
            for c in profile.configs
            if isinstance(n := need(c, self.draft.world.planning), Need)
        ]
        return len(hosts), max(sizes, default=0)

    def candidates(self, item: Item) -> list[Candidate]:
        """Every opening with room for the item, unsorted."""
        draft, name = self.draft, item.profile.name
        used = self._domains(item)
        away = item.origin.host if item.origin is not None and not item.origin.here_again else None
        found = []
        for opening in self.openings(item.profile):
            if opening.host == away or item.pin not in (None, opening.host):
                continue
            board = draft.board.hosts[opening.host]
            offer = self.ask(item, opening, board)
            if isinstance(offer, Offer) and (not offer.breaks or may_dip(item)):
                place = used.of(opening.host)
                terms = rank(board.view, offer, opening.start, opening.position, place, bool(board.desired))
                found.append(Candidate(terms, opening, offer))
        draft.evaluated += len(self._openings[name])
        return found

    def ask(self, item: Item, opening: Opening, board: HostBoard) -> Offer | HostLine:
        """The host's answer, from memory when nothing changed on it since."""
        if item.origin is not None and item.origin.host == opening.host:
            return self.draft.board.offer(
                opening.host, Ask(item.replica, item.profile, opening.way), instead=item.replica
            )
        key = (item.profile.name, opening.position, opening.host)
        price = 0 if self.draft.world.budgets.price is None else self.draft.board.price_micro
        known = self._answers.get(key)
        if known is None or known[0] != board.version or known[1] != price:
            answer = self.draft.board.offer(opening.host, Ask(item.replica, item.profile, opening.way))
            known = self._answers[key] = (board.version, price, answer)
        answer = known[2]
        if isinstance(answer, Offer) and answer.claim.replica != item.replica:
            return Offer(answer.claim.for_replica(item.replica), answer.left_bytes, answer.waits, answer.breaks)
        return answer

    def _find(self, profile: Profile) -> Iterator[Opening]:
        for position, config in enumerate(profile.configs):
            for host, view in self.draft.world.hosts.items():
                way = open_way(profile, config, view, self.draft.world.planning)
                if isinstance(way, Way):
                    launch = identity(way.launch)
                    yield Opening(host, position, way, launch, start_of(view, way, launch))

    def _domains(self, item: Item) -> _Domains:
        spread = item.profile.spread
        level = spread.by if spread is not None else "host"
        taken: dict[str, int] = {}
        for seat in self.draft.of(item.profile.name):
            if seat.assignment.replica == item.replica:
                continue
            place = domain(self.draft.world, seat.assignment.seat.host, level)
            if place is not None:
                taken[place] = taken.get(place, 0) + 1
        unmet = spread is not None and len(taken) < min(spread.min, count(item.profile, self.draft.world))
        return _Domains(self.draft, level, taken, unmet)


@dataclass(frozen=True, slots=True)
class _Domains:
    """Where a profile's other replicas stand, by failure domain."""

    draft: Draft
    level: str
    taken: dict[str, int]
    unmet: bool

    def of(self, host: HostId) -> tuple[bool, int]:
        place = domain(self.draft.world, host, self.level)
        sharing = self.taken.get(place, 0) if place is not None else 0
        return self.unmet and (place is None or sharing > 0), sharing


def place(draft: Draft) -> tuple[Item, ...]:
    """Seat everybody who can be seated. Returns who could not, in order."""
    seats = Seats(draft)
    waiting = in_order(draft, draft.items, seats.width)
    while True:
        left = [item for item in waiting if not _seat(seats, item)]
        if len(left) == len(waiting):
            return tuple(left)
        waiting = left


def _seat(seats: Seats, item: Item) -> bool:
    draft = seats.draft
    if item.changes and item.origin is not None and item.origin.stuck:
        return False  # what nobody can vouch for is neither replaced nor stopped
    if item.changes and _in_place(seats, item):
        return True
    found = seats.candidates(item)
    if not found:
        return False
    best = min(found, key=lambda c: c.key)
    draft.choices.append(_choice(draft, item, best, found))
    draft.sit(item, best.opening.host, best.offer, best.opening.way.launch)
    return True


def _in_place(seats: Seats, item: Item) -> bool:
    """Change a replica where it stands: beside its former self if there is room, else after it, if it may be down."""
    origin, board = item.origin, seats.draft.board
    assert origin is not None
    options = [o for o in seats.openings(item.profile) if o.host == origin.host]
    same_config = [o for o in options if o.way.launch.config == origin.launch.config]
    for opening in (*same_config, *(o for o in options if o not in same_config)):
        offers = [
            board.offer(opening.host, Ask(item.replica, item.profile, way), instead=item.replica)
            for way in (_on(opening.way, origin.assignment.seat.devices), opening.way)
            if len(way.rooms) >= way.launch.devices.count
        ]
        good = [o for o in offers if isinstance(o, Offer) and (not o.breaks or may_dip(item))]
        if good:
            best = min(good, key=lambda o: (o.breaks, o.waits))
            seats.draft.sit(item, opening.host, best, opening.way.launch)
            return True
    return False


def _on(way: Way, devices: tuple[DeviceId, ...]) -> Way:
    """The same way on these devices alone."""
    return Way(way.launch, way.need, tuple(r for r in way.rooms if r.id in devices), way.gpu)


def _choice(draft: Draft, item: Item, best: Candidate, found: list[Candidate]) -> Choice:
    """Winner and runner-up by term. The runner-up is the best other host."""
    others = [c for c in found if c.opening.host != best.opening.host]
    second = min(others, key=lambda c: c.key) if others else None
    terms = tuple(
        Term(name=name, winner=value, runner_up=second.rank[n] if second is not None else None)
        for n, (name, value) in enumerate(best.rank._asdict().items())
    )
    return Choice(
        replica=item.replica,
        host=best.opening.host,
        runner_up=second.opening.host if second is not None else None,
        terms=terms,
        fits=len({c.opening.host for c in found}),
        rejected=rejected(draft, item),
    )
