"""The world as the planner may see it: each host of the fleet with its standing, its rooms and what it holds.

Made once per plan from intent and snapshot, then only read. Decides how silence is read: stale, away, lost, or so
many at once that nothing may be concluded from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from gridops.base.codes import Code
from gridops.base.codes import placement as codes
from gridops.base.ids import Digest, HostId, ProfileName, ReplicaId, ScopeName
from gridops.base.units import PPM, render_ms
from gridops.footprint.ledger import DeviceRoom, ram_of, rooms
from gridops.model.advice import Prefetched
from gridops.model.fleet import Drain, Host, HostClass, HostKey, OnReturn, Runtime
from gridops.model.forecast import Forecast
from gridops.model.intent import Intent
from gridops.model.learned import Learned
from gridops.model.plan import Cause, Change, DecisionKind, HostLine, Plan
from gridops.model.policy import PlanningPolicy, ScopeBudgets
from gridops.model.profile import Profile
from gridops.model.snapshot import (
    LIVE_STATES,
    HostReport,
    HostState,
    Ownership,
    Residency,
    ResidencyState,
    Snapshot,
    SnapshotSource,
)
from gridops.planner.recall import Recall, Shelf

REPLACE_AFTER_MS = 600_000
"""When an opportunistic host without `absence` counts as lost. Doubling it leaves users waiting longer for a closed
laptop; halving it copies models around for every lunch break."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A replica of the parent of which nothing runs on its seat, and that nobody starts there unless it is decided."""

    replica: ReplicaId
    """As the parent calls it."""
    cause: Cause
    was: Change
    """What became of its process: part of the decision's name, so that another failure is another question."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything a plan is made from. `watching_since_ms`: when whoever made the snapshot began to listen."""

    intent: Intent
    scope: ScopeName
    fleet: Digest
    snapshot: Snapshot
    parent: Plan | None
    now_ms: int
    version: str
    watching_since_ms: int | None = None
    waiting: Plan | None = None
    """The proposal that people are looking at, if there is one."""
    written_off: frozenset[HostId] = frozenset()
    """Silent hosts that a person has given up: nothing is waited for any more."""
    forecast: Forecast | None = None
    """Demand to be expected. None: every profile's target is what its file says."""
    given_up: tuple[GivenUp, ...] | None = None
    """What whoever carries plans out has given up. None: nobody knows, so what the proposal that waits says counts."""
    learned: Learned | None = None
    """What starts and answers have taught. None: every time is the link's or the profile's own guess."""
    prefetched: tuple[Prefetched, ...] = ()
    """What hosts fetched on advice and still hold."""


class Standing(IntEnum):
    """What a host is good for, best first."""

    OPEN = 0
    THROTTLED = 1
    """Takes new work with half its memory."""
    SILENT = 2
    """No news, but not for long enough to conclude anything: keeps what it has, gets nothing new."""
    NOT_SERVING = 3
    """Says itself that it cannot serve, for longer than the grace."""
    DRAINING = 4
    LOST = 5
    """Silent for so long that its replicas count as zero; it still holds its own memory."""
    RELEASED = 6
    """Undeclared, expunged, external now, or of another scope: nothing of it is in our hands."""


@dataclass(frozen=True, slots=True)
class HostView:
    """One declared host. `closed` says why it takes nothing new (None: it does)."""

    host: Host
    report: HostReport | None
    standing: Standing
    closed: HostLine | None
    drain: Drain | None
    """A person's wish to empty it, in force now."""
    rooms: tuple[DeviceRoom, ...]
    ram: DeviceRoom | None
    runtimes: tuple[Runtime, ...]
    cached: frozenset[Digest]
    disk_bytes: int | None
    external: tuple[Residency, ...]
    """Live residencies that are not ours."""
    stuck: tuple[Residency, ...]
    """Ours, in a state that nobody can vouch for: they hold what they hold until somebody resolves them."""
    ours: tuple[Residency, ...]
    """Managed live residencies that can be moved or stopped."""
    traits: object
    """The same object in every view of the host for as long as nothing is new but the time of its report."""


