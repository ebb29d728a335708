"""Small fleets for planner tests: hosts, profiles, snapshots and plans in one line each. Sizes are in GiB."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from gridops.base import canon
from gridops.base.ids import Digest, HostId, ProfileName, ReplicaId, ScopeName
from gridops.model.advice import Prefetched
from gridops.model.fleet import Device, DeviceKind, Domain, Drain, Host, HostClass, HostKey, Runtime
from gridops.model.forecast import Forecast
from gridops.model.intent import Desired, Intent, Where
from gridops.model.learned import Learned
from gridops.model.plan import Assignment, Plan
from gridops.model.policy import PlanningPolicy
from gridops.model.profile import (
    Artifact,
    ArtifactFile,
    Config,
    Footprint,
    FootprintSource,
    Profile,
)
from gridops.model.snapshot import (
    DeviceReport,
    HostReport,
    Ownership,
    Residency,
    ResidencyState,
    Snapshot,
    SnapshotSource,
)
from gridops.planner.check import check
from gridops.planner.planner import Inputs, plan

GIB = 1 << 30
NOW = 1_796_000_000_000
FLEET = canon.digest({"fleet": "test"})
SCOPE = ScopeName("default")


def digest(text: str) -> Digest:
    return Digest("sha256:" + hashlib.sha256(text.encode()).hexdigest())


def device(name: str, gib: float, kind: str | None = None, **more: Any) -> Device:
    found = kind or ("cpu" if name.startswith("cpu") else "unified" if name.startswith("unified") else "gpu")
    return Device(id=name, kind=DeviceKind(found), memory_bytes=int(gib * GIB), **more)  # type: ignore[arg-type]


def host(name: str, gpus: Sequence[float] = (24.0,), *, ram: float = 64, rack: str | None = None, **more: Any) -> Host:
    """A dedicated CUDA host with llama.cpp."""
    devices = [device(f"gpu{n}", gib) for n, gib in enumerate(gpus)] + ([device("cpu0", ram)] if ram else [])
    more.setdefault("devices", tuple(devices))
    more.setdefault("runtimes", (Runtime(engine="llama.cpp", backend="cuda"),))  # type: ignore[arg-type]
    more.setdefault("domains", (Domain(level="rack", value=rack),) if rack else ())
    return Host(id=HostId(name), scope=more.pop("scope", SCOPE), **more)


def laptop(name: str, gib: float = 32, **more: Any) -> Host:
    """A person's machine with unified memory."""
    more.setdefault("host_class", HostClass.OPPORTUNISTIC)
    more.setdefault("devices", (device("unified0", gib),))
    more.setdefault("runtimes", (Runtime(engine="llama.cpp", backend="metal"),))  # type: ignore[arg-type]
    return host(name, **more)


def config(
    name: str = "q4", gib: float = 10, *, backends: Sequence[str] = ("cuda",), size: float = 4, **more: Any
) -> Config:
    artifact = Artifact(
        format="gguf",
        files=(
            ArtifactFile(path=f"{name}.gguf", sha256=digest(more.pop("weights", name)), size_bytes=int(size * GIB)),
        ),
    )
    footprint = Footprint(
        source=FootprintSource.DECLARED, device_bytes=int(gib * GIB), host_bytes=int(more.pop("host_gib", 0) * GIB)
    )
    more.setdefault("footprint", footprint)
    more.setdefault("artifact", artifact)
    more.setdefault("context", 4096)
    return Config(name=name, engine="llama.cpp", backends=tuple(backends), **more)  # type: ignore[arg-type]


def profile(name: str, replicas: int = 1, *, gib: float = 10, **more: Any) -> Profile:
    more.setdefault("configs", (config(f"{name}-q4", gib),))
    more.setdefault("replicas_min", replicas)
    more.setdefault("replicas_max", max(replicas, more["replicas_min"], 1))
    return Profile(name=ProfileName(name), scope=more.pop("scope", SCOPE), **more)


def report(declared: Host, *, at: int = NOW, **more: Any) -> HostReport:
    """A fresh heartbeat that reports exactly what is declared, unless told otherwise."""
    seen = tuple(DeviceReport(id=d.id, kind=d.kind, total_bytes=d.memory_bytes) for d in declared.devices)
    more.setdefault("devices", seen)
    more.setdefault("runtimes", declared.runtimes)
    more.setdefault("disk_free_bytes", 4096 * GIB)
    return HostReport(host=declared.id, observed_ms=at, **more)


