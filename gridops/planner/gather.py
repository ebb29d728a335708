"""Find every incumbent of the scope: the parent's placement, renamed where need be, and residencies nobody planned.

Replicas of a renamed profile are taken over under the new name, and residencies that run exactly what a profile wants
are adopted when the parent knows nothing of them (after a rebuild of the controller). `verdicts` says who may stay.
Called by `planner.plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gridops.base.ids import HostId, ProfileName, ReplicaId, replica_id, replica_key, split_replica
from gridops.footprint.need import identity
from gridops.model.plan import Assignment, Launch, Seat
from gridops.model.snapshot import Residency, ResidencyState
from gridops.planner.capacity import claim_of
from gridops.planner.eligible import Way, is_gpu_work, launch_of, need_at
from gridops.planner.incumbents import Incumbent, Verdict, names_of, residency_of
from gridops.planner.learned import experience_of
from gridops.planner.recall import Shelf
from gridops.planner.verdicts import judge
from gridops.planner.world import HostView, Standing, World

_RUNS = (ResidencyState.READY, ResidencyState.WARMING, ResidencyState.LOADING, ResidencyState.OFFLOADED)


def gather(world: World) -> tuple[Incumbent, ...]:
    """Every incumbent of the scope with its verdict, by profile and number."""
    names = renames(world)
    judged = _of_parent(world, names)
    # A replica whose host was taken from us may run elsewhere already: then that copy is it.
    released = {r: i for r, i in judged.items() if i.verdict is Verdict.RELEASE}
    taken = set(judged)
    taken.update([i.former for i in judged.values()])
    taken.difference_update(released)
    more = _adopted(world, taken)
    if not more and not names and _is_sorted(world):
        return tuple(judged.values())
    for adopted in more:
        before = released.get(adopted.replica)
        cause = before.cause if before is not None else None
        found = judge(world, adopted._replace(cause=cause))
        # It leaves the host that is not ours any more, whatever is wrong with the one where it runs besides.
        judged[adopted.replica] = found._replace(cause=cause, released=True) if cause is not None else found
    return tuple(sorted(judged.values(), key=lambda i: (i.assignment.profile, replica_key(i.replica))))


def _is_sorted(world: World) -> bool:
    """The parent's placement is by profile and number already."""
    parent = world.inputs.parent
    shelf: Shelf[tuple[bool]] = world.recall.shelf("in order")

    def look() -> tuple[bool]:
        keys = [(a.profile, replica_key(a.replica)) for a in parent.placement] if parent is not None else []
        return (keys == sorted(keys),)

    return shelf.of("parent", (parent,), look)[0]


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


def _of_parent(world: World, names: Mapping[ProfileName, ProfileName]) -> dict[ReplicaId, Incumbent]:
    """The parent's replicas by their new names, judged. Who stayed before stays again while nothing is new about it."""
    parent = world.inputs.parent
    if parent is None:
        return {}
    shelf: Shelf[Incumbent] = world.recall.shelf("incumbents")
    # Only what depends on its own host, profile and command is remembered.
    forget = bool(world.mass_stale or world.returning)
    launches = {world.recall.digests.of(launch): launch for launch in parent.launches}
    found: dict[ReplicaId, Incumbent] = {}
    hosts, profiles, given_up = world.hosts, world.profiles, world.given_up
    failing = experience_of(world).failing_hosts
    for a in parent.placement:
        view, profile = hosts.get(a.seat.host), profiles.get(a.profile)
        plain = view is not None and profile is not None and profile.renamed_from is None and a.replica not in given_up
        # What failed there, and what a proposal says about it, is of no report.
        plain = plain and a.seat.host not in failing and world.proposed.get(a.replica, a.seat.host) == a.seat.host
        if forget or not plain or view is None:
            judged = judge(world, _incumbent(world, a, launches[a.launch], names))
            found[judged.replica] = judged
            continue
        sources = a, launches[a.launch], profile, view.traits
        known = shelf.get(a.replica, sources)
        if known is None:
            known = judge(world, _incumbent(world, a, launches[a.launch], names))
            if known.verdict is Verdict.STAY and known.cause is None:
                shelf.put(a.replica, sources, known)
        found[a.replica] = known
    return found


def _incumbent(world: World, a: Assignment, launch: Launch, names: Mapping[ProfileName, ProfileName]) -> Incumbent:
    name, replica, assignment = a.profile, a.replica, a
    if name in names:
        name = names[name]
        replica = replica_id(name, split_replica(a.replica)[1])
        assignment = replace(a, replica=replica, profile=name)
    residency = residency_of(world.hosts.get(a.seat.host), names_of(world, replica, a.replica), a.launch)
    if residency is not None and (residency.device_bytes > a.device_bytes or residency.host_bytes > a.host_bytes):
        # Its host counts it as it was started, and would refuse whoever is sent for the rest.
        device, beside = max(a.device_bytes, residency.device_bytes), max(a.host_bytes, residency.host_bytes)
        assignment = replace(assignment, device_bytes=device, host_bytes=beside)
    return Incumbent(
        assignment,
        launch,
        former=a.replica,
        pinned=_pinned(world, name, a.seat.host),
        runs=residency is not None or _nobody_can_say(world, a.seat.host),
        ready=residency is not None and residency.state is ResidencyState.READY,
        stuck=residency is not None and residency.state is ResidencyState.UNKNOWN,
        again=world.given_up.get(a.replica),
    )


def _nobody_can_say(world: World, host: HostId) -> bool:
    view = world.hosts.get(host)
    return view is None or view.report is None or view.standing in (Standing.SILENT, Standing.LOST, Standing.RELEASED)


def _adopted(world: World, taken: set[ReplicaId]) -> list[Incumbent]:
    """Residencies that nobody's plan knows although they run exactly what a profile wants."""
    seen: dict[ReplicaId, tuple[tuple[bool, int, str], Incumbent]] = {}
    for view in world.hosts.values():
        if view.standing in (Standing.RELEASED, Standing.LOST):
            continue
        for residency in view.ours:
            if residency.replica in taken:
                continue
            found = _adopt(world, view, residency)
            if found is None:
                continue
            # Of several, the one that serves, then the one that has stood longest, then the first host by name.
            key = (not found.ready, residency.since_ms or 0, view.host.id)
            if found.replica not in seen or key < seen[found.replica][0]:
                seen[found.replica] = (key, found)
    return [seen[r][1] for r in sorted(seen, key=replica_key)]


def _adopt(world: World, view: HostView, residency: Residency) -> Incumbent | None:
    profile = world.profiles.get(residency.profile)
    replica = residency.replica
    if profile is None or replica is None or residency.state not in _RUNS:
        return None
    if split_replica(replica)[0] != profile.name:
        return None
    for config in profile.configs:
        for backend in config.backends:
            launch = launch_of(profile, config, backend)
            if identity(launch) != residency.identity:
                continue
            wanted = need_at(config, world.planning, view, backend, residency.devices)
            if wanted is None:
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
