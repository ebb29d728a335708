"""For whom somebody leaves its place: the names that a cause of making room or of giving way shows.

The search knows for whom a piece was lifted first; what stands in the end, and what is carried out together, is known
when the decisions are. So the names are those who come to the place, or to one that others left for it, of the same
change set where there are any: a part of a plan never names somebody whom it does not place. Who was moved so that its
profile stands in more failure domains says that instead. Called by `assemble`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gridops.base.ids import HostId, ReplicaId, replica_key
from gridops.base.record import with_one
from gridops.model.plan import Cause, CauseKind, Decision
from gridops.planner.draft import Draft
from gridops.planner.targets import domain

MAKES_ROOM, GIVES_WAY = "makes room for", "gives way to"
WORDS = {CauseKind.REBALANCE: MAKES_ROOM, CauseKind.DISPLACED: GIVES_WAY}
SHOWN = 3


def named(draft: Draft, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """The decisions with the names of those for whom each is taken."""
    for_others = {d.replica for d in decisions if d.source is not None and _is_for_others(d.cause)}
    if not for_others:
        return tuple(decisions)
    arriving: dict[HostId, list[Decision]] = {}
    for d in decisions:
        if d.target is not None and d.source != d.target and not _stands(draft, d):
            arriving.setdefault(d.target.host, []).append(d)
    causes: dict[ReplicaId, Cause] = {}
    movers = [d for d in decisions if d.replica in for_others and d.source is not None]
    for d in movers:
        if not _gainers(d, arriving, for_others) and (words := _spreads(draft, d)) is not None:
            causes[d.replica] = replace(d.cause, detail=words)
    for_others -= causes.keys()
    coming = _by_set(arriving, for_others)
    for d in movers:
        there, with_it = _gainers(d, arriving, for_others), coming.get(d.change_set, [])
        found = [r for r in there if r in with_it] or with_it or there
        if d.replica not in causes and found:
            causes[d.replica] = replace(d.cause, detail=f"{WORDS[d.cause.kind]} {names(found)}")
    return tuple(
        with_one(d, "cause", causes[d.replica]) if d.replica in causes and _is_for_others(d.cause) else d
        for d in decisions
    )


def names(replicas: Sequence[ReplicaId]) -> str:
    """`a/1, b/1, b/2 and 4 more`."""
    shown = ", ".join(replicas[:SHOWN])
    return shown + (f" and {len(replicas) - SHOWN} more" if len(replicas) > SHOWN else "")


def _stands(draft: Draft, d: Decision) -> bool:
    """It was found running there, and no plan knew of it: it comes to nothing that anybody left."""
    seated = draft.seats.get(d.replica)
    return seated is not None and d.source is None and seated.origin is not None and seated.cause is None


def _is_for_others(cause: Cause) -> bool:
    return cause.kind in WORDS and cause.detail.startswith(WORDS[cause.kind])


def _gainers(
    decision: Decision, arriving: Mapping[HostId, Sequence[Decision]], for_others: set[ReplicaId]
) -> list[ReplicaId]:
    """Newcomers to the host, and to those that somebody left for it; who only makes room itself is none of them."""
    assert decision.source is not None, "it leaves a place"
    hosts, found = [decision.source.host], set[ReplicaId]()
    for one in hosts:
        for d in arriving.get(one, ()):
            if d.replica == decision.replica:
                continue
            if d.replica not in for_others:
                found.add(d.replica)
            if d.source is not None and d.source.host not in hosts:
                hosts.append(d.source.host)
    return sorted(found, key=replica_key)


def _by_set(arriving: Mapping[HostId, Sequence[Decision]], for_others: set[ReplicaId]) -> dict[int, list[ReplicaId]]:
    """Whoever comes with each change set: to the place, or for a price that was made smaller."""
    found: dict[int, list[ReplicaId]] = {}
    for decisions in arriving.values():
        for d in decisions:
            if d.replica not in for_others:
                found.setdefault(d.change_set, []).append(d.replica)
    return {number: sorted(replicas, key=replica_key) for number, replicas in found.items()}


def _spreads(draft: Draft, d: Decision) -> str | None:
    """Its profile asks for more domains than one, and it goes to one where none of the others stands."""
    profile = draft.world.profiles.get(d.profile)
    if profile is None or profile.spread is None or d.target is None or d.cause.kind is not CauseKind.REBALANCE:
        return None
    level, seats = profile.spread.by, [s.assignment for s in draft.of(d.profile) if s.assignment.replica != d.replica]
    others = {domain(draft.world, a.seat.host, level) for a in seats}
    mine = domain(draft.world, d.target.host, level)
    return None if mine is None or mine in others else f"stands in another {level} than the others of {d.profile}"
