"""openb as the planner's inputs: hosts with their GPUs and RAM, and each pod as a profile of one replica.

A GPU is 1,000 MiB, so that a share is a part of its memory; a pod of several GPUs takes whole ones; RAM is host
memory. CPU cores are not modelled by gridops and are left out. No headroom, since a pod may ask for a whole GPU.
`Opened` is all that a bench needs of a planner: one profile in, one host out, and what left is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from bench.yard.cluster import WHOLE, Machine, Pod, machines
from bench.yard.translate import FREE_MOVES, MB, NOW, SCOPE, digest, parent_of, ready
from gridops.base.ids import CommitId, ConfigName, DeviceId, EngineName, HostId, ProfileName
from gridops.model.fleet import Device, DeviceKind, Host, HostKey, Runtime
from gridops.model.intent import Desired, Intent
from gridops.model.plan import Assignment
from gridops.model.policy import BudgetPolicy, Headroom, PlanningPolicy, ScopeBudgets
from gridops.model.profile import Artifact, ArtifactFile, Config, DeviceNeed, Footprint, FootprintSource, Profile
from gridops.model.snapshot import DeviceReport, HostReport, Residency, Snapshot, SnapshotSource
from gridops.planner.planner import Inputs, plan

ENGINE = EngineName("any")
RAM = DeviceId("cpu0")
FIRST_PRIORITY = 1_000_000


class Opened(Protocol):
    """A planner that has been opened on inputs and seats one replica at a time, without moving anybody."""

    def seat(self, profile: Profile) -> HostId | None: ...

    def leave(self, profile: ProfileName) -> None: ...


class Through:
    """A `Policy` of the cluster by way of an `Opened`."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened

    def seat(self, number: int, pod: Pod) -> object | None:
        return self.opened.seat(profile_of(number, pod))

    def leave(self, number: int, pod: Pod) -> None:
        self.opened.leave(name_of(number))


class WholePlans:
    """An `Opened` by the public door alone: a whole plan for every pod, its parent the plan before. For samples."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.profiles: dict[ProfileName, Profile] = {}
        self.seats: dict[ProfileName, Assignment] = {}

    def seat(self, profile: Profile) -> HostId | None:
        self.profiles[profile.name] = profile
        made = plan(self._now())
        mine = next((a for a in made.placement if a.profile == profile.name), None)
        if mine is None:
            del self.profiles[profile.name]
            return None
        self.seats = {a.profile: a for a in made.placement}
        return mine.seat.host

    def leave(self, profile: ProfileName) -> None:
        del self.profiles[profile], self.seats[profile]

    def _now(self) -> Inputs:
        given = self.inputs
        desired = replace(given.intent.desired, profiles=tuple(self.profiles[n] for n in sorted(self.profiles)))
        held: dict[HostId, list[Residency]] = {}
        for seat in self.seats.values():
            held.setdefault(seat.seat.host, []).append(ready(seat))
        hosts = tuple(replace(r, residencies=tuple(held.get(r.host, ()))) for r in given.snapshot.hosts)
        return replace(
            given,
            intent=replace(given.intent, desired=desired),
            snapshot=replace(given.snapshot, hosts=hosts),
            parent=parent_of(self.profiles.values(), self.seats.values()) if self.seats else None,
        )


def inputs(order: Sequence[int]) -> Inputs:
    """An empty cluster of these hosts. Names follow the order, so that permuting it permutes ties and nothing else."""
    hosts = tuple(_host(place, machines()[n]) for place, n in enumerate(order))
    desired = Desired(
        hosts=hosts,
        keys=tuple(HostKey(host=h.id, key="ed25519:" + "0" * 64) for h in hosts),
        budgets=BudgetPolicy(scopes=(ScopeBudgets(scope=SCOPE, moves=replace(FREE_MOVES, per_plan=0)),)),
        planning=PlanningPolicy(headroom=Headroom(memory_ppm=0)),
    )
    reports = tuple(
        HostReport(
            host=h.id,
            observed_ms=NOW,
            devices=tuple(
                DeviceReport(id=d.id, kind=d.kind, total_bytes=d.memory_bytes, model=d.model) for d in h.devices
            ),
            runtimes=h.runtimes,
            cached=(digest("w"),),  # pods bring nothing that a host might have already
        )
        for h in hosts
    )
    return Inputs(
        intent=Intent(desired=desired, commit=CommitId("4d1c0aa61f1f7c0e"), subject="openb"),
        scope=SCOPE,
        fleet=digest("fleet"),
        snapshot=Snapshot(source=SnapshotSource.LIVE, observed_ms=NOW, hosts=reports),
        parent=None,
        now_ms=NOW,
        version="bench",
    )


def name_of(number: int) -> ProfileName:
    return ProfileName(f"pod-{number:05d}")


def profile_of(number: int, pod: Pod) -> Profile:
    """A pod that came `number`th. Who came earlier is never displaced by who came later."""
    if pod.gpus:
        footprint = Footprint(source=FootprintSource.DECLARED, device_bytes=pod.share * MB, host_bytes=pod.mem * MB)
    else:
        footprint = Footprint(source=FootprintSource.DECLARED, device_bytes=pod.mem * MB, host_bytes=0)
    name = name_of(number)
    config = Config(
        name=ConfigName("only"),
        engine=ENGINE,
        backends=("cuda",) if pod.gpus else ("cpu",),
        artifact=Artifact(format="gguf", files=(ArtifactFile(path="w.gguf", sha256=digest("w"), size_bytes=1),)),
        context=4096,
        footprint=footprint,
        devices=DeviceNeed(count=max(1, pod.gpus)),
    )
    return Profile(name=name, scope=SCOPE, configs=(config,), priority=FIRST_PRIORITY - number)


def _host(place: int, machine: Machine) -> Host:
    gpus = tuple(
        Device(id=DeviceId(f"gpu{n}"), kind=DeviceKind.GPU, memory_bytes=WHOLE * MB, model=machine.model)
        for n in range(machine.gpus)
    )
    ram = Device(id=RAM, kind=DeviceKind.CPU, memory_bytes=machine.mem * MB)
    return Host(
        id=HostId(f"h{place:05d}"),
        scope=SCOPE,
        devices=(*gpus, ram),
        runtimes=(Runtime(engine=ENGINE, backend="cpu"), Runtime(engine=ENGINE, backend="cuda")),
    )
