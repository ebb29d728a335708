"""The smallest verified changes that would place a replica that stands nowhere.

Each idea (`fixes_memory`, `fixes_rules`) is tried by planning the changed inputs, and only what that plan proves is
said: the replica stands, the plan is clean, nobody else lost a seat, and nobody was moved, restarted or displaced who
would not have been anyway. Work is bounded by the number of plans. Called by `gridops explain`, and for the first
unplaced replica by `gridops plan`; a change that is not shown here may still work, and what is shown does.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridops.base.ids import HostId, ReplicaId, split_replica
from gridops.base.record import record
from gridops.model.intent import Intent
from gridops.model.plan import CauseKind, Decision, DecisionKind, Plan, Seat
from gridops.planner.check import check
from gridops.planner.explain import Walk, walk
from gridops.planner.fixes_ideas import FixKind, Idea, Question, smallest
from gridops.planner.fixes_memory import memory_ideas
from gridops.planner.fixes_rules import rule_ideas
from gridops.planner.planner import Recall, plan
from gridops.planner.why import homeless, lines_for
from gridops.planner.world import Inputs

TRIALS = 8
"""Plans made to prove ideas. Double: explaining takes twice as long and finds larger changes; half: more often none."""
EACH = 2
"""Ideas of one kind that are tried, so that none uses up the trials."""
SHOWN = 3
HINT_TRIALS = 3
"""Plans made for the one line that `gridops plan` shows."""
HINT_HOSTS = 256
"""Beyond so many hosts `gridops plan` names the command instead of trying: it shall not take four times as long."""


@record
class Fix:
    """One change of one value, proven. `at` is where it stands in the files; `seat` is where the replica would go."""

    kind: FixKind
    field: str
    of: str
    old: str
    new: str
    seat: Seat
    at: str | None = None
    moves: ReplicaId | None = None
    moves_to: HostId | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What was proven, smallest first, after how many plans."""

    fixes: tuple[Fix, ...]
    tried: int


def fixes_for(inputs: Inputs, before: Plan, replica: ReplicaId, *, trials: int = TRIALS, shown: int = SHOWN) -> Found:
    """Try the smallest changes first until enough of them are proven. `before` is the plan of these inputs."""
    fixes: list[Fix] = []
    changed_values: set[tuple[str, str, str] | None] = set()
    tried, recall = 0, Recall()
    for idea in _ideas(walk(inputs, recall), before, replica):
        if tried == trials or len(fixes) == shown:
            break
        if idea.value is not None and idea.value in changed_values:
            continue
        changed = idea.applied(inputs)
        after = plan(changed, recall)
        tried += 1
        seat = _proven(before, after, replica, idea)
        if seat is not None and check(after, changed) == ():
            changed_values.add(idea.value)
            fixes.append(_fix(inputs.intent, idea, seat, after))
    return Found(tuple(fixes), tried)


def first_fix(inputs: Inputs, before: Plan) -> tuple[ReplicaId, Fix] | None:
    """The smallest proven change for the plan's first unplaced replica, where looking for it is cheap."""
    missing = before.report.unplaced
    if not missing or len(inputs.intent.desired.hosts) > HINT_HOSTS:
        return None
    replica = missing[0].replica
    found = fixes_for(inputs, before, replica, trials=HINT_TRIALS, shown=1)
    return (replica, found.fixes[0]) if found.fixes else None


def _ideas(walked: Walk, before: Plan, replica: ReplicaId) -> list[Idea]:
    item = next((i for i in homeless(walked.left) if i.replica == replica), None)
    if item is None:
        return []
    names = [u.replica for u in before.report.unplaced if split_replica(u.replica)[0] == item.profile.name]
    asked = Question(walked, item, lines_for(walked.seats.draft, item), names.index(replica))
    return smallest([*memory_ideas(asked), *rule_ideas(asked)], EACH)


def _proven(before: Plan, after: Plan, replica: ReplicaId, idea: Idea) -> Seat | None:
    """The seat that the replica has after the change, if nobody pays for it."""
    stands = {a.replica: a.seat for a in after.placement}
    if replica not in stands or any(a.replica not in stands for a in before.placement):
        return None
    known = {_what(d) for d in before.decisions}
    disturbed = {d.replica for d in after.decisions if _disturbs(d) and _what(d) not in known}
    if disturbed - ({idea.moves} if idea.moves is not None else set()):
        return None
    if idea.moves is not None and stands[idea.moves].host == idea.off:
        return None
    return stands[replica]


def _disturbs(decision: Decision) -> bool:
    """Somebody who runs is stopped, moved or started again."""
    touched = (DecisionKind.MOVE, DecisionKind.CHANGE, DecisionKind.REMOVE)
    return decision.kind in touched or decision.cause.kind is CauseKind.DISPLACED


def _what(decision: Decision) -> tuple[DecisionKind, ReplicaId]:
    return decision.kind, decision.replica


def _fix(intent: Intent, idea: Idea, seat: Seat, after: Plan) -> Fix:
    edit = idea.edit
    where = intent.where(*edit.paths)
    moved = after.assignment(idea.moves) if idea.moves is not None else None
    return Fix(
        kind=idea.kind,
        field=edit.field,
        of=edit.of,
        old=edit.old,
        new=edit.new,
        seat=seat,
        at=None if where is None else str(where),
        moves=idea.moves,
        moves_to=None if moved is None else moved.seat.host,
    )
