"""A plan with only some of its change sets: the target when limits, classes or people let only a part through.

The result is a child of the same parent and carries out exactly the kept decisions; what is held stays as the parent
has it, terms included. Called by the controller when a target is set. Change sets are independent by construction
(`change_sets`), so any part of them leads to a placement that keeps every hard rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gridops.base.ids import HostId, ProfileName, ReplicaId, replica_key
from gridops.footprint.need import identity
from gridops.model.plan import Assignment, Decision, DecisionKind, Plan, ReadSet, Retirement, Terms
from gridops.planner.assemble import plan_id
from gridops.planner.diff import carries_terms, decisions_digest, ends_stray


def restrict(plan: Plan, parent: Plan | None, keep: frozenset[int]) -> Plan:
    """Child of `parent` with only the change sets in `keep`. What cannot be placed stays in the report."""
    kept = tuple(d for d in plan.decisions if d.change_set in keep or d.kind is DecisionKind.CANNOT_PLACE)
    held = tuple(d for d in plan.to_do if d.change_set not in keep)
    if not held:
        return plan
    placement = _placement(plan, parent, held)
    digest = decisions_digest(kept)
    known = {identity(n): n for n in (*(parent.launches if parent is not None else ()), *plan.launches)}
    used = {a.launch for a in placement}
    touched = {d.replica for d in kept if not ends_stray(d)}
    return replace(
        plan,
        id=plan_id(plan.created_ms, digest),
        decisions_digest=digest,
        reads=_reads(plan, kept),
        decisions=kept,
        placement=placement,
        launches=tuple(sorted((known[d] for d in used), key=lambda n: (n.profile, n.config, identity(n)))),
        terms=_terms(plan, parent, held, placement),
        retirements=_retirements(plan, parent, placement),
        report=replace(plan.report, unchanged=sum(1 for a in placement if a.replica not in touched)),
    )


def _placement(plan: Plan, parent: Plan | None, held: tuple[Decision, ...]) -> tuple[Assignment, ...]:
    """The plan's seats, with every held decision undone. What a process takes is known whether or not it is renamed."""
    seats = {a.replica: a for a in plan.placement}
    before = {a.replica: a for a in parent.placement} if parent is not None else {}
    undone = [(before.get(_former(d)), seats.pop(d.replica, None)) for d in held]
    for old, new in undone:
        if old is None:
            continue
        # Its process goes on as it is, and takes what is known of it today: what the others were placed beside.
        same = new is not None and (new.seat, new.launch) == (old.seat, old.launch)
        seats[old.replica] = (
            replace(old, device_bytes=new.device_bytes, host_bytes=new.host_bytes) if same and new is not None else old
        )
    return tuple(seats[r] for r in sorted(seats, key=replica_key))


def _former(decision: Decision) -> ReplicaId:
    """The replica's id in the parent."""
    old = next((c.old for c in decision.changes if c.field == "profile"), None)
    return decision.replica if old is None else ReplicaId(f"{old}/{decision.replica.rpartition('/')[2]}")


def _terms(
    plan: Plan, parent: Plan | None, held: tuple[Decision, ...], placement: tuple[Assignment, ...]
) -> tuple[Terms, ...]:
    """New terms wait with the decisions that carry them, or with all of a profile's decisions if none does."""
    old: Mapping[ProfileName, Terms] = {t.profile: t for t in parent.terms} if parent is not None else {}
    found = {t.profile: t for t in plan.terms}
    moving = {d.profile for d in plan.to_do if d not in held}
    for decision in held:
        if decision.profile in moving and not carries_terms(decision):
            continue
        for name in (decision.profile, ProfileName(_former(decision).rpartition("/")[0])):
            if name in old:
                found[name] = old[name]
            elif all(a.profile != name for a in placement):
                found.pop(name, None)
    return tuple(found[name] for name in sorted(found))


def _retirements(plan: Plan, parent: Plan | None, placement: tuple[Assignment, ...]) -> tuple[Retirement, ...]:
    """A profile is retired when its last replica is taken from the target, not before."""
    standing = {a.profile for a in placement}
    already = {r.profile for r in parent.retirements} if parent is not None else set()
    return tuple(r for r in plan.retirements if r.profile in already or r.profile not in standing)


def _reads(plan: Plan, kept: tuple[Decision, ...]) -> ReadSet:
    profiles = {d.profile for d in kept}
    hosts: set[HostId] = {s.host for d in kept for s in (d.source, d.target) if s is not None}
    return ReadSet(
        profiles=tuple(p for p in plan.reads.profiles if p.profile in profiles),
        hosts=tuple(g for g in plan.reads.hosts if g.host in hosts),
    )
