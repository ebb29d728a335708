"""What becomes of each incumbent: it stays, changes where it is, leaves, or is gone already with its host.

A replica that may stay stays; nothing here looks for anything better. Each verdict other than STAY carries its cause.
Called by `gather` for each incumbent; `draft.begin` adds those that no longer fit beside others.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base.codes import placement as codes
from gridops.footprint.need import identity
from gridops.footprint.share import takes_share
from gridops.model.plan import Cause, CauseKind
from gridops.model.profile import Config, Profile
from gridops.model.snapshot import Residency, ResidencyState
from gridops.planner.capacity import claim_of
from gridops.planner.eligible import Way, allowed, is_gpu_work, launch_of, need_at
from gridops.planner.failing import never_up
from gridops.planner.incumbents import Incumbent, Verdict, current_config, mark, names_of, residency_of
from gridops.planner.recall import Shelf
from gridops.planner.world import HostView, Standing, World, clock


def judge(world: World, incumbent: Incumbent) -> Incumbent:
    """The verdict on one incumbent. Its profile may be gone: then only `targets` speaks about it."""
    judged = _judge(world, incumbent)
    return judged if judged.again is None or _may_start(world, judged) else judged._replace(again=None)


def _may_start(world: World, incumbent: Incumbent) -> bool:
    """Whether what was given up may be started on its seat again: nothing of it serves, and it could stand there."""
    view, profile = world.hosts.get(incumbent.host), world.profiles.get(incumbent.assignment.profile)
    if view is None or view.closed is not None or profile is None or incumbent.verdict > Verdict.LEAVE:
        return False
    names = names_of(world, incumbent.replica, incumbent.former)
    here = [r for r in (*view.ours, *view.stuck) if r.replica in names and r.identity == incumbent.assignment.launch]
    known = {r.id for r in view.rooms}
    return (
        all(r.state in (ResidencyState.FAILED, ResidencyState.DRAINING) for r in here)
        and allowed(profile, view, world.planning) is None
        and _may_run(incumbent, view)
        and (world.signed is None or world.signed.seat(incumbent.assignment, incumbent.launch) is None)
        and current_config(profile, incumbent.launch) is not None
        and all(device in known for device in incumbent.assignment.seat.devices)
    )


def _judge(world: World, incumbent: Incumbent) -> Incumbent:
    profile = world.profiles.get(incumbent.assignment.profile)
    if profile is None or world.mass_stale:
        return incumbent
    view = world.hosts.get(incumbent.host)
    if view is None or view.standing is Standing.RELEASED:
        return _released(world, incumbent, view)
    left = _must_leave(world, incumbent, profile, view)
    if left is not None:
        return left
    if (returned := _returned(world, incumbent, profile)) is not None:
        return returned
    config = _current(world, profile, incumbent)
    if config is None:
        return incumbent._replace(verdict=Verdict.CHANGE, cause=_changed(world, incumbent, profile))
    resized = _resized(world, incumbent, config, view)
    return never_up(world, resized, profile, config) or resized


def _current(world: World, profile: Profile, incumbent: Incumbent) -> Config | None:
    """`current_config`, asked once for all replicas of a profile that run the same."""
    shelf: Shelf[Config] = world.recall.shelf("configs")
    launch, name = incumbent.launch, (profile.name, incumbent.assignment.launch)
    found = shelf.get(name, (profile, launch))
    if found is None:
        found = current_config(profile, launch)
    return found if found is None else shelf.put(name, (profile, launch), found)


def _released(world: World, incumbent: Incumbent, view: HostView | None) -> Incumbent:
    """Its host left our hands. What demonstrably still serves there is not dropped before it serves elsewhere."""
    host = incumbent.host
    if view is None:
        cause = Cause(kind=CauseKind.INTENT, detail=f"host {host} is no longer declared")
    else:
        assert view.closed is not None
        kind = CauseKind.HOST_LOST if view.closed.code == codes.NOT_ADMITTED.code else CauseKind.INTENT
        cause = Cause(
            kind=kind, detail=f"{host}: {view.closed.detail}", at=mark(world, f"keys/{host}", f"hosts/{host}")
        )
    expunged = any(k.host == host and k.expunged for k in world.inputs.intent.desired.keys)
    serves = not expunged and _serves_still(world, incumbent)
    return incumbent._replace(
        verdict=Verdict.LEAVE if serves else Verdict.RELEASE, cause=cause, ready=serves, runs=serves
    )


def _serves_still(world: World, incumbent: Incumbent) -> bool:
    report = world.inputs.snapshot.host(incumbent.host)
    if report is None or clock(world.inputs) - report.observed_ms > world.planning.heartbeat.stale_after_ms:
        return False
    names = names_of(world, incumbent.replica, incumbent.former)
    return any(r.replica in names and r.state is ResidencyState.READY for r in report.residencies)


def _must_leave(world: World, incumbent: Incumbent, profile: Profile, view: HostView) -> Incumbent | None:
    """The verdict LEAVE with its cause, or None. A pin holds a replica on its host whatever the host's standing."""
    host = view.host.id
    cause: Cause | None = None
    here_again = False
    if not incumbent.pinned:
        cause = _bad_standing(world, incumbent, view)
    if cause is None and (line := allowed(profile, view, world.planning)) is not None:
        at = mark(world, f"profiles/{profile.name}/placement", f"profiles/{profile.name}")
        cause = Cause(kind=CauseKind.POLICY, detail=f"{host}: {line.detail}", at=at)
    if cause is None and not _may_run(incumbent, view):
        detail = f"{host} no longer declares {incumbent.launch.engine} for {incumbent.launch.backend}"
        cause = Cause(kind=CauseKind.POLICY, detail=detail, at=mark(world, f"hosts/{host}/runtimes", f"hosts/{host}"))
    known = {r.id for r in view.rooms}
    gone = [d for d in incumbent.assignment.seat.devices if d not in known]
    if (
        cause is None
        and gone
        and (view.report is not None or world.hypothetical)
        and view.standing is not Standing.SILENT
    ):
        cause, here_again = Cause(kind=CauseKind.UNHEALTHY, detail=f"{host} has no {gone[0]} any more"), True
    return incumbent._replace(verdict=Verdict.LEAVE, cause=cause, here_again=here_again) if cause is not None else None


