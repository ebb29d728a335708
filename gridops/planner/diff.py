"""The decisions: what differs between a parent's placement and a new one, as a person reviews it.

`diff` compares two sides and asks nobody why; causes, costs and change sets are handed in. `decisions_digest` names
what will be done and nothing else, so that equal work has an equal name whatever it cost or caused. Called by
`assemble` and `restrict`; the order of decisions is the order in which they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from gridops.base import canon
from gridops.base.ids import Digest, ProfileName, ReplicaId, replica_key, short
from gridops.base.record import to_data
from gridops.base.units import exact_ms
from gridops.footprint.need import identity
from gridops.model.plan import (
    Assignment,
    Cause,
    CauseKind,
    Change,
    Cost,
    Decision,
    DecisionKind,
    Launch,
    Plan,
    Seat,
    Terms,
    Unplaced,
)
from gridops.planner.authority import Traits, classify
from gridops.planner.world import Stray

ORDER = (DecisionKind.PLACE, DecisionKind.MOVE, DecisionKind.CHANGE, DecisionKind.REMOVE, DecisionKind.CANNOT_PLACE)
"""How decisions are shown: what adds first, what takes away last."""


NO_COST = Cost()

Unnumbered: TypeAlias = "partial[Decision]"
"""A decision without its number: it is made once, when its place in the order is known."""


@dataclass(frozen=True, slots=True)
class Side:
    """One placement with what its replicas run and what holds for them."""

    seats: Mapping[ReplicaId, Assignment]
    launches: Mapping[Digest, Launch]
    terms: Mapping[ProfileName, Terms]


@dataclass(frozen=True, slots=True)
class Reasons:
    """What the comparison alone cannot know."""

    causes: Mapping[ReplicaId, Cause] = field(default_factory=dict)
    costs: Mapping[ReplicaId, Cost] = field(default_factory=dict)
    former: Mapping[ReplicaId, ReplicaId] = field(default_factory=dict)
    """New id to old id, of replicas that were renamed."""
    again: Mapping[ReplicaId, Change] = field(default_factory=dict)
    """Replicas that are placed where they stand already, because nothing of them runs; and what became of it."""
    ending: frozenset[ReplicaId] = frozenset()
    """Removals without a successor."""
    empty: bool = False
    unplaced: Sequence[Unplaced] = ()
    strays: Sequence[Stray] = ()
    """What runs beside the parent. Whoever is decided upon anyway brings the right to end it along."""


def side_of(plan: Plan | None, name: Callable[[Launch], Digest] = identity) -> Side:
    """A plan as a side; nothing at all for None. `name` says what `identity` says."""
    if plan is None:
        return Side({}, {}, {})
    return side(plan.placement, plan.launches, plan.terms, name)


def side(
    placement: Sequence[Assignment],
    launches: Sequence[Launch],
    terms: Sequence[Terms],
    name: Callable[[Launch], Digest] = identity,
) -> Side:
    return Side({a.replica: a for a in placement}, {name(n): n for n in launches}, {t.profile: t for t in terms})


def diff(before: Side, after: Side, reasons: Reasons) -> tuple[Decision, ...]:
    """Every difference, ordered and numbered; each its own change set until `change_sets.tie` joins them."""
    changed = _changed_terms(before, after)
    # Most stand as they stood, under the name they had: nothing to compare.
    as_before = before.seats if not reasons.former else {}
    found = [
        d
        for r, new in after.seats.items()
        if (as_before.get(r) is not new or new.profile in changed or r in reasons.again)
        and (d := _seated(before, after, r, reasons, changed)) is not None
    ]
    kept = {reasons.former.get(r, r) for r in after.seats} if reasons.former else after.seats.keys()
    if gone := [r for r in before.seats if r not in kept]:
        left = {a.profile for a in after.seats.values()} | {before.seats[r].profile for r in kept if r in before.seats}
        found += [_removed(before, r, reasons, left) for r in gone]
    if reasons.strays:
        decided = {d.keywords["replica"] for d in found}
        left = {a.profile for a in after.seats.values()}
        found += [_ended(s, reasons, last=s.profile not in left) for s in reasons.strays if s.replica not in decided]
    found += [_cannot(u, reasons) for u in reasons.unplaced]
    found.sort(key=lambda d: (ORDER.index(d.keywords["kind"]), replica_key(d.keywords["replica"])))
    return tuple(d(n=n, change_set=n) for n, d in enumerate(found, start=1))


def decisions_digest(decisions: Sequence[Decision]) -> Digest:
    """Name of what will be done: kind, replica, from, to, what runs, changed values. Not order, cost or cause."""
    done = [d for d in decisions if d.kind is not DecisionKind.CANNOT_PLACE]
    done.sort(key=lambda d: (d.kind.value, d.replica))
    return canon.digest_bytes(canon.whole(f"[{','.join([_done(d) for d in done])}]"))


def _done(d: Decision) -> str:
    """What is done, as canonical text. Written out field by field, which is the cheapest; `check` does it literally."""
    changes = canon.dumps([to_data(c) for c in d.changes]).decode() if d.changes else "[]"
    launch = canon.text(d.launch) if d.launch is not None else "null"
    what = f'"changes":{changes},"kind":{canon.text(d.kind)},"launch":{launch},"replica":{canon.text(d.replica)}'
    return f'{{{what},"source":{_seat(d.source)},"target":{_seat(d.target)}}}'


def _seat(seat: Seat | None) -> str:
    if seat is None:
        return "null"
    return f'{{"devices":[{",".join(map(canon.text, seat.devices))}],"host":{canon.text(seat.host)}}}'


def differences(old: Launch, new: Launch) -> tuple[Change, ...]:
    """What changed between two commands, by field, as text."""
    found = [
        Change(field=name, old=str(a), new=str(b))
        for name, a, b in (
            ("profile", old.profile, new.profile),
            ("config", old.config, new.config),
            ("engine", old.engine, new.engine),
            ("backend", old.backend, new.backend),
            ("artifact", _artifact(old), _artifact(new)),
            ("context", old.context, new.context),
            ("lanes", old.lanes, new.lanes),
            ("devices", _devices(old), _devices(new)),
        )
        if a != b
    ]
    args_old, args_new = ({a.name: a.value for a in launch.args} for launch in (old, new))
    for name in sorted(args_old.keys() | args_new.keys()):
        if args_old.get(name) != args_new.get(name):
            found.append(Change(field=f"args.{name}", old=args_old.get(name, ""), new=args_new.get(name, "")))
    if not found and old != new:
        # Same files under other paths or from another place.
        found.append(Change(field="artifact", old=short(identity(old)), new=short(identity(new))))
    return tuple(found)


def terms_differences(old: Terms | None, new: Terms | None) -> tuple[Change, ...]:
    """What changed of the terms that a running replica's host acts by."""
    if old is None or new is None or old == new:
        return ()
    pairs = (
        ("serves", ", ".join(old.serves), ", ".join(new.serves)),
        ("restart.max", str(old.restart.max), str(new.restart.max)),
        ("restart.per", exact_ms(old.restart.per_ms), exact_ms(new.restart.per_ms)),
        ("restart.backoff", exact_ms(old.restart.backoff_ms), exact_ms(new.restart.backoff_ms)),
        ("timing.drain", exact_ms(old.timing.drain_ms), exact_ms(new.timing.drain_ms)),
    )
    return tuple(Change(field=name, old=a, new=b) for name, a, b in pairs if a != b)


