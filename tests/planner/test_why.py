"""Unplaced replicas: one headline, one line per declared host, the nearest miss, and text that is stable."""

from __future__ import annotations

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId
from gridops.model.fleet import Drain, HostClass
from gridops.model.plan import Unplaced
from gridops.model.profile import DeviceNeed, Footprint, FootprintSource, PlacementRules
from gridops.planner.explain import choice_in, walk
from gridops.planner.survey import CAPACITY, STRUCTURAL, WAITING, stage
from tests.planner.fleet import GIB, Fleet, config, host, laptop, profile


def only(fleet: Fleet) -> Unplaced:
    (found,) = fleet.plan().report.unplaced
    return found


def test_codes_sort_into_structure_capacity_and_waiting() -> None:
    assert [stage(c.code) for c in (codes.NO_RUNTIME, codes.UNEQUAL_DEVICES)] == [STRUCTURAL] * 2
    assert [stage(c.code) for c in (codes.INSUFFICIENT_DEVICE_MEMORY, codes.PRICE_UNKNOWN)] == [CAPACITY] * 2
    assert [stage(c.code) for c in (codes.HOST_DRAINING, codes.FAILED_HERE)] == [WAITING] * 2


def test_the_headline_is_capacity_while_any_host_could_hold_it() -> None:
    hosts = (host("ant"), host("bee", (32,)), laptop("mac"), host("ext", (), host_class=HostClass.EXTERNAL))
    found = only(Fleet(hosts=hosts, profiles=(profile("c", gib=40),), drains=(Drain(host=HostId("ant"), reason="x"),)))
    assert (found.code, found.nearest) == (codes.INSUFFICIENT_DEVICE_MEMORY.code, "bee")
    assert found.short_bytes == 40 * GIB - (32 * GIB - -(-32 * GIB * 50_000 // 1_000_000))
    assert found.detail == "fits on none of 4 hosts; nearest: bee is 9.7 GiB short"
    assert [(line.host, line.code) for line in found.hosts] == [
        ("ant", codes.HOST_DRAINING.code),
        ("bee", codes.INSUFFICIENT_DEVICE_MEMORY.code),
        ("ext", codes.EXTERNAL_HOST.code),
        ("mac", codes.WRONG_BACKEND.code),
    ]


def test_the_headline_is_waiting_when_only_waiting_stands_in_the_way() -> None:
    hosts = (host("ant"), laptop("mac"))
    found = only(Fleet(hosts=hosts, profiles=(profile("c"),), drains=(Drain(host=HostId("ant"), reason="fan"),)))
    assert (found.code, found.detail) == (codes.HOST_DRAINING.code, "fits on none of 2 hosts; ant: draining: fan")
    assert found.nearest is None


def test_the_headline_is_structural_when_the_rules_alone_leave_no_host() -> None:
    rules = PlacementRules(require_tags=("always-on",))
    found = only(Fleet(hosts=(host("ant"), host("bee"), laptop("mac")), profiles=(profile("c", placement=rules),)))
    assert (found.code, found.detail) == (
        codes.MISSING_TAG.code,
        "fits on none of 3 hosts; ant: it lacks the tag always-on",
    )


def test_an_unknown_footprint_is_the_headline_whatever_the_hosts_say() -> None:
    wanted = profile("c", configs=(config(footprint=Footprint(source=FootprintSource.UNKNOWN)),))
    found = only(Fleet(hosts=(host("ant"), laptop("mac")), profiles=(wanted,)))
    assert found.code == codes.FOOTPRINT_UNKNOWN.code
    assert "declare `footprint.device`" in found.detail


def test_one_replica_over_several_hosts_is_refused_by_name() -> None:
    wanted = profile("c", configs=(config(devices=DeviceNeed(count=4)),))
    found = only(Fleet(hosts=(host("ant", (24, 24)), host("bee", (24, 24))), profiles=(wanted,)))
    assert found.code == codes.MULTI_HOST_UNSUPPORTED.code
    assert found.detail == "needs 4 devices, the largest host has 2, and one replica never spans hosts"
    assert {line.code for line in found.hosts} == {codes.NO_DEVICES.code}
    one = only(Fleet(hosts=(host("ant", (24, 24)),), profiles=(wanted,)))
    assert one.code == codes.NO_DEVICES.code, "a single host is simply too small"


def test_of_several_configs_the_line_is_the_one_that_came_closest() -> None:
    wanted = profile("c", configs=(config("mac", backends=("metal",)), config("big", 60), config("mid", 30)))
    found = only(Fleet(hosts=(host("ant"),), profiles=(wanted,)))
    (line,) = found.hosts
    assert line.detail == "too little memory on a device for config mid"
    assert (line.need, line.have, line.unit) == (30 * GIB, 24 * GIB - -(-24 * GIB * 50_000 // 1_000_000), "bytes")


def test_without_any_host_there_is_still_a_headline() -> None:
    found = only(Fleet(profiles=(profile("c"),)))
    assert (found.hosts, found.code) == ((), codes.NO_DEVICES.code)
    assert found.detail == "no host is declared"


def test_numbers_of_each_reason_are_need_and_have() -> None:
    wanted = profile("c", 2, max_per_host=1)
    found = only(Fleet(hosts=(host("ant"),), profiles=(wanted,)))
    (line,) = found.hosts
    assert (line.code, line.need, line.have, line.unit) == (codes.MAX_PER_HOST.code, 2, 1, "count")


def test_explaining_on_demand_says_what_the_plan_would_have_said() -> None:
    fleet = Fleet(hosts=(host("ant"), host("bee", ()), laptop("mac")), profiles=(profile("c"),))
    made = fleet.plan()
    told = choice_in(walk(fleet.inputs()), made.placement[0].replica)
    assert told is not None
    assert [(line.host, line.code) for line in told.rejected] == [
        ("bee", codes.NO_DEVICES.code),
        ("mac", codes.WRONG_BACKEND.code),
    ]
    assert told == made.report.choices[0]
