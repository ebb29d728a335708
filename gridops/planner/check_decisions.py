"""The checker's rules about decisions: that they are the difference to the parent, and how grave each of them is.

Part of `check`: class and risk of a decision say who may carry it out, so they are derived a second time, by a table of
its own (`check_causes`: whether what they follow from is so). Nothing of the planner. Each rule yields notes.
"""

from __future__ import annotations

from collections.abc import Iterator

from gridops.base.ids import ReplicaId, short
from gridops.model.plan import CauseKind, Decision, DecisionKind, Seat, Terms
from gridops.model.policy import ActionClass, Risk
from gridops.model.snapshot import Ownership, ResidencyState
from gridops.planner.check_view import View

REPAIRS = (CauseKind.HOST_LOST, CauseKind.UNHEALTHY, CauseKind.DRAIN, CauseKind.FAILED_START)


def decisions(view: View) -> Iterator[str]:
    """The decisions are exactly the difference between parent and placement, and say how grave they are."""
    plan = view.plan
    expected = dict(_differences(view))
    listed = {(d.kind, d.replica): (d.source, d.target) for d in plan.decisions}
    for kind, replica in sorted(expected.keys() - listed.keys()):
        yield f"the plan does {kind.value} {replica} and no decision says so"
    for kind, replica in sorted(listed.keys() - expected.keys()):
        yield f"decision {kind.value} {replica} has no difference behind it"
    for key in sorted(expected.keys() & listed.keys()):
        if expected[key] != listed[key]:
            yield f"decision {key[0].value} {key[1]} names other seats than the placement"
    left = {a.profile for a in plan.placement} | {view.names.get(a.profile, a.profile) for a in plan.placement}
    for d in plan.decisions:
        if d.kind is not DecisionKind.REMOVE:
            continue
        last = d.profile not in left and d.cause.kind is not CauseKind.HOST_LOST
        if d.last_replica != last:
            yield f"removing {d.replica} {'does not say that it is' if last else 'says that it is'} the last replica"
        gone = d.profile not in view.profiles and d.profile not in view.names.values()
        if (last or gone) and d.risk is not Risk.DESTRUCTIVE:
            yield f"removing {d.replica} takes something for good and is called {d.risk.value}"
        if gone and d.action_class is not ActionClass.REMOVE:
            yield f"removing {d.replica} of a profile that is gone is called {d.action_class.value}"
    for d in plan.decisions:
        placed = view.placed.get(d.replica)
        if d.target is not None and (placed is None or d.launch != placed.launch):
            yield f"decision {d.kind.value} {d.replica} does not say what will run"


def _differences(view: View) -> Iterator[tuple[tuple[DecisionKind, ReplicaId], tuple[object, object]]]:
    parent = view.inputs.parent
    was = {t.profile: t for t in parent.terms} if parent is not None else {}
    now = {t.profile: t for t in view.plan.terms}
    survives = set()
    placed = {d.replica for d in view.plan.decisions if d.kind is DecisionKind.PLACE}
    for a in view.plan.placement:
        old = view.former(a)
        if old is None:
            yield (DecisionKind.PLACE, a.replica), (None, a.seat)
            continue
        survives.add(old.replica)
        if old.seat.host != a.seat.host or (old.seat != a.seat and old.launch == a.launch):
            yield (DecisionKind.MOVE, a.replica), (old.seat, a.seat)
        elif (
            old.launch != a.launch
            or old.replica != a.replica
            or _acts_otherwise(was.get(old.profile), now.get(a.profile))
        ):
            yield (DecisionKind.CHANGE, a.replica), (old.seat, a.seat)
        elif a.replica in placed:
            # Started again where it stands: only when its host says that nothing of it serves, and could take it.
            names = view.known_as(a)
            mine = [r for r in view.live(a.seat.host) if r.replica in names and r.identity == a.launch]
            down = {r.state for r in mine} <= {ResidencyState.FAILED, ResidencyState.DRAINING}
            if view.beat(a.seat.host) is None and down:
                yield (DecisionKind.PLACE, a.replica), (None, a.seat)
    for replica, old in view.before.items():
        if replica not in survives:
            yield (DecisionKind.REMOVE, replica), (old.seat, None)
    for d in view.plan.decisions:
        # Ended beside the placement: only what a host reports, and no seat asks for.
        if d.kind is DecisionKind.REMOVE and d.source is not None and d.changes and _runs_beside(view, d, d.source):
            yield (DecisionKind.REMOVE, d.replica), (d.source, None)
    for missing in view.plan.report.unplaced:
        yield (DecisionKind.CANNOT_PLACE, missing.replica), (None, None)


