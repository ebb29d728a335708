"""Whose step is given first when not all can be: each row is one reason to go before another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridops.base.ids import Digest, HostId
from gridops.model.plan import DecisionKind, Plan
from gridops.model.profile import PlacementRules, Profile, Timing
from gridops.model.snapshot import ResidencyState
from tests.planner.fleet import Fleet, digest, host, profile
from tests.planner.test_actions import alter, converged, state, steps, told
from tests.planner.walk import Walk

HOSTS = tuple(host(f"h{n}") for n in range(6))
RESTED = 600_000


def only(name: str, *hosts: str, gib: float = 18, replicas: int = 1, **more: Any) -> Profile:
    return profile(name, replicas, gib=gib, placement=PlacementRules(allow_hosts=tuple(map(HostId, hosts))), **more)


def first(fleet: Fleet, made: Plan) -> list[str]:
    """Steps that may be given now, in their order."""
    return [line for line in told(steps(fleet, made)) if ":" not in line]


def holding(fleet: Fleet, name: str, *weights: str) -> Fleet:
    old = fleet.reports.get(name)
    had: tuple[Digest, ...] = old.cached if old is not None else ()
    return fleet.reporting(name, cached=tuple(sorted({*had, *map(digest, weights)})))


def test_one_replica_of_each_profile_comes_before_the_second_of_any() -> None:
    fleet = Fleet(hosts=HOSTS, profiles=(profile("a", 3, gib=18), profile("z", 2, gib=18)))
    assert [s.split()[1] for s in first(fleet, fleet.plan())] == ["a/1", "z/1", "a/2", "z/2", "a/3"]


def test_replicas_that_stand_count_as_turns() -> None:
    fleet = converged(profile("a", 2, gib=18), hosts=HOSTS)
    assert fleet.parent is not None
    lost = fleet.parent.placement[0].seat.host
    grown = fleet.reporting(lost, residencies=(), cached=()).but(profiles=(profile("a", 2, gib=18), only("z", "h5")))
    assert [s.split()[1] for s in first(grown, grown.plan())] == ["z/1", "a/1"]


def test_what_can_serve_at_once_is_not_stranded_behind_a_fetch() -> None:
    fleet = holding(Fleet(hosts=HOSTS, profiles=(only("a", "h0"), only("z", "h1"))), "h1", "z-q4")
    assert first(fleet, fleet.plan()) == ["warm z/1 h1", "load a/1 h0"]


def test_of_equal_fetches_the_one_that_serves_sooner_begins() -> None:
    slow, quick = Timing(load_ms=90_000), Timing(load_ms=20_000)
    fleet = Fleet(hosts=HOSTS, profiles=(only("a", "h0", timing=slow), only("z", "h1", timing=quick)))
    assert first(fleet, fleet.plan()) == ["load z/1 h1", "load a/1 h0"]


def test_what_the_file_asks_for_comes_before_what_demand_adds() -> None:
    """Two of `a` stand by the file's wish of one: the second is demand's, and waits for the first of `z`."""
    fleet = Fleet(hosts=HOSTS, profiles=(profile("a", 2, gib=18), only("z", "h5", replicas=1)))
    made = fleet.plan()
    eager = replace(made, terms=tuple(replace(t, replicas_min=1) if t.profile == "a" else t for t in made.terms))
    cached = holding(holding(fleet, "h0", "a-q4"), "h1", "a-q4")
    assert first(cached, eager) == ["warm a/1 h0", "load z/1 h5", "warm a/2 h1"]


LOW = profile("low", 2, gib=18, priority=50, max_per_host=1, timing=Timing(min_residency_ms=0))


def displaced(high: Profile, *more: Profile, hosts: int = 2, low: Profile = LOW) -> tuple[Fleet, Plan]:
    """Everybody less important stands, and `high` comes; its files are there."""
    fleet = Fleet(hosts=HOSTS[:hosts], profiles=(low,))
    fleet = fleet.applied(fleet.plan(), later_ms=RESTED)
    for h in fleet.hosts:
        fleet = holding(fleet, h.id, "high-q4")
    fleet = fleet.but(profiles=(low, high, *more), hosts=HOSTS[: hosts + len(more)])
    return fleet, fleet.plan()


def test_who_leaves_for_somebody_important_goes_before_an_unrelated_start() -> None:
    late = profile("late", 1, gib=18, priority=100)
    fleet, made = displaced(only("high", "h0", "h1", priority=200), late)
    (gone,) = [d.replica for d in made.decisions if d.kind is DecisionKind.REMOVE]
    assert [s.split()[:2] for s in first(fleet, made)] == [["drain", gone], ["load", "late/1"]]


def test_who_leaves_for_nobody_goes_last() -> None:
    fleet = converged(profile("a", 2, gib=18, priority=900), hosts=HOSTS)
    less = fleet.but(profiles=(profile("a", 1, gib=18, priority=900), profile("z", 1, gib=18, priority=1)))
    assert [s.split()[0] for s in first(less, less.plan())] == ["load", "drain"]


def test_who_gives_way_serves_until_the_files_of_the_next_one_are_there() -> None:
    fleet, made = displaced(only("high", "h0", "h1", priority=200))
    (gone,) = [d for d in made.decisions if d.kind is DecisionKind.REMOVE]
    assert gone.source is not None
    place = gone.source.host
    bare = fleet.reporting(place, cached=(digest("low-q4"),))
    assert told(steps(bare, made)) == [
        f"drain {gone.replica} {place}: the files of high/1, which takes its place",
        f"load high/1 {place}",
        f"warm high/1 {place}: its artifact",
    ]
    assert f"drain {gone.replica} {place}" in told(steps(fleet, made))
    dead = alter(bare, gone.replica, state(ResidencyState.FAILED))
    assert f"unload {gone.replica} {place}" in told(steps(dead, made)), "what serves nobody is not kept for anybody"
    order = [line.split()[0] for line in Walk(bare, made).run().taken]
    assert order == ["load", "drain", "unload", "warm"]


def groups() -> tuple[Fleet, Plan]:
    """`a/2` and `a/3` leave h2 for `big`, `z/2` h3 for `new`; the first of each stays elsewhere. Files are there."""
    rested = Timing(min_residency_ms=0)
    a = only("a", "h0", "h2", gib=9, replicas=3, priority=50, max_per_host=2, timing=rested)
    z = only("z", "h1", "h3", replicas=2, priority=50, max_per_host=1, timing=rested)
    fleet = Fleet(hosts=(host("h0", max_replicas=1), *HOSTS[1:4]), profiles=(a, z))
    fleet = fleet.applied(fleet.plan(), later_ms=RESTED)
    for name in ("h2", "h3"):
        fleet = holding(fleet, name, "big-q4", "new-q4")
    fleet = fleet.but(profiles=(a, z, only("big", "h2", priority=200), only("new", "h3", priority=200)))
    made = fleet.plan()
    gone = {d.replica: d.source.host for d in made.decisions if d.kind is DecisionKind.REMOVE and d.source is not None}
    assert gone == {"a/2": "h2", "a/3": "h2", "z/2": "h3"}
    return fleet, made


RELEASES = {
    "the seat that lacks the fewest steps": ({}, ["drain z/2 h3", "drain a/2 h2", "drain a/3 h2"]),
    "who is drained before who is not": (
        {"a/3": state(ResidencyState.DRAINING)},
        ["unload a/3 h2", "drain z/2 h3", "drain a/2 h2"],
    ),
    "who is idle before who works": (
        {"z/2": state(ResidencyState.READY, in_flight=3)},
        ["drain a/2 h2", "drain a/3 h2", "drain z/2 h3"],
    ),
}


@pytest.mark.parametrize("name", RELEASES)
def test_places_are_freed_one_after_the_other(name: str) -> None:
    changes, expected = RELEASES[name]
    fleet, made = groups()
    for replica, change in changes.items():
        fleet = alter(fleet, replica, change)
    assert first(fleet, made) == expected


def test_whoever_started_soonest_has_its_place_freed_first() -> None:
    """Everything else is equal: the newcomer that would serve sooner."""
    rested = Timing(min_residency_ms=0)
    low = [
        only(name, "h0", where, gib=9, replicas=2, priority=50, max_per_host=1, timing=rested)
        for name, where in (("a", "h1"), ("b", "h2"))
    ]
    fleet = Fleet(hosts=HOSTS[:3], profiles=tuple(low))
    fleet = fleet.applied(fleet.plan(), later_ms=RESTED)
    for name in ("h1", "h2"):
        fleet = holding(fleet, name, "slow-q4", "swift-q4")
    slow = only("slow", "h1", priority=200, timing=Timing(warm_ms=60_000))
    swift = only("swift", "h2", priority=200, timing=Timing(warm_ms=2_000))
    fleet = fleet.but(profiles=(*low, slow, swift))
    assert [s.split()[2] for s in first(fleet, fleet.plan())] == ["h2", "h1"]
