"""Making room: who gives way for whom, how much at once, and in what chains."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gridops.base.ids import HostId, ProfileName
from gridops.model.forecast import Evidence
from gridops.model.plan import DecisionKind, HostLine, Plan
from gridops.model.policy import BudgetPolicy, MoveLimits, PriceCeiling, ScopeBudgets, Search
from gridops.model.profile import Footprint, FootprintSource, PlacementRules, Profile, Spread, Timing
from gridops.model.snapshot import ResidencyState
from gridops.planner import movers, room, vicinity
from gridops.planner.capacity import Ask, Board, Offer
from gridops.planner.check import check
from tests.planner.contest import HIGH, LOW, RESTED, budget, gave_way, on, standing, wants
from tests.planner.fleet import GIB, SCOPE, Fleet, config, decisions, host, profile, seats
from tests.planner.test_targets_forecast import entry, expect, planned
from tests.planner.worlds import later


def expecting(fleet: Fleet, *, high: float, **more: Any) -> Plan:
    """The plan when requests for `high` are expected, so many lanes at once."""
    return planned(fleet, expect(entry(high, name="high", last_used_ms=fleet.now, **more), made=fleet.now))


def test_the_less_important_gives_way_and_one_of_it_stays() -> None:
    made = wants(standing(LOW), replace(HIGH, replicas_min=2, replicas_max=2)).plan()
    assert len(gave_way(made)) == 1
    assert sorted(a.profile for a in made.placement) == ["high", "low"]


def test_the_checker_notices_when_nobody_who_serves_is_left() -> None:
    """The same plan, where the one that was to stay turns out not to serve."""
    fleet = wants(standing(LOW), HIGH)
    made = fleet.plan()
    assert len(gave_way(made)) == 1
    (stays,) = (a for a in made.placement if a.profile == "low")
    there = next(r for r in fleet.snapshot().hosts if r.host == stays.seat.host)
    warming = tuple(replace(r, state=ResidencyState.WARMING) for r in there.residencies)
    notes = check(made, fleet.reporting(stays.seat.host, residencies=warming).inputs())
    assert any("gives way, and no other replica of low that serves goes on" in note for note in notes)


def test_who_goes_on_under_another_name_goes_on() -> None:
    """A profile is renamed in the very commit for which one of it gives way."""
    renamed = replace(LOW, name=ProfileName("fresh"), renamed_from=LOW.name)
    made = wants(standing(LOW), HIGH).but(profiles=(HIGH, renamed)).plan()
    assert len(gave_way(made)) == 1
    assert sorted(a.profile for a in made.placement) == ["fresh", "high"]


def test_nobody_gives_way_while_many_hosts_are_silent_at_once() -> None:
    fleet = wants(standing(replace(LOW, replicas_min=6, replicas_max=6), hosts=6), HIGH)
    assert len(gave_way(fleet.plan())) == 1
    for name in ("h3", "h4", "h5"):
        fleet = fleet.reporting(name, observed_ms=fleet.now - 200_000)
    made = fleet.plan()
    assert "h3, h4, h5" in made.report.notes[0]
    assert made.to_do == ()
    assert [u.replica for u in made.report.unplaced] == ["high/1"]


@pytest.mark.parametrize("priority", [50, 49])
def test_nobody_gives_way_to_an_equal_or_a_lesser(priority: int) -> None:
    made = wants(standing(LOW), replace(HIGH, priority=priority)).plan()
    assert made.to_do == ()


def test_a_demand_that_is_only_inferred_takes_nobodys_place() -> None:
    asks = replace(HIGH, replicas_min=0, replicas_max=1)
    fleet = wants(standing(LOW), asks)
    guess = expecting(fleet, high=9, evidence=Evidence.CORRELATED)
    assert gave_way(guess) == []
    assert [u.replica for u in guess.report.unplaced] == ["high/1"]
    assert len(gave_way(expecting(fleet, high=0.5))) == 1


def test_an_inferred_demand_may_use_what_moving_others_frees() -> None:
    small = profile("small", 1, gib=6, priority=50, placement=PlacementRules(deny_hosts=()))
    fleet = standing(replace(small, placement=PlacementRules(allow_hosts=("h0",))))  # type: ignore[arg-type]
    asks = replace(HIGH, replicas_min=0, replicas_max=1, placement=PlacementRules(allow_hosts=("h0",)))  # type: ignore[arg-type]
    made = expecting(wants(fleet, small, asks), high=9, evidence=Evidence.CORRELATED)
    assert seats(made) == {"high/1": "h0", "small/1": "h1"}
    assert gave_way(made) == []


@pytest.mark.parametrize(("source", "gives_way"), [(FootprintSource.DECLARED, 1), (FootprintSource.PUBLISHED, 0)])
def test_nobody_gives_way_to_a_size_that_is_not_known_well_enough(source: FootprintSource, gives_way: int) -> None:
    size = Footprint(source=source, device_bytes=18 * GIB, host_bytes=0)
    made = wants(standing(LOW), replace(HIGH, configs=(config("high", footprint=size),))).plan()
    assert len(gave_way(made)) == gives_way


def test_idle_ones_give_way_before_busy_ones() -> None:
    fleet = standing(LOW)
    for busy, idle in (("h0", "h1"), ("h1", "h0")):
        given = fleet
        for name in ("h0", "h1"):
            old = fleet.reports[name]
            assert old is not None
            work = 3 if name == busy else 0
            given = given.reporting(name, residencies=tuple(replace(r, in_flight=work) for r in old.residencies))
        made = wants(given, HIGH).plan()
        assert seats(made)["high/1"] == idle


def test_those_on_their_way_out_give_way_before_idle_ones() -> None:
    fleet = standing(LOW)
    old = fleet.reports["h1"]
    assert old is not None
    going = tuple(replace(r, state=ResidencyState.DRAINING) for r in old.residencies)
    made = wants(fleet.reporting("h1", residencies=going), HIGH).plan()
    assert seats(made)["high/1"] == "h1"


def test_of_equals_the_quicker_to_bring_back_gives_way() -> None:
    def stands(name: str, warm_ms: int) -> Profile:
        return profile(name, 2, gib=18, priority=50, max_per_host=1, timing=Timing(warm_ms=warm_ms, min_residency_ms=0))

    fleet = standing(stands("quick", 2_000), stands("slow", 90_000), hosts=4)
    made = wants(fleet, HIGH).plan()
    assert [r.partition("/")[0] for r in gave_way(made)] == ["quick"]


def test_minimum_residency_is_never_bypassed() -> None:
    fresh = replace(LOW, timing=Timing(min_residency_ms=2 * RESTED))
    fleet = standing(fresh)
    young = fleet
    for name in ("h0", "h1"):
        old = fleet.reports[name]
        assert old is not None
        young = young.reporting(name, residencies=tuple(replace(r, since_ms=fleet.now - 1) for r in old.residencies))
    assert wants(young, HIGH).plan().to_do == ()
    assert gave_way(wants(fleet, HIGH).plan()) != [], "nobody knows since when they stand"


def test_pins_are_never_bypassed() -> None:
    pinned = replace(LOW, placement=PlacementRules(pins=("h0", "h1")))  # type: ignore[arg-type]
    assert wants(standing(pinned), HIGH).plan().to_do == ()


def test_one_plan_takes_away_so_many_and_later_ones_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "DROPS", 2)
    fleet = standing(replace(LOW, replicas_min=6, replicas_max=6), hosts=6)
    fleet = wants(fleet, replace(HIGH, replicas_min=5, replicas_max=5))
    waves = []
    for _ in range(4):
        made = fleet.plan()
        waves.append(len(gave_way(made)))
        missing = [u.replica for u in made.report.unplaced if u.replica.startswith("high")]
        assert len(missing) == 5 - sum(waves), "who waits for a later plan is reported"
        fleet = later(made, fleet)
    assert waves == [2, 2, 1, 0]


def test_one_plan_moves_so_many() -> None:
    """Each of the three needs a host for itself, and one that stands there to go to a neighbour."""
    small = profile("small", 6, gib=10, priority=50, max_per_host=1)
    fleet = standing(small, hosts=6)
    asks = replace(HIGH, replicas_min=3, replicas_max=3, priority=50)
    for most in (0, 1, 2, 3):
        made = budget(wants(fleet, replace(small, max_per_host=2), asks), moves=MoveLimits(per_plan=most)).plan()
        moved = [d for d in decisions(made) if d.startswith("move")]
        assert len(moved) == most
        assert len(made.report.unplaced) == 3 - most


def chained() -> Fleet:
    """Each can only go where the next one stands, and only the last has a free host to go to."""
    first, second, new = profile("b", 1, gib=18), profile("c", 1, gib=18), profile("a", 1, gib=18)
    fleet = Fleet(hosts=tuple(host(f"h{n}") for n in range(3)), profiles=(on(first, "h0"), on(second, "h1")))
    stood = fleet.applied(fleet.plan(), later_ms=RESTED)
    return stood.but(profiles=(on(first, "h0", "h1"), on(second, "h1", "h2"), on(new, "h0")))


def test_a_chain_over_three_hosts_opens_a_seat() -> None:
    assert seats(chained().plan()) == {"a/1": "h0", "b/1": "h1", "c/1": "h2"}


def two_chains() -> Fleet:
    """The chain of `chained` twice, on hosts of their own."""
    one, hosts = chained(), tuple(host(f"k{n}") for n in range(3))
    stands = (on(profile("q", 1, gib=18), "k0"), on(profile("r", 1, gib=18), "k1"))
    now = tuple(on(p, "h0") if p.name == "b" else on(p, "h1") for p in one.profiles if p.name in "bc")
    fleet = Fleet(hosts=(*one.hosts, *hosts), profiles=(*now, *stands))
    stood = fleet.applied(fleet.plan(), later_ms=RESTED)
    wider = on(stands[0], "k0", "k1"), on(stands[1], "k1", "k2"), on(profile("p", 1, gib=18), "k0")
    return stood.but(profiles=(*one.profiles, *wider))


def test_everybody_who_moves_names_only_those_for_whom_it_moves() -> None:
    made = two_chains().plan()
    assert made.report.unplaced == ()
    told = {d.replica: d.cause.detail for d in made.decisions if d.kind is DecisionKind.MOVE}
    pairs = (("b/1", "a/1"), ("c/1", "a/1"), ("q/1", "p/1"), ("r/1", "p/1"))
    assert told == {mover: f"makes room for {newcomer}" for mover, newcomer in pairs}
    sets = {d.replica: d.change_set for d in made.decisions}
    assert sets["a/1"] == sets["b/1"] == sets["c/1"] != sets["p/1"] == sets["q/1"] == sets["r/1"]


def test_each_who_gives_way_is_tied_only_to_whom_it_gives_way_to() -> None:
    low = replace(LOW, replicas_min=3, replicas_max=3)
    made = wants(standing(low, hosts=3), replace(HIGH, replicas_min=2, replicas_max=2)).plan()
    pairs: dict[int, list[str]] = {}
    for d in made.to_do:
        pairs.setdefault(d.change_set, []).append(f"{d.kind.value} {d.profile}")
    assert list(pairs.values()) == [["place high", "remove low"]] * 2
    for d in made.to_do:
        if d.kind is DecisionKind.REMOVE:
            (comes,) = (a.replica for a in made.placement if a.seat == d.source)
            assert d.cause.detail == f"gives way to {comes}"


def test_of_moves_that_do_the_same_the_less_important_one_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Either of two could leave its host for the new one; the one of lower priority does, and the search is told so."""
    gather, burdens = room.gather_movers, dict[str, int]()

    def watched(*arguments: Any, **more: Any) -> movers.Movers:
        made = gather(*arguments, **more)
        burdens.update({m.profile: p.back_ms for m, p in zip(made.movers, made.puzzle.pieces, strict=True)})
        return made

    monkeypatch.setattr(room, "gather_movers", watched)
    for first, second in ((50, 100), (100, 50)):
        hosts = (host("h0"), host("h1"), host("h2", (12,)))
        stands = tuple(
            profile(n, 1, gib=10, priority=p, placement=PlacementRules(allow_hosts=(HostId(h),)))
            for n, p, h in (("x", first, "h0"), ("y", second, "h1"))
        )
        fleet = Fleet(hosts=hosts, profiles=stands)
        stood = fleet.applied(fleet.plan(), later_ms=RESTED)
        free = tuple(replace(p, placement=PlacementRules()) for p in stands)
        made = budget(stood.but(profiles=(*free, profile("new", 1, gib=18))), moves=MoveLimits(per_plan=1)).plan()
        moved = [d.profile for d in made.decisions if d.kind is DecisionKind.MOVE]
        assert moved == ["x" if first < second else "y"]
        assert (burdens["x"] < burdens["y"]) is (first < second)


