"""Behaviours that an earlier allocator pinned and no other test of ours shows (`tests/earlier.md` names the rest)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.ids import HostId, ProfileName
from gridops.model.learned import Learned, LearnedTime, TimeKind
from gridops.model.plan import Plan
from gridops.model.profile import PlacementRules, Profile, Spread, Timing
from gridops.model.snapshot import Ownership, Residency, ResidencyState
from gridops.planner.check import check
from gridops.planner.learned import revision_of
from gridops.planner.planner import plan
from tests.planner.contest import HIGH, LOW, gave_way, on, standing, wants
from tests.planner.fleet import NOW, Fleet, config, decisions, digest, host, profile, seats
from tests.planner.test_actions import alter, converged, state, steps, told
from tests.planner.test_cache import advice, busy, inferred
from tests.planner.test_cache import told as advised
from tests.planner.test_cache import wanted as may_come
from tests.planner.test_targets_falls import aged
from tests.planner.test_targets_forecast import MINUTE, entry, expect, planned, wide


def lesson(of: Profile, on_host: str, kind: TimeKind, ms: int, now: int = NOW) -> LearnedTime:
    first = of.configs[0]
    return LearnedTime(
        host=HostId(on_host),
        profile=of.name,
        config=first.name,
        revision=revision_of(first.artifact),
        kind=kind,
        count=8,
        ewma_ms=ms,
        last_ms=now,
    )


def taught(fleet: Fleet, *times: LearnedTime) -> Plan:
    asked = replace(fleet.inputs(), learned=Learned(times=times))
    made = plan(asked)
    assert check(made, asked) == ()
    return made


# -- who vouches for whom ---------------------------------------------------------------------------------------------


def test_a_foreign_engine_of_the_same_model_vouches_for_nobody() -> None:
    """The survivor of a scale-down is not ready; somebody else's engine is. Nothing of ours is taken away."""
    fleet = converged(profile("c", 2)).but(profiles=(profile("c", 1),))
    made = fleet.plan()
    late = alter(fleet, "c/1", state(ResidencyState.WARMING))
    foreign = Residency(profile=ProfileName("c"), state=ResidencyState.READY, ownership=Ownership.EXTERNAL)
    assert told(steps(late.reporting("cat", residencies=(foreign,)), made)) == ["drain c/2 bee: c/1 to be ready"]


# -- order ------------------------------------------------------------------------------------------------------------


def test_a_pin_counts_as_a_turn() -> None:
    pinned = profile("a", 2, gib=18, placement=PlacementRules(pins=(HostId("h0"),)))
    made = Fleet(hosts=(host("h0"), host("h1")), profiles=(pinned, profile("z", 2, gib=18))).plan()
    assert sorted(a.profile for a in made.placement) == ["a", "z"]


# -- what stands ------------------------------------------------------------------------------------------------------


def test_what_runs_keeps_its_variant_although_a_preferred_one_fits_now() -> None:
    both = profile("c", configs=(config("large", 40), config("small", 10)))
    fleet = converged(both, hosts=(host("ant"),))
    grown = fleet.but(hosts=(host("ant"), host("bee", (80,))))
    assert grown.plan().to_do == ()
    assert [n.config for n in grown.plan().launches] == ["small"]


def test_the_cooldown_keeps_a_number_and_no_seat_that_the_rules_forbid() -> None:
    denied = PlacementRules(deny_hosts=tuple(HostId(f"h{n}") for n in range(4)))
    fleet = aged(60).but(profiles=(wide(0, placement=denied),))
    used = entry(last_used_ms=NOW - 14 * MINUTE)
    assert set(seats(planned(fleet, expect(used))).values()) <= {"h4", "h5", "h6", "h7"}


@pytest.mark.parametrize("most", [0, 1])
def test_a_host_that_may_hold_nothing_any_more_keeps_nothing_that_can_go_elsewhere(most: int) -> None:
    fleet = converged(profile("c"), hosts=(host("ant"), host("bee")))
    shut = fleet.but(hosts=(host("ant", max_replicas=most), host("bee")))
    assert seats(shut.plan()) == {"c/1": "bee" if most == 0 else "ant"}