@dataclass(frozen=True, slots=True)
class World:
    inputs: Inputs
    profiles: Mapping[ProfileName, Profile]
    """Declared profiles of the scope, by name in order."""
    hosts: Mapping[HostId, HostView]
    """Every declared host of the fleet, by id in order; `Standing.RELEASED` for those of other scopes."""
    planning: PlanningPolicy
    budgets: ScopeBudgets
    returning: tuple[HostView, ...]
    """Open hosts whose owners want the oldest copy kept when they come back."""
    proposed: Mapping[ReplicaId, HostId]
    """Where the proposal that waits would put replicas."""
    given_up: Mapping[ReplicaId, GivenUp]
    """By the parent's name."""
    mass_stale: tuple[HostId, ...]
    """Hosts that fell silent at once. Not empty: nothing may be taken away by this plan."""
    recall: Recall
    """What is known from planning the scope before."""

    @property
    def hypothetical(self) -> bool:
        return self.inputs.snapshot.source is SnapshotSource.DECLARED


def look(inputs: Inputs, recall: Recall | None = None) -> World:
    """Intent and snapshot as one picture. `recall`: what is known from planning the scope before, if anything is."""
    desired = inputs.intent.desired
    recall = Recall() if recall is None else recall
    recall.begin((inputs.scope, desired.planning, inputs.snapshot.source is SnapshotSource.DECLARED))
    look_up = _Known(
        reports={r.host: r for r in inputs.snapshot.hosts},
        keys={k.host: k for k in desired.keys},
        drains={d.host: d for d in desired.drains if d.until_ms is None or d.until_ms > inputs.now_ms},
    )
    views: Shelf[HostView] = recall.shelf("views")
    hosts = {h.id: _view(h, inputs, look_up, views) for h in sorted(desired.hosts, key=lambda h: h.id)}
    mine = sorted((p for p in desired.profiles if p.scope == inputs.scope), key=lambda p: p.name)
    return World(
        inputs=inputs,
        profiles={p.name: _as_before(p, recall) for p in mine},
        hosts=hosts,
        planning=desired.planning,
        budgets=desired.budgets.of(inputs.scope),
        returning=tuple(v for v in hosts.values() if v.closed is None and _keeps_oldest(v.host)),
        proposed={a.replica: a.seat.host for a in inputs.waiting.placement} if inputs.waiting is not None else {},
        given_up={g.replica: g for g in _given_up(inputs)},
        mass_stale=_mass_stale(inputs, hosts),
        recall=recall,
    )


def _as_before(profile: Profile, recall: Recall) -> Profile:
    """The profile; as the object it was last time if the files were only read again."""
    shelf: Shelf[Profile] = recall.shelf("profiles")
    last = shelf.last(profile.name)
    same = last is not None and (last is profile or last == profile)
    return shelf.put(profile.name, (), last if last is not None and same else profile)


def _given_up(inputs: Inputs) -> tuple[GivenUp, ...]:
    """Who plans without knowing the controller's memory asks again what its proposal asks."""
    parent, waiting = inputs.parent, inputs.waiting
    if inputs.given_up is not None or parent is None or waiting is None:
        return inputs.given_up or ()
    seats = {a.replica: (a.seat, a.launch) for a in parent.placement}
    return tuple(
        GivenUp(d.replica, d.cause, d.changes[0])
        for d in waiting.to_do
        if d.kind is DecisionKind.PLACE and d.changes and seats.get(d.replica) == (d.target, d.launch)
    )


def clock(inputs: Inputs) -> int:
    """The moment that ages are judged at: stored state is taken at the age of its observation."""
    return inputs.snapshot.observed_ms if inputs.snapshot.source is SnapshotSource.STATE else inputs.now_ms


@dataclass(frozen=True, slots=True)
class _Known:
    reports: Mapping[HostId, HostReport]
    keys: Mapping[HostId, HostKey]
    drains: Mapping[HostId, Drain]


def _view(host: Host, inputs: Inputs, known: _Known, views: Shelf[HostView]) -> HostView:
    report = None if inputs.snapshot.source is SnapshotSource.DECLARED else known.reports.get(host.id)
    standing, closed = _standing(host, report, inputs, known)
    drain, last = known.drains.get(host.id), views.last(host.id)
    like = last is not None and last.standing is standing and last.closed == closed
    if last is not None and like and _same(last.host, host) and _same(last.drain, drain):
        if last.report is report:
            return views.put(host.id, (), last)
        if last.report is not None and report is not None and _only_later(last.report, report):
            return views.put(host.id, (), replace(last, report=report))
    return views.put(host.id, (), _new_view(host, report, inputs, _Found(standing, closed, drain)))


