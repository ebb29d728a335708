"""An instance as the planner's inputs, and the planner's answer as a placement of the instance.

One device per host and no headroom, so that the memory rule is the same; slots are `max_replicas`, domains are racks,
weights are priorities, and the disk rate is the download link's, so that start-up seconds are the same. What runs is
ready and in the parent plan. Uses the public door only: `gridops.planner.planner.plan`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bench.yard.instance import FIXED_START_S, Instance, Pair
from gridops.base.ids import (
    CommitId,
    ConfigName,
    DeviceId,
    Digest,
    EngineName,
    HostId,
    PlanId,
    ProfileName,
    ReplicaId,
    ScopeName,
)
from gridops.footprint.need import identity
from gridops.model.fleet import Device, DeviceKind, Domain, Drain, Host, HostKey, Link, Runtime
from gridops.model.intent import Desired, Intent
from gridops.model.plan import Assignment, IntentRef, Launch, Plan, PlannerRef, ReadSet, Seat, SnapshotRef, Terms
from gridops.model.policy import BudgetPolicy, Headroom, MoveLimits, PlanningPolicy, ScopeBudgets
from gridops.model.profile import (
    Artifact,
    ArtifactFile,
    Colocation,
    Config,
    Footprint,
    FootprintSource,
    PlacementRules,
    Profile,
    Spread,
    Timing,
)
from gridops.model.snapshot import DeviceReport, HostReport, Residency, ResidencyState, Snapshot, SnapshotSource
from gridops.planner.planner import Inputs

MB = 1 << 20
NOW = 1_796_000_000_000
SCOPE = ScopeName("default")
DEVICE = DeviceId("gpu0")
BACKEND = "cuda"
FREE_MOVES = MoveLimits(per_plan=1_000_000, per_hour=1_000_000)
"""The model moves as it likes; a limit on moves would be measured instead of the search."""


def digest(text: str) -> Digest:
    return Digest("sha256:" + hashlib.sha256(text.encode()).hexdigest())


def host_name(number: int) -> HostId:
    return HostId(f"h{number:04d}")


def profile_name(number: int) -> ProfileName:
    return ProfileName(f"m{number:03d}")


@dataclass(frozen=True)
class Question:
    """An instance with the inputs it became."""

    given: Instance
    inputs: Inputs

    def placed(self, plan: Plan) -> frozenset[Pair]:
        """Where the plan's replicas stand, as pairs of the instance."""
        return frozenset((int(a.profile[1:]), int(a.seat.host[1:])) for a in plan.placement)


def ask(given: Instance, planning: PlanningPolicy | None = None) -> Question:
    """The instance as inputs. `planning` may change anything but the headroom."""
    policy = replace(planning or PlanningPolicy(), headroom=Headroom(memory_ppm=0))
    hosts = tuple(_host(given, h) for h in range(len(given.machines)))
    desired = Desired(
        hosts=hosts,
        keys=tuple(HostKey(host=h.id, key="ed25519:" + "0" * 64) for h in hosts),
        drains=tuple(Drain(host=host_name(h), reason="yardstick") for h in sorted(given.drained)),
        profiles=tuple(_profile(given, m) for m in range(len(given.models))),
        budgets=BudgetPolicy(scopes=(ScopeBudgets(scope=SCOPE, moves=FREE_MOVES),)),
        planning=policy,
    )
    seats = list(_standing(given, desired))
    snapshot = Snapshot(
        source=SnapshotSource.LIVE, observed_ms=NOW, hosts=tuple(_report(host, seats) for host in hosts)
    )
    inputs = Inputs(
        intent=Intent(desired=desired, commit=CommitId("4d1c0aa61f1f7c0e"), subject="a yardstick"),
        scope=SCOPE,
        fleet=digest("fleet"),
        snapshot=snapshot,
        parent=_parent(desired, seats),
        now_ms=NOW,
        version="bench",
    )
    return Question(given, inputs)


def _host(given: Instance, number: int) -> Host:
    machine = given.machines[number]
    return Host(
        id=host_name(number),
        scope=SCOPE,
        domains=(Domain(level="rack", value=f"r{machine.domain:02d}"),),
        devices=(Device(id=DEVICE, kind=DeviceKind.GPU, memory_bytes=machine.mem * MB),),
        runtimes=tuple(Runtime(engine=EngineName(e), backend=BACKEND) for e in sorted(machine.engines)),
        max_replicas=machine.slots,
        links=(Link(name="download", rate_bps=round(machine.rate * MB * 8)),),
    )


