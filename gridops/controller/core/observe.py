"""What is seen: the newest accepted heartbeats as a snapshot, and who may be believed to be there.

`seen` is the plain account for deciding what to do next on a host; `reckoned` adds the memory that commands under way
may take, for planning. A host that was not heard since this process began is not in a snapshot: it is silent, not
empty. Called by every pass; it must never invent a report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gridops.base.ids import Digest, HostId, ReplicaId, ScopeName
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Heard, Soft
from gridops.controller.core.state import HostBook, State, Success
from gridops.footprint.need import identity
from gridops.model.action import Drain, Evict, Load, Operate, Unload, Warm
from gridops.model.snapshot import HostReport, Residency, ResidencyState, Snapshot, SnapshotSource
from gridops.protocol import outbox as ob


def fresh(soft: Soft, roster: Roster, host: HostId, now_ms: int) -> bool:
    """Heard lately, not gone to sleep, and still ours: one that was expunged a moment ago counts no more."""
    heard = soft.hosts.get(host)
    if heard is None or heard.report.goodbye or roster.admitted(host) is None:
        return False
    return now_ms - heard.report.observed_ms <= roster.desired.planning.heartbeat.stale_after_ms


def as_heard(soft: Soft, roster: Roster, hosts: Iterable[HostId], now_ms: int) -> dict[HostId, int | None]:
    """The generation of each of these hosts by its newest word; None for one that is silent."""
    reports = {h: soft.report(h) if fresh(soft, roster, h, now_ms) else None for h in hosts}
    return {h: report.generation if report is not None else None for h, report in reports.items()}


FORGOTTEN_MS = 35_000
"""So long a host that this journal has never heard is waited for: an agent tries again after 31 seconds at most."""
JOINING_BEATS = 3
"""How many heartbeats a host that was just admitted may take to be heard: it polls every second while it waits."""


def seen(soft: Soft, roster: Roster, scope: ScopeName | None, now_ms: int) -> Snapshot:
    """Reports of the admitted hosts of a scope (None: all), at their own age."""
    reports = [
        heard.report
        for host, heard in sorted(soft.hosts.items())
        if roster.admitted(host) and (scope is None or roster.scope_of(host) == scope)
    ]
    return Snapshot(source=SnapshotSource.LIVE, observed_ms=now_ms, hosts=tuple(reports))


def reckoned(state: State, soft: Soft, roster: Roster, scope: ScopeName | None, now_ms: int) -> Snapshot:
    """`seen`, with what commands under way may hold counted as held: unknown is not free (house rule 8)."""
    snapshot = seen(soft, roster, scope, now_ms)
    return replace(
        snapshot, hosts=tuple(_with_promises(report, state.hosts.get(report.host)) for report in snapshot.hosts)
    )


def recovering(state: State, soft: Soft, roster: Roster, now_ms: int) -> tuple[HostId, ...]:
    """Hosts that were not heard yet, while it is too early to call them silent.

    Planning waits for those that spoke before this process began: a restarted controller that plans around hosts it
    has merely not heard yet would move everything (A-338). It waits a moment for those that a commit has just
    admitted, too: several hosts admitted together are planned for together, not one proposal after the other.
    And a journal that has no memory of an admitted host (a rebuild, a lost file) waits until that host has surely
    tried again: it may run what no document knows, and what is planned without it would be moved or doubled. A laptop
    is waited for like any other: nothing in the files says that it sleeps now, and 35 seconds after a rebuild harm
    nobody, since hosts keep alive what they run.
    """
    beat = roster.desired.planning.heartbeat
    restarted = now_ms - soft.started_ms < beat.recovery_grace_ms
    joining_ms = min(beat.recovery_grace_ms, JOINING_BEATS * beat.every_ms)
    waited = {host for host, book in state.hosts.items() if restarted and book.written_off_ms is None}
    waited |= {host for host, since_ms in soft.joined.items() if now_ms - since_ms < joining_ms}
    if now_ms - soft.started_ms < max(beat.recovery_grace_ms, FORGOTTEN_MS):
        # Its first word makes it known, and only the one after our answer is of now (`ingest`): until then it waits.
        known = {host for host, book in state.hosts.items() if book.seen_ms < soft.started_ms}
        waited |= {host for host in roster.keys if host not in known and host not in soft.joined}
    return tuple(host for host in sorted(waited) if roster.admitted(host) and host not in soft.hosts)


def unseen_success(book: HostBook, soft: Soft, host: HostId, now_ms: int, patience_ms: int) -> frozenset[ReplicaId]:
    """Replicas whose last step succeeded and that no report has shown yet: what is reported is older than that.

    The patience bounds how long a success is believed that the host never shows.
    """
    shown = soft.shown.get(host, {})
    return frozenset(
        replica
        for replica, success in book.successes.items()
        if shown.get(replica) != success.rseq and now_ms - success.at_ms < patience_ms
    )


def now_shown(book: HostBook, heard: Heard) -> dict[ReplicaId, int]:
    """Successes that this report shows, by the number of their receipt. Once is enough: later changes are news."""
    return {
        replica: success.rseq
        for replica, success in book.successes.items()
        if success.rseq <= heard.receipt_head and _shows(heard.report, success)
    }


def _shows(report: HostReport, success: Success) -> bool:
    action = success.action
    match action:
        case Load():
            return all(f.sha256 in report.cached for f in action.artifact.files)
        case Warm():
            return any(r.incarnation == success.body for r in report.residencies)
        case Drain():
            found = [r.state for r in report.residencies if r.incarnation == action.incarnation]
            return all(state is ResidencyState.DRAINING for state in found)
        case Unload():
            return all(r.incarnation != action.incarnation for r in report.residencies)
        case Evict():
            return not set(action.files).issubset(report.cached)
        case Operate():
            return True


def _with_promises(report: HostReport, book: HostBook | None) -> HostReport:
    if book is None:
        return report
    shown = {r.incarnation for r in report.residencies}
    promised = [
        _promise(entry.body.action, entry.digest, entry.created_ms, "commanded, not yet reported")
        for entry in ob.open_entries(book.outbox)
        if isinstance(entry.body.action, Warm) and entry.digest not in shown
    ]
    promised += [
        _promise(known.action, body, known.at_ms, "nobody knows what became of it")
        for body, known in sorted(book.uncertain.items())
        if isinstance(known.action, Warm) and body not in shown
    ]
    return replace(report, residencies=(*report.residencies, *promised)) if promised else report


def _promise(action: Warm, body: Digest, since_ms: int, detail: str) -> Residency:
    return Residency(
        profile=action.profile,
        state=ResidencyState.LOADING,
        replica=action.replica,
        config=action.launch.config,
        incarnation=body,
        identity=identity(action.launch),
        devices=action.devices,
        device_bytes=action.device_bytes,
        host_bytes=action.host_bytes,
        since_ms=since_ms,
        detail=detail,
    )