def with_external(one: HostReport, name: str, gib: float) -> HostReport:
    changed = tuple(replace(d, external_bytes=int(gib * GIB)) if d.id == name else d for d in one.devices)
    return replace(one, devices=changed)


@dataclass(frozen=True, repr=False)
class Fleet:
    """Everything a plan is made from, with one-line edits. Every plan it makes is checked."""

    hosts: tuple[Host, ...] = ()
    profiles: tuple[Profile, ...] = ()
    reports: Mapping[str, HostReport | None] = field(default_factory=lambda: MappingProxyType({}))
    """Overrides; None: no heartbeat at all."""
    parent: Plan | None = None
    now: int = NOW
    drains: tuple[Drain, ...] = ()
    keys: tuple[HostKey, ...] | None = None
    policy: PlanningPolicy = field(default_factory=PlanningPolicy)
    more: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Other fields of `Desired`."""
    source: SnapshotSource = SnapshotSource.LIVE
    marks: Mapping[str, Where] = field(default_factory=lambda: MappingProxyType({}))
    watching_since: int | None = None
    strangers: tuple[HostReport, ...] = ()
    """Reports of hosts that no file declares."""
    forecast: Forecast | None = None
    learned: Learned | None = None
    prefetched: tuple[Prefetched, ...] = ()
    agents_from: str | None = None

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def __repr__(self) -> str:
        """Short on purpose: hypothesis prints it, and a whole fleet is three screens."""
        lines = [f"host {_host_text(h)} {_report_text(self.reports.get(h.id))}" for h in self.hosts]
        lines += [f"profile {_profile_text(p)}" for p in self.profiles]
        lines += [f"drain {d.host}" for d in self.drains]
        if self.keys is not None:
            lines.append(f"keys {[(k.host, k.expunged) for k in self.keys]}")
        if self.parent is not None:
            lines.append(f"parent {[(a.replica, a.seat.host, a.seat.devices) for a in self.parent.placement]}")
        return "Fleet(\n  " + "\n  ".join(lines) + "\n)"

    def inputs(self) -> Inputs:
        keys = (
            self.keys
            if self.keys is not None
            else tuple(HostKey(host=h.id, key="ed25519:" + "0" * 64) for h in self.hosts)
        )
        desired = Desired(
            hosts=self.hosts, profiles=self.profiles, keys=keys, drains=self.drains, planning=self.policy, **self.more
        )
        return Inputs(
            intent=Intent(desired=desired, commit="4d1c0aa61f1f7c0e", subject="a commit", marks=self.marks),  # type: ignore[arg-type]
            scope=SCOPE,
            fleet=FLEET,
            snapshot=self.snapshot(),
            parent=self.parent,
            now_ms=self.now,
            version="test",
            watching_since_ms=self.watching_since,
            forecast=self.forecast,
            learned=self.learned,
            prefetched=self.prefetched,
            agents_from=self.agents_from,
        )

    def snapshot(self) -> Snapshot:
        reports = []
        for declared in self.hosts:
            made = self.reports.get(declared.id, report(declared, at=self.now))
            if made is not None and self.source is not SnapshotSource.DECLARED:
                reports.append(made)
        return Snapshot(source=self.source, observed_ms=self.now, hosts=(*reports, *self.strangers))

    def plan(self) -> Plan:
        inputs = self.inputs()
        made = plan(inputs)
        notes = check(made, inputs)
        assert notes == (), "\n".join(notes)
        return made

    def but(self, **changes: Any) -> Fleet:
        return replace(self, **changes)

    def reporting(self, name: str, **changes: Any) -> Fleet:
        """The same with one host's report changed."""
        current = self.reports.get(name) or report(self.host(name), at=self.now)
        return replace(self, reports={**self.reports, name: replace(current, **changes)})

    def restarted(self, replica: str, gib: float) -> Fleet:
        """The replica's process was started anew, and its host counts it with so much on each device."""
        reports = {
            name: replace(
                r,
                residencies=tuple(
                    replace(x, device_bytes=int(gib * GIB)) if x.replica == replica else x for x in r.residencies
                ),
            )
            for name, r in self.reports.items()
            if r is not None
        }
        return replace(self, reports={**self.reports, **reports})

    def host(self, name: str) -> Host:
        return next(h for h in self.hosts if h.id == name)

    def applied(self, made: Plan, *, later_ms: int = 0) -> Fleet:
        """The world after the plan has been carried out: it is the parent, and what it places is ready."""
        now = self.now + later_ms
        reports: dict[str, HostReport | None] = {}
        for declared in self.hosts:
            old = self.reports.get(declared.id, report(declared, at=self.now))
            if old is None:
                reports[declared.id] = None
                continue
            age = self.now - old.observed_ms
            beat = self.policy.heartbeat
            fresh = -beat.future_skew_ms <= age <= beat.stale_after_ms and not old.goodbye
            if not fresh:
                # A clock that runs ahead goes on running ahead; silence just lasts.
                reports[declared.id] = replace(old, observed_ms=now - age) if age < 0 else old
                continue
            seats = [a for a in made.placement if a.seat.host == declared.id]
            launches = {a.launch: next(n for n in made.launches if n == n and _id(n) == a.launch) for a in seats}
            cached = {f.sha256 for n in launches.values() for f in n.artifact.files} | set(old.cached)
            kept = [
                r for r in old.residencies if r.ownership is Ownership.EXTERNAL or r.state is ResidencyState.UNKNOWN
            ]
            kept += [r for r in old.residencies if r.state is ResidencyState.FAILED and _stands(r, seats)]
            failed = {r.replica for r in kept if r.state is ResidencyState.FAILED}
            unknown = {r.replica for r in kept if r.state is ResidencyState.UNKNOWN}
            ready = [running(a, made) for a in seats if a.replica not in failed | unknown]
            reports[declared.id] = replace(
                old, observed_ms=now, residencies=tuple(kept + ready), cached=tuple(sorted(cached))
            )
        return replace(self, parent=made, reports=reports, now=now)