def test_a_host_with_as_many_of_the_profile_as_may_uses_up_no_try() -> None:
    """Six hosts have room and hold one already; only on another, where somebody must go, is there room for one more."""
    few, low = profile("few", 6, gib=6, priority=100, max_per_host=1), profile("low", 2, gib=20, priority=50)
    names = [f"h{n}" for n in range(6)]
    hosts = tuple(host(n) for n in (*names, "k0", "k1"))
    fleet = Fleet(hosts=hosts, profiles=(on(few, *names), on(low, "k0", "k1")))
    stood = fleet.applied(fleet.plan(), later_ms=RESTED)
    more = replace(few, replicas_min=7, replicas_max=7)
    made = stood.but(profiles=(more, low), policy=replace(stood.policy, search=Search(moves=0))).plan()
    assert "few/7" in seats(made)


@pytest.mark.parametrize("allowed", range(4))
def test_where_the_board_refuses_a_seat_everything_stays_as_it_was(
    allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board admits so many seats of the chain and then no more: whatever was rearranged is given back."""
    fleet = chained()
    asked, offer, sit = 0, Board.offer, room._sit

    def refusing(self: Board, host: HostId, ask: Ask, **more: Any) -> Offer | HostLine:
        nonlocal asked
        asked += 1
        return offer(self, host, ask, **more) if asked <= allowed else HostLine(host=host, code="GO521", detail="no")

    def watched(*arguments: Any) -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(Board, "offer", refusing)
            return sit(*arguments)

    monkeypatch.setattr(room, "_sit", watched)
    made = fleet.plan()
    assert seats(made) == {"b/1": "h0", "c/1": "h1"} | ({"a/1": "h0", "b/1": "h1", "c/1": "h2"} if allowed == 3 else {})


def test_failure_domains_are_kept_while_room_is_made() -> None:
    low = replace(LOW, replicas_min=4, replicas_max=4)
    fleet = standing(low, hosts=4)
    asks = replace(HIGH, replicas_min=2, replicas_max=2, spread=Spread(by="rack", min=2))
    made = wants(fleet, asks).plan()
    high = [a.seat.host for a in made.placement if a.profile == "high"]
    assert len(high) == 2 == len(set(high))


def test_a_price_ceiling_holds_while_room_is_made() -> None:
    ceiling = PriceCeiling(max_per_hour_micro=200)
    fleet = Fleet(
        hosts=tuple(host(f"h{n}", price_per_hour_micro=100) for n in range(4)),
        profiles=(LOW,),
        more={"budgets": BudgetPolicy(scopes=(ScopeBudgets(scope=SCOPE, price=ceiling),))},
    )
    stood = fleet.applied(fleet.plan(), later_ms=RESTED)
    made = wants(stood, replace(HIGH, replicas_min=2, replicas_max=2)).plan()
    assert len({a.seat.host for a in made.placement}) == 2
    assert len(gave_way(made)) == 1


def test_a_large_fleet_makes_room_among_the_hosts_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vicinity, "PUZZLE_HOSTS", 3)
    filled = replace(profile("peer", 6, gib=18, priority=200, max_per_host=1), max_per_host=1)
    fleet = standing(filled, replace(LOW, replicas_min=2, replicas_max=2), hosts=8)
    made = wants(fleet, HIGH).plan()
    assert [r.partition("/")[0] for r in gave_way(made)] == ["low"]


@pytest.mark.parametrize(("standing", "most"), [(10, 64), (256, 64), (400, 100), (20_000, 256)])
def test_so_many_may_lose_their_place_in_one_plan(standing: int, most: int) -> None:
    """As many as the earlier allocator allowed, more in larger fleets, and never more than a person looks through."""
    assert room._drops(SimpleNamespace(seats=range(standing))) == most


def test_who_gave_way_and_would_fit_as_its_file_says_today_has_a_line_for_its_host() -> None:
    """It was started with 18 GiB and asks for 4 now: beside who comes it would fit, once it was started anew."""
    smaller = replace(LOW, configs=(config("low-q4", 4),))
    made = wants(standing(LOW), smaller, HIGH).plan()
    (missing,) = made.report.unplaced
    left = next(d.source.host for d in made.decisions if d.kind is DecisionKind.REMOVE and d.source is not None)
    assert any(line.host == left and "was started with more" in line.detail for line in missing.hosts)
