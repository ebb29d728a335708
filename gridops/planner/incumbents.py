"""Who stands where now, and who may stay: the parent's placement, read against the world of today.

A replica that may stay stays; nothing here looks for anything better. Each incumbent gets one verdict with its cause.
Replicas of a renamed profile are taken over under the new name, and residencies that run exactly what a profile wants
are adopted when the parent knows nothing of them (after a rebuild of the controller). Called by `planner.plan`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from gridops.base.codes import placement as codes
from gridops.base.ids import Digest, HostId, ProfileName, ReplicaId, replica_id, replica_key, split_replica
from gridops.footprint.need import Need, identity, need
from gridops.model.fleet import OnReturn
from gridops.model.intent import Where
from gridops.model.plan import Assignment, Cause, CauseKind, Launch, Seat
from gridops.model.profile import Config, Profile
from gridops.model.snapshot import Residency, ResidencyState
from gridops.planner.capacity import Claim, claim_of
from gridops.planner.eligible import Way, allowed, is_gpu_work, launch_of
from gridops.planner.world import HostView, Standing, World, clock

_RUNS = (ResidencyState.READY, ResidencyState.WARMING, ResidencyState.LOADING)


class Verdict(IntEnum):
    """What becomes of an incumbent, best first."""

    STAY = 0
    CHANGE = 1
    """Stays where it is, but its command has changed."""
    LEAVE = 2
    """Shall stand elsewhere; until it does, it stays."""
    RELEASE = 3
    """Its host is no longer ours to use: it is gone already."""


@dataclass(frozen=True, slots=True)
class Incumbent:
    """A replica of the parent (or an adopted residency) with what is to become of it."""

    assignment: Assignment
    launch: Launch
    former: ReplicaId
    """Its id in the parent and on the host; differs from the assignment's only when the profile was renamed."""
    verdict: Verdict = Verdict.STAY
    cause: Cause | None = None
    """Why it cannot simply stay."""
    pinned: bool = False
    runs: bool = True
    """A live process of it is there (or nobody can say that it is not)."""
    ready: bool = False
    stuck: bool = False
    """Nobody can vouch for its process: its memory is held whatever is planned."""
    adopted: bool = False
    here_again: bool = False
    """Leaves its devices, not its host."""
    back_to: HostId | None = None
    """The only host it would leave for: its owner's, where it ran before."""

    @property
    def replica(self) -> ReplicaId:
        return self.assignment.replica

    @property
    def host(self) -> HostId:
        return self.assignment.seat.host

    @property
    def claim(self) -> Claim:
        a = self.assignment
        return Claim(
            a.replica, a.profile, a.seat.devices, a.device_bytes, a.host_bytes, is_gpu_work(self.launch.backend)
        )


def gather(world: World) -> tuple[Incumbent, ...]:
    """Every incumbent of the scope with its verdict, by profile and number."""
    names = renames(world)
    found = [*_of_parent(world, names)]
    taken = {i.replica for i in found} | {i.former for i in found}
    found += _adopted(world, taken)
    judged = (_judge(world, i) for i in found)
    return tuple(sorted(judged, key=lambda i: (i.assignment.profile, replica_key(i.replica))))


def renames(world: World) -> dict[ProfileName, ProfileName]:
    """Old name to new name, for profiles that are gone under the old one and had replicas."""
    parent = world.inputs.parent
    known = {a.profile for a in parent.placement} if parent is not None else set()
    return {
        p.renamed_from: p.name
        for p in world.profiles.values()
        if p.renamed_from is not None
        and p.renamed_from in known
        and p.renamed_from not in world.profiles
        and p.name not in known
    }


def current_config(profile: Profile, launch: Launch) -> Config | None:
    """The config that a running launch still is: the same process, whatever its name and source."""
    process = _process(launch)
    return next(
        (
            c
            for c in profile.configs
            if launch.backend in c.backends and _process(launch_of(profile, c, launch.backend)) == process
        ),
        None,
    )


def mark(world: World, *paths: str) -> str | None:
    """Where something stands in the files, as text."""
    where: Where | None = world.inputs.intent.where(*paths)
    return str(where) if where is not None else None


def _process(launch: Launch) -> Launch:
    artifact = replace(launch.artifact, source=None, credential=None)
    return replace(launch, profile=ProfileName(""), config="", artifact=artifact)  # type: ignore[arg-type]


def _of_parent(world: World, names: Mapping[ProfileName, ProfileName]) -> Iterable[Incumbent]:
    parent = world.inputs.parent
    if parent is None:
        return
    launches = {identity(launch): launch for launch in parent.launches}
    for a in parent.placement:
        name = names.get(a.profile, a.profile)
        replica = replica_id(name, split_replica(a.replica)[1])
        assignment = replace(a, replica=replica, profile=name)
        residency = _residency(world.hosts.get(a.seat.host), _names(world, replica, a.replica), a.launch)
        yield Incumbent(
            assignment,
            launches[a.launch],
            former=a.replica,
            pinned=_pinned(world, name, a.seat.host),
            runs=residency is not None or _nobody_can_say(world, a.seat.host),
            ready=residency is not None and residency.state is ResidencyState.READY,
            stuck=residency is not None and residency.state is ResidencyState.UNKNOWN,
        )


def _names(world: World, replica: ReplicaId, former: ReplicaId) -> tuple[ReplicaId, ...]:
    """What a host may call the replica: until it has taken the new label, a renamed one goes by its old id."""
    name, number = split_replica(replica)
    profile = world.profiles.get(name)
    old = profile.renamed_from if profile is not None else None
    return (replica, former) if old is None or old in world.profiles else (replica, former, replica_id(old, number))


