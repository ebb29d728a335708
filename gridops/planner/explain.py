"""Everything there is to say about one replica, made on demand: plans of large fleets do not carry it. Pure.

Called by `gridops explain`. It walks the planner's own steps again, so the answer is the planner's and not a guess.
What would place a replica that stands nowhere is `fixes`' question.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gridops.base.ids import ReplicaId
from gridops.model.plan import Cause, CauseKind, Choice, HostLine, Plan, Unplaced
from gridops.planner.choices import choice_of
from gridops.planner.draft import Item, begin
from gridops.planner.enough import settle
from gridops.planner.gather import gather
from gridops.planner.place import place
from gridops.planner.recall import Recall
from gridops.planner.room import make_room
from gridops.planner.seats import Seats
from gridops.planner.targets import choose
from gridops.planner.views import look
from gridops.planner.why import homeless, in_lines, lines_for, records_rejected
from gridops.planner.world import Inputs


@dataclass(frozen=True, slots=True)
class Walk:
    """The planner's steps walked to their end: everybody's seat, and who found none."""

    seats: Seats
    left: tuple[Item, ...]


def walk(inputs: Inputs, recall: Recall | None = None, watched: ReplicaId | None = None) -> Walk:
    """The steps of `planner.plan` up to the finished draft. `watched`: whom it is for, if for one alone."""
    world = look(inputs, recall)
    targets = choose(world, gather(world))
    draft = begin(world, targets)
    draft.watched = watched
    seats = Seats(draft)
    return Walk(seats, settle(draft, targets.sizes, make_room(seats, place(seats))).left)


def told(plan: Plan, walked: Walk, replica: ReplicaId) -> Plan:
    """The plan with its report complete about one replica: how its seat compares, or why each host does not take it."""
    report, choice, missing = plan.report, choice_in(walked, replica), missing_in(walked, replica)
    if choice is not None:
        others = tuple(c for c in report.choices if c.replica != replica)
        report = replace(report, choices=(*others, choice))
    if missing is not None:
        report = replace(report, unplaced=tuple(missing if u.replica == replica else u for u in report.unplaced))
    return replace(plan, report=report)


def choice_in(walked: Walk, replica: ReplicaId) -> Choice | None:
    """How its seat compares with the best other host, and why the others have no room; None without a seat."""
    draft, choice = walked.seats.draft, choice_of(walked.seats, replica)
    # Recorded at the moment of choosing, with whoever was out then: nothing of the finished draft is mixed into it.
    if choice is None or choice.rejected or (choice in draft.choices and records_rejected(draft, replica)):
        return choice
    lines = (line for line in _rejected(walked, replica) if line.host != choice.runner_up)
    return replace(choice, rejected=tuple(lines))


def missing_in(walked: Walk, replica: ReplicaId) -> Unplaced | None:
    """The headline of a replica that stands nowhere, with one line per declared host whatever the size of the fleet."""
    item = next((i for i in homeless(walked.left) if i.replica == replica), None)
    return None if item is None else in_lines(walked.seats.draft, item)


def _rejected(walked: Walk, replica: ReplicaId) -> tuple[HostLine, ...]:
    """Hosts beside its own that have no room for it."""
    draft = walked.seats.draft
    seated = draft.seats.get(replica)
    profile = draft.world.profiles.get(seated.assignment.profile) if seated is not None else None
    if seated is None or profile is None:
        return ()
    asked = next((i for i in draft.items if i.replica == replica), None)
    item = asked or Item(replica, profile, Cause(kind=CauseKind.INTENT, detail="stands there"), seated.origin)
    host = seated.assignment.seat.host
    return tuple(line for line in lines_for(draft, item) if line.host != host)