def _runs_beside(view: View, d: Decision, first: Seat) -> bool:
    """Every process that the decision names is a live one of this replica that the placement does without.

    Where a seat of the replica is, one process of its command has to be left.
    """
    named = {tuple(c.old.split(" ")) for c in d.changes if c.field == "process"}
    placed = view.placed.get(d.replica)
    names = {d.replica} if placed is None else set(view.known_as(placed))
    found: set[tuple[str, ...]] = set()
    for report in view.reports.values():
        if view.unheard(report.host) is not None:
            continue
        managed = (r for r in view.live(report.host) if r.ownership is Ownership.MANAGED)
        mine = [r for r in managed if r.replica in names and r.incarnation is not None]
        ended = [r for r in mine if (report.host, short(r.incarnation or "")) in named]
        found |= {(report.host, short(r.incarnation or "")) for r in ended}
        if placed is not None and placed.seat.host == report.host:
            asked = [r for r in mine if r.identity == placed.launch and r.state is not ResidencyState.FAILED]
            if asked and all(r in ended for r in asked):
                return False
    return found == named and first.host in {host for host, _ in named} and d.replica not in _taken_out(view)


def _taken_out(view: View) -> set[ReplicaId]:
    """Replicas of the parent that the placement has no more: theirs is another removal."""
    stay = {old.replica for a in view.plan.placement if (old := view.former(a)) is not None}
    return {replica for replica in view.before if replica not in stay}


def _acts_otherwise(old: Terms | None, new: Terms | None) -> bool:
    if old is None or new is None:
        return False
    return (old.serves, old.restart, old.timing.drain_ms) != (new.serves, new.restart, new.timing.drain_ms)


def authority(view: View) -> Iterator[str]:
    """Each decision has the class and the risk of what it does."""
    for d in view.plan.decisions:
        if d.profile != d.replica.rpartition("/")[0]:
            yield f"decision {d.kind.value} {d.replica} is said to be about {d.profile}"
        if d.last_replica and d.kind is not DecisionKind.REMOVE:
            yield f"decision {d.kind.value} {d.replica} removes nothing and is called the end of {d.profile}"
        if d.kind is DecisionKind.CANNOT_PLACE:
            continue
        if d.action_class not in _classes(d):
            yield f"decision {d.kind.value} {d.replica} for {d.cause.kind.value} is called {d.action_class.value}"
        if d.risk is not _risk(view, d):
            yield f"decision {d.kind.value} {d.replica} for {d.cause.kind.value} is called {d.risk.value}"
        old = next((c.old for c in d.changes if c.field == "profile"), d.profile)
        if d.target is not None and d.source is not None and old != view.names.get(d.profile, d.profile):
            yield f"decision {d.kind.value} {d.replica} does not say by which name it was known"


def _classes(d: Decision) -> tuple[ActionClass, ...]:
    """What a decision may be called; a removal that is not for good may also be one."""
    cause = d.cause.kind
    if d.kind is DecisionKind.REMOVE:
        fewer = cause in (CauseKind.INTENT, CauseKind.DEMAND)
        return (ActionClass.SCALE_DOWN, ActionClass.REMOVE) if fewer else (ActionClass.REMOVE,)
    if cause in REPAIRS or (d.kind is DecisionKind.PLACE and cause is CauseKind.DISPLACED):
        return (ActionClass.REPAIR,)
    if cause in (CauseKind.REBALANCE, CauseKind.DISPLACED):
        return (ActionClass.REBALANCE,)
    if d.kind is DecisionKind.PLACE:
        return (ActionClass.SCALE_UP,)
    demanded = d.kind is DecisionKind.MOVE and cause is CauseKind.DEMAND
    return (ActionClass.REBALANCE,) if demanded else (ActionClass.ROLLOUT,)


def _risk(view: View, d: Decision) -> Risk:
    if view.plan.intent.empty:
        return Risk.DESTRUCTIVE
    if d.kind is DecisionKind.REMOVE:
        fewer = d.action_class is ActionClass.SCALE_DOWN and not d.last_replica
        return Risk.ROUTINE if fewer else Risk.DESTRUCTIVE
    old = view.old_launch(d)
    if d.kind is DecisionKind.CHANGE and d.source == d.target and old == d.launch:
        return Risk.ROUTINE
    drains = d.kind is DecisionKind.MOVE and d.cause.kind is CauseKind.DRAIN
    gentle = d.action_class is ActionClass.SCALE_UP or (d.action_class is ActionClass.REPAIR and not drains)
    return Risk.ROUTINE if gentle and not d.cost.dip else Risk.DISRUPTIVE
