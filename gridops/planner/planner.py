"""The planner: intent, snapshot and parent plan in, plan and report out. Pure, and the same bytes for the same inputs.

Read this file as a table of contents; each line is one room's question. Called by the controller and by `gridops plan`.
It never acts, never asks the time, and never takes away what it could not replace.
"""

from __future__ import annotations

from gridops.model.plan import Plan
from gridops.planner.advise import advised
from gridops.planner.assemble import assemble
from gridops.planner.draft import begin
from gridops.planner.gather import gather, renames
from gridops.planner.place import place
from gridops.planner.recall import Recall
from gridops.planner.room import make_room
from gridops.planner.seats import Seats
from gridops.planner.targets import choose, retirements
from gridops.planner.why import unplaced
from gridops.planner.world import Inputs, look

__all__ = ["Inputs", "Recall", "plan"]


def plan(inputs: Inputs, recall: Recall | None = None) -> Plan:
    """The complete intended placement of the scope, with its decisions against the parent and its report.

    `recall` is what the last plan of the scope left: it makes this one cheaper, and never other.
    """
    # What is declared and reported; who is silent, who is lost.
    world = look(inputs, recall)
    # Who stands where, and whether it may stay.
    incumbents = gather(world)
    # How many are wanted, who is surplus, what is missing.
    targets = choose(world, incumbents)
    # Seat those who stay; the others keep their place until they have a new one.
    draft = begin(world, targets)
    # Find seats for everybody else, most important first.
    seats = Seats(draft)
    left = place(seats)
    # Make room for who is left: others move, or the less important give way.
    left = make_room(seats, left)
    # Why the others stand nowhere.
    missing = unplaced(seats, left)
    # Decisions against the parent, change sets, what was read, and the report.
    made = assemble(draft, targets, left, missing, retirements(world, set(renames(world)), targets.removed))
    # What disks may fetch ahead of demand, and let go again.
    return advised(made, seats)
