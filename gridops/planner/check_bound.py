"""The checker's rules about what a plan binds to: what it was made from, what it read, terms, numbers and its report.

Part of `check`: what an approval, a host or a later plan goes by is derived here a second time. Nothing of the planner.
The digests of the whole intent and snapshot are not: they would cost more than the plan.
"""

from __future__ import annotations

from collections.abc import Iterator

from gridops.base import canon
from gridops.base.codes import Code
from gridops.base.codes import placement as codes
from gridops.base.ids import ProfileName, ReplicaId
from gridops.base.record import digest_of
from gridops.model.fleet import HostClass
from gridops.model.plan import DecisionKind, Generation, ProfileDigest, ReadSet, Terms
from gridops.model.profile import Profile
from gridops.planner.check_view import View


def bound(view: View) -> Iterator[str]:
    """The document says which inputs it was made from, and is about nothing else."""
    plan, given = view.plan, view.inputs
    intent, snapshot = given.intent, given.snapshot
    pairs = (
        ("fleet", plan.fleet, given.fleet),
        ("scope", plan.scope, given.scope),
        ("moment", plan.created_ms, given.now_ms),
        ("commit", (plan.intent.commit, plan.intent.dirty), (intent.commit, intent.dirty)),
        ("source of the snapshot", plan.snapshot.source, snapshot.source),
        ("moment of the snapshot", plan.snapshot.observed_ms, snapshot.observed_ms),
        ("empty sets", plan.intent.empty, _empty(view)),
        ("read set", plan.reads, _reads(view)),
    )
    for what, said, true in pairs:
        if said != true:
            yield f"the plan's {what} is not what it was made from"


def _empty(view: View) -> tuple[str, ...]:
    scope = view.inputs.scope
    hosts = [h for h in view.desired.hosts if h.scope == scope and h.host_class is not HostClass.EXTERNAL]
    mine = [p for p in view.desired.profiles if p.scope == scope]
    return tuple(name for name, there in (("hosts", hosts), ("profiles", mine)) if not there)


def _reads(view: View) -> ReadSet:
    """Profiles and hosts that decisions speak of; what is not declared reads as its absence."""
    declared = {p.name: p for p in view.desired.profiles}
    generations = {r.host: r.generation for r in view.inputs.snapshot.hosts}
    names = sorted({d.profile for d in view.plan.decisions})
    hosts = sorted({s.host for d in view.plan.decisions for s in (d.source, d.target) if s is not None})
    digests = (digest_of(declared[n]) if n in declared else canon.digest({"absent": n}) for n in names)
    return ReadSet(
        profiles=tuple(ProfileDigest(profile=n, digest=d) for n, d in zip(names, digests, strict=True)),
        hosts=tuple(Generation(host=h, generation=generations.get(h, 0)) for h in hosts),
    )


def terms(view: View) -> Iterator[str]:
    """What holds for the replicas of each profile is what its file says; of those that are going, what held before."""
    parent = view.inputs.parent
    before = {t.profile: t for t in parent.terms} if parent is not None else {}
    told = [t.profile for t in view.plan.terms]
    if told != sorted(set(told)):
        yield "terms are not sorted or hold a profile twice"
    for one in view.plan.terms:
        profile, old = view.profiles.get(one.profile), before.get(one.profile)
        file = profile is not None and one == _terms_of(profile)
        if not file and (one != old or (profile is not None and not view.partial)):
            yield f"the terms of {one.profile} are not those of its file"
    if not view.partial:
        for name in sorted(view.profiles.keys() - set(told)):
            yield f"{name} has no terms"


def _terms_of(profile: Profile) -> Terms:
    ids = (profile.name, *(s for s in profile.serves if s != profile.name))
    return Terms(
        profile=profile.name,
        serves=ids,
        replicas_min=profile.replicas_min,
        priority=profile.priority,
        timing=profile.timing,
        restart=profile.restart,
        downtime=profile.downtime,
        idle_unload_ms=profile.idle_unload_ms,
        renamed_from=profile.renamed_from,
    )


def numbers(view: View) -> Iterator[str]:
    """A replica that is new has the lowest number that is free. What runs already and is taken over keeps its own."""
    missing = [u.replica for u in view.plan.report.unplaced]
    taken: dict[ProfileName, set[int]] = {}
    fresh: dict[ProfileName, int] = {}
    known = {a.replica for a in view.plan.placement if view.former(a) is not None or a.replica not in view.fresh}
    known |= {r.replica for host in view.reports for r in view.live(host) if r.replica is not None}
    for replica in (*view.placed, *missing):
        name, number = _split(replica)
        taken.setdefault(name, set()).add(number)
        if replica not in known and replica not in view.before:
            fresh[name] = max(fresh.get(name, 0), number)
    for name, most in sorted(fresh.items()):
        free = set(range(1, most)) - taken[name]
        if free:
            yield f"{name}/{most} is new although {name}/{min(free)} is free"


def _split(replica: ReplicaId) -> tuple[ProfileName, int]:
    name, _, number = replica.rpartition("/")
    return ProfileName(name), int(number)


def told(view: View) -> Iterator[str]:
    """The report contradicts neither itself nor the plan."""
    report = view.plan.report
    # A removal whose replica stands ends what runs beside it.
    beside = {d.replica for d in view.plan.decisions if d.kind is DecisionKind.REMOVE} & view.placed.keys()
    touched = {d.replica for d in view.plan.decisions} - beside
    if report.unchanged != sum(1 for a in view.plan.placement if a.replica not in touched):
        yield "the report counts other replicas as unchanged than those without a decision"
    if view.mass_silent and not any(codes.MASS_STALE.code in note for note in report.notes):
        yield "many hosts fell silent at once, and no note says so"
    known_codes = {c.code for c in vars(codes).values() if isinstance(c, Code)}
    for missing in report.unplaced:
        reasons = {missing.code, *(line.code for line in missing.hosts), *(c.code for c in missing.counts or ())}
        for code in sorted(reasons - known_codes):
            yield f"{missing.replica} is unplaced for {code}, which is no reason"
        if missing.nearest is not None and missing.nearest not in view.hosts:
            yield f"{missing.replica} is said to be nearest to {missing.nearest}, which is not declared"
        for line in missing.hosts:
            if line.unit == "bytes" and line.need is not None and line.have is not None and line.need <= line.have:
                yield f"{missing.replica} is said to need {line.need} bytes on {line.host}, which has {line.have}"
    known = {r.profile for r in view.inputs.parent.retirements} if view.inputs.parent is not None else set()
    known |= {a.profile for a in view.before.values()}
    for retired in view.plan.retirements:
        if retired.profile not in known:
            yield f"{retired.profile} is retired, and nobody knows it"