@dataclass(frozen=True, slots=True)
class _Found:
    standing: Standing
    closed: HostLine | None
    drain: Drain | None


def _same(old: object, new: object) -> bool:
    return old is new or old == new


def _only_later(old: HostReport, new: HostReport) -> bool:
    """A heartbeat that tells nothing new."""
    return old == replace(new, observed_ms=old.observed_ms)


def _new_view(host: Host, report: HostReport | None, inputs: Inputs, is_: _Found) -> HostView:
    declared = inputs.snapshot.source is SnapshotSource.DECLARED
    found = rooms(host, report, inputs.intent.desired.planning.headroom.memory_ppm)
    if is_.standing is Standing.THROTTLED:
        found = tuple(replace(r, headroom_bytes=max(r.headroom_bytes, r.raw_bytes - r.raw_bytes // 2)) for r in found)
    residencies = () if report is None else tuple(r for r in report.residencies if r.state in LIVE_STATES)
    managed = tuple(r for r in residencies if r.ownership is Ownership.MANAGED)
    return HostView(
        host=host,
        report=report,
        standing=is_.standing,
        closed=is_.closed,
        drain=is_.drain,
        rooms=found,
        ram=ram_of(found),
        runtimes=_runtimes(host, report, declared),
        cached=frozenset() if report is None else frozenset(report.cached),
        disk_bytes=_disk(host, report),
        external=tuple(r for r in residencies if r.ownership is Ownership.EXTERNAL),
        stuck=tuple(r for r in managed if r.state is ResidencyState.UNKNOWN),
        ours=tuple(r for r in managed if r.state is not ResidencyState.UNKNOWN),
        traits=object(),
    )


def _runtimes(host: Host, report: HostReport | None, declared: bool) -> tuple[Runtime, ...]:
    """What a host can run: what it reports, and of that only what is declared, where something is."""
    if declared or report is None:
        return host.runtimes
    return tuple(r for r in report.runtimes if not host.runtimes or r in host.runtimes)


def _disk(host: Host, report: HostReport | None) -> int | None:
    """Room for artifacts that are not there yet. None: nobody stated any limit."""
    keep = host.disk.keep_free_bytes if host.disk is not None else 0
    if report is not None and report.disk_free_bytes is not None:
        return report.disk_free_bytes - keep
    return host.disk.artifacts_bytes - keep if host.disk is not None else None


def _standing(host: Host, report: HostReport | None, inputs: Inputs, known: _Known) -> tuple[Standing, HostLine | None]:
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
    return _state(host, report, inputs)


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
    code = codes.HOST_AWAY if report is not None and report.goodbye else codes.HOST_STALE
    code = code if report is not None else codes.HOST_UNREPORTED
    line = _line(host, code, f"no heartbeat for {render_ms(max(0, age))}")
    lost = age >= _patience(host, beat.stale_after_ms) and _listened(inputs)
    if host.id in inputs.written_off:
        return Standing.LOST, _line(host, code, "it was written off")
    return (Standing.LOST if lost else Standing.SILENT), line


def _keeps_oldest(host: Host) -> bool:
    return host.absence is not None and host.absence.on_return is OnReturn.KEEP_OLDEST


def _patience(host: Host, stale_after_ms: int) -> int:
    if host.host_class is HostClass.OPPORTUNISTIC:
        return host.absence.replace_after_ms if host.absence is not None else REPLACE_AFTER_MS
    return stale_after_ms


def _listened(inputs: Inputs) -> bool:
    """After a restart everybody is silent for a while: conclude nothing before the grace is over."""
    beat = inputs.intent.desired.planning.heartbeat
    since = inputs.watching_since_ms
    return since is None or inputs.now_ms - since >= max(beat.recovery_grace_ms, beat.stale_after_ms)


def _state(host: Host, report: HostReport, inputs: Inputs) -> tuple[Standing, HostLine | None]:
    reasons = ", ".join(report.reasons) or "no reason given"
    grace = _patience(host, inputs.intent.desired.planning.heartbeat.stale_after_ms)
    over = report.since_ms is None or clock(inputs) - report.since_ms >= grace
    match report.state:
        case HostState.ACCEPTING:
            return Standing.OPEN, None
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


def _mass_stale(inputs: Inputs, hosts: Mapping[HostId, HostView]) -> tuple[HostId, ...]:
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