def ends_stray(decision: Decision) -> bool:
    """The decision ends processes that run beside the placement; its replica may well go on standing elsewhere."""
    return decision.kind is DecisionKind.REMOVE and any(c.field == "process" for c in decision.changes)


def is_term(change: Change) -> bool:
    """The change is one of terms: it takes effect without a restart."""
    return change.field == "serves" or change.field.startswith(("restart.", "timing."))


def carries_terms(decision: Decision) -> bool:
    """The decision brings its profile's new terms. All that do are in one change set."""
    return any(is_term(c) for c in decision.changes)


def _changed_terms(before: Side, after: Side) -> Mapping[ProfileName, tuple[Change, ...]]:
    """What changed of the terms of profiles that both sides know."""
    both = ((name, before.terms.get(name), new) for name, new in after.terms.items())
    return {name: found for name, old, new in both if old != new and (found := terms_differences(old, new))}


def _seated(
    before: Side,
    after: Side,
    replica: ReplicaId,
    reasons: Reasons,
    changed: Mapping[ProfileName, tuple[Change, ...]],
) -> Unnumbered | None:
    new = after.seats[replica]
    old = before.seats.get(reasons.former.get(replica, replica))
    if old is None:
        return _decision(DecisionKind.PLACE, new, None, (), reasons)
    launches = differences(before.launches[old.launch], after.launches[new.launch]) if old.launch != new.launch else ()
    same = old.profile == new.profile
    terms = (
        changed.get(new.profile, ())
        if same
        else terms_differences(before.terms.get(old.profile), after.terms.get(new.profile))
    )
    renamed = (Change(field="profile", old=old.profile, new=new.profile),) if old.profile != new.profile else ()
    # A new name says by itself that other ids are served. That a command was made under an older name says nothing: the
    # replica has had its new one since.
    changes = renamed + tuple(
        c for c in launches + terms if c.field != "profile" and not (renamed and c.field == "serves")
    )
    if old.seat.host != new.seat.host or (old.seat != new.seat and not launches):
        return _decision(DecisionKind.MOVE, new, old, changes, reasons)
    if changes or old.seat != new.seat:
        gentle = old.seat == new.seat and old.launch == new.launch
        return _decision(DecisionKind.CHANGE, new, old, changes, reasons, gentle=gentle)
    if replica in reasons.again:
        return _decision(DecisionKind.PLACE, new, None, (reasons.again[replica],), reasons)
    return None


