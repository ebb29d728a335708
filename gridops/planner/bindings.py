"""What a plan binds to: digests of the intent, the snapshot and the parent that it was made from, and what it read.

Whoever carries a plan out compares these with what there is then. Called by `assemble`; decides nothing. Large records
are digested by the pieces of which they are made (`recall`), since most of these are the ones of the last plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from gridops.base import canon
from gridops.base.ids import Digest, HostId, ProfileName, ScopeName
from gridops.model.fleet import HostClass
from gridops.model.intent import Desired
from gridops.model.plan import Decision, Generation, IntentRef, ProfileDigest, ReadSet, SnapshotRef
from gridops.model.policy import BudgetPolicy, ModePolicy
from gridops.model.profile import Profile
from gridops.model.snapshot import Snapshot
from gridops.planner.recall import Recall, Shelf
from gridops.planner.world import World


def parent_digest(world: World) -> Digest | None:
    parent = world.inputs.parent
    return None if parent is None else world.recall.digests.of(parent)


def reads(decisions: Sequence[Decision], world: World) -> ReadSet:
    """What the decisions touch: the profiles as declared and the hosts as they reported themselves."""
    inputs, recall = world.inputs, world.recall
    profiles = {p.name: p for p in inputs.intent.desired.profiles}
    names = sorted({d.profile for d in decisions})
    touched = sorted({s.host for d in decisions for s in (d.source, d.target) if s is not None})
    hosts = {r.host: r.generation for r in inputs.snapshot.hosts} if touched else {}
    shelf: Shelf[ProfileDigest] = recall.shelf("profiles read")

    def declared(profile: Profile) -> ProfileDigest:
        known = shelf.get(profile.name, (profile,))
        return shelf.put(profile.name, (profile,), _declared(recall, profile)) if known is None else known

    return ReadSet(
        profiles=tuple([declared(profiles[n]) if n in profiles else _absent(n) for n in names]),
        hosts=tuple(Generation(host=h, generation=hosts.get(h, 0)) for h in touched),
    )


def _declared(recall: Recall, profile: Profile) -> ProfileDigest:
    """Most have been written for the digest of the intent."""
    written = recall.pieces.written(Desired, "profiles", profile)
    return ProfileDigest(profile=profile.name, digest=recall.digests.of(profile, written))


def _absent(name: ProfileName) -> ProfileDigest:
    """A profile that is not declared reads as its absence: declaring it again changes what was read."""
    return ProfileDigest(profile=name, digest=canon.digest({"absent": name}))


def empty_sets(world: World) -> tuple[str, ...]:
    """Which of the scope's sets are empty: what follows from that is always a proposal."""
    scope = world.inputs.scope
    hosts = any(v.host.scope == scope and v.host.host_class is not HostClass.EXTERNAL for v in world.hosts.values())
    return tuple(name for name, there in (("hosts", hosts), ("profiles", bool(world.profiles))) if not there)


def intent_ref(world: World) -> IntentRef:
    intent = world.inputs.intent
    shelf: Shelf[Digest] = world.recall.shelf("intent")
    return IntentRef(
        # Until something else is committed it is the same object from plan to plan.
        digest=shelf.of("digest", (intent.desired,), lambda: _intent_digest(intent.desired, world)),
        commit=intent.commit,
        subject=intent.subject,
        dirty=intent.dirty,
        empty=empty_sets(world),
    )


def _intent_digest(desired: Desired, world: World) -> Digest:
    own = restricted(desired, world.inputs.scope)
    return world.recall.pieces.of(own, ("hosts", "keys", "drains", "profiles"))


def snapshot_ref(world: World) -> SnapshotRef:
    """The part of the snapshot that speaks about hosts of the scope."""
    inputs, snapshot = world.inputs, world.inputs.snapshot
    ids: set[HostId] = {h.id for h in inputs.intent.desired.hosts if h.scope == inputs.scope}
    ids |= _held(world)
    own = Snapshot(
        source=snapshot.source,
        observed_ms=snapshot.observed_ms,
        hosts=tuple(sorted((r for r in snapshot.hosts if r.host in ids), key=lambda r: r.host)),
    )
    return SnapshotRef(
        source=snapshot.source, observed_ms=snapshot.observed_ms, digest=world.recall.pieces.of(own, ("hosts",))
    )


def _held(world: World) -> frozenset[HostId]:
    """Hosts that the parent uses."""
    parent, shelf = world.inputs.parent, world.recall.shelf("held")
    if parent is None:
        return frozenset()
    found: frozenset[HostId] = shelf.of("all", (parent,), lambda: frozenset(a.seat.host for a in parent.placement))
    return found


def restricted(desired: Desired, scope: ScopeName) -> Desired:
    """What of a commit speaks about one scope: its digest is what a plan binds to."""
    hosts = tuple(sorted((h for h in desired.hosts if h.scope == scope), key=lambda h: h.id))
    ids = {h.id for h in hosts}
    return Desired(
        fleet=desired.fleet,
        hosts=hosts,
        keys=tuple(sorted((k for k in desired.keys if k.host in ids), key=lambda k: k.host)),
        drains=tuple(sorted((d for d in desired.drains if d.host in ids), key=lambda d: d.host)),
        profiles=tuple(sorted((p for p in desired.profiles if p.scope == scope), key=lambda p: p.name)),
        mode=ModePolicy(scopes=(desired.mode.of(scope),)),
        budgets=BudgetPolicy(scopes=(desired.budgets.of(scope),)),
        planning=desired.planning,
        approvals=desired.approvals,
        protection=desired.protection,
    )