def _returned(world: World, incumbent: Incumbent, profile: Profile) -> Incumbent | None:
    """A laptop is back with the older process of this replica, and its owner asked that the oldest be kept."""
    names = names_of(world, incumbent.replica, incumbent.former)
    here = world.hosts[incumbent.host]
    mine = residency_of(here, names, incumbent.assignment.launch)
    for view in world.returning:
        if view is here:
            continue
        for residency in view.ours:
            older = mine is None or _since(residency, late=True) < _since(mine, late=False)
            if residency.replica in names and residency.state is ResidencyState.READY and older:
                wanted = [launch_of(profile, c, b) for c in profile.configs for b in c.backends]
                if residency.identity in {identity(launch) for launch in wanted}:
                    cause = Cause(kind=CauseKind.REBALANCE, detail=f"{view.host.id} is back with its older copy")
                    return incumbent._replace(verdict=Verdict.LEAVE, cause=cause, only_to=view.host.id)
    return None


def _since(residency: Residency, *, late: bool) -> int:
    """When it became what it is; where nobody knows, the moment that speaks against a move."""
    if residency.since_ms is not None:
        return residency.since_ms
    return 2**53 if late else 0


def _bad_standing(world: World, incumbent: Incumbent, view: HostView) -> Cause | None:
    host = view.host.id
    if view.standing is Standing.DRAINING:
        reason = view.drain.reason if view.drain is not None else "host drains itself"
        return Cause(kind=CauseKind.DRAIN, detail=reason, at=mark(world, f"drains/{host}"))
    if view.standing is Standing.LOST:
        return Cause(kind=CauseKind.HOST_LOST, detail=f"{host}: {view.closed.detail if view.closed else 'lost'}")
    if view.standing is Standing.NOT_SERVING:
        return Cause(kind=CauseKind.UNHEALTHY, detail=f"{host}: {view.closed.detail if view.closed else 'not serving'}")
    residency = residency_of(view, names_of(world, incumbent.replica, incumbent.former), incumbent.assignment.launch)
    if residency is not None and residency.state is ResidencyState.FAILED:
        return Cause(kind=CauseKind.UNHEALTHY, detail=f"failed on {host}: {residency.detail or 'no reason given'}")
    return None


def _may_run(incumbent: Incumbent, view: HostView) -> bool:
    """Declared runtimes are a promise of the operator; what a report lacks for a moment moves nothing that runs."""
    launch = incumbent.launch
    declared = view.host.runtimes
    return not declared or any(r.engine == launch.engine and r.backend == launch.backend for r in declared)


def _changed(world: World, incumbent: Incumbent, profile: Profile) -> Cause:
    name = incumbent.launch.config
    at = mark(world, f"profiles/{profile.name}/configs/{name}", f"profiles/{profile.name}")
    return Cause(kind=CauseKind.INTENT, detail=f"config {name} changed", at=at)


def _resized(world: World, incumbent: Incumbent, config: Config, view: HostView) -> Incumbent:
    """Stays; its claim follows the footprint that is known of its config today, but never below what it was started
    with: memory is free when a host counts it as free, which is when the process ends."""
    launch, devices = incumbent.launch, incumbent.assignment.seat.devices
    wanted = need_at(config, world.planning, view, launch.backend, devices)
    if wanted is None:
        return incumbent
    way = Way(incumbent.launch, wanted, (), is_gpu_work(incumbent.launch.backend))
    was = incumbent.assignment
    claim = claim_of(incumbent.replica, was.profile, way, was.seat.devices, view)
    device, beside = claim.device_bytes, claim.host_bytes
    process = residency_of(view, names_of(world, incumbent.replica, incumbent.former), was.launch)
    if process is not None:
        device, beside = max(device, process.device_bytes), max(beside, process.host_bytes)
    elif takes_share(incumbent.launch.engine, incumbent.launch.backend):
        device = max(device, was.device_bytes)  # it was told its share when it started, and gives nothing back
    if (was.device_bytes, was.host_bytes) == (device, beside):
        return incumbent
    return incumbent._replace(assignment=replace(was, device_bytes=device, host_bytes=beside))
