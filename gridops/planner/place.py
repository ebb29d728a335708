"""Give seats: one pass over everybody who looks, then again while anybody found one, since leaving makes room.

For each replica all hosts are compared in every config; answers are remembered per host until something changes on
it. Whoever finds nothing keeps what it has, or is reported as unplaced. Called by `planner.plan`; `capacity` says
what fits, `rank` what is better.
"""

from __future__ import annotations

from collections.abc import Sequence

from gridops.base.ids import DeviceId
from gridops.model.plan import Choice
from gridops.planner.capacity import Ask, Offer
from gridops.planner.draft import Draft, Item, may_dip
from gridops.planner.eligible import Way
from gridops.planner.enough import Turns
from gridops.planner.order import in_order
from gridops.planner.rank import side_by_side
from gridops.planner.seats import Found, Seats
from gridops.planner.why import rejected


def place(seats: Seats) -> tuple[Item, ...]:
    """Seat everybody who can be seated. Returns who could not, in order."""
    seats.begin(seats.draft.items)
    return seat(seats, seats.draft.items)


def seat(seats: Seats, items: Sequence[Item]) -> tuple[Item, ...]:
    """Seat whoever of these can be seated. Returns the others, in order."""
    waiting = in_order(seats.draft, items, seats.width)
    while True:
        left = _pass(seats, waiting)
        if len(left) == len(waiting):
            return tuple(left)
        waiting = left


def _pass(seats: Seats, waiting: Sequence[Item]) -> list[Item]:
    """Seat those who can be, and are needed beside those who have a seat. Returns the others."""
    left, turns = list[Item](), Turns(seats.draft)
    for item in waiting:
        if turns.needs(item) and _seat(seats, item):
            turns.sits(item)
        else:
            left.append(item)
            turns.waits(item)
    return left


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
    draft.sit(item, found.best.host, found.best.offer, found.best.launch)
    return True


def _in_place(seats: Seats, item: Item) -> bool:
    """Change a replica where it stands: beside its former self if there is room, else after it, if it may be down."""
    origin, board = item.origin, seats.draft.board
    assert origin is not None
    row = seats.grid.row.get(origin.host)
    options = [o for o in seats.lasting(item.profile) if row is not None and o.place[row] >= 0]
    for opening in sorted(options, key=lambda o: o.config.name != origin.launch.config):
        assert row is not None, "there are no options without it"
        here = opening.way(row)
        offers = [
            board.offer(origin.host, Ask(item.replica, item.profile, way), instead=item.replica)
            for way in (_on(here, origin.assignment.seat.devices), here)
            if len(way.rooms) >= way.launch.devices.count
        ]
        good = [o for o in offers if isinstance(o, Offer) and (not o.breaks or may_dip(item))]
        if good:
            best = min(good, key=lambda o: (o.breaks, o.waits))
            seats.draft.sit(item, origin.host, best, here.launch)
            return True
    return False


def _on(way: Way, devices: tuple[DeviceId, ...]) -> Way:
    """The same way on these devices alone."""
    return Way(way.launch, way.need, tuple(r for r in way.rooms if r.id in devices), way.gpu)


def _choice(draft: Draft, item: Item, found: Found) -> Choice:
    """Winner and runner-up by term. The runner-up is the best other host."""
    second = found.second
    return Choice(
        replica=item.replica,
        host=found.best.host,
        runner_up=second[1] if second is not None else None,
        terms=side_by_side(found.best.rank, second[0] if second is not None else None),
        fits=found.hosts,
        rejected=rejected(draft, item),
    )
