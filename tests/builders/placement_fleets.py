"""Stories of `placement_cases` as planner inputs: one translation for all cases, so that none is helped on its own.

* A host is its GPUs plus its RAM; with `uma` it is one unified device with a GPU share. `reserve` is a device's
  reserve, `other` external use, `occupied` a ready replica of another profile that the parent plan knows.
* `need.vram` is split evenly over 1, 2, 4 or 8 devices: one config per count, fewest first (`gpus`, `tp` or
  `gpus_per_replica` leave one). `need.ram` is host memory; where there is no GPU the replica runs on the CPU from it.
* `fraction` f: where all cards are alike the engine takes f of each, and that is the footprint; where they differ the
  footprint is the need, and 1 - f stays free as headroom. Without a fraction there is no headroom.
* A `pin` is `allow_hosts`, and of those hosts only the devices it names are declared. A `selector` is a tag.
* `spread` is `fill: even`; what nobody asks for is tight, which is what the file calls binpack.
* Half a sliced card is a device of its own; a slice profile is a tag of the hosts that have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from bench.yard.translate import launch_of, parent_of, ready
from gridops.base.ids import ConfigName, DeviceId, EngineName, HostId, ProfileName, ReplicaId
from gridops.footprint.need import identity
from gridops.model.fleet import Device, DeviceKind, Host, Runtime
from gridops.model.plan import Assignment, Seat
from gridops.model.policy import Headroom, PlanningPolicy
from gridops.model.profile import (
    Artifact,
    ArtifactFile,
    Config,
    DeviceNeed,
    Fill,
    Footprint,
    FootprintSource,
    Heads,
    PlacementRules,
    Profile,
)
from gridops.model.snapshot import HostReport
from tests.builders.placement_cases import Machine, Story
from tests.planner.fleet import SCOPE, Fleet, digest, report

BACKENDS = ("cuda", "rocm", "metal", "cann")
CPU = ("cpu",)
ENGINES = {"gguf": "llama.cpp"}
GUEST = ProfileName("guest")
"""The model that looks for a seat."""
FIRST = ReplicaId("guest/1")
ANSWER = re.compile(r"(?P<host>[^\[\]]+)(?:\[(?P<devices>[0-9,]+)\])?")
"""`host` or `host[0,1]`."""


def fleet(told: Story) -> Fleet:
    """What the planner is asked."""
    declared = _pinned(told)
    hosts = tuple(_host(m, declared.get(m.name)) for m in told.machines)
    reports: dict[str, HostReport] = {}
    for machine, one in zip(told.machines, hosts, strict=True):
        seen = report(one, cached=(digest("guest"),) if machine.name == told.cached_on else ())
        used = {f"gpu{n}": c.other for n, c in enumerate(machine.cards)}
        devices = tuple(replace(d, external_bytes=used.get(d.id, 0)) for d in seen.devices)
        reports[one.id] = replace(seen, devices=devices)
    tenants = dict(_tenants(told))
    for seat in tenants.values():
        old = reports[seat.seat.host]
        reports[seat.seat.host] = replace(
            old, residencies=(*old.residencies, replace(ready(seat), config=ConfigName("x1")))
        )
    profiles = (*tenants, _guest(told))
    parent = parent_of(tenants, tenants.values()) if tenants else None
    headroom = Headroom(memory_ppm=_headroom_ppm(told))
    return Fleet(
        hosts=hosts, profiles=profiles, reports=reports, parent=parent, policy=PlanningPolicy(headroom=headroom)
    )


def _alike(told: Story) -> int | None:
    """The size of every card, if they are alike."""
    sizes = {c.mem for m in told.machines for c in m.cards}
    return next(iter(sizes)) if len(sizes) == 1 else None


def _headroom_ppm(told: Story) -> int:
    if told.fraction is None or _alike(told) is not None:
        return 0
    return round((1 - told.fraction) * 1_000_000)


def _pinned(told: Story) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for pin in told.pins:
        match = ANSWER.fullmatch(pin)
        assert match is not None, pin
        found[match["host"]] = {int(n) for n in (match["devices"] or "").split(",") if n}
    return found


def _host(machine: Machine, only: set[int] | None) -> Host:
    backends = sorted({c.kind for c in machine.cards} or CPU)
    engines = ("custom", "llama.cpp", "mindie", "sglang", "vllm")
    return Host(
        id=HostId(machine.name),
        scope=SCOPE,
        devices=_devices(machine, only),
        runtimes=tuple(Runtime(engine=EngineName(e), backend=b) for e in engines for b in backends),
        tags=tuple(t for t in (f"os-{machine.os}", machine.slice_tag) if t is not None),
    )


def _devices(machine: Machine, only: set[int] | None) -> tuple[Device, ...]:
    held = machine.reserve.get("ram", 0)
    if machine.uma:
        share = machine.cards[0].mem * 1_000_000 // machine.ram
        return (
            Device(
                id=DeviceId("gpu0"),
                kind=DeviceKind.UNIFIED,
                memory_bytes=machine.ram,
                gpu_share_ppm=share,
                reserve_bytes=held,
            ),
        )
    cards = tuple(
        Device(
            id=DeviceId(f"gpu{n}"),
            kind=DeviceKind.GPU,
            memory_bytes=card.mem,
            reserve_bytes=machine.reserve.get("vram", 0),
            model=card.kind,
            backend=card.kind if len({c.kind for c in machine.cards}) > 1 else None,
        )
        for n, card in enumerate(machine.cards)
        if only is None or n in only
    )
    ram = Device(id=DeviceId("cpu0"), kind=DeviceKind.CPU, memory_bytes=machine.ram, reserve_bytes=held)
    return (*cards, ram)


def _guest(told: Story) -> Profile:
    configs = [c for count in told.counts if (c := _on_cards(told, count)) is not None] if told.vram != 0 else []
    if told.ram:
        # From RAM alone, where there is no card; the file states the size.
        configs.append(_config(told, "ram", CPU, _declared(told.ram, 0)))
    return Profile(
        name=GUEST,
        scope=SCOPE,
        configs=tuple(configs),
        placement=PlacementRules(
            allow_hosts=tuple(HostId(h) for h in sorted(_pinned(told))),
            require_tags=told.tags,
            fill=Fill.EVEN if told.even else None,
        ),
    )


def _on_cards(told: Story, count: int) -> Config | None:
    """The config over so many cards. None where the engine's fractions of them would not hold the model."""
    alike = _alike(told)
    if told.vram is None:
        footprint = Footprint(source=FootprintSource.UNKNOWN)
    elif told.fraction is not None and alike is not None:
        claim = int(told.fraction * alike)
        if claim * count < told.vram and count < max(told.counts):
            return None
        footprint = _declared(max(claim, -(-told.vram // count)), told.ram)
    else:
        footprint = _declared(-(-told.vram // count), told.ram)
    shard = "tensor" if count > 1 and told.heads != Heads() else None
    return replace(_config(told, f"x{count}", BACKENDS, footprint), devices=DeviceNeed(count=count, shard=shard))


def _declared(device: int, ram: int) -> Footprint:
    return Footprint(source=FootprintSource.DECLARED, device_bytes=device, host_bytes=ram)


def _config(told: Story, name: str, backends: tuple[str, ...], footprint: Footprint) -> Config:
    return Config(
        name=ConfigName(name),
        engine=EngineName(ENGINES.get(told.engine, told.engine)),
        backends=backends,
        artifact=_artifact(GUEST),
        context=4096,
        footprint=footprint,
        heads=told.heads,
    )


def _artifact(name: str) -> Artifact:
    file = ArtifactFile(path=f"{name}.gguf", sha256=digest(name), size_bytes=1 << 30)
    return Artifact(format="gguf", files=(file,))


def _tenants(told: Story) -> Iterator[tuple[Profile, Assignment]]:
    """Who stands already: one profile for each occupied place."""
    for number, (place, size) in enumerate(sorted(told.occupied.items()), 1):
        host, _, rest = place.partition("." if place.endswith(".ram") else "[")
        device = DeviceId("cpu0" if rest == "ram" else f"gpu{rest.rstrip(']')}")
        backend = next((c.kind for m in told.machines if m.name == host for c in m.cards), "cpu")
        name = ProfileName(f"tenant-{number}")
        config = replace(_config(told, "x1", (backend,), _declared(size, 0)), artifact=_artifact(name), heads=Heads())
        profile = Profile(name=name, scope=SCOPE, configs=(config,))
        yield (
            profile,
            Assignment(
                replica=ReplicaId(f"{name}/1"),
                profile=name,
                seat=Seat(host=HostId(host), devices=(device,)),
                launch=identity(launch_of(profile)),
                device_bytes=size,
                host_bytes=0,
            ),
        )
