"""What `actions` sees: the target beside what runs now, host by host, and the memory that is really free.

Made once per pass. Matches each assignment with the process that already is what it asks for; whatever else of ours
runs on a reachable host is obsolete. The live sum here is the second ledger: processes that are there, not plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gridops.base.ids import DeviceId, Digest, HostId, ProfileName, ReplicaId, replica_key
from gridops.base.units import counted
from gridops.footprint.ledger import DeviceRoom, ram_of, rooms
from gridops.footprint.need import identity
from gridops.model.action import Action
from gridops.model.fleet import Device, Host, OnReturn
from gridops.model.intent import Desired
from gridops.model.plan import Assignment, Launch, Plan, Terms
from gridops.model.policy import ActionClass, Heartbeat
from gridops.model.profile import Profile
from gridops.model.snapshot import (
    LIVE_STATES,
    HostReport,
    HostState,
    Ownership,
    Residency,
    ResidencyState,
    Snapshot,
)
from gridops.planner.company import conflict

_COMING = (ResidencyState.READY, ResidencyState.WARMING, ResidencyState.LOADING, ResidencyState.OFFLOADED)
"""What serves or will by itself: a host loads what it has offloaded again once it is itself, and needs no command."""


@dataclass(slots=True)
class Scene:
    target: Plan
    launches: Mapping[Digest, Launch]
    terms: Mapping[ProfileName, Terms]
    assignments: Mapping[ReplicaId, Assignment]
    reports: Mapping[HostId, HostReport]
    """Hosts that can be given steps: fresh and admitted."""
    open: frozenset[HostId]
    """Of these, the ones that may start something."""
    serving_hosts: frozenset[HostId]
    """Of these, the ones whose ready processes serve."""
    hosts: Mapping[HostId, Host]
    profiles: Mapping[ProfileName, Profile]
    headroom_ppm: int
    aliases: Mapping[ProfileName, ProfileName]
    """Former name to present name, of profiles that were renamed."""
    classes: Mapping[ReplicaId, ActionClass]
    """Of each replica that the target decides something of, the class of the first such decision."""
    adopted: dict[ReplicaId, Residency] = field(default_factory=dict)
    """Assignments that a process on their seat fulfils, or is about to."""
    _standing: set[int] = field(default_factory=set)
    """Of `adopted`, the ids of the processes: each process of each host is looked for here."""
    _reserved: dict[tuple[HostId, DeviceId], int] = field(default_factory=dict)
    _reserved_gpu: dict[tuple[HostId, DeviceId], int] = field(default_factory=dict)
    _starting: dict[HostId, int] = field(default_factory=dict)

    def assignment(self, replica: ReplicaId | None) -> Assignment | None:
        return self.assignments.get(replica) if replica is not None else None

    def adopt(self, replica: ReplicaId, process: Residency) -> None:
        """This process is the assignment's."""
        self.adopted[replica] = process
        self._standing.add(id(process))

    def now_called(self, replica: ReplicaId) -> ReplicaId:
        """A replica by its present name: hosts keep the old one until they have taken the new label."""
        profile, _, number = replica.rpartition("/")
        name = self.aliases.get(ProfileName(profile))
        return replica if name is None else ReplicaId(f"{name}/{number}")

    def wanted(self, profile: ProfileName) -> tuple[ReplicaId, ...]:
        """Replicas of a profile that the target has, by number."""
        return tuple(a.replica for a in self.target.placement if a.profile == profile)

    def terms_of(self, profile: ProfileName) -> Terms:
        """Terms of a profile; the defaults for one that no plan has known (an old residency after a rebuild)."""
        found = self.terms.get(self.aliases.get(profile, profile))
        return found if found is not None else Terms(profile=profile, serves=(profile,), replicas_min=0, priority=0)

    def priority(self, profile: ProfileName) -> int:
        return self.terms_of(profile).priority

    def profile_of(self, replica: ReplicaId) -> ProfileName:
        return ProfileName(replica.rpartition("/")[0])

    def managed(self, host: HostId) -> tuple[Residency, ...]:
        report = self.reports[host]
        return tuple(r for r in report.residencies if r.ownership is Ownership.MANAGED and r.state in LIVE_STATES)

    def obsolete(self) -> Iterator[tuple[HostId, Residency]]:
        """Processes of ours that the target does not want where they are, by host and replica."""
        for host in sorted(self.reports):
            yield from ((host, r) for r in self.leaving(host))

    def leaving(self, host: HostId) -> list[Residency]:
        left = [r for r in self.managed(host) if id(r) not in self._standing and r.replica is not None]
        return sorted(left, key=lambda r: (replica_key(r.replica or ""), r.incarnation or ""))

    def yields(self, host: HostId, residency: Residency) -> bool:
        """Its host gave its memory back to an owner who is still there: it may come back at any moment."""
        return residency.state is ResidencyState.OFFLOADED and host not in self.open

    def kept_for_its_owner(self, host: HostId, residency: Residency) -> bool:
        """The owner of its host wants the oldest copy kept, so it is still there when he goes."""
        declared = self.hosts.get(host)
        absence = declared.absence if declared is not None else None
        keeps = absence is not None and absence.on_return is OnReturn.KEEP_OLDEST
        return keeps and self.yields(host, residency) and bool(self.wanted(residency.profile))

    def serving(self) -> dict[ReplicaId, set[Digest]]:
        """Incarnations that serve now, by the replica they serve as."""
        found: dict[ReplicaId, set[Digest]] = {}
        for host in sorted(self.serving_hosts):
            for r in self.managed(host):
                if r.state is ResidencyState.READY and r.replica is not None and r.incarnation is not None:
                    found.setdefault(self.now_called(r.replica), set()).add(r.incarnation)
        return found

    def same_process(self, a: Assignment) -> Residency | None:
        """A process on the seat with the same command that is not on its way up: draining, failed or unknown."""
        return next((r for r in self.managed(a.seat.host) if _is(self, r, a) and r.state not in _COMING), None)

    def no_room(self, a: Assignment) -> str | None:
        """Why a process cannot start now: memory, slots or company of what still runs. None: it can."""
        host, report = a.seat.host, self.reports[a.seat.host]
        found = self.rooms(host)
        ram = ram_of(tuple(found.values()))
        parts = dict.fromkeys(a.seat.devices, a.device_bytes)
        if a.host_bytes and ram is not None:
            parts[ram.id] = parts.get(ram.id, 0) + a.host_bytes
        others = self.leaving(host)
        for device in sorted(parts):
            if device not in found:
                return f"{device}, which the host does not report"
            room = found[device]
            # While something leaves, two generations share the device, and the headroom is theirs to keep free.
            free = (room.open_bytes if others else room.raw_bytes) - self._taken(host, device, ram)
            if room.gpu_bytes is not None and self._is_gpu_work(a.launch):
                free = min(free, room.gpu_bytes - self._gpu_taken(host, device))
            if parts[device] > free:
                blocking = ", ".join(f"{r.replica} ({r.state.value})" for r in others) or "others"
                return f"memory on {device}, held by {blocking}"
        return self._crowded(a, report, others)

    def reserve(self, a: Assignment) -> None:
        """The start is on its way: count it for the rest of the pass."""
        ram = ram_of(tuple(self.rooms(a.seat.host).values()))
        for device in a.seat.devices:
            self._add(a.seat.host, device, a.device_bytes)
            if self._is_gpu_work(a.launch):
                key = a.seat.host, device
                self._reserved_gpu[key] = self._reserved_gpu.get(key, 0) + a.device_bytes
        if ram is not None:
            self._add(a.seat.host, ram.id, a.host_bytes)
        self._starting[a.seat.host] = self._starting.get(a.seat.host, 0) + 1

    def rooms(self, host: HostId) -> dict[DeviceId, DeviceRoom]:
        """Rooms of a host; one that nobody declares is taken by what it reports."""
        report = self.reports[host]
        declared = self.hosts.get(host)
        if declared is None:
            devices = tuple(Device(id=d.id, kind=d.kind, memory_bytes=d.total_bytes) for d in report.devices)
            declared = Host(id=host, scope=self.target.scope, devices=devices)
        return {r.id: r for r in rooms(declared, report, self.headroom_ppm)}

    def class_of(self, action: Action, replica: ReplicaId) -> ActionClass:
        """The class of the decision behind a step; keeping a target that stands is repair."""
        if (decided := self.classes.get(replica)) is not None:
            return decided
        if action.kind in ("load", "warm") or replica in self.assignments:
            return ActionClass.REPAIR
        retired = any(r.profile == action.profile for r in self.target.retirements)
        return ActionClass.REMOVE if retired or not self.wanted(action.profile) else ActionClass.SCALE_DOWN

    def _taken(self, host: HostId, device: DeviceId, ram: DeviceRoom | None) -> int:
        total = self._reserved.get((host, device), 0)
        for r in self.managed(host):
            total += r.device_bytes if device in r.devices else 0
            total += r.host_bytes if ram is not None and device == ram.id else 0
        return total

    def _gpu_taken(self, host: HostId, device: DeviceId) -> int:
        """GPU work on shared memory. What no launch of the target is known to be counts as GPU work."""
        live = (r for r in self.managed(host) if device in r.devices and self._is_gpu_work(r.identity))
        return self._reserved_gpu.get((host, device), 0) + sum(r.device_bytes for r in live)

    def _is_gpu_work(self, launch: Digest | None) -> bool:
        known = None if launch is None else self.launches.get(launch)
        return known is None or known.backend != "cpu"

    def _crowded(self, a: Assignment, report: HostReport, others: Sequence[Residency]) -> str | None:
        declared, profile = self.hosts.get(a.seat.host), self.profiles.get(a.profile)
        live = sum(1 for r in report.residencies if r.state in LIVE_STATES) + self._starting.get(a.seat.host, 0)
        if declared is not None and declared.max_replicas is not None and live >= declared.max_replicas:
            return f"a slot: {live} of at most {counted(declared.max_replicas, 'residency', 'residencies')} there"
        if profile is not None and (found := conflict(profile, [r.profile for r in others], self.profiles)) is not None:
            return f"other company: {found.detail}"
        return None

    def _add(self, host: HostId, device: DeviceId, amount: int) -> None:
        self._reserved[host, device] = self._reserved.get((host, device), 0) + amount


