"""Rulings where an earlier allocator was wrong, each with a test of its own.

* Who is moved: an incumbent counts as moved only when it is no longer assigned to that host.
* Work for a fragmented fleet is shared by its replicas, and bounded for each plan.
* Joint search does not switch itself off as the fleet grows.
* Renaming two otherwise equal profiles does not move the scarce slot away from the one with more measured harm.
* What was found is not dismantled for a worse rebuild.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from gridops.model.fleet import Host
from gridops.model.plan import CauseKind, DecisionKind, Plan
from gridops.model.policy import BudgetPolicy, MoveLimits, PlanningPolicy, ScopeBudgets, Search
from gridops.model.profile import PlacementRules, Profile, Timing
from gridops.planner import room
from tests.planner.fleet import SCOPE, Fleet, config, host, profile, seats
from tests.planner.test_targets_forecast import entry, expect
from tests.planner.worlds import later

HOUR = 3_600_000


def moved(made: Plan) -> set[str]:
    return {d.replica for d in made.decisions if d.kind is DecisionKind.MOVE}


def limited(fleet: Fleet, moves: int) -> Fleet:
    scope = ScopeBudgets(scope=SCOPE, moves=MoveLimits(per_plan=moves))
    return fleet.but(more={"budgets": BudgetPolicy(scopes=(scope,))})


def fragmented(count: int) -> Fleet:
    """A small one on each host, so that nothing large fits anywhere. Hosts of 24 GiB take three of 6 or one of 18."""
    small = tuple(profile(f"s{n:03}", gib=6, placement=PlacementRules(allow_hosts=(f"h{n:03}",))) for n in range(count))  # type: ignore[arg-type]
    fleet = Fleet(hosts=tuple(host(f"h{n:03}") for n in range(count)), profiles=small)
    stood = fleet.applied(fleet.plan(), later_ms=HOUR)
    return stood.but(profiles=tuple(replace(p, placement=PlacementRules()) for p in small))


def asking(fleet: Fleet, *more: Profile) -> Fleet:
    return fleet.but(profiles=tuple(sorted((*fleet.profiles, *more), key=lambda p: p.name)))


# -- who is moved -----------------------------------------------------------------------------------------------------


def test_an_incumbent_on_its_host_is_not_moved_whatever_else_changes() -> None:
    """Another device, another command, another size: it stays on its host, and that is no move of the budget."""
    fleet = Fleet(
        hosts=(host("a", (24, 24)), host("b", (24, 24))), profiles=(profile("c", gib=6), profile("d", gib=18))
    )
    stood = fleet.applied(fleet.plan(), later_ms=HOUR)
    home = seats(stood.plan())["c/1"]
    longer = profile("c", configs=(config("c-q4", 6, context=8192),))
    made = limited(stood.but(profiles=(longer, profile("d", gib=18))), 0).plan()
    assert seats(made)["c/1"] == home
    assert [d.kind for d in made.to_do] == [DecisionKind.CHANGE]


def test_of_those_who_are_looked_at_only_who_leaves_its_host_counts_as_moved() -> None:
    """One move is enough for one large replica, and with a budget of one it is found: nobody else counts."""
    fleet = asking(fragmented(6), profile("large", gib=18))
    made = limited(fleet, 1).plan()
    assert "large/1" in seats(made)
    assert len(moved(made)) == 1
    before = {a.replica: a.seat.host for a in fleet.parent.placement} if fleet.parent is not None else {}
    assert {r for r, h in seats(made).items() if r in before and before[r] != h} == moved(made)


# -- shared and bounded work ------------------------------------------------------------------------------------------


def searches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Replicas that looked for room at each search of a plan, and the rounds that it took."""
    found: list[tuple[int, int]] = []
    run = room.Search.run

    def watched(self: room.Search) -> int:
        loose = sum(len(n) for n in self.puzzle.loose.values())
        found.append((loose, run(self)))
        return found[-1][1]

    monkeypatch.setattr(room.Search, "run", watched)
    return found


def test_work_for_a_fragmented_fleet_is_shared_and_bounded_for_each_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """One search for all who have no seat, however many they are, and within the policy's count."""
    found = searches(monkeypatch)
    for many in (1, 4, 12):
        fleet = asking(fragmented(16), *(profile(f"large{n:02}", gib=18) for n in range(many)))
        for most in (5, 50):
            fleet.but(policy=PlanningPolicy(search=Search(moves=most))).plan()
            (loose, spent) = found.pop()
            assert found == [], "one search for all of them"
            assert loose == many
            # The direct phase before it is bounded by tries for each kind.
            assert spent <= most + 3 * (many + 1)


