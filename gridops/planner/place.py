"""Give seats: one pass over everybody who looks, then again while anybody found one, since leaving makes room.

For each replica all hosts are compared in every config; answers are remembered per host until something changes on
it. Whoever finds nothing keeps what it has, or is reported as unplaced. Called by `planner.plan`; `capacity` says
what fits, `rank` what is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import NamedTuple

from gridops.base.ids import DeviceId, Digest, HostId, ProfileName
from gridops.footprint.need import Need, identity, need
from gridops.model.plan import Choice, HostLine, Launch, Term
from gridops.model.profile import Profile
from gridops.planner.capacity import Ask, Offer
from gridops.planner.draft import Draft, Item, may_dip
from gridops.planner.eligible import Way, open_way
from gridops.planner.order import in_order
from gridops.planner.rank import Rank, rank, start_of
from gridops.planner.targets import count, domain
from gridops.planner.why import rejected


@dataclass(slots=True)
class Opening:
    """A host that may hold a config of a profile as far as rules go, and what it last answered about room."""

    host: HostId
    position: int
    way: Way
    launch: Digest
    start: int
    domain: str | None
    """The host's failure domain at the level the profile spreads by."""
    answer: Offer | HostLine | None = None
    rank: Rank | None = None
    """Terms of the answer, without those that depend on where the profile's other replicas stand."""
    seen: tuple[int, int] = (-1, -1)
    """Version of the host and hourly price when it answered."""


class Candidate(NamedTuple):
    """An opening with room, and how good it is. Compares by rank, then by host."""

    rank: Rank
    host: HostId
    opening: Opening
    offer: Offer


@dataclass(frozen=True, slots=True)
class Found:
    """The best seat, the best one on another host, and how many hosts have room."""

    best: Candidate
    second: Candidate | None
    hosts: int


@dataclass(slots=True)
class Seats:
    """Finds seats. Remembers which hosts are open to which profile, and what each last answered."""

    draft: Draft
    _openings: dict[ProfileName, tuple[Opening, ...]] = field(default_factory=dict)

    def openings(self, profile: Profile) -> tuple[Opening, ...]:
        """Every (config, host) that the rules allow, in the order of configs and hosts."""
        found = self._openings.get(profile.name)
        if found is None:
            found = self._openings[profile.name] = tuple(self._find(profile))
        return found

    def width(self, name: ProfileName) -> tuple[int, int]:
        """How constrained and how large a profile is, for `order`."""
        profile, planning = self.draft.world.profiles[name], self.draft.world.planning
        hosts = {o.host for o in self.openings(profile)}
        needs = [(c.devices.count, need(c, planning)) for c in profile.configs]
        return len(hosts), max((n.device_bytes * count for count, n in needs if isinstance(n, Need)), default=0)

    def find(self, item: Item) -> Found | None:
        """Compare every opening with room for the item."""
        taken, unmet = self._domains(item)
        away = item.origin.host if item.origin is not None and not item.origin.here_again else None
        rooms: dict[HostId, Candidate] = {}
        proposed = self.draft.world.proposed.get(item.replica)
        openings = self.openings(item.profile)
        self.draft.evaluated += len(openings)
        for opening in openings:
            host = opening.host
            if host == away or item.pin not in (None, host):
                continue
            answer = self._ask(item, opening)
            terms = opening.rank
            if terms is None or not isinstance(answer, Offer):
                continue
            sharing = taken.get(opening.domain, 0) if opening.domain is not None else 0
            same = unmet and (opening.domain is None or sharing > 0)
            other = proposed not in (None, host)
            if same or sharing or other:
                terms = terms._replace(same_domain=int(same), domain_replicas=sharing, unproposed=int(other))
            if host not in rooms or terms < rooms[host].rank:
                rooms[host] = Candidate(terms, host, opening, answer)
        first, *others = nsmallest(2, rooms.values()) or (None,)
        return None if first is None else Found(first, others[0] if others else None, len(rooms))

    def _ask(self, item: Item, opening: Opening) -> Offer | HostLine:
        """The host's answer, from memory when nothing changed on it since."""
        board = self.draft.board
        here = board.hosts[opening.host]
        if item.origin is not None and item.origin.host == opening.host:
            # Its own former self stands there: a question of its own, and a break needs leave.
            ask = Ask(item.replica, item.profile, opening.way)
            answer, opening.seen = board.offer(opening.host, ask, instead=item.replica), (-1, -1)
        else:
            seen = (here.version, board.price_micro if self.draft.world.budgets.price is not None else 0)
            if opening.seen == seen and opening.answer is not None:
                return opening.answer
            answer, opening.seen = board.offer(opening.host, Ask(item.replica, item.profile, opening.way)), seen
        opening.answer, opening.rank = answer, None
        if isinstance(answer, Offer) and (not answer.breaks or may_dip(item)):
            opening.rank = rank(here.view, answer, opening.start, opening.position, bool(here.desired))
        return answer

    def _find(self, profile: Profile) -> Iterator[Opening]:
        level = profile.spread.by if profile.spread is not None else "host"
        world = self.draft.world
        for position, config in enumerate(profile.configs):
            launches: dict[str, tuple[Launch, Digest]] = {}
            for host, view in world.hosts.items():
                way = open_way(profile, config, view, world.planning)
                if not isinstance(way, Way):
                    continue
                backend = way.launch.backend
                if backend not in launches:
                    launches[backend] = way.launch, identity(way.launch)
                launch = launches[backend][1]
                yield Opening(host, position, way, launch, start_of(view, way, launch), domain(world, host, level))

    def _domains(self, item: Item) -> tuple[dict[str, int], bool]:
        """How many of the profile's other replicas stand in each failure domain, and whether they are too few."""
        spread, world = item.profile.spread, self.draft.world
        level = spread.by if spread is not None else "host"
        taken: dict[str, int] = {}
        for seat in self.draft.of(item.profile.name):
            if seat.assignment.replica == item.replica:
                continue
            place = domain(world, seat.assignment.seat.host, level)
            if place is not None:
                taken[place] = taken.get(place, 0) + 1
        return taken, spread is not None and len(taken) < min(spread.min, count(item.profile, world))


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
    found = seats.find(item)
    if found is None:
        return False
    draft.choices.append(_choice(draft, item, found))
    draft.sit(item, found.best.host, found.best.offer, found.best.opening.way.launch)
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


def _choice(draft: Draft, item: Item, found: Found) -> Choice:
    """Winner and runner-up by term. The runner-up is the best other host."""
    second = found.second
    terms = tuple(
        Term(name=name, winner=value, runner_up=second.rank[n] if second is not None else None)
        for n, (name, value) in enumerate(found.best.rank._asdict().items())
    )
    return Choice(
        replica=item.replica,
        host=found.best.host,
        runner_up=second.host if second is not None else None,
        terms=terms,
        fits=found.hosts,
        rejected=rejected(draft, item),
    )
