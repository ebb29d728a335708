"""From the finished draft to the plan: decisions, what they read, and the document's own name. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from gridops.base.ids import Digest, PlanId, ProfileName, ReplicaId, replica_key, short
from gridops.model.plan import (
    Assignment,
    Cause,
    CauseKind,
    Change,
    Cost,
    Launch,
    Plan,
    PlannerRef,
    Report,
    Retirement,
    Terms,
    Unplaced,
)
from gridops.planner.bindings import empty_sets, intent_ref, parent_digest, reads, snapshot_ref
from gridops.planner.change_sets import tie
from gridops.planner.choices import recorded
from gridops.planner.diff import Reasons, Side, decisions_digest, diff, ends_stray, side_of, terms_differences
from gridops.planner.doubled import down_meanwhile
from gridops.planner.draft import Draft, Item, Seated
from gridops.planner.enough import Settled
from gridops.planner.gains import named
from gridops.planner.incumbents import Incumbent, Verdict, mark
from gridops.planner.learned import Experience, experience_of
from gridops.planner.recall import Shelf
from gridops.planner.report import notes, shortfalls, waiting
from gridops.planner.targets import Targets, terms_of
from gridops.planner.views import strays
from gridops.planner.world import World


def assemble(
    draft: Draft,
    targets: Targets,
    settled: Settled,
    missing: tuple[Unplaced, ...],
    retirements: tuple[Retirement, ...],
) -> Plan:
    """The plan of a finished draft. `settled`: the items that found no seat; `missing`: those that stand nowhere."""
    left, targets = settled.left, replace(targets, removed=(*targets.removed, *settled.dropped))
    world, inputs = draft.world, draft.world.inputs
    placement = tuple(draft.seats[r].assignment for r in sorted(draft.seats, key=replica_key))
    launches = _launches(draft.seats)
    declared = _declared(world)
    terms = _terms(draft, placement, targets, declared)
    reasons = _reasons(draft, targets, left, missing, _changed(world, declared))
    after = Side({a.replica: a for a in placement}, launches, {t.profile: t for t in terms})
    compared = diff(_before(world), after, reasons)
    decisions = named(draft, tie(draft, targets, compared))
    digest = decisions_digest(decisions)
    touched = {d.replica for d in decisions if not ends_stray(d)}
    return Plan(
        id=plan_id(inputs.now_ms, digest),
        fleet=inputs.fleet,
        scope=inputs.scope,
        created_ms=inputs.now_ms,
        parent=parent_digest(world),
        intent=intent_ref(world),
        snapshot=snapshot_ref(world),
        planner=PlannerRef(version=inputs.version, evaluated=draft.evaluated),
        decisions_digest=digest,
        reads=reads(decisions, world),
        decisions=decisions,
        placement=placement,
        launches=tuple(launches.values()),
        terms=terms,
        retirements=retirements,
        report=Report(
            unplaced=missing,
            choices=recorded(draft),
            shortfalls=shortfalls(draft),
            waiting=waiting(draft, left),
            notes=notes(draft, settled.notes),
            unchanged=sum(1 for a in placement if a.replica not in touched),
        ),
    )


def plan_id(created_ms: int, decisions: Digest) -> PlanId:
    """Second of creation and the first digits of the decisions digest."""
    second = datetime.fromtimestamp(created_ms // 1000, tz=UTC).strftime("%Y%m%dT%H%M%SZ")
    return PlanId(f"{second}-{short(decisions)}")


def _launches(seats: Mapping[ReplicaId, Seated]) -> dict[Digest, Launch]:
    """By digest, in the order of the document."""
    found = {s.assignment.launch: s.launch for s in seats.values()}
    return {d: found[d] for d in sorted(found, key=lambda d: (found[d].profile, found[d].config, d))}


def _before(world: World) -> Side:
    """The parent as it is compared with."""
    parent, shelf = world.inputs.parent, world.recall.shelf("before")
    side: Side = shelf.of("all", (parent,), lambda: side_of(parent, world.recall.digests.of))
    return side


def _declared(world: World) -> dict[ProfileName, Terms]:
    """Terms of every declared profile."""
    shelf: Shelf[Terms] = world.recall.shelf("terms")
    return {name: shelf.of(name, (profile,), partial(terms_of, profile)) for name, profile in world.profiles.items()}


def _terms(
    draft: Draft, placement: Sequence[Assignment], targets: Targets, declared: Mapping[ProfileName, Terms]
) -> tuple[Terms, ...]:
    """Terms of every declared profile, and the last known ones of what has not gone away yet."""
    world, found = draft.world, dict(declared)
    parent = world.inputs.parent
    undeclared = [t for t in parent.terms if t.profile not in found] if parent is not None else []
    if undeclared:
        former = {p.renamed_from for p in world.profiles.values()}
        running = {r.profile for v in world.hosts.values() for r in (*v.ours, *v.stuck)} - former
        needed = running | {a.profile for a in placement} | {i.assignment.profile for i in targets.removed}
        for terms in undeclared:
            if terms.profile not in found and terms.profile in needed:
                found[terms.profile] = terms
    return tuple(found[name] for name in sorted(found))


def _reasons(
    draft: Draft,
    targets: Targets,
    left: Sequence[Item],
    missing: Sequence[Unplaced],
    changed: Mapping[ProfileName, Cause],
) -> Reasons:
    """`changed`: causes of new terms, by profile."""
    world = draft.world
    causes: dict[ReplicaId, Cause] = {}
    former: dict[ReplicaId, ReplicaId] = {}
    again: dict[ReplicaId, Change] = {}
    ending: set[ReplicaId] = set()
    for replica, seat in draft.seats.items():
        if seat.cause is None and seat.origin is not None and _is_quiet(seat.origin, changed):
            continue
        started = seat.origin.again if seat.origin is not None and seat.cause is None else None
        cause = seat.cause or _cause_of_staying(seat, changed) or (started.cause if started is not None else None)
        if cause is not None:
            causes[replica] = cause
        if started is not None:
            again[replica] = started.was
        if seat.origin is not None and seat.origin.former != replica:
            former[replica] = seat.origin.former
    for incumbent in targets.removed:
        assert incumbent.cause is not None
        causes[incumbent.former] = incumbent.cause
        if incumbent.assignment.profile not in world.profiles:
            ending.add(incumbent.former)
    for item in left:
        causes.setdefault(item.replica, item.cause)
        if item.origin is not None and item.origin.verdict is Verdict.RELEASE:
            causes[item.origin.former] = item.cause
            ending.add(item.origin.former)
    beside = () if world.mass_stale else strays(world.inputs)  # after mass silence nothing is taken away
    ending.update(s.replica for s in beside if s.profile not in world.profiles)
    told = experience_of(world)
    costs = {r: _cost(draft, told, s) for r, s in draft.seats.items() if s.cause is not None or r in again}
    return Reasons(
        causes,
        costs,
        former,
        again,
        frozenset(ending),
        empty=bool(empty_sets(world)),
        unplaced=missing,
        strays=beside,
    )


def _changed(world: World, declared: Mapping[ProfileName, Terms]) -> dict[ProfileName, Cause]:
    """Causes of new terms, by profile."""
    found, parent = dict[ProfileName, Cause](), world.inputs.parent
    old = {t.profile: t for t in reversed(parent.terms)} if parent is not None else {}
    for name, terms in declared.items():
        if changes := terms_differences(old.get(name), terms):
            detail = ", ".join(f"{c.field} {c.old} => {c.new}" for c in changes[:2])
            found[name] = Cause(kind=CauseKind.INTENT, detail=detail, at=mark(world, f"profiles/{name}"))
    return found


def _is_quiet(origin: Incumbent, changed: Mapping[ProfileName, Cause]) -> bool:
    """It stays, and nothing is to be said about it."""
    was = origin.assignment
    plain = origin.again is None and not origin.adopted and origin.former == was.replica
    return plain and was.profile not in changed


def _cause_of_staying(seat: Seated, changed: Mapping[ProfileName, Cause]) -> Cause | None:
    """Why something is decided about a replica that stays: it is adopted, renamed, or gets new terms."""
    origin = seat.origin
    if origin is None:
        return None
    if origin.adopted:
        return origin.cause or Cause(kind=CauseKind.INTENT, detail="already runs there")
    if origin.former != origin.replica:
        return Cause(kind=CauseKind.RENAMED, detail=f"{origin.former} is taken over as {origin.replica}")
    return changed.get(seat.assignment.profile)


def _cost(draft: Draft, told: Experience, seat: Seated) -> Cost:
    """Bytes to copy and time to start on the target: as learned there, else by the link, else the profile's guess."""
    world, a = draft.world, seat.assignment
    start = told.start(world.profiles[a.profile], seat.launch, world.hosts[a.seat.host])
    return Cost(
        copy_bytes=start.copy_bytes,
        start_ms=start.all_ms,
        dip=int(down_meanwhile(draft, seat)),
        learned=True if start.learned else None,
    )