# -- large fleets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4, 64, 700])
def test_joint_search_goes_on_as_the_fleet_grows(count: int) -> None:
    """Where no single placement finds a seat, moving one does: on four hosts as on seven hundred."""
    hosts = tuple(host(f"h{n:03}") for n in range(count))
    full = profile("full", count - 2, gib=18, priority=100)
    small = tuple(profile(f"s{n}", gib=6, placement=PlacementRules(allow_hosts=(hosts[n].id,))) for n in (0, 1))
    fleet = Fleet(hosts=hosts, profiles=(replace(full, placement=_without(hosts[:2])), *small))
    stood = fleet.applied(fleet.plan(), later_ms=HOUR)
    free = tuple(replace(p, placement=PlacementRules()) for p in (full, *small))
    made = asking(stood.but(profiles=free), profile("new", gib=18, priority=100)).plan()
    assert made.report.unplaced == ()
    assert len(moved(made)) == 1


def _without(hosts: tuple[Host, ...]) -> PlacementRules:
    return PlacementRules(deny_hosts=tuple(h.id for h in hosts))


# -- A-138 ------------------------------------------------------------------------------------------------------------

HARM: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a longer queue": ({"queue": 9}, {"queue": 3}),
    "later answers": ({"p95_ms": 9_000}, {"p95_ms": 6_000}),
    "more errors": ({"error_ppm": 90_000}, {"error_ppm": 20_000}),
    "more requests": ({"observed_mrpm": 9_000}, {"observed_mrpm": 6_000}),
}


@pytest.mark.parametrize("what", HARM)
@pytest.mark.parametrize("full", [False, True], ids=["an empty host", "somebody gives way"])
@pytest.mark.parametrize("names", ["az", "za"])
def test_renaming_two_equal_profiles_leaves_the_slot_with_the_more_harmed(what: str, full: bool, names: str) -> None:
    """The whole plan: where a slot is free, and where one is only made by moving or displacing another."""
    worse, better = HARM[what]
    two = [profile(n, 0, replicas_max=1, gib=18, priority=150) for n in sorted(names)]
    hosts = (host("h0"),)
    fleet = Fleet(hosts=hosts, profiles=())
    if full:
        low = profile("low", 2, gib=18, priority=50, timing=Timing(min_residency_ms=0))
        fleet = Fleet(hosts=(*hosts, host("h1")), profiles=(low,))
        fleet = fleet.applied(fleet.plan(), later_ms=HOUR)
    asked = expect(
        entry(0.5, name=names[0], last_used_ms=fleet.now, **worse),
        entry(0.5, name=names[1], last_used_ms=fleet.now, **better),
        made=fleet.now,
    )
    made = asking(fleet, *two).but(forecast=asked).plan()
    assert [a.profile for a in made.placement if a.profile in names] == [names[0]]
    assert full is any(d.cause.kind is CauseKind.DISPLACED for d in made.to_do)


# -- witnesses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_an_arrangement_that_was_found_is_kept_while_others_go_on_looking(seed: int) -> None:
    """Room was made by moving many; then demand turns round and somebody hopeless looks again and again: a search runs
    at each plan, and none of those it was found for is touched."""
    chance = random.Random(seed)
    fleet = asking(fragmented(8), *(profile(f"large{n}", gib=18) for n in range(5)))
    fleet = limited(fleet, 99)
    made = fleet.plan()
    assert made.report.unplaced == ()
    assert moved(made)
    fleet = later(made, fleet).but(now=fleet.now + HOUR)
    for one in fleet.hosts:
        fleet = fleet.reporting(one.id, observed_ms=fleet.now)
    fleet = asking(fleet, profile("hopeless", 2, gib=chance.choice((18, 20, 22))))
    for _ in range(10):
        names = [p.name for p in fleet.profiles]
        asked = [entry(chance.random(), name=n, last_used_ms=fleet.now) for n in names if chance.random() < 0.7]
        noise = fleet.but(forecast=expect(*asked, made=fleet.now))
        found = noise.plan()
        assert {u.replica for u in found.report.unplaced} == {"hopeless/1", "hopeless/2"}
        assert found.to_do == ()