def _decision(
    kind: DecisionKind,
    new: Assignment,
    old: Assignment | None,
    changes: tuple[Change, ...],
    reasons: Reasons,
    *,
    gentle: bool = False,
) -> Unnumbered:
    cause = reasons.causes.get(new.replica)
    if cause is None:
        what = ", ".join(f"{c.field} {c.old} => {c.new}" for c in changes[:2]) or "placement differs"
        cause = Cause(kind=CauseKind.INTENT, detail=what)
    cost = reasons.costs.get(new.replica, NO_COST)
    group, risk = classify(kind, cause.kind, Traits(empty=reasons.empty, gentle=gentle, dips=cost.dip > 0))
    return partial(
        Decision,
        kind=kind,
        replica=new.replica,
        profile=new.profile,
        action_class=group,
        risk=risk,
        cause=cause,
        source=old.seat if old is not None else None,
        target=new.seat,
        changes=changes,
        cost=cost,
        launch=new.launch,
    )


def _removed(before: Side, replica: ReplicaId, reasons: Reasons, left: set[ProfileName]) -> Unnumbered:
    old = before.seats[replica]
    cause = reasons.causes.get(replica, Cause(kind=CauseKind.INTENT, detail="no longer wanted"))
    last = old.profile not in left and cause.kind is not CauseKind.HOST_LOST
    return _ended(Stray(replica, old.profile, old.seat, cause, ()), reasons, last=last)


def _ended(what: Stray, reasons: Reasons, *, last: bool) -> Unnumbered:
    """The end of a seat, or of what runs beside the parent: the last of its profile where no seat of it is left."""
    traits = Traits(ends=what.replica in reasons.ending, last=last, empty=reasons.empty)
    group, risk = classify(DecisionKind.REMOVE, what.cause.kind, traits)
    return partial(
        Decision,
        kind=DecisionKind.REMOVE,
        replica=what.replica,
        profile=what.profile,
        action_class=group,
        risk=risk,
        cause=what.cause,
        source=what.seat,
        changes=what.was,
        last_replica=last,
    )


def _cannot(unplaced: Unplaced, reasons: Reasons) -> Unnumbered:
    profile, _, _ = unplaced.replica.rpartition("/")
    cause = reasons.causes.get(unplaced.replica, Cause(kind=CauseKind.INTENT, detail=unplaced.detail))
    group, risk = classify(DecisionKind.CANNOT_PLACE, cause.kind)
    return partial(
        Decision,
        kind=DecisionKind.CANNOT_PLACE,
        replica=unplaced.replica,
        profile=ProfileName(profile),
        action_class=group,
        risk=risk,
        cause=cause,
    )


def _artifact(launch: Launch) -> str:
    return " ".join(short(f.sha256) for f in launch.artifact.files)


def _devices(launch: Launch) -> str:
    need = launch.devices
    words = [str(need.count), need.shard or "", "uneven" if need.uneven else "", need.link or ""]
    return " ".join(w for w in words if w)