def _nobody_can_say(world: World, host: HostId) -> bool:
    view = world.hosts.get(host)
    return view is None or view.report is None or view.standing in (Standing.SILENT, Standing.LOST, Standing.RELEASED)


def _residency(view: HostView | None, replicas: tuple[ReplicaId, ...], launch: Digest) -> Residency | None:
    if view is None:
        return None
    return next((r for r in (*view.ours, *view.stuck) if r.replica in replicas and r.identity == launch), None)


def _adopted(world: World, taken: set[ReplicaId]) -> Iterable[Incumbent]:
    """Residencies that nobody's plan knows although they run exactly what a profile wants."""
    seen: dict[ReplicaId, tuple[tuple[bool, int, str], Incumbent]] = {}
    for view in world.hosts.values():
        if view.standing in (Standing.RELEASED, Standing.LOST):
            continue
        for residency in view.ours:
            found = _adopt(world, view, residency, taken)
            if found is None:
                continue
            # Of several, the one that serves, then the one that has stood longest, then the first host by name.
            key = (not found.ready, residency.since_ms or 0, view.host.id)
            if found.replica not in seen or key < seen[found.replica][0]:
                seen[found.replica] = (key, found)
    return [seen[r][1] for r in sorted(seen, key=replica_key)]


def _adopt(world: World, view: HostView, residency: Residency, taken: set[ReplicaId]) -> Incumbent | None:
    profile = world.profiles.get(residency.profile)
    replica = residency.replica
    if profile is None or replica is None or replica in taken or residency.state not in _RUNS:
        return None
    if split_replica(replica)[0] != profile.name:
        return None
    for config in profile.configs:
        wanted = need(config, world.planning)
        for backend in config.backends:
            launch = launch_of(profile, config, backend)
            if not isinstance(wanted, Need) or identity(launch) != residency.identity:
                continue
            way = Way(launch, wanted, (), is_gpu_work(backend))
            claim = claim_of(replica, profile.name, way, tuple(sorted(residency.devices)), view)
            assignment = Assignment(
                replica=replica,
                profile=profile.name,
                seat=Seat(host=view.host.id, devices=claim.devices),
                launch=identity(launch),
                device_bytes=claim.device_bytes,
                host_bytes=claim.host_bytes,
            )
            ready = residency.state is ResidencyState.READY
            pinned = _pinned(world, profile.name, view.host.id)
            return Incumbent(assignment, launch, former=replica, pinned=pinned, ready=ready, adopted=True)
    return None


def _pinned(world: World, name: ProfileName, host: HostId) -> bool:
    profile = world.profiles.get(name)
    return profile is not None and host in profile.placement.pins


def _judge(world: World, incumbent: Incumbent) -> Incumbent:
    """The verdict on one incumbent. Its profile may be gone: then only `targets` speaks about it."""
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
    config = current_config(profile, incumbent.launch)
    if config is None:
        return replace(incumbent, verdict=Verdict.CHANGE, cause=_changed(world, incumbent, profile))
    return _resized(world, incumbent, config, view)


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
    return replace(
        incumbent, verdict=Verdict.LEAVE if serves else Verdict.RELEASE, cause=cause, ready=serves, runs=serves
    )


def _serves_still(world: World, incumbent: Incumbent) -> bool:
    report = world.inputs.snapshot.host(incumbent.host)
    if report is None or clock(world.inputs) - report.observed_ms > world.planning.heartbeat.stale_after_ms:
        return False
    names = _names(world, incumbent.replica, incumbent.former)
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
    return replace(incumbent, verdict=Verdict.LEAVE, cause=cause, here_again=here_again) if cause is not None else None


def _returned(world: World, incumbent: Incumbent, profile: Profile) -> Incumbent | None:
    """A laptop is back with the older process of this replica, and its owner asked that the oldest be kept."""
    names = _names(world, incumbent.replica, incumbent.former)
    here = world.hosts[incumbent.host]
    mine = _residency(here, names, incumbent.assignment.launch)
    for view in world.hosts.values():
        absence = view.host.absence
        if view is here or absence is None or absence.on_return is not OnReturn.KEEP_OLDEST or view.closed is not None:
            continue
        for residency in view.ours:
            older = mine is None or _since(residency, late=True) < _since(mine, late=False)
            if residency.replica in names and residency.state is ResidencyState.READY and older:
                wanted = [launch_of(profile, c, b) for c in profile.configs for b in c.backends]
                if residency.identity in {identity(launch) for launch in wanted}:
                    cause = Cause(kind=CauseKind.REBALANCE, detail=f"{view.host.id} is back with its older copy")
                    return replace(incumbent, verdict=Verdict.LEAVE, cause=cause, back_to=view.host.id)
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
    residency = _residency(view, _names(world, incumbent.replica, incumbent.former), incumbent.assignment.launch)
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
    """Stays; its claim follows the footprint that is known of its config today."""
    wanted = need(config, world.planning)
    if not isinstance(wanted, Need):
        return incumbent
    way = Way(incumbent.launch, wanted, (), is_gpu_work(incumbent.launch.backend))
    claim = claim_of(incumbent.replica, incumbent.assignment.profile, way, incumbent.assignment.seat.devices, view)
    return replace(
        incumbent,
        assignment=replace(incumbent.assignment, device_bytes=claim.device_bytes, host_bytes=claim.host_bytes),
    )
