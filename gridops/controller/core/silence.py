"""What a short silence may not end: the proposal that people are looking at.

A plan made while a host is not heard decides less than it would, so it would close the proposal as unneeded, and the
same question would come back under another name as soon as the host speaks. `propose` asks this before it closes or
replaces one. It holds no decision back that the proposal does not have already, and nothing that people changed since:
repair and the newest intent come first. After the grace silence is an answer like any other.
"""

from __future__ import annotations

from gridops.base.ids import HostId, ReplicaId
from gridops.base.record import digest_of
from gridops.controller.core.observe import FORGOTTEN_MS, fresh
from gridops.controller.core.rights import Rights
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Soft
from gridops.model.plan import Change, Decision, DecisionKind, Plan, Seat

_Meant = tuple[DecisionKind, ReplicaId, Seat | None, Seat | None, tuple[Change, ...], str | None]


def unanswered(rights: Rights, soft: Soft, roster: Roster, plan: Plan) -> tuple[HostId, ...]:
    """Hosts whose short silence may be why this plan decides less than the proposal that waits; empty: it counts."""
    if rights.book.proposal is None:
        return ()
    waits = rights.book.proposal.plan
    asked = {_meant(d) for d in waits.to_do}
    if not {_meant(d) for d in plan.to_do} < asked or not _still_meant(waits, roster):
        return ()
    return tuple(h.id for h in roster.hosts_of(rights.scope) if _silent_lately(rights, soft, roster, h.id))


def _silent_lately(rights: Rights, soft: Soft, roster: Roster, host: HostId) -> bool:
    """Admitted, not heard, and it may just be between two tries: an agent waits 31 seconds at most."""
    now_ms, heard, held = rights.now_ms, soft.hosts.get(host), rights.state.hosts.get(host)
    if not roster.admitted(host) or fresh(soft, roster, host, now_ms):
        return False
    if held is not None and held.written_off_ms is not None:
        return False
    beat = roster.desired.planning.heartbeat
    if heard is None:
        return now_ms - soft.started_ms < max(beat.recovery_grace_ms, FORGOTTEN_MS)
    # A goodbye is no silence: it says itself that it is away.
    return not heard.report.goodbye and now_ms - heard.report.observed_ms < beat.stale_after_ms + FORGOTTEN_MS


def _still_meant(waits: Plan, roster: Roster) -> bool:
    """The profiles say what they said when it was proposed; one that is gone was to go."""
    declared = {p.name: p for p in roster.desired.profiles}
    going = {d.profile for d in waits.to_do if d.target is None} - {d.profile for d in waits.to_do if d.target}
    return all(
        digest_of(declared[entry.profile]) == entry.digest if entry.profile in declared else entry.profile in going
        for entry in waits.reads.profiles
    )


def _meant(d: Decision) -> _Meant:
    return d.kind, d.replica, d.source, d.target, d.changes, d.launch
