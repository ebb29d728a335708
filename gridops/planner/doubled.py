"""Who is down while it changes in place, for want of room that the search did not count: `assemble` asks at the end.

An offer counts who stands on a host, and lets whoever arrives wait. But whoever arrives where an old process of it
still runs is there already and waits for nobody: beside it there may be no room for both selves of a third one.
"""

from __future__ import annotations

from gridops.base.ids import DeviceId
from gridops.footprint.ledger import Answer, Use, fits
from gridops.model.profile import Downtime
from gridops.planner.draft import Draft, Seated
from gridops.planner.host_board import Claim, HostBoard, part_of
from gridops.planner.incumbents import names_of, residency_of


def down_meanwhile(draft: Draft, seat: Seated) -> bool:
    """Its former self has to go before it can start."""
    origin, a = seat.origin, seat.assignment
    if seat.dip or origin is None or not origin.ready or origin.host != a.seat.host or origin.launch == seat.launch:
        return seat.dip
    if draft.world.profiles[a.profile].downtime is Downtime.NEVER:
        return False
    board = draft.board.hosts[a.seat.host]
    others = [draft.seats[r] for r in board.desired if r != a.replica]
    if all(_at_home(other) for other in others):
        return False  # the offer has counted them
    standing = [origin.claim, *(board.desired[o.assignment.replica] for o in others if _stands(draft, board, o))]
    mine = board.desired[a.replica]
    return any(
        (need := part_of(mine, room.id, board.view)) > 0
        and fits(room, _use(standing, board, room.id), need, gpu=mine.gpu, new=True).answer is Answer.SHORT
        for room in board.view.rooms
    )


def _at_home(seat: Seated) -> bool:
    return seat.origin is not None and seat.origin.host == seat.assignment.seat.host


def _stands(draft: Draft, board: HostBoard, seat: Seated) -> bool:
    """It stays as it is, or a process that is what it asks for is there now."""
    a = seat.assignment
    if _at_home(seat) and seat.origin is not None and seat.origin.launch == seat.launch:
        return True
    former = seat.origin.former if seat.origin is not None else a.replica
    return residency_of(board.view, names_of(draft.world, a.replica, former), a.launch) is not None


def _use(claims: list[Claim], board: HostBoard, device: DeviceId) -> Use:
    parts = [(claim.gpu, part_of(claim, device, board.view)) for claim in claims]
    return Use(sum(part for _, part in parts), sum(part for gpu, part in parts if gpu))
