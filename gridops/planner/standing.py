"""How good a host is now: open, throttled, silent, draining, lost or not ours; and how silence is read.

Stale, away, lost, or so many at once that nothing may be concluded from it. Called by `views` for each declared host;
looks at no replica and at no memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gridops.base.codes import Code
from gridops.base.codes import placement as codes
from gridops.base.codes.protection import SENSOR_UNKNOWN
from gridops.base.ids import HostId
from gridops.base.units import PPM, render_ms
from gridops.base.versions import agent_words, precedes
from gridops.model.fleet import Drain, Host, HostClass, HostKey
from gridops.model.plan import HostLine
from gridops.model.policy import ProtectionPolicy
from gridops.model.snapshot import (
    HostReport,
    HostState,
    SnapshotSource,
)
from gridops.planner.signed import ABILITY
from gridops.planner.world import HostView, Inputs, Standing, clock

REPLACE_AFTER_MS = 600_000
"""When an opportunistic host without `absence` counts as lost. Doubling it leaves users waiting longer for a closed
laptop; halving it copies models around for every lunch break."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is said of hosts, by host: reports, committed keys, drains in force now."""

    reports: Mapping[HostId, HostReport]
    keys: Mapping[HostId, HostKey]
    drains: Mapping[HostId, Drain]


def standing_of(
    host: Host, report: HostReport | None, inputs: Inputs, known: Known
) -> tuple[Standing, HostLine | None]:
    """Its standing, and why it takes nothing new (None: it does). What people wrote comes before what is heard."""
    if host.scope != inputs.scope:
        return Standing.RELEASED, _line(host, codes.OTHER_SCOPE, f"it belongs to scope {host.scope}")
    if host.host_class is HostClass.EXTERNAL:
        return Standing.RELEASED, _line(host, codes.EXTERNAL_HOST, "an external endpoint is never actuated")
    if (drain := known.drains.get(host.id)) is not None:
        drained = _line(host, codes.HOST_DRAINING, f"draining: {drain.reason}")
    else:
        drained = None
    if inputs.snapshot.source is SnapshotSource.DECLARED:
        return (Standing.DRAINING, drained) if drained else (Standing.OPEN, None)
    key = known.keys.get(host.id)
    if key is None or key.expunged:
        why = "it was expunged" if key is not None else "no key of it is committed"
        return Standing.RELEASED, _line(host, codes.NOT_ADMITTED, why)
    standing, closed = _silence(host, report, inputs)
    if closed is not None:
        return (Standing.DRAINING, drained) if drained and standing is not Standing.LOST else (standing, closed)
    if drained:
        return Standing.DRAINING, drained
    assert report is not None
    standing, closed = _state(host, report, inputs)
    if closed is None and inputs.intent.desired.catalog is not None and not report.can(ABILITY):
        closed = _line(host, codes.CATALOG_UNKNOWN, "its agent does not know the signed catalog: update it")
    if closed is None and precedes(report.agent_version, inputs.agents_from):
        words = f"{agent_words(report.agent_version)}, and {inputs.agents_from} or later is demanded: upgrade it"
        closed = _line(host, codes.AGENT_TOO_OLD, words)
    return standing, closed


def throttled_ppm(host: Host, report: HostReport | None, protection: ProtectionPolicy) -> int:
    """Share of a throttled host that new work may take: as its class is protected, and as the host itself reckons."""
    rules = protection.of(host.host_class.value)
    reasons = report.reasons if report is not None else ()
    if reasons and all(reason.startswith(f"{SENSOR_UNKNOWN.code}:") for reason in reasons):
        return max(rules.unknown_ppm, rules.throttled_ppm)
    return rules.throttled_ppm


