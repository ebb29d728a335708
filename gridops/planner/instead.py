"""Where a host has too little memory and the one that should leave has nowhere to go, another leaves in its stead.

Who is least important should leave first (`draft`). If no host can take it, the least important of those beside it goes
that some host can take, though it matters more: a host never stays over its memory while somebody there could move.
Nobody goes whose leaving would not be enough, and nobody for whom nobody can vouch; pins hold as ever. Called by
`planner.plan` after `place`, before room is made.
"""

from __future__ import annotations

from collections.abc import Sequence

from gridops.planner.draft import Item, Seated, importance
from gridops.planner.incumbents import Verdict
from gridops.planner.movers import is_home
from gridops.planner.place import seat
from gridops.planner.seats import Seats


def instead(seats: Seats, left: Sequence[Item]) -> tuple[Item, ...]:
    """Let others leave crowded hosts for those of these who cannot. Returns the rest."""
    return tuple(item for item in left if not (_is_crowded_out(seats, item) and _stays(seats, item)))


def _is_crowded_out(seats: Seats, item: Item) -> bool:
    """It stands on a host with too little memory for all, on devices that are there."""
    origin = item.origin
    if origin is None or origin.verdict is not Verdict.LEAVE or not origin.here_again or item.pin is not None:
        return False
    rooms = {r.id for r in seats.draft.board.hosts[origin.host].view.rooms}
    return rooms.issuperset(origin.assignment.seat.devices)


def _stays(seats: Seats, item: Item) -> bool:
    """Its host has enough memory for all others, once one of them has left if need be."""
    draft, origin = seats.draft, item.origin
    assert origin is not None, "who is crowded out stands somewhere"
    board = draft.board.hosts[origin.host]
    if board.crowded() is not None and not any(_goes(seats, item, other) for other in _others(seats, item)):
        return False
    draft.give(draft.seats[item.replica]._replace(origin=origin._replace(verdict=Verdict.STAY, cause=None)))
    return True


def _others(seats: Seats, item: Item) -> list[Seated]:
    """Who else stands there and may leave, the least important first."""
    draft, found = seats.draft, list[Seated]()
    for replica in draft.board.hosts[item.origin.host].desired if item.origin is not None else ():
        seated = draft.seats[replica]
        origin = seated.origin
        if replica == item.replica or origin is None or not is_home(seated) or origin.verdict is not Verdict.STAY:
            continue
        if not origin.stuck:
            found.append(seated)
    return sorted(found, key=lambda s: importance(draft.world, s.origin), reverse=True)  # type: ignore[arg-type]


def _goes(seats: Seats, item: Item, other: Seated) -> bool:
    """It leaves for another host, for the same reason, and that is enough."""
    draft, origin, name = seats.draft, other.origin, other.assignment.profile
    assert origin is not None, "who is at home came from somewhere"
    board = draft.board.hosts[origin.host]
    claim = board.desired[origin.replica]
    board.take(origin.replica, runs=True)
    enough = board.crowded() is None
    board.back(claim)
    if not enough:
        return False
    leaves = origin._replace(verdict=Verdict.LEAVE, cause=item.cause, again=None)
    return not seat(seats, [Item(origin.replica, draft.world.profiles[name], item.cause, leaves)])
