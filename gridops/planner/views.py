"""From intent and snapshot to the world: every declared host as it is seen now, and the profiles of the scope.

`look` is the planner's first step. A host of which nothing is new but the time of its report keeps the view that it
had in the last plan (`recall`), so that whatever was made from it holds on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from gridops.base.ids import short
from gridops.base.units import PPM
from gridops.footprint.ledger import ram_of, rooms
from gridops.model.catalog import Catalog
from gridops.model.fleet import Drain, Host, OnReturn, Runtime
from gridops.model.measured import Measured
from gridops.model.plan import DecisionKind, HostLine
from gridops.model.profile import Profile
from gridops.model.snapshot import (
    LIVE_STATES,
    HostReport,
    Ownership,
    ResidencyState,
    SnapshotSource,
)
from gridops.planner.diff import ends_stray
from gridops.planner.recall import Recall, Shelf
from gridops.planner.signed import Signed
from gridops.planner.standing import Known, mass_stale, standing_of, throttled_ppm
from gridops.planner.world import GivenUp, HostView, Inputs, Standing, Stray, World

Shared = Mapping[tuple[str | None, int], tuple[Measured, ...]]
"""By a card's model and memory."""
AtHand = tuple[Shelf[HostView], Shared, Signed | None]


def look(inputs: Inputs, recall: Recall | None = None) -> World:
    """Intent and snapshot as one picture. `recall`: what is known from planning the scope before, if anything is."""
    desired = inputs.intent.desired
    recall = Recall() if recall is None else recall
    declared = inputs.snapshot.source is SnapshotSource.DECLARED
    recall.begin((inputs.scope, desired.planning, desired.protection, declared, desired.catalog))
    signed = _signed(desired.catalog, recall)
    look_up = Known(
        reports={r.host: r for r in inputs.snapshot.hosts},
        keys={k.host: k for k in desired.keys},
        drains={d.host: d for d in desired.drains if d.until_ms is None or d.until_ms > inputs.now_ms},
    )
    views: Shelf[HostView] = recall.shelf("views")
    at_hand = views, _on_cards(inputs), signed
    hosts = {h.id: _view(h, inputs, look_up, at_hand) for h in sorted(desired.hosts, key=lambda h: h.id)}
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
        mass_stale=mass_stale(inputs, hosts),
        signed=signed,
        recall=recall,
    )


def _signed(catalog: Catalog | None, recall: Recall) -> Signed | None:
    """The catalog with what was asked of it before."""
    if catalog is None:
        return None
    shelf: Shelf[Signed] = recall.shelf("signed")
    return shelf.of("catalog", (), lambda: Signed(catalog))


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


def strays(inputs: Inputs) -> tuple[Stray, ...]:
    """What runs beside the parent; who does not know asks again what the proposal asks, of what is still there."""
    if inputs.strays is not None or inputs.waiting is None:
        return inputs.strays or ()
    there = {f"{h.host} {short(r.incarnation)}" for h in inputs.snapshot.hosts for r in h.residencies if r.incarnation}
    return tuple(
        Stray(d.replica, d.profile, d.source, d.cause, d.changes)
        for d in inputs.waiting.to_do
        if d.source is not None and ends_stray(d) and all(c.old in there for c in d.changes)
    )


def _on_cards(inputs: Inputs) -> Shared:
    """What was measured on cards, by what they are: the same card elsewhere is the same hardware."""
    found: dict[tuple[str | None, int], list[Measured]] = {}
    for report in inputs.snapshot.hosts:
        for one in report.measured or ():
            if one.device is not None:
                found.setdefault((one.device, one.total_bytes), []).append(one)
    return {key: tuple(sorted(rows, key=lambda m: m.evidence)) for key, rows in found.items()}


def _measured(report: HostReport | None, shared: Shared) -> tuple[Measured, ...]:
    """What holds on a host: its own measurements, and those of others on cards that it has too."""
    if report is None or not (report.measured or shared):
        return ()
    found = {m.evidence: m for m in report.measured or ()}
    for device in report.devices:
        found |= {m.evidence: m for m in shared.get((device.model, device.total_bytes), ())}
    return tuple(found[e] for e in sorted(found))


def _view(host: Host, inputs: Inputs, known: Known, at_hand: AtHand) -> HostView:
    views, shared, signed = at_hand
    report = None if inputs.snapshot.source is SnapshotSource.DECLARED else known.reports.get(host.id)
    standing, closed = standing_of(host, report, inputs, known)
    drain, last = known.drains.get(host.id), views.last(host.id)
    measured = _measured(report, shared)
    like = last is not None and last.standing is standing and last.closed == closed and last.measured == measured
    if last is not None and like and _same(last.host, host) and _same(last.drain, drain):
        if last.report is report:
            return views.put(host.id, (), last)
        if last.report is not None and report is not None and _only_later(last.report, report):
            return views.put(host.id, (), replace(last, report=report))
    return views.put(host.id, (), _new_view(host, report, inputs, _Found(standing, closed, drain, measured, signed)))


class _Found(NamedTuple):
    standing: Standing
    closed: HostLine | None
    drain: Drain | None
    measured: tuple[Measured, ...]
    signed: Signed | None


def _same(old: object, new: object) -> bool:
    return old is new or old == new


def _only_later(old: HostReport, new: HostReport) -> bool:
    """A heartbeat that tells nothing new."""
    return old == replace(new, observed_ms=old.observed_ms)


def _new_view(host: Host, report: HostReport | None, inputs: Inputs, is_: _Found) -> HostView:
    declared = inputs.snapshot.source is SnapshotSource.DECLARED
    found = rooms(host, report, inputs.intent.desired.planning.headroom.memory_ppm)
    if is_.standing is Standing.THROTTLED:
        share = throttled_ppm(host, report, inputs.intent.desired.protection)
        closed = {r.id: r.raw_bytes - r.raw_bytes * share // PPM for r in found}
        found = tuple(replace(r, headroom_bytes=max(r.headroom_bytes, closed[r.id])) for r in found)
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
        measured=is_.measured,
        signed=is_.signed,
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


def _keeps_oldest(host: Host) -> bool:
    return host.absence is not None and host.absence.on_return is OnReturn.KEEP_OLDEST