# -- making room ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quick", ["a", "b"])
def test_the_one_that_was_learned_to_come_back_soonest_gives_way(quick: str) -> None:
    both = tuple(replace(LOW, name=ProfileName(n), configs=(config(f"{n}-q4", 18),)) for n in "ab")
    fleet = wants(standing(*both, hosts=4), HIGH)
    times = tuple(
        lesson(p, h.id, TimeKind.WARM, 1_000 if p.name == quick else 60_000, fleet.now)
        for p in both
        for h in fleet.hosts
    )
    assert [r.partition("/")[0] for r in gave_way(taught(fleet, *times))] == [quick]


def test_of_a_kind_the_one_goes_whose_place_is_taken() -> None:
    """`a/1` gives way on h0; moving it to where `a/2` stands, so that `a/2` goes instead, would disturb both."""
    low = on(profile("a", 2, gib=9, priority=50, max_per_host=1), "h0", "h4")
    fleet = Fleet(hosts=(host("h0"), host("h4")), profiles=(low,))
    stood = fleet.applied(fleet.plan(), later_ms=600_000)
    made = stood.but(profiles=(low, on(HIGH, "h0"))).plan()
    assert decisions(made) == ["place high/1 -> h0", "remove a/1 h0", "cannot_place a/1"]


@pytest.mark.parametrize("there", ["h0", "h1"])
def test_of_equal_victims_the_one_goes_whose_host_has_the_files(there: str) -> None:
    fleet = wants(standing(LOW), HIGH)
    old = fleet.reports[there]
    assert old is not None
    fleet = fleet.reporting(there, cached=tuple(sorted({*old.cached, digest("high-q4")})))
    assert seats(fleet.plan())["high/1"] == there


def test_several_small_ones_move_for_a_large_one() -> None:
    small = (profile("s", 1, gib=9), profile("t", 1, gib=9))
    fleet = Fleet(hosts=(host("h0", (24,)),), profiles=small)
    stood = fleet.applied(fleet.plan(), later_ms=600_000)
    made = stood.but(hosts=(host("h0"), host("h1")), profiles=(*small, on(profile("big", 1, gib=20), "h0"))).plan()
    assert seats(made) == {"big/1": "h0", "s/1": "h1", "t/1": "h1"}
    assert gave_way(made) == []


def test_somebody_moves_before_two_copies_share_a_failure_domain() -> None:
    """Rack r1 is full of who could stand in r0 as well."""
    flexible = profile("f", 1, gib=18)
    fleet = Fleet(hosts=(host("h2", rack="r1"),), profiles=(flexible,))
    stood = fleet.applied(fleet.plan(), later_ms=600_000)
    hosts = (host("h0", rack="r0"), host("h1", rack="r0"), host("h2", rack="r1"))
    apart = profile("c", 2, gib=18, spread=Spread(by="rack", min=2))
    made = stood.but(hosts=hosts, profiles=(flexible, apart)).plan()
    assert made.report.shortfalls == ()
    assert len(made.placement) == 3


def test_a_missing_pin_takes_its_own_host_from_somebody_less_important() -> None:
    """Any other host would be a gratuitous disruption: it cannot serve the pin."""
    fleet = standing(replace(LOW, timing=Timing(min_residency_ms=0)))
    pinned = replace(HIGH, placement=PlacementRules(pins=(HostId("h1"),)))
    made = wants(fleet, pinned).plan()
    assert seats(made)["high/1"] == "h1"
    assert len(gave_way(made)) == 1


# -- advice -----------------------------------------------------------------------------------------------------------


def test_what_was_learned_of_a_fetch_is_what_it_is_worth_to_have_it() -> None:
    """Both guesses are alike but for what a fetch takes: the one that takes longer saves more."""
    fleet = busy(may_come("c"), may_come("d"))
    entries = (inferred("c"), inferred("d"))
    assert advised(advice(fleet, *entries)) == ["fetch c -> ant"]
    found = advice(fleet, *entries, learned=Learned(times=(lesson(may_come("d"), "ant", TimeKind.FETCH, 900_000),)))
    assert advised(found) == ["fetch d -> ant"]
