"""Inputs at the edge of what files admit: no plan fails, and what has no seat is refused for an honest reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId, ScopeName
from gridops.model.plan import DecisionKind
from gridops.model.profile import (
    Colocation,
    DemandRules,
    DeviceNeed,
    Footprint,
    FootprintSource,
    PlacementRules,
    Spread,
    Timing,
)
from gridops.planner.why import NOTHING_TO_START
from tests.planner.fleet import NOW, Fleet, config, host, profile, report, with_external
from tests.planner.test_targets_forecast import entry, expect

A = host("a")
BUSY = expect(entry(9, name="c", last_used_ms=NOW), made=NOW)
ENDLESS = expect(entry(1e9, name="c", last_used_ms=NOW), made=NOW)
LATER = expect(entry(5, name="c", last_used_ms=NOW), made=NOW + 10**12)
AT_ONCE = Timing(load_ms=0, warm_ms=0, min_residency_ms=0, scale_down_after_ms=0, drain_ms=0)
NO_TIME = DemandRules(utilization_ppm=1, service_ms=0, latency_slo_ms=0, queue_per_replica=0)
C = profile("c", replicas_max=3)
VAST = Footprint(source=FootprintSource.DECLARED, device_bytes=0, kv_per_1k_bytes=1 << 50)
NOTHING = replace(C, configs=())
HELD = with_external(report(A), "gpu0", 1e6)

CASES: dict[str, tuple[Fleet, int, set[str]]] = {
    "nothing is declared": (Fleet(), 0, set()),
    "no host": (Fleet((), (profile("c", 2),)), 0, {codes.NO_DEVICES.code}),
    "a host without devices": (Fleet((host("a", (), ram=0),), (C,)), 0, {codes.NO_DEVICES.code}),
    "a card of nothing": (Fleet((host("a", (0,)),), (C,)), 0, {codes.INSUFFICIENT_DEVICE_MEMORY.code}),
    "a model that needs nothing": (Fleet((A,), (profile("c", gib=0),)), 1, set()),
    "a model that needs more than there is anywhere": (
        Fleet((A,), (profile("c", gib=1 << 20),)),
        0,
        {codes.INSUFFICIENT_DEVICE_MEMORY.code},
    ),
    "more devices than any host has": (
        Fleet((A,), (profile("c", configs=(config(devices=DeviceNeed(count=64)),)),)),
        0,
        {codes.NO_DEVICES.code},
    ),
    "others hold more than there is": (
        Fleet((A,), (C,), reports={"a": HELD}),
        0,
        {codes.INSUFFICIENT_DEVICE_MEMORY.code},
    ),
    "the last heartbeat is from the beginning of time": (
        Fleet((A,), (C,), reports={"a": report(A, at=0)}),
        0,
        {codes.HOST_STALE.code},
    ),
    "the heartbeat is from far ahead": (
        Fleet((A,), (C,), reports={"a": report(A, at=NOW + 10**12)}),
        0,
        {codes.HOST_FUTURE.code},
    ),
    "a profile without a config": (Fleet((A,), (NOTHING,)), 0, {codes.FOOTPRINT_UNKNOWN.code}),
    "the same, pinned, with demand": (
        Fleet((A,), (replace(NOTHING, placement=PlacementRules(pins=(A.id,)), replicas_max=3),), forecast=BUSY),
        0,
        {codes.FOOTPRINT_UNKNOWN.code},
    ),
    "a config for no device": (
        Fleet((A,), (profile("c", configs=(config(devices=DeviceNeed(count=0)),)),)),
        0,
        {codes.FOOTPRINT_UNKNOWN.code},
    ),
    "a model that gives memory": (Fleet((A,), (profile("c", gib=-1),)), 0, {codes.FOOTPRINT_UNKNOWN.code}),
    "a model beyond all numbers": (
        Fleet((A,), (profile("c", configs=(config(footprint=VAST, context=1 << 50),)),)),
        0,
        {codes.FOOTPRINT_UNKNOWN.code},
    ),
    "less than none per host": (
        Fleet((A,), (profile("c", gib=1), profile("d", 2, gib=30, max_per_host=-1))),
        1,
        {codes.MAX_PER_HOST.code},
    ),
    "company of nobody": (Fleet((A,), (replace(C, colocation=Colocation(max=0)),)), 1, set()),
    "no lanes": (
        Fleet((A,), (replace(C, configs=(replace(config(), lanes=0),)),), forecast=BUSY),
        1,
        {codes.MAX_PER_HOST.code},
    ),
    "demand without end": (Fleet((A,), (C,), forecast=ENDLESS), 1, {codes.MAX_PER_HOST.code}),
    "a forecast from the future": (Fleet((A,), (C,), forecast=LATER), 1, set()),
    "no time for anything": (Fleet((A,), (replace(C, timing=AT_ONCE, demand=NO_TIME),), forecast=BUSY), 1, set()),
    "a level that no host knows": (
        Fleet((A,), (profile("c", 3, gib=1, spread=Spread(by="galaxy", min=99), max_per_host=9),)),
        3,
        set(),
    ),
    "one host for three hundred models": (
        Fleet((A,), tuple(profile(f"p{n:03}", gib=1) for n in range(300))),
        22,
        {codes.INSUFFICIENT_DEVICE_MEMORY.code},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_no_plan_fails_and_every_refusal_is_honest(name: str) -> None:
    fleet, placed, reasons = CASES[name]
    made = fleet.plan()
    assert len(made.placement) == placed
    assert {u.code for u in made.report.unplaced} == reasons


def test_where_all_hosts_are_old_everybody_stays() -> None:
    hosts = tuple(host(f"h{n}") for n in range(12))
    fleet = Fleet(hosts, (profile("c", 12),))
    fleet = fleet.applied(fleet.plan())
    late = fleet.but(now=fleet.now + 10**9).plan()
    assert late.placement == fleet.plan().placement
    assert late.decisions == ()


def test_a_pin_to_what_is_no_host_of_the_scope_is_said_and_holds_nobody() -> None:
    pinned = replace(C, placement=PlacementRules(pins=(HostId("zoo"), A.id)))
    made = Fleet((A,), (pinned,)).plan()
    assert [a.seat.host for a in made.placement] == [A.id]
    assert made.report.notes == ("c is pinned to zoo, which is no host of scope default: nobody is held there",)
    away = replace(A, scope=ScopeName("lab"))
    two = Fleet((away, host("b")), (pinned,)).plan()
    assert [a.seat.host for a in two.placement] == ["b"]
    assert two.report.notes == ("c is pinned to a, zoo, which are no hosts of scope default: nobody is held there",)
    assert Fleet((A,), (C,)).plan().report.notes == ()


@pytest.mark.parametrize("hosts", [1, 40])
def test_a_profile_without_a_config_has_one_headline_and_what_runs_of_it_stays(hosts: int) -> None:
    """Forty hosts and a thousand replicas are told by counts instead of lines: both ways say the same."""
    machines = tuple(host(f"h{n:02}") for n in range(hosts))
    fleet = Fleet(machines, (C, profile("d", gib=5)))
    fleet = fleet.applied(fleet.plan())
    many = 1 if hosts == 1 else 400
    emptied = fleet.but(profiles=(replace(NOTHING, replicas_min=many + 1, replicas_max=many + 1), profile("d", gib=5)))
    made = emptied.plan()
    assert {d.kind for d in made.decisions} == {DecisionKind.CANNOT_PLACE}
    assert [a.replica for a in made.placement] == ["c/1", "d/1"]
    many_told = [] if hosts == 1 else [(codes.FOOTPRINT_UNKNOWN.code, hosts)]
    missing = {u.replica: u for u in made.report.unplaced}
    assert len(missing) == many
    assert {(u.code, u.detail) for u in missing.values()} == {(codes.FOOTPRINT_UNKNOWN.code, NOTHING_TO_START)}
    for told in missing.values():
        assert [line.code for line in told.hosts] == [codes.FOOTPRINT_UNKNOWN.code] * (0 if told.counts else hosts)
        assert [(c.code, c.hosts) for c in told.counts or ()] == many_told


def test_nobody_takes_the_place_of_the_last_of_a_profile_without_a_config() -> None:
    fleet = Fleet((A,), (C, profile("d", gib=10)))
    fleet = fleet.applied(fleet.plan())
    emptied = fleet.but(profiles=(NOTHING, profile("d", gib=10), profile("e", gib=10, priority=900)))
    made = emptied.plan()
    assert [a.replica for a in made.placement] == ["c/1", "d/1"]
    assert [(u.replica, u.code) for u in made.report.unplaced] == [("e/1", codes.INSUFFICIENT_DEVICE_MEMORY.code)]