def _stands(residency: Residency, seats: Iterable[Assignment]) -> bool:
    return any(a.replica == residency.replica and a.launch == residency.identity for a in seats)


def _id(launch: Any) -> Digest:
    from gridops.footprint.need import identity

    return identity(launch)


def running(a: Assignment, made: Plan, state: ResidencyState = ResidencyState.READY, **more: Any) -> Residency:
    """The residency that an assignment becomes."""
    launch = next(n for n in made.launches if _id(n) == a.launch)
    return Residency(
        profile=a.profile,
        state=state,
        replica=a.replica,
        config=launch.config,
        incarnation=digest(f"{a.replica} {a.seat.host} {a.launch}"),
        identity=a.launch,
        devices=a.seat.devices,
        device_bytes=a.device_bytes,
        host_bytes=a.host_bytes,
        **more,
    )


def _changes(value: Any, plain: Any) -> str:
    """Fields of a record that differ from a plain one's."""
    names = [n for n in value.__slots__ if getattr(value, n) != getattr(plain, n)]
    return " ".join(f"{n}={getattr(value, n)!r}" for n in names)


def _host_text(h: Host) -> str:
    devices = " ".join(f"{d.id}:{d.memory_bytes / GIB:g}-{d.reserve_bytes / GIB:g}" for d in h.devices)
    return f"{h.id} [{devices}] {_changes(replace(h, devices=()), Host(id=h.id, scope=h.scope))}"


def _report_text(r: HostReport | None) -> str:
    if r is None:
        return ""
    held = [f"{x.replica or x.profile}:{x.state.value}:{x.ownership.value}" for x in r.residencies]
    devices = [(d.id, d.total_bytes / GIB, d.external_bytes / GIB) for d in r.devices]
    return f"at={r.observed_ms - NOW} {r.state.value} since={r.since_ms} bye={r.goodbye} {devices} {held}"


def _profile_text(p: Profile) -> str:
    configs = []
    for c in p.configs:
        size = f"{c.footprint.source.value} {(c.footprint.device_bytes or 0) / GIB:g}"
        configs.append(f"{c.name}{c.backends} {size} ctx={c.context} x{c.devices.count}")
    return f"{p.name} {_changes(replace(p, configs=()), Profile(name=p.name, scope=p.scope, configs=()))} {configs}"


def seats(made: Plan) -> dict[str, str]:
    """Replica -> `host` or `host[gpu1]` for hosts with several devices chosen from."""
    return {a.replica: a.seat.host for a in made.placement}


def decisions(made: Plan) -> list[str]:
    """`place coder/1 -> forge`, `move coder/1 forge -> anvil`, `remove coder/1 forge`."""
    lines = []
    for d in made.decisions:
        words = [d.kind.value, d.replica]
        words += [d.source.host] if d.source is not None else []
        words += ["->", d.target.host] if d.target is not None else []
        lines.append(" ".join(words))
    return lines


def codes_of(made: Plan, replica: str) -> dict[str, str]:
    """Host -> code, of one unplaced replica."""
    found = next(u for u in made.report.unplaced if u.replica == ReplicaId(replica))
    return {line.host: line.code for line in found.hosts}
