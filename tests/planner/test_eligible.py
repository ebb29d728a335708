"""Every rule that forbids a host, one row each: the host that breaks it is named with the rule's code, no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import EngineName, HostId
from gridops.model.fleet import DeviceKind, Drain, Host, HostClass, HostKey, Runtime
from gridops.model.profile import Config, DeviceNeed, Footprint, FootprintSource, Heads, PlacementRules, Profile
from gridops.model.snapshot import DeviceReport, HostState, Residency, ResidencyState, SnapshotSource
from gridops.planner.planner import plan
from tests.planner.fleet import (
    GIB,
    NOW,
    Fleet,
    codes_of,
    config,
    device,
    digest,
    host,
    laptop,
    profile,
    report,
    running,
    seats,
)

WELL = host("zeb", (24, 24), tags=("always-on",), tier="confidential")


@dataclass(frozen=True)
class Row:
    """One way for host `ant` to be wrong for profile `coder`. `fleet` changes anything else."""

    code: str
    ant: Host
    coder: Profile = profile("coder", gib=10)
    fleet: Callable[[Fleet], Fleet] = lambda fleet: fleet


def with_config(**more: object) -> Profile:
    return profile("coder", configs=(config("q4", **more),))  # type: ignore[arg-type]


def rules(**more: object) -> Profile:
    return profile("coder", placement=PlacementRules(**more))  # type: ignore[arg-type]


def pair(**more: object) -> Config:
    return config("q4", devices=DeviceNeed(count=2, **more))  # type: ignore[arg-type]


def with_gpus(**more: object) -> Callable[[Fleet], Fleet]:
    """The host that is well says this of its cards."""
    cards = tuple(replace(d, **more) if d.kind is DeviceKind.GPU else d for d in WELL.devices)  # type: ignore[arg-type]
    return lambda fleet: fleet.but(hosts=(fleet.hosts[0], replace(WELL, devices=cards)))


CUT_UP = (
    DeviceReport(id="gpu0", kind=DeviceKind.GPU, total_bytes=24 * GIB),  # type: ignore[arg-type]
    DeviceReport(id="gpu0.0", kind=DeviceKind.GPU, total_bytes=12 * GIB, parent="gpu0"),  # type: ignore[arg-type]
)


def peers(*names: str) -> Host:
    gpus = tuple(device(n, 24, peers=tuple(HostId(p) for p in names if p != n)) for n in ("gpu0", "gpu1"))
    return host("ant", devices=(*gpus, device("cpu0", 64)))


LINKED = replace(WELL, devices=(*peers("gpu0", "gpu1").devices,))
FAILED = Residency(
    profile="coder",  # type: ignore[arg-type]
    state=ResidencyState.FAILED,
    replica="coder/9",  # type: ignore[arg-type]
    incarnation=digest("x"),
)

ROWS: dict[str, Row] = {
    "external endpoint": Row(codes.EXTERNAL_HOST.code, host("ant", host_class=HostClass.EXTERNAL)),
    "other scope": Row(codes.OTHER_SCOPE.code, host("ant", scope="lab")),
    "no such engine": Row(codes.NO_RUNTIME.code, host("ant", runtimes=(Runtime(engine="vllm", backend="cuda"),))),  # type: ignore[arg-type]
    "engine declared, not reported": Row(
        codes.NO_RUNTIME.code, host("ant"), fleet=lambda f: f.reporting("ant", runtimes=())
    ),
    "engine reported, not declared": Row(
        codes.NO_RUNTIME.code,
        host("ant", runtimes=(Runtime(engine="vllm", backend="cuda"),)),  # type: ignore[arg-type]
        fleet=lambda f: f.reporting("ant", runtimes=(Runtime(engine="llama.cpp", backend="cuda"),)),  # type: ignore[arg-type]
    ),
    "other backend": Row(
        codes.WRONG_BACKEND.code, host("ant", runtimes=(Runtime(engine="llama.cpp", backend="rocm"),))
    ),  # type: ignore[arg-type]
    "missing tag": Row(codes.MISSING_TAG.code, host("ant"), rules(require_tags=("always-on",))),
    "forbidden tag": Row(codes.FORBIDDEN_TAG.code, host("ant", tags=("guest",)), rules(forbid_tags=("guest",))),
    "tier too low": Row(codes.TIER_TOO_LOW.code, host("ant", tier="public"), rules(tier="internal")),
    "no tier is the lowest": Row(codes.TIER_TOO_LOW.code, host("ant"), rules(tier="internal")),
    "a tier nobody ordered is worth nothing": Row(
        codes.TIER_TOO_LOW.code, host("ant", tier="top"), rules(tier="internal")
    ),
    "not allowed": Row(codes.NOT_ALLOWED.code, host("ant"), rules(allow_hosts=(HostId("zeb"),))),
    "denied": Row(codes.DENIED.code, host("ant"), rules(deny_hosts=(HostId("ant"),))),
    "no device of the kind": Row(codes.NO_DEVICES.code, host("ant", ())),
    "too few devices": Row(codes.NO_DEVICES.code, host("ant", (24,)), profile("coder", configs=(pair(),))),
    "device not reported": Row(codes.NO_DEVICES.code, host("ant"), fleet=lambda f: f.reporting("ant", devices=())),
    "links not stated": Row(
        codes.LINK_UNKNOWN.code,
        host("ant", (24, 24)),
        profile("coder", configs=(pair(link="peer"),)),
        lambda f: f.but(hosts=(f.hosts[0], LINKED)),
    ),
    "not peers of each other": Row(
        codes.LINK_UNKNOWN.code,
        peers("gpu0"),
        profile("coder", configs=(pair(link="peer"),)),
        lambda f: f.but(hosts=(f.hosts[0], LINKED)),
    ),
    "numa not stated": Row(
        codes.NUMA_APART.code, host("ant", (24, 24)), profile("coder", configs=(pair(numa="same"),)), with_gpus(numa=1)
    ),
    "on two numa domains": Row(
        codes.NUMA_APART.code,
        host("ant", devices=(device("gpu0", 24, numa=0), device("gpu1", 24, numa=1))),
        profile("coder", configs=(pair(numa="same"),)),
        with_gpus(numa=1),
    ),
    "pcie not stated": Row(
        codes.PCIE_TOO_SLOW.code,
        host("ant"),
        with_config(devices=DeviceNeed(pcie_bps=100)),
        with_gpus(pcie_bps=100),
    ),
    "pcie too slow": Row(
        codes.PCIE_TOO_SLOW.code,
        host("ant", devices=(device("gpu0", 24, pcie_bps=99),)),
        with_config(devices=DeviceNeed(pcie_bps=100)),
        with_gpus(pcie_bps=100),
    ),
    "a card of another maker": Row(
        codes.NO_DEVICES.code, host("ant", devices=(device("gpu0", 24, backend="rocm"), device("cpu0", 64)))
    ),
    "only a card that is cut up": Row(
        codes.NO_DEVICES.code, host("ant"), fleet=lambda f: f.reporting("ant", devices=CUT_UP)
    ),
    "parts of a card": Row(
        codes.NO_DEVICES.code,
        host("ant", devices=(device("gpu0", 48), *(device(f"gpu0.{n}", 24, parent="gpu0") for n in (0, 1)))),
        profile("coder", configs=(pair(),)),
    ),
    "unequal devices": Row(codes.UNEQUAL_DEVICES.code, host("ant", (24, 16)), profile("coder", configs=(pair(),))),
    "host memory unknown": Row(codes.HOST_MEMORY_UNKNOWN.code, host("ant", ram=0), with_config(host_gib=1)),
    "drained": Row(
        codes.HOST_DRAINING.code, host("ant"), fleet=lambda f: f.but(drains=(Drain(host=HostId("ant"), reason="fan"),))
    ),
    "drains itself": Row(
        codes.HOST_DRAINING.code, host("ant"), fleet=lambda f: f.reporting("ant", state=HostState.DRAINING)
    ),
    "paused": Row(codes.HOST_STATE.code, host("ant"), fleet=lambda f: f.reporting("ant", state=HostState.PAUSED)),
    "unhealthy": Row(codes.HOST_STATE.code, host("ant"), fleet=lambda f: f.reporting("ant", state=HostState.UNHEALTHY)),
    "quarantined": Row(
        codes.HOST_STATE.code, host("ant"), fleet=lambda f: f.reporting("ant", state=HostState.QUARANTINED)
    ),
    "stale": Row(codes.HOST_STALE.code, host("ant"), fleet=lambda f: f.reporting("ant", observed_ms=NOW - 90_001)),
    "from the future": Row(
        codes.HOST_FUTURE.code, host("ant"), fleet=lambda f: f.reporting("ant", observed_ms=NOW + 30_001)
    ),
    "said goodbye": Row(codes.HOST_AWAY.code, host("ant"), fleet=lambda f: f.reporting("ant", goodbye=True)),
    "has left": Row(codes.HOST_LEFT.code, host("ant"), fleet=lambda f: f.reporting("ant", goodbye=True, left=True)),
    "never reported": Row(codes.HOST_UNREPORTED.code, host("ant"), fleet=lambda f: f.but(reports={"ant": None})),
    "no key": Row(
        codes.NOT_ADMITTED.code, host("ant"), fleet=lambda f: f.but(keys=(HostKey(host=HostId("zeb"), key="k"),))
    ),
    "expunged": Row(
        codes.NOT_ADMITTED.code,
        host("ant"),
        fleet=lambda f: f.but(
            keys=(HostKey(host=HostId("ant"), key="k", expunged=True), HostKey(host=HostId("zeb"), key="k"))
        ),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_rule_forbids_its_host_and_no_other(name: str) -> None:
    row = ROWS[name]
    two = row.fleet(Fleet(hosts=(row.ant, WELL), profiles=(row.coder,)))
    assert seats(two.plan()) == {"coder/1": "zeb"}
    alone = two.but(hosts=two.hosts[:1])
    made = alone.plan()
    assert codes_of(made, "coder/1") == {"ant": row.code}


NOBODY = {
    "indivisible attention heads": (
        codes.SHARD_INDIVISIBLE.code,
        config("q4", devices=DeviceNeed(count=2, shard="tensor"), heads=Heads(attention=25)),
    ),
    "indivisible vocabulary": (
        codes.SHARD_INDIVISIBLE.code,
        config("q4", devices=DeviceNeed(count=2, shard="tensor"), heads=Heads(vocabulary=10001)),
    ),
    "indivisible vision heads": (
        codes.SHARD_INDIVISIBLE.code,
        config("q4", devices=DeviceNeed(count=2, shard="tensor"), heads=Heads(vision=3)),
    ),
    "indivisible kv heads": (
        codes.SHARD_INDIVISIBLE.code,
        config("q4", devices=DeviceNeed(count=2, shard="tensor"), heads=Heads(attention=24, kv=3)),
    ),
    "unknown footprint": (codes.FOOTPRINT_UNKNOWN.code, config(footprint=Footprint(source=FootprintSource.UNKNOWN))),
    "several hosts": (codes.MULTI_HOST_UNSUPPORTED.code, config(devices=DeviceNeed(count=3))),
}


@pytest.mark.parametrize("name", NOBODY)
def test_some_configs_stand_nowhere_and_say_why(name: str) -> None:
    code, wanted = NOBODY[name]
    made = Fleet(
        hosts=(host("ant", (24, 24)), host("bee", (24, 24))), profiles=(profile("coder", configs=(wanted,)),)
    ).plan()
    assert made.placement == ()
    assert [u.code for u in made.report.unplaced] == [code]


def test_fewer_kv_heads_than_devices_may_be_copied() -> None:
    wanted = config("q4", devices=DeviceNeed(count=4, shard="tensor"), heads=Heads(attention=32, kv=2))
    assert seats(Fleet(hosts=(host("ant", (24,) * 4),), profiles=(profile("c", configs=(wanted,)),)).plan()) == {
        "c/1": "ant"
    }


def test_a_split_without_tensor_sharding_asks_nothing_of_the_heads() -> None:
    wanted = config("q4", devices=DeviceNeed(count=2), heads=Heads(attention=25))
    assert seats(Fleet(hosts=(host("ant", (24, 24)),), profiles=(profile("c", configs=(wanted,)),)).plan()) == {
        "c/1": "ant"
    }


def test_an_engine_that_splits_tensors_by_itself_divides_the_heads_although_nobody_says_how() -> None:
    wanted = replace(config("q4", devices=DeviceNeed(count=2), heads=Heads(attention=25)), engine=EngineName("vllm"))
    ant = host("ant", (24, 24), runtimes=(Runtime(engine=EngineName("vllm"), backend="cuda"),))
    fleet = Fleet(hosts=(ant,), profiles=(profile("c", configs=(wanted,)),))
    assert codes_of(fleet.plan(), "c/1") == {"ant": codes.SHARD_INDIVISIBLE.code}
    cut = replace(wanted, devices=DeviceNeed(count=2, shard="pipeline"))
    assert seats(fleet.but(profiles=(profile("c", configs=(cut,)),)).plan()) == {"c/1": "ant"}


def test_a_heartbeat_of_exactly_the_allowed_age_counts() -> None:
    fleet = Fleet(hosts=(host("ant"),), profiles=(profile("coder"),))
    assert seats(fleet.reporting("ant", observed_ms=NOW - 90_000).plan()) == {"coder/1": "ant"}
    assert seats(fleet.reporting("ant", observed_ms=NOW + 30_000).plan()) == {"coder/1": "ant"}


def test_a_drain_that_is_over_is_no_drain() -> None:
    fleet = Fleet(hosts=(host("ant"),), profiles=(profile("coder"),))
    over = fleet.but(drains=(Drain(host=HostId("ant"), reason="fan", until_ms=NOW),))
    assert seats(over.plan()) == {"coder/1": "ant"}


BACKENDS = {
    "cuda takes a gpu before unified memory": ("cuda", ("unified0", "gpu0"), "gpu0"),
    "cuda takes unified memory where there is no gpu": ("cuda", ("unified0", "cpu0"), "unified0"),
    "metal takes unified memory": ("metal", ("unified0",), "unified0"),
    "cpu takes ram": ("cpu", ("gpu0", "cpu0"), "cpu0"),
    "cpu takes unified memory where it is the ram": ("cpu", ("unified0",), "unified0"),
    "rocm takes a gpu": ("rocm", ("gpu0", "cpu0"), "gpu0"),
}


@pytest.mark.parametrize("name", BACKENDS)
def test_the_backend_selects_the_kind_of_device(name: str) -> None:
    backend, devices, expected = BACKENDS[name]
    ant = host(
        "ant",
        devices=tuple(device(d, 24) for d in devices),
        runtimes=(Runtime(engine="llama.cpp", backend=backend),),  # type: ignore[arg-type]
    )
    made = Fleet(hosts=(ant,), profiles=(profile("c", configs=(config("q4", backends=(backend,)),)),)).plan()
    assert [a.seat.devices for a in made.placement] == [(expected,)]


def test_an_unknown_backend_runs_nowhere() -> None:
    ant = host("ant", runtimes=(Runtime(engine="llama.cpp", backend="abacus"),))  # type: ignore[arg-type]
    made = Fleet(hosts=(ant,), profiles=(profile("c", configs=(config("q4", backends=("abacus",)),)),)).plan()
    assert codes_of(made, "c/1") == {"ant": codes.NO_DEVICES.code}


def test_configs_are_tried_in_order_of_preference() -> None:
    both = profile("c", configs=(config("big", 40), config("small", 10), config("mac", 10, backends=("metal",))))
    made = Fleet(hosts=(host("ant"), laptop("mac")), profiles=(both,)).plan()
    assert [(a.seat.host, next(n.config for n in made.launches)) for a in made.placement] == [("ant", "small")]


def test_a_host_where_this_very_command_failed_is_not_tried_again() -> None:
    fleet = Fleet(hosts=(host("ant"), host("bee")), profiles=(profile("coder"),))
    made = fleet.plan()
    (seat,) = made.placement
    assert seat.seat.host == "ant"
    failed = fleet.applied(made).reporting(
        "ant", residencies=(running(seat, made, ResidencyState.FAILED, detail="no kernel"),)
    )
    moved = failed.plan()
    assert seats(moved) == {"coder/1": "bee"}
    alone = failed.but(hosts=failed.hosts[:1])
    assert seats(alone.plan()) == {"coder/1": "ant"}, "with nowhere to go it stays"
    other = failed.but(parent=None, hosts=failed.hosts[:1])
    assert codes_of(other.plan(), "coder/1") == {"ant": codes.FAILED_HERE.code}


def test_declared_hosts_alone_count_as_they_are_declared() -> None:
    fleet = Fleet(hosts=(host("ant"),), profiles=(profile("coder"),), keys=(), source=SnapshotSource.DECLARED)
    made = fleet.plan()
    assert seats(made) == {"coder/1": "ant"}
    assert made.hypothetical


def test_stored_state_is_taken_at_the_age_of_its_observation() -> None:
    fleet = Fleet(hosts=(host("ant"),), profiles=(profile("coder"),), source=SnapshotSource.STATE)
    inputs = fleet.inputs()
    old = plan(replace(inputs, now_ms=NOW + 3_600_000))
    assert seats(old) == {"coder/1": "ant"}


def test_a_report_of_another_kind_is_not_the_declared_device() -> None:
    fleet = Fleet(hosts=(host("ant", ram=0),), profiles=(profile("coder"),))
    seen = (DeviceReport(id=fleet.hosts[0].devices[0].id, kind=DeviceKind.CPU, total_bytes=24 * GIB),)
    made = fleet.but(reports={"ant": report(fleet.hosts[0], devices=seen)}).plan()
    assert codes_of(made, "coder/1") == {"ant": codes.NO_DEVICES.code}