def _profile(given: Instance, number: int) -> Profile:
    model, name = given.models[number], profile_name(number)
    enemies = sorted({b if a == number else a for a, b in given.excludes if number in (a, b)})
    config = Config(
        name=ConfigName("only"),
        engine=EngineName(model.engine),
        backends=(BACKEND,),
        artifact=Artifact(
            format="gguf",
            files=(ArtifactFile(path=f"{name}.gguf", sha256=digest(name), size_bytes=model.mem * MB),),
        ),
        context=4096,
        footprint=Footprint(source=FootprintSource.DECLARED, device_bytes=model.mem * MB, host_bytes=0),
    )
    return Profile(
        name=name,
        scope=SCOPE,
        configs=(config,),
        replicas_min=model.replicas,
        replicas_max=model.replicas,
        priority=model.weight,
        spread=Spread(by="rack", min=model.domains) if model.domains > 1 else None,
        placement=PlacementRules(pins=tuple(host_name(h) for m, h in sorted(given.pins) if m == number)),
        max_per_host=1,
        colocation=Colocation(exclude=tuple(profile_name(e) for e in enemies)),
        timing=Timing(load_ms=0, warm_ms=int(FIXED_START_S * 1000), min_residency_ms=0),
    )


def launch_of(profile: Profile) -> Launch:
    """What a replica of the profile's first config is started as."""
    config = profile.configs[0]
    return Launch(
        profile=profile.name,
        config=config.name,
        engine=config.engine,
        backend=config.backends[0],
        artifact=config.artifact,
        context=config.context,
        lanes=config.lanes,
        devices=config.devices,
        args=config.args,
    )


def _standing(given: Instance, desired: Desired) -> Iterable[Assignment]:
    """Assignments of what runs, numbered from 1 in the order of hosts."""
    count: dict[int, int] = {}
    for m, h in sorted(given.current):
        count[m] = count.get(m, 0) + 1
        profile = desired.profiles[m]
        yield Assignment(
            replica=ReplicaId(f"{profile.name}/{count[m]}"),
            profile=profile.name,
            seat=Seat(host=host_name(h), devices=(DEVICE,)),
            launch=identity(launch_of(profile)),
            device_bytes=given.models[m].mem * MB,
            host_bytes=0,
        )


def _report(host: Host, seats: Iterable[Assignment]) -> HostReport:
    here = sorted((s for s in seats if s.seat.host == host.id), key=lambda s: s.replica)
    return HostReport(
        host=host.id,
        observed_ms=NOW,
        devices=tuple(DeviceReport(id=d.id, kind=d.kind, total_bytes=d.memory_bytes) for d in host.devices),
        runtimes=host.runtimes,
        residencies=tuple(ready(s) for s in here),
        cached=tuple(sorted(digest(s.profile) for s in here)),
    )


def ready(seat: Assignment) -> Residency:
    """The process that an assignment has become."""
    return Residency(
        profile=seat.profile,
        state=ResidencyState.READY,
        replica=seat.replica,
        config=ConfigName("only"),
        incarnation=digest(f"{seat.replica} {seat.seat.host}"),
        identity=seat.launch,
        devices=seat.seat.devices,
        device_bytes=seat.device_bytes,
        host_bytes=seat.host_bytes,
        since_ms=NOW - 86_400_000,
    )


def _parent(desired: Desired, seats: list[Assignment]) -> Plan:
    return parent_of(desired.profiles, seats)


def parent_of(profiles: Iterable[Profile], seats: Iterable[Assignment]) -> Plan:
    """A plan that is the present placement: everything a new plan compares itself with."""
    standing = tuple(sorted(seats, key=lambda s: (s.profile, s.replica)))
    used = {s.profile for s in standing}
    known = sorted((p for p in profiles if p.name in used), key=lambda p: p.name)
    return Plan(
        id=PlanId("20261129T090712Z-7f3a2c19"),
        fleet=digest("fleet"),
        scope=SCOPE,
        created_ms=NOW - 86_400_000,
        intent=IntentRef(digest=digest("intent before"), commit=CommitId("3c0b0aa61f1f7c0e")),
        snapshot=SnapshotRef(
            source=SnapshotSource.LIVE, observed_ms=NOW - 86_400_000, digest=digest("snapshot before")
        ),
        planner=PlannerRef(version="bench"),
        decisions_digest=digest("decisions before"),
        reads=ReadSet(),
        placement=standing,
        launches=tuple(launch_of(p) for p in known),
        terms=tuple(
            Terms(
                profile=p.name,
                serves=p.model_ids,
                replicas_min=p.replicas_min,
                priority=p.priority,
                timing=p.timing,
                restart=p.restart,
                downtime=p.downtime,
            )
            for p in known
        ),
    )