def _silence(host: Host, report: HostReport | None, inputs: Inputs) -> tuple[Standing, HostLine | None]:
    now, beat = clock(inputs), inputs.intent.desired.planning.heartbeat
    since = report.observed_ms if report is not None else inputs.watching_since_ms
    if since is None:
        given_up = Standing.LOST if host.id in inputs.written_off else Standing.SILENT
        return given_up, _line(host, codes.HOST_UNREPORTED, "it has not reported yet")
    age = now - since
    if report is not None and age < -beat.future_skew_ms:
        return Standing.SILENT, _line(host, codes.HOST_FUTURE, f"its heartbeat lies {render_ms(-age)} in the future")
    if report is not None and age <= beat.stale_after_ms and not report.goodbye:
        return Standing.OPEN, None
    away = codes.HOST_LEFT if report is not None and report.left else codes.HOST_AWAY
    code = away if report is not None and report.goodbye else codes.HOST_STALE
    code = code if report is not None else codes.HOST_UNREPORTED
    line = _line(host, code, f"no heartbeat for {render_ms(max(0, age))}")
    lost = age >= patience_ms(host, beat.stale_after_ms) and _listened(inputs)
    if host.id in inputs.written_off:
        return Standing.LOST, _line(host, code, "it was written off")
    return (Standing.LOST if lost else Standing.SILENT), line


def patience_ms(host: Host, stale_after_ms: int) -> int:
    """How long this host may be away, or take no work, before what it held is looked for elsewhere."""
    if host.host_class is HostClass.OPPORTUNISTIC:
        return host.absence.replace_after_ms if host.absence is not None else REPLACE_AFTER_MS
    return stale_after_ms


def _listened(inputs: Inputs) -> bool:
    """After a restart everybody is silent for a while: conclude nothing before the grace is over."""
    beat = inputs.intent.desired.planning.heartbeat
    since = inputs.watching_since_ms
    return since is None or inputs.now_ms - since >= max(beat.recovery_grace_ms, beat.stale_after_ms)


def _state(host: Host, report: HostReport, inputs: Inputs) -> tuple[Standing, HostLine | None]:
    if report.state is HostState.ACCEPTING:
        return Standing.OPEN, None
    reasons = ", ".join(report.reasons) or "no reason given"
    grace = patience_ms(host, inputs.intent.desired.planning.heartbeat.stale_after_ms)
    over = report.since_ms is None or clock(inputs) - report.since_ms >= grace
    match report.state:
        case HostState.THROTTLED:
            return Standing.THROTTLED, None
        case HostState.DRAINING:
            # A server that drains itself is going; a laptop yields for a while and is waited for.
            leaving = over or host.host_class is not HostClass.OPPORTUNISTIC
            line = _line(host, codes.HOST_DRAINING, f"the host drains itself: {reasons}")
            return (Standing.DRAINING if leaving else Standing.SILENT), line
        case HostState.PAUSED | HostState.UNHEALTHY | HostState.QUARANTINED:
            line = _line(host, codes.HOST_STATE, f"{report.state.value}: {reasons}")
            return (Standing.NOT_SERVING if over else Standing.SILENT), line


def mass_stale(inputs: Inputs, hosts: Mapping[HostId, HostView]) -> tuple[HostId, ...]:
    """Dedicated hosts that fell silent within one window, when they are so many that the fault is likely ours.

    A host that is drained or written off does not count: somebody has said what shall become of it.
    """
    rule, gone = inputs.intent.desired.planning.heartbeat.mass_stale, inputs.written_off
    ours = (v for v in hosts.values() if v.standing is not Standing.RELEASED and v.host.id not in gone)
    dedicated = [v for v in ours if v.host.host_class is HostClass.DEDICATED and v.drain is None]
    # Who is open or throttled was heard in time.
    quiet = [v for v in dedicated if v.standing > Standing.THROTTLED]
    silent = sorted((since, v.host.id) for v in quiet if (since := _silent_since(v, inputs)) is not None)
    largest: tuple[HostId, ...] = ()
    start = 0
    for end, (since, _) in enumerate(silent):
        while since - silent[start][0] > rule.within_ms:
            start += 1
        if end - start + 1 > len(largest):
            largest = tuple(host for _, host in silent[start : end + 1])
    many = len(largest) >= rule.at_least and len(largest) * PPM >= rule.share_ppm * len(dedicated)
    return tuple(sorted(largest)) if many else ()


def _silent_since(view: HostView, inputs: Inputs) -> int | None:
    if inputs.snapshot.source is SnapshotSource.DECLARED:
        return None
    since = view.report.observed_ms if view.report is not None else inputs.watching_since_ms
    if since is None or (view.report is not None and view.report.goodbye):
        return None
    stale = clock(inputs) - since > inputs.intent.desired.planning.heartbeat.stale_after_ms
    return since if stale else None


def _line(host: Host, code: Code, detail: str) -> HostLine:
    return HostLine(host=host.id, code=code.code, detail=detail)
