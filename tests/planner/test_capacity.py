"""Room: every bound on devices, RAM, disk, slots, company and price, each with the host that misses it by a little."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from gridops.base.codes import placement as codes
from gridops.base.codes.protection import SENSOR_UNKNOWN
from gridops.base.ids import HostId, ProfileName
from gridops.model.fleet import Disk, Host, HostClass
from gridops.model.plan import Plan
from gridops.model.policy import BudgetPolicy, PriceCeiling, ProtectionPolicy, ScopeBudgets, protection_default
from gridops.model.profile import Colocation, DeviceNeed, Profile
from gridops.model.snapshot import DeviceReport, HostState, Ownership, Residency, ResidencyState
from gridops.planner.planner import Recall, plan
from tests.planner.fleet import (
    GIB,
    SCOPE,
    Fleet,
    codes_of,
    config,
    device,
    digest,
    host,
    laptop,
    profile,
    report,
    seats,
    with_external,
)

MEMORY = codes.INSUFFICIENT_DEVICE_MEMORY.code
RAM = codes.INSUFFICIENT_HOST_MEMORY.code


def alone(ant: Host, *wanted: Profile, **more: object) -> Plan:
    return Fleet(hosts=(ant,), profiles=wanted, **more).plan()  # type: ignore[arg-type]


@dataclass(frozen=True)
class Edge:
    """A host on which `fits` GiB just fit and a hundredth more does not."""

    ant: Host
    fits: float
    code: str = MEMORY
    external: tuple[str, float] | None = None
    host_gib: float = 0
    total: float | None = None
    state: HostState = HostState.ACCEPTING


EDGES = {
    "headroom of five percent": Edge(host("ant", (20,)), 19),
    "reserve": Edge(host("ant", devices=(device("gpu0", 20, reserve_bytes=4 * GIB),)), 15),
    "external use": Edge(host("ant", (20,)), 13, external=("gpu0", 6)),
    "a smaller report": Edge(host("ant", (20,)), 9.5, total=10),
    "a larger report": Edge(host("ant", (20,)), 19, total=80),
    "half of what is left when throttled": Edge(host("ant", (20,)), 10, state=HostState.THROTTLED),
}


@pytest.mark.parametrize("name", EDGES)
def test_device_memory_is_a_sum_to_the_byte(name: str) -> None:
    edge = EDGES[name]
    seen = report(edge.ant, state=edge.state)
    if edge.total is not None:
        total = int(edge.total * GIB)
        seen = replace(seen, devices=tuple(replace(d, total_bytes=total) for d in seen.devices))
    if edge.external is not None:
        seen = with_external(seen, *edge.external)
    fleet = Fleet(hosts=(edge.ant,), reports={"ant": seen})
    assert seats(fleet.but(profiles=(profile("c", gib=edge.fits),)).plan()) == {"c/1": "ant"}
    assert codes_of(fleet.but(profiles=(profile("c", gib=edge.fits + 0.01),)).plan(), "c/1") == {"ant": edge.code}


BLIND = f"{SENSOR_UNKNOWN.code}: temperature cannot be read"
SHARES = {
    "a server, by default": ("dedicated", (), ("GO601: hot",), 10),
    "a server, as its class says": ("dedicated", (25,), ("GO601: hot",), 5),
    "another class says nothing about it": ("dedicated", (None, 25), ("GO601: hot",), 10),
    "a computer of somebody": ("opportunistic", (None, 25), ("GO601: hot",), 5),
    "nothing at all": ("dedicated", (0,), (), 0),
    "only a sensor is unknown": ("opportunistic", (), (BLIND,), 15),
    "a sensor is unknown, and something else": ("opportunistic", (), (BLIND, "GO601: hot"), 10),
    "never less than where all is known": ("dedicated", (90,), (BLIND,), 18),
}
"""Class, percent that the policy says of (dedicated, opportunistic), reasons; how much of 20 GiB is for new work."""


@pytest.mark.parametrize("name", SHARES)
def test_a_throttled_host_gives_new_work_the_share_that_its_protection_says(name: str) -> None:
    kind, percents, reasons, fits = SHARES[name]
    said = zip(("dedicated", "opportunistic"), percents, strict=False)
    policy = ProtectionPolicy(
        classes=tuple(replace(protection_default(c), throttled_ppm=p * 10_000) for c, p in said if p is not None)
    )
    ant = host("ant", (20,), host_class=HostClass(kind))
    seen = report(ant, state=HostState.THROTTLED, reasons=reasons)
    fleet = Fleet(hosts=(ant,), reports={"ant": seen}, more={"protection": policy})
    small = fleet.but(profiles=(profile("c", gib=fits),)) if fits else fleet
    assert seats(small.plan()) == ({"c/1": "ant"} if fits else {})
    assert codes_of(fleet.but(profiles=(profile("c", gib=fits + 0.01),)).plan(), "c/1") == {"ant": MEMORY}


def test_a_share_that_changes_is_no_memory_of_the_last_plan() -> None:
    ant, recall = host("ant", (20,)), Recall()
    more = {"protection": ProtectionPolicy(classes=(replace(protection_default("dedicated"), throttled_ppm=250_000),))}
    fleet = Fleet(
        hosts=(ant,), profiles=(profile("c", gib=8),), reports={"ant": report(ant, state=HostState.THROTTLED)}
    )
    assert seats(plan(fleet.inputs(), recall)) == {"c/1": "ant"}
    assert seats(plan(fleet.but(more=more).inputs(), recall)) == {}
    assert seats(plan(fleet.inputs(), recall)) == {"c/1": "ant"}


def test_host_memory_is_counted_on_ram_beside_the_device() -> None:
    ant = host("ant", (24, 24), ram=10)
    heavy = profile("c", 2, configs=(config("q4", 10, host_gib=5),), max_per_host=None)
    made = alone(ant, heavy)
    assert len(made.placement) == 1, "9.5 GiB of RAM hold one host part of 5 GiB"
    assert codes_of(made, "c/2") == {"ant": RAM}


def test_on_ram_itself_both_parts_are_one_claim() -> None:
    ant = host("ant", (), runtimes=(replace(host("x").runtimes[0], backend="cpu"),))
    wanted = profile("c", configs=(config("q4", 10, backends=("cpu",), host_gib=2),))
    (seat,) = alone(ant, wanted).placement
    assert (seat.seat.devices, seat.device_bytes, seat.host_bytes) == (("cpu0",), 12 * GIB, 0)


def test_gpu_work_on_unified_memory_stops_at_its_share() -> None:
    mac = laptop("mac", devices=(device("unified0", 40, gpu_share_ppm=500_000),))
    metal = config("q4", 21, backends=("metal",))
    assert codes_of(alone(mac, profile("c", configs=(metal,))), "c/1") == {"mac": MEMORY}
    assert seats(alone(mac, profile("c", configs=(replace(metal, footprint=config(gib=20).footprint),)))) == {
        "c/1": "mac"
    }


def test_two_replicas_share_a_device_only_as_far_as_it_goes() -> None:
    both = profile("c", 3, gib=10, max_per_host=None)
    made = alone(host("ant", (24,)), both)
    assert len(made.placement) == 2
    assert codes_of(made, "c/3") == {"ant": MEMORY}


def test_every_device_of_a_set_needs_room() -> None:
    pair = profile("pair", configs=(config("p", 20, devices=DeviceNeed(count=2)),))
    one = profile("one", gib=10, priority=200)
    made = alone(host("ant", (24, 24)), pair, one)
    assert codes_of(made, "pair/1") == {"ant": MEMORY}
    made = alone(host("ant", (24, 24, 24)), pair, one)
    assert {a.replica: a.seat.devices for a in made.placement} == {"one/1": ("gpu0",), "pair/1": ("gpu1", "gpu2")}


def test_equal_devices_are_taken_where_the_split_is_even() -> None:
    mixed = host("ant", devices=tuple(device(f"gpu{n}", g) for n, g in enumerate((24, 48, 24, 48))))
    even = profile("c", configs=(config("p", 20, devices=DeviceNeed(count=2)),))
    (seat,) = alone(mixed, even).placement
    assert seat.seat.devices == ("gpu0", "gpu2")
    models = replace(mixed, devices=tuple(replace(d, model="a" if n < 2 else "b") for n, d in enumerate(mixed.devices)))
    uneven = profile("c", configs=(config("p", 20, devices=DeviceNeed(count=3, uneven=True)),))
    (seat,) = alone(models, uneven).placement
    assert len(seat.seat.devices) == 3


def test_linked_devices_are_mutual_peers() -> None:
    def gpu(n: int, *peers: int) -> object:
        return device(f"gpu{n}", 24, peers=tuple(f"gpu{p}" for p in peers))

    ant = host("ant", devices=(gpu(0), gpu(1, 2, 3), gpu(2, 1), gpu(3, 1)))
    linked = profile("c", configs=(config("p", 20, devices=DeviceNeed(count=2, link="peer")),))
    (seat,) = alone(ant, linked).placement
    assert seat.seat.devices == ("gpu1", "gpu2")


def test_the_tightest_device_is_taken_so_that_large_gaps_stay() -> None:
    ant = host("ant", (48, 24, 32))
    (seat,) = alone(ant, profile("c", gib=20)).placement
    assert seat.seat.devices == ("gpu1",)


def test_a_hundred_devices_sort_by_number() -> None:
    ant = host("ant", (24,) * 12)
    made = alone(ant, profile("c", 11, gib=20, max_per_host=None))
    assert [a.seat.devices[0] for a in made.placement] == [f"gpu{n}" for n in range(11)]


DISKS = {
    "reported": (host("ant"), 4, 3.9),
    "less what stays free": (host("ant", disk=Disk(artifacts_bytes=100 * GIB, keep_free_bytes=10 * GIB)), 14, 13.9),
}


@pytest.mark.parametrize("name", DISKS)
def test_artifacts_that_are_not_there_need_disk(name: str) -> None:
    ant, enough, short = DISKS[name]
    fleet = Fleet(hosts=(ant,), profiles=(profile("c"),))
    assert seats(fleet.reporting("ant", disk_free_bytes=int(enough * GIB)).plan()) == {"c/1": "ant"}
    full = fleet.reporting("ant", disk_free_bytes=int(short * GIB))
    assert codes_of(full.plan(), "c/1") == {"ant": codes.DISK_FULL.code}
    cached = full.reporting("ant", cached=(digest("c-q4"),))
    assert seats(cached.plan()) == {"c/1": "ant"}


def test_disk_is_promised_once_and_one_artifact_is_fetched_once() -> None:
    fleet = Fleet(hosts=(host("ant", (24, 24)),), profiles=(profile("a", gib=5), profile("b", gib=5)))
    made = fleet.reporting("ant", disk_free_bytes=6 * GIB).plan()
    assert (seats(made), codes_of(made, "b/1")) == ({"a/1": "ant"}, {"ant": codes.DISK_FULL.code})
    shared = (profile("a", gib=5, configs=(config("x", 5),)), profile("b", gib=5, configs=(config("x", 5),)))
    assert len(fleet.but(profiles=shared).reporting("ant", disk_free_bytes=6 * GIB).plan().placement) == 2


def test_slots_count_foreign_residencies_too() -> None:
    foreign = Residency(profile=ProfileName("theirs"), state=ResidencyState.READY, ownership=Ownership.EXTERNAL)
    fleet = Fleet(hosts=(host("ant", (24, 24), max_replicas=1),), profiles=(profile("c"),))
    assert seats(fleet.plan()) == {"c/1": "ant"}
    made = fleet.reporting("ant", residencies=(foreign,)).plan()
    assert codes_of(made, "c/1") == {"ant": codes.MAX_REPLICAS.code}


def test_max_per_host_keeps_replicas_apart() -> None:
    made = alone(host("ant", (24, 24)), profile("c", 2))
    assert codes_of(made, "c/2") == {"ant": codes.MAX_PER_HOST.code}
    assert len(alone(host("ant", (24, 24)), profile("c", 2, max_per_host=2)).placement) == 2


COMPANY = {
    "the newcomer wants to be alone": (Colocation(), Colocation(max=1)),
    "the one there wants to be alone": (Colocation(max=1), Colocation()),
    "the newcomer excludes": (Colocation(), Colocation(exclude=(ProfileName("first"),))),
    "the one there excludes": (Colocation(exclude=(ProfileName("second"),)), Colocation()),
}


@pytest.mark.parametrize("name", COMPANY)
def test_colocation_holds_in_both_directions(name: str) -> None:
    there, newcomer = COMPANY[name]
    first = profile("first", gib=5, priority=200, colocation=there)
    second = profile("second", gib=5, colocation=newcomer)
    made = alone(host("ant", (24, 24)), first, second)
    assert (seats(made), codes_of(made, "second/1")) == ({"first/1": "ant"}, {"ant": codes.COLOCATION.code})


def test_colocation_counts_profiles_and_not_replicas() -> None:
    several = profile("c", 3, gib=5, max_per_host=None, colocation=Colocation(max=1))
    assert len(alone(host("ant", (24, 24)), several).placement) == 3


def test_foreign_engines_are_company() -> None:
    foreign = Residency(profile=ProfileName("theirs"), state=ResidencyState.READY, ownership=Ownership.EXTERNAL)
    picky = profile("c", colocation=Colocation(exclude=(ProfileName("theirs"),)))
    made = Fleet(hosts=(host("ant"),), profiles=(picky,)).reporting("ant", residencies=(foreign,)).plan()
    assert codes_of(made, "c/1") == {"ant": codes.COLOCATION.code}


def test_what_nobody_can_vouch_for_keeps_its_memory_and_its_slot() -> None:
    lost = Residency(
        profile=ProfileName("old"),
        state=ResidencyState.UNKNOWN,
        replica="old/1",  # type: ignore[arg-type]
        incarnation=digest("x"),
        devices=("gpu0",),  # type: ignore[arg-type]
        device_bytes=15 * GIB,
    )
    fleet = Fleet(hosts=(host("ant"),), profiles=(profile("c"),)).reporting("ant", residencies=(lost,))
    assert codes_of(fleet.plan(), "c/1") == {"ant": MEMORY}
    slots = fleet.but(hosts=(host("ant", (24, 24), max_replicas=1),), reports={})
    made = slots.reporting("ant", residencies=(lost,)).plan()
    assert codes_of(made, "c/1") == {"ant": codes.MAX_REPLICAS.code}


def test_a_process_that_will_leave_is_no_hindrance() -> None:
    leaving = Residency(
        profile=ProfileName("old"),
        state=ResidencyState.READY,
        replica="old/1",  # type: ignore[arg-type]
        incarnation=digest("x"),
        devices=("gpu0",),  # type: ignore[arg-type]
        device_bytes=20 * GIB,
    )
    fleet = Fleet(hosts=(host("ant"), host("bee", max_replicas=0)), profiles=(profile("c"),))
    assert seats(fleet.reporting("ant", residencies=(leaving,)).plan()) == {"c/1": "ant"}
    # But a host where nothing has to leave first is better.
    free = fleet.but(hosts=(host("ant"), host("zeb", (48,))), reports={}).reporting("ant", residencies=(leaving,))
    assert seats(free.plan()) == {"c/1": "zeb"}


def ceiling(micro: int, unknown: str = "refuse") -> dict[str, object]:
    price = PriceCeiling(max_per_hour_micro=micro, unknown=unknown)
    return {"budgets": BudgetPolicy(scopes=(ScopeBudgets(scope=SCOPE, price=price),))}


def test_a_price_ceiling_bounds_the_hosts_in_use() -> None:
    hosts = (host("ant", price_per_hour_micro=600_000), host("bee", price_per_hour_micro=600_000))
    made = Fleet(hosts=hosts, profiles=(profile("c", 2),), more=ceiling(1_000_000)).plan()
    assert seats(made) == {"c/1": "ant"}
    assert codes_of(made, "c/2") == {"ant": codes.MAX_PER_HOST.code, "bee": codes.PRICE_CEILING.code}


def test_a_host_in_use_costs_once() -> None:
    ant = host("ant", (24, 24), price_per_hour_micro=600_000)
    assert (
        len(Fleet(hosts=(ant,), profiles=(profile("c", 2, max_per_host=2),), more=ceiling(600_000)).plan().placement)
        == 2
    )


def test_an_unknown_price_is_refused_under_a_ceiling_unless_allowed() -> None:
    fleet = Fleet(hosts=(host("ant"),), profiles=(profile("c"),), more=ceiling(1_000_000))
    assert codes_of(fleet.plan(), "c/1") == {"ant": codes.PRICE_UNKNOWN.code}
    assert seats(fleet.but(more=ceiling(1_000_000, "allow")).plan()) == {"c/1": "ant"}


def test_a_ceiling_takes_nothing_that_runs() -> None:
    fleet = Fleet(hosts=(host("ant", price_per_hour_micro=600_000),), profiles=(profile("c"),))
    made = fleet.plan()
    assert fleet.applied(made).but(more=ceiling(1)).plan().to_do == ()


def test_external_hosts_hold_nothing_and_serve_nothing_here() -> None:
    cloud = host("cloud", (), ram=0, host_class=HostClass.EXTERNAL, endpoint="https://x.example/v1", models=("c",))
    made = alone(cloud, profile("c"))
    assert codes_of(made, "c/1") == {"cloud": codes.EXTERNAL_HOST.code}


def test_a_kept_replica_may_sit_in_the_headroom_and_a_new_one_may_not_join_it() -> None:
    fleet = Fleet(hosts=(host("ant", (20,)),), profiles=(profile("c", gib=15),))
    kept = fleet.applied(fleet.plan())
    seen = kept.snapshot().host(HostId("ant"))
    assert seen is not None
    tight = kept.but(reports={"ant": with_external(seen, "gpu0", 5)})
    assert tight.plan().to_do == (), "15 of 15 GiB: nothing moves, though less than the headroom is left"
    joined = tight.but(profiles=(profile("c", gib=15), profile("tiny", gib=0.1)))
    assert codes_of(joined.plan(), "tiny/1") == {"ant": MEMORY}


def test_a_report_without_a_device_takes_its_memory_away() -> None:
    ant = host("ant", (24, 24))
    first = DeviceReport(id=ant.devices[0].id, kind=ant.devices[0].kind, total_bytes=24 * GIB)
    cpu = DeviceReport(id=ant.devices[2].id, kind=ant.devices[2].kind, total_bytes=64 * GIB)
    made = (
        Fleet(hosts=(ant,), profiles=(profile("c", 3, max_per_host=None),))
        .reporting("ant", devices=(first, cpu))
        .plan()
    )
    assert len(made.placement) == 2