def set_scene(target: Plan, snapshot: Snapshot, now_ms: int, desired: Desired | None) -> Scene:
    """Match the target with what runs on the hosts that can be reached."""
    beat = desired.planning.heartbeat if desired is not None else Heartbeat()
    admitted = {k.host for k in desired.keys if not k.expunged} if desired is not None else None
    drains = desired.drains if desired is not None else ()
    drained = {d.host for d in drains if d.until_ms is None or d.until_ms > now_ms}
    reports = {
        r.host: r
        for r in snapshot.hosts
        if not r.goodbye
        and -beat.future_skew_ms <= now_ms - r.observed_ms <= beat.stale_after_ms
        and (admitted is None or r.host in admitted)
    }
    named = {t.profile for t in target.terms}
    able = frozenset(h for h, r in reports.items() if r.state in (HostState.ACCEPTING, HostState.THROTTLED))
    scene = Scene(
        target=target,
        launches={identity(launch): launch for launch in target.launches},
        terms={t.profile: t for t in target.terms},
        assignments={a.replica: a for a in target.placement},
        reports=reports,
        open=able - drained,
        serving_hosts=able | frozenset(h for h, r in reports.items() if r.state is HostState.DRAINING),
        hosts={h.id: h for h in desired.hosts} if desired is not None else {},
        profiles={p.name: p for p in desired.profiles} if desired is not None else {},
        headroom_ppm=desired.planning.headroom.memory_ppm if desired is not None else 0,
        aliases={
            t.renamed_from: t.profile
            for t in target.terms
            if t.renamed_from is not None and t.renamed_from not in named
        },
        classes={d.replica: d.action_class for d in reversed(target.to_do)},
    )
    for a in target.placement:
        if (found := _fulfils(scene, a)) is not None:
            scene.adopt(a.replica, found)
    return scene


def unseen(target: Plan, snapshot: Snapshot, now_ms: int, desired: Desired) -> tuple[ReplicaId, ...]:
    """Replicas of a plan that no host reports at their seat: on their way, unable to get there, or not heard of."""
    there = set_scene(target, snapshot, now_ms, desired).adopted
    return tuple(a.replica for a in target.placement if a.replica not in there)


def _fulfils(scene: Scene, a: Assignment) -> Residency | None:
    """The process that is what the assignment asks for, under its own name or a former one."""
    if a.seat.host not in scene.reports:
        return None
    coming = [r for r in scene.managed(a.seat.host) if r.state in _COMING and _is(scene, r, a)]
    return min(coming, key=lambda r: (_COMING.index(r.state), r.incarnation or "")) if coming else None


def _is(scene: Scene, r: Residency, a: Assignment) -> bool:
    return r.replica is not None and scene.now_called(r.replica) == a.replica and _on_seat(r, a)


def _on_seat(r: Residency, a: Assignment) -> bool:
    return r.identity == a.launch and tuple(sorted(r.devices)) == a.seat.devices
