"""Generated fleets and generated things that happen to them, for properties.

One recipe, two cooks: hypothesis picks (and shrinks) with `drawn`, plain seeded chance picks with `rolled`, which
reaches the crowded middle of the space where rules meet in threes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

from gridops.base.ids import HostId, ProfileName, ScopeName
from gridops.model.fleet import Absence, Device, Disk, Domain, Drain, Host, HostClass, HostKey, Runtime
from gridops.model.learned import Learned
from gridops.model.plan import Plan
from gridops.model.policy import BudgetPolicy, MoveLimits, PriceCeiling, ScopeBudgets
from gridops.model.profile import (
    Colocation,
    Config,
    DeviceNeed,
    Downtime,
    Footprint,
    FootprintSource,
    Heads,
    PlacementRules,
    Profile,
    Restart,
    Spread,
)
from gridops.model.snapshot import HostState, Ownership, Residency, ResidencyState
from tests.planner.fleet import GIB, NOW, SCOPE, Fleet, config, device, host, laptop, profile, report
from tests.planner.worlds_known import make_forecast, make_learned, make_prefetched

HOSTS = ("ant", "bee", "cat", "dog", "eel", "fox")
PROFILES = ("chat", "code", "draw", "embed", "video")
TAGS = ("always-on", "guest")
TIERS = ("public", "internal", "confidential")


T = TypeVar("T")


class Cook(Protocol):
    """Who chooses among variations."""

    def pick(self, options: Sequence[T]) -> T: ...


@dataclass(frozen=True)
class Dice:
    """Seeded chance."""

    chance: random.Random

    def pick(self, options: Sequence[T]) -> T:
        return self.chance.choice(options)


@dataclass(frozen=True)
class Drawn:
    """Hypothesis."""

    data: st.DataObject

    def pick(self, options: Sequence[T]) -> T:
        return self.data.draw(st.sampled_from(options))


def rolled(seed: int) -> Cook:
    return Dice(random.Random(seed))


def mostly(cook: Cook, usual: T, *others: T) -> T:
    """The usual value six times in seven, so that most of a world is well."""
    return cook.pick((usual,) * 6 * len(others) + others)


def make_host(cook: Cook, name: str) -> Host:
    common: dict[str, Any] = {
        "domains": cook.pick(((Domain(level="rack", value="r1"),), (Domain(level="rack", value="r2"),), ())),
        "tags": mostly(cook, ("always-on",), (), ("guest",)),
        "tier": mostly(cook, "confidential", None, "public"),
        "max_replicas": mostly(cook, None, 1, 2, 3),
        "price_per_hour_micro": mostly(cook, 500_000, None, 2_000_000),
        "disk": mostly(cook, None, Disk(artifacts_bytes=20 * GIB, keep_free_bytes=2 * GIB)),
    }
    kind = cook.pick(("gpu",) * 5 + ("pair",) * 4 + ("laptop",) * 2 + ("cpu", "external", "unified"))
    common["scope"] = mostly(cook, SCOPE, ScopeName("lab"))
    if kind == "laptop":
        absence = cook.pick((None, Absence(replace_after_ms=600_000)))
        return laptop(name, cook.pick((16.0, 32.0)), absence=absence, **common)
    if kind == "external":
        return host(name, (), ram=0, host_class=HostClass.EXTERNAL, models=("gpt",), **common)
    if kind == "cpu":
        return host(name, (), runtimes=(Runtime(engine="llama.cpp", backend="cpu"),), **common)
    if kind == "unified":
        shared = device("unified0", cook.pick((32.0, 96.0)), gpu_share_ppm=cook.pick((500_000, 750_000, 1_000_000)))
        return host(name, devices=(shared,), **common)
    reserve = cook.pick((0, 2 * GIB))
    sizes = [cook.pick((16.0, 24.0)) for _ in range(1 if kind == "gpu" else cook.pick((2, 3)))]
    names = [f"gpu{n}" for n in range(len(sizes))]
    linked = cook.pick((True, False))
    devices = [
        device(n, size, reserve_bytes=reserve, peers=tuple(p for p in names if p != n) if linked else ())
        for n, size in zip(names, sizes, strict=True)
    ]
    runtimes = mostly(cook, ("cuda",), ("cuda", "cpu"))
    return host(
        name,
        devices=(*devices, device("cpu0", 32)),
        runtimes=tuple(Runtime(engine="llama.cpp", backend=b) for b in runtimes),  # type: ignore[arg-type]
        **common,
    )


def make_config(cook: Cook, name: str) -> Config:
    size = cook.pick((2, 6, 10, 15, 22)) * GIB
    usual = Footprint(source=FootprintSource.DECLARED, device_bytes=size, host_bytes=GIB)
    parts = replace(usual, device_bytes=4 * GIB, kv_per_1k_bytes=256 << 20, spike_per_lane_bytes=64 << 20)
    derived, unknown = Footprint(source=FootprintSource.DERIVED), Footprint(source=FootprintSource.UNKNOWN)
    pair = DeviceNeed(count=2, shard="tensor")
    return config(
        name,
        backends=cook.pick((("cuda",), ("cuda", "metal"), ("cuda", "cpu", "metal"), ("cpu",))),
        size=cook.pick((1.0, 4.0, 12.0)),
        footprint=mostly(cook, usual, parts, derived, unknown),
        devices=mostly(cook, DeviceNeed(), pair, replace(pair, uneven=True, shard=None, link="peer")),
        heads=mostly(cook, Heads(attention=32, kv=8), Heads(), Heads(attention=25, kv=5)),
        context=cook.pick((4096, 8192)),
        lanes=cook.pick((1, 4)),
    )


def make_profile(cook: Cook, name: str) -> Profile:
    rules = PlacementRules(
        require_tags=mostly(cook, (), ("always-on",)),
        forbid_tags=mostly(cook, (), ("guest",)),
        tier=mostly(cook, None, "internal"),
        deny_hosts=mostly(cook, (), (HostId("ant"),)),
        pins=mostly(cook, (), (HostId("ant"),), (HostId("ant"), HostId("bee"))),
    )
    exclude = Colocation(exclude=(ProfileName("chat" if name != "chat" else "code"),))
    least = cook.pick((1, 2, 0, 3))
    return profile(
        name,
        least,
        replicas_max=least + cook.pick((0, 0, 2)),
        scope=mostly(cook, SCOPE, ScopeName("lab")),
        configs=tuple(make_config(cook, f"{name}-{n}") for n in range(cook.pick((1, 2)))),
        priority=cook.pick((100, 50, 200)),
        spread=mostly(cook, None, Spread(by="rack", min=2)),
        placement=rules,
        max_per_host=cook.pick((1, 1, 2, None)),
        colocation=mostly(cook, Colocation(), Colocation(max=2), exclude),
        downtime=cook.pick((Downtime.ALLOWED, Downtime.NEVER)),
    )


def make_fleet(cook: Cook) -> Fleet:
    names, wanted = (
        mostly(cook, HOSTS, (), HOSTS[:1], HOSTS[:3]),
        mostly(cook, PROFILES, (), PROFILES[:1], PROFILES[:3]),
    )
    price = mostly(cook, None, PriceCeiling(max_per_hour_micro=1_500_000))
    moves = MoveLimits(per_plan=cook.pick((4, 4, 0, 20)))
    fleet = Fleet(
        hosts=tuple(make_host(cook, n) for n in names),
        profiles=tuple(make_profile(cook, n) for n in wanted),
        more={"budgets": BudgetPolicy(scopes=(ScopeBudgets(scope=SCOPE, price=price, moves=moves),))},
    )
    for name in names:
        fleet = happen(fleet, cook.pick(("well",) * 45 + TROUBLES), name, cook.pick(range(6)))
    fleet = fleet.but(forecast=make_forecast(cook, fleet), learned=make_learned(cook, fleet))
    return make_prefetched(cook, fleet)


def change(cook: Cook, fleet: Fleet) -> Fleet:
    """The fleet after one to three things have happened."""
    for _ in range(cook.pick((1, 2, 3))):
        names = [h.id for h in fleet.hosts] or [HostId("nobody")]
        event = cook.pick(EVENTS)
        if event == "demand":
            fleet = fleet.but(forecast=make_forecast(cook, fleet))
        elif event == "no demand":
            fleet = fleet.but(forecast=None)
        elif event == "learned":
            fleet = fleet.but(learned=make_learned(cook, fleet))
        else:
            fleet = happen(fleet, event, cook.pick(names), cook.pick(range(6)))
    return fleet


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    return make_fleet(Drawn(draw(st.data())))


TROUBLES = (
    "external use", "foreign", "stuck", "state", "stale", "silent", "small", "unknown key", "goodbye", "drain",
)  # fmt: skip

EVENTS = (
    "well", "external use", "foreign", "stuck", "state", "stale", "future", "goodbye", "silent", "small", "unknown key",
    "drain", "undrain", "undeclare", "expunge", "reserve", "tags", "limit", "failed", "gone", "device gone", "back",
    "profile gone", "replicas", "context", "restart", "serves", "priority", "excluded", "denied", "pinned", "rename",
    "footprint", "demand", "no demand", "learned",
)  # fmt: skip


def happen(fleet: Fleet, event: str, name: str, n: int) -> Fleet:
    """One thing happens. `n` picks among small variations; events without a subject do nothing."""
    found = next((h for h in fleet.hosts if h.id == name), None)
    if found is not None:
        made = _to_host(fleet, event, found, n)
        if made is not None:
            return made
    if fleet.profiles:
        return _to_profile(fleet, event, fleet.profiles[n % len(fleet.profiles)], n)
    return fleet


def _to_host(fleet: Fleet, event: str, found: Host, n: int) -> Fleet | None:
    name = found.id
    seen = fleet.reports.get(name, report(found, at=fleet.now)) or report(found, at=fleet.now)
    match event:
        case "external use":
            devices = tuple(replace(d, external_bytes=(2 + 4 * n) * GIB) for d in seen.devices)
            return fleet.reporting(name, devices=devices)
        case "foreign":
            used = Residency(
                profile=ProfileName(PROFILES[n % 5]),
                state=ResidencyState.READY,
                ownership=Ownership.EXTERNAL,
                devices=(seen.devices[0].id,) if seen.devices else (),
                device_bytes=3 * GIB,
            )
            return fleet.reporting(name, residencies=(*seen.residencies, used))
        case "stuck":
            changed_ = tuple(
                replace(r, state=ResidencyState.UNKNOWN) if i == n % 2 else r for i, r in enumerate(seen.residencies)
            )
            return fleet.reporting(name, residencies=changed_)
        case "failed":
            changed_ = tuple(
                replace(r, state=ResidencyState.FAILED) if i == n % 2 else r for i, r in enumerate(seen.residencies)
            )
            return fleet.reporting(name, residencies=changed_)
        case "gone":
            return fleet.reporting(name, residencies=seen.residencies[1:])
        case "state":
            return fleet.reporting(name, state=tuple(HostState)[n], since_ms=None if n % 2 else fleet.now - 1000)
        case "stale":
            return fleet.reporting(name, observed_ms=fleet.now - 100_000 * (n + 1))
        case "future":
            return fleet.reporting(name, observed_ms=fleet.now + 20_000 * (n + 1))
        case "goodbye":
            return fleet.reporting(name, goodbye=True, observed_ms=fleet.now - 200_000 * n)
        case "silent":
            return fleet.but(reports={**fleet.reports, name: None})
        case "back":
            return fleet.reporting(name, observed_ms=fleet.now, goodbye=False, state=HostState.ACCEPTING)
        case "small":
            devices = tuple(replace(d, total_bytes=d.total_bytes // 2) for d in seen.devices)
            return fleet.reporting(name, devices=devices)
        case "device gone":
            return fleet.reporting(name, devices=seen.devices[1:])
        case "unknown key":
            return fleet.but(keys=tuple(k for k in fleet.inputs().intent.desired.keys if k.host != name))
        case "expunge":
            keys = tuple(k for k in fleet.inputs().intent.desired.keys if k.host != name)
            return fleet.but(keys=(*keys, HostKey(host=name, key="ed25519:" + "0" * 64, expunged=True)))
        case "drain":
            return fleet.but(drains=(*(d for d in fleet.drains if d.host != name), Drain(host=name, reason="fan")))
        case "undrain":
            return fleet.but(drains=())
    return _to_declared(fleet, event, found, n)


def _to_declared(fleet: Fleet, event: str, found: Host, n: int) -> Fleet | None:
    def with_host(new: Host | None) -> Fleet:
        kept = tuple(new if h.id == found.id else h for h in fleet.hosts) if new is not None else None
        return fleet.but(hosts=kept if kept is not None else tuple(h for h in fleet.hosts if h.id != found.id))

    match event:
        case "undeclare":
            return with_host(None)
        case "reserve":
            devices: tuple[Device, ...] = tuple(replace(d, reserve_bytes=(2 + 3 * n) * GIB) for d in found.devices)
            return with_host(replace(found, devices=devices))
        case "tags":
            return with_host(replace(found, tags=TAGS[: n % 3], tier=TIERS[n % 3]))
        case "limit":
            return with_host(replace(found, max_replicas=1 + n % 3))
        case _:
            return None


def _to_profile(fleet: Fleet, event: str, found: Profile, n: int) -> Fleet:
    def with_profile(new: Profile | None) -> Fleet:
        others = tuple(p for p in fleet.profiles if p.name != found.name)
        return fleet.but(profiles=tuple(sorted((*others, new), key=lambda p: p.name)) if new is not None else others)

    first = found.configs[0]
    match event:
        case "profile gone":
            return with_profile(None)
        case "replicas":
            return with_profile(replace(found, replicas_min=n % 4, replicas_max=3))
        case "context":
            return with_profile(replace(found, configs=(replace(first, context=2048 * (n + 1)), *found.configs[1:])))
        case "footprint":
            new = Footprint(source=FootprintSource.DECLARED, device_bytes=(1 + 3 * n) * GIB)
            return with_profile(replace(found, configs=(replace(first, footprint=new), *found.configs[1:])))
        case "restart":
            return with_profile(replace(found, restart=Restart(max=n + 1)))
        case "serves":
            return with_profile(replace(found, serves=(f"{found.name}-{n}",)))
        case "priority":
            return with_profile(replace(found, priority=10 * n))
        case "excluded":
            others = tuple(p for p in (ProfileName(PROFILES[n % 5]),) if p != found.name)
            return with_profile(replace(found, colocation=Colocation(exclude=others), max_per_host=1))
        case "denied":
            return with_profile(replace(found, placement=replace(found.placement, deny_hosts=(HostId(HOSTS[n]),))))
        case "pinned":
            return with_profile(
                replace(found, placement=replace(found.placement, pins=(HostId(HOSTS[n]),)), replicas_max=3)
            )
        case "rename":
            new_name = ProfileName(f"new-{found.name}")
            if any(p.name == new_name for p in fleet.profiles) or found.name.startswith("new-"):
                return fleet
            others = tuple(p for p in fleet.profiles if p.name != found.name)
            renamed = replace(found, name=new_name, renamed_from=found.name)
            return fleet.but(profiles=tuple(sorted((*others, renamed), key=lambda p: p.name)))
        case _:
            return fleet


def shuffled(fleet: Fleet, order: Any) -> Fleet:
    """The same fleet with hosts, profiles, keys and reports in another order (`order` is a random.Random)."""

    def mix(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(order.sample(items, len(items)))

    keys = fleet.keys if fleet.keys is not None else fleet.inputs().intent.desired.keys
    old = fleet.learned
    learned = None
    if old is not None:
        learned = Learned(times=mix(old.times), failures=mix(old.failures), speeds=mix(old.speeds), leads=old.leads)
    fleet = fleet.but(learned=learned, prefetched=mix(fleet.prefetched), drains=mix(fleet.drains))
    return fleet.but(hosts=mix(fleet.hosts), profiles=mix(fleet.profiles), keys=mix(keys))


def later(made: Plan, fleet: Fleet) -> Fleet:
    """A minute after the plan has been carried out, with every live host still beating."""
    return fleet.applied(made, later_ms=60_000)


__all__ = ["EVENTS", "NOW", "Cook", "Drawn", "change", "fleets", "happen", "later", "make_fleet", "rolled", "shuffled"]
