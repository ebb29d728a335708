"""From the finished draft to the plan: decisions, what they read, and the document's own name. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from gridops.base import canon
from gridops.base.ids import Digest, HostId, PlanId, ProfileName, ReplicaId, replica_key, short
from gridops.base.record import digest_of
from gridops.footprint.need import identity
from gridops.model.fleet import HostClass
from gridops.model.plan import (
    Assignment,
    Cause,
    CauseKind,
    Change,
    Cost,
    Decision,
    Generation,
    IntentRef,
    Launch,
    Plan,
    PlannerRef,
    ProfileDigest,
    ReadSet,
    Report,
    Retirement,
    SnapshotRef,
    Terms,
    Unplaced,
)
from gridops.model.snapshot import Snapshot
from gridops.planner.change_sets import tie
from gridops.planner.choices import recorded
from gridops.planner.diff import Reasons, decisions_digest, diff, side, side_of, terms_differences
from gridops.planner.draft import Draft, Item, Seated
from gridops.planner.incumbents import Verdict, mark
from gridops.planner.report import notes, shortfalls, waiting
from gridops.planner.targets import Targets, terms_of
from gridops.planner.world import Inputs, World, restricted


def assemble(
    draft: Draft,
    targets: Targets,
    left: Sequence[Item],
    missing: tuple[Unplaced, ...],
    retirements: tuple[Retirement, ...],
) -> Plan:
    """The plan of a finished draft. `left` are the items that found no seat, `missing` those that stand nowhere."""
    inputs = draft.world.inputs
    placement = tuple(draft.seats[r].assignment for r in sorted(draft.seats, key=replica_key))
    launches = _launches(draft.seats)
    terms = _terms(draft, placement, targets)
    reasons = _reasons(draft, targets, left, missing)
    compared = diff(side_of(inputs.parent), side(placement, launches, terms), reasons)
    decisions = tie(draft, targets, compared)
    digest = decisions_digest(decisions)
    touched = {d.replica for d in decisions}
    return Plan(
        id=plan_id(inputs.now_ms, digest),
        fleet=inputs.fleet,
        scope=inputs.scope,
        created_ms=inputs.now_ms,
        parent=digest_of(inputs.parent) if inputs.parent is not None else None,
        intent=_intent_ref(draft.world),
        snapshot=_snapshot_ref(inputs),
        planner=PlannerRef(version=inputs.version, evaluated=draft.evaluated),
        decisions_digest=digest,
        reads=reads(decisions, inputs),
        decisions=decisions,
        placement=placement,
        launches=launches,
        terms=terms,
        retirements=retirements,
        report=Report(
            unplaced=missing,
            choices=recorded(draft),
            shortfalls=shortfalls(draft),
            waiting=waiting(draft, left),
            notes=notes(draft),
            unchanged=sum(1 for a in placement if a.replica not in touched),
        ),
    )


def plan_id(created_ms: int, decisions: Digest) -> PlanId:
    """Second of creation and the first digits of the decisions digest."""
    second = datetime.fromtimestamp(created_ms // 1000, tz=UTC).strftime("%Y%m%dT%H%M%SZ")
    return PlanId(f"{second}-{short(decisions)}")


def reads(decisions: Sequence[Decision], inputs: Inputs) -> ReadSet:
    """What the decisions touch: the profiles as declared and the hosts as they reported themselves."""
    profiles = {p.name: p for p in inputs.intent.desired.profiles}
    hosts = {r.host: r.generation for r in inputs.snapshot.hosts}
    names = sorted({d.profile for d in decisions})
    touched = sorted({s.host for d in decisions for s in (d.source, d.target) if s is not None})
    return ReadSet(
        profiles=tuple(
            ProfileDigest(profile=n, digest=digest_of(profiles[n]) if n in profiles else _absent(n)) for n in names
        ),
        hosts=tuple(Generation(host=h, generation=hosts.get(h, 0)) for h in touched),
    )


def _absent(name: ProfileName) -> Digest:
    """A profile that is not declared reads as its absence: declaring it again changes what was read."""
    return canon.digest({"absent": name})


def _launches(seats: Mapping[ReplicaId, Seated]) -> tuple[Launch, ...]:
    found = {s.assignment.launch: s.launch for s in seats.values()}
    return tuple(sorted(found.values(), key=lambda n: (n.profile, n.config, identity(n))))


def _terms(draft: Draft, placement: Sequence[Assignment], targets: Targets) -> tuple[Terms, ...]:
    """Terms of every declared profile, and the last known ones of what has not gone away yet."""
    world = draft.world
    found = {p.name: terms_of(p) for p in world.profiles.values()}
    parent = world.inputs.parent
    former = {p.renamed_from for p in world.profiles.values()}
    running = {r.profile for v in world.hosts.values() for r in (*v.ours, *v.stuck)} - former
    needed = running | {a.profile for a in placement} | {i.assignment.profile for i in targets.removed}
    for terms in parent.terms if parent is not None else ():
        if terms.profile not in found and terms.profile in needed:
            found[terms.profile] = terms
    return tuple(found[name] for name in sorted(found))


def _reasons(draft: Draft, targets: Targets, left: Sequence[Item], missing: Sequence[Unplaced]) -> Reasons:
    world = draft.world
    causes: dict[ReplicaId, Cause] = {}
    former: dict[ReplicaId, ReplicaId] = {}
    again: dict[ReplicaId, Change] = {}
    ending: set[ReplicaId] = set()
    for replica, seat in draft.seats.items():
        started = seat.origin.again if seat.origin is not None and seat.cause is None else None
        cause = seat.cause or _cause_of_staying(world, seat) or (started.cause if started is not None else None)
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
    costs = {r: _cost(world, s) for r, s in draft.seats.items() if s.cause is not None or r in again}
    return Reasons(causes, costs, former, again, frozenset(ending), empty=bool(empty_sets(world)), unplaced=missing)


def _cause_of_staying(world: World, seat: Seated) -> Cause | None:
    """Why something is decided about a replica that stays: it is adopted, renamed, or gets new terms."""
    origin, parent = seat.origin, world.inputs.parent
    if origin is None:
        return None
    if origin.adopted:
        return origin.cause or Cause(kind=CauseKind.INTENT, detail="already runs there")
    if origin.former != origin.replica:
        return Cause(kind=CauseKind.RENAMED, detail=f"{origin.former} is taken over as {origin.replica}")
    name = seat.assignment.profile
    old = next((t for t in parent.terms if t.profile == name), None) if parent is not None else None
    changes = terms_differences(old, terms_of(world.profiles[name])) if name in world.profiles else ()
    if not changes:
        return None
    detail = ", ".join(f"{c.field} {c.old} => {c.new}" for c in changes[:2])
    return Cause(kind=CauseKind.INTENT, detail=detail, at=mark(world, f"profiles/{name}"))


def _cost(world: World, seat: Seated) -> Cost:
    """Bytes to copy and time to start on the target. A link's known rate tells better than the profile's guess."""
    view = world.hosts[seat.assignment.seat.host]
    copy = sum(f.size_bytes for f in seat.launch.artifact.files if f.sha256 not in view.cached)
    timing = world.profiles[seat.assignment.profile].timing
    rate = next((n.rate_bps for n in view.host.links if n.name == "download"), 0)
    load = 0 if copy == 0 else copy * 8_000 // rate if rate else timing.load_ms
    return Cost(copy_bytes=copy, start_ms=load + timing.warm_ms, dip=int(seat.dip))


def empty_sets(world: World) -> tuple[str, ...]:
    """Which of the scope's sets are empty: what follows from that is always a proposal."""
    scope = world.inputs.scope
    hosts = any(v.host.scope == scope and v.host.host_class is not HostClass.EXTERNAL for v in world.hosts.values())
    return tuple(name for name, there in (("hosts", hosts), ("profiles", bool(world.profiles))) if not there)


def _intent_ref(world: World) -> IntentRef:
    intent = world.inputs.intent
    return IntentRef(
        digest=digest_of(restricted(intent.desired, world.inputs.scope)),
        commit=intent.commit,
        subject=intent.subject,
        dirty=intent.dirty,
        empty=empty_sets(world),
    )


def _snapshot_ref(inputs: Inputs) -> SnapshotRef:
    """The part of the snapshot that speaks about hosts of the scope."""
    snapshot = inputs.snapshot
    ids: set[HostId] = {h.id for h in inputs.intent.desired.hosts if h.scope == inputs.scope}
    ids |= {a.seat.host for a in inputs.parent.placement} if inputs.parent is not None else set()
    own = Snapshot(
        source=snapshot.source,
        observed_ms=snapshot.observed_ms,
        hosts=tuple(sorted((r for r in snapshot.hosts if r.host in ids), key=lambda r: r.host)),
    )
    return SnapshotRef(source=snapshot.source, observed_ms=snapshot.observed_ms, digest=digest_of(own))
