"""Why every other host did not get a replica, made on demand: plans of large fleets do not carry these lines. Pure.

Called by `gridops explain`. It walks the planner's own steps again, so the answer is the planner's and not a guess.
"""

from __future__ import annotations

from gridops.base.ids import ReplicaId
from gridops.model.plan import HostLine
from gridops.planner.draft import begin
from gridops.planner.gather import gather
from gridops.planner.place import place
from gridops.planner.room import make_room
from gridops.planner.seats import Seats
from gridops.planner.targets import choose
from gridops.planner.why import lines_for
from gridops.planner.world import Inputs, look


def rejected_by(inputs: Inputs, replica: ReplicaId) -> tuple[HostLine, ...]:
    """One line per host that has no room for the replica once the plan stands; none for one that never looked."""
    world = look(inputs)
    draft = begin(world, choose(world, gather(world)))
    item = next((i for i in draft.items if i.replica == replica), None)
    if item is None:
        return ()
    seats = Seats(draft)
    make_room(seats, place(seats))
    seated = draft.seats.get(replica)
    here = None if seated is None else seated.assignment.seat.host
    return tuple(line for line in lines_for(draft, item) if line.host != here)
