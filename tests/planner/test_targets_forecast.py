"""What demand adds to a profile's baseline, what it takes away again, and what the plan says about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridops.base.ids import Digest, HostId, ProfileName
from gridops.base.record import from_data, to_data
from gridops.model.fleet import Drain, Host, Link
from gridops.model.forecast import Band, Evidence, Forecast, ProfileForecast, Watermark
from gridops.model.learned import Learned, LearnedTime, TimeKind
from gridops.model.plan import CauseKind, DecisionKind, Plan
from gridops.model.policy import ActionClass, LookAhead, PlanningPolicy, Risk
from gridops.model.profile import PlacementRules, Profile, Spread, Timing
from gridops.model.snapshot import ResidencyState
from gridops.planner.check import check
from gridops.planner.constants import WEAK_CONFIDENCE_PPM
from gridops.planner.learned import revision_of
from gridops.planner.planner import plan
from tests.planner.fleet import NOW, Fleet, config, digest, host, profile, running, seats

HOSTS = tuple(host(f"h{n}") for n in range(8))
MINUTE = 60_000


def entry(lanes: float = 0.0, *, name: str = "c", **more: Any) -> ProfileForecast:
    """Demand that keeps so many lanes busy: 12 requests a minute for each, as at 5 s a request."""
    rate = int(lanes * 12_000)
    more.setdefault("rate_mrpm", Band(low=rate, likely=rate, high=rate))
    more.setdefault("offered_mlanes", int(lanes * 1000))
    more.setdefault("observed_mrpm", rate)
    more.setdefault("confidence_ppm", 1_000_000)
    more.setdefault("last_used_ms", NOW if lanes else None)
    return ProfileForecast(profile=ProfileName(name), **more)


def expect(*entries: ProfileForecast, made: int = NOW) -> Forecast:
    return Forecast(made_ms=made, horizon_ms=300_000, profiles=tuple(sorted(entries, key=lambda e: e.profile)))


def planned(fleet: Fleet, forecast: Forecast | None) -> Plan:
    """The checked plan."""
    inputs = replace(fleet.inputs(), forecast=forecast)
    made = plan(inputs)
    notes = check(made, inputs)
    assert notes == (), "\n".join(notes)
    for p in fleet.profiles:
        floor = max(p.replicas_min, sum(1 for h in p.placement.pins if any(h == x.id for x in fleet.hosts)))
        assert floor <= wanted(made, p.name) <= max(floor, p.replicas_max)
    return made


def wanted(made: Plan, name: str = "c") -> int:
    missing = sum(1 for u in made.report.unplaced if u.replica.startswith(f"{name}/"))
    return missing + sum(1 for a in made.placement if a.profile == name)


def at(minutes_ago: float, lanes: float) -> Watermark:
    return Watermark(at_ms=NOW - int(minutes_ago * MINUTE), offered_mlanes=int(lanes * 1000))


def wide(replicas: int = 1, most: int = 6, *, lanes: int = 4, **more: Any) -> Profile:
    more.setdefault("configs", (config("q4", 18, lanes=lanes),))
    return profile("c", replicas, replicas_max=most, **more)


def standing(want: Profile, hosts: tuple[Host, ...] = HOSTS, forecast: Forecast | None = None) -> Fleet:
    """The fleet with the profile's replicas running."""
    fleet = Fleet(hosts=hosts, profiles=(want,))
    return fleet.applied(planned(fleet, forecast), later_ms=0)


def test_without_a_forecast_the_file_alone_decides() -> None:
    fleet = standing(wide(2))
    assert planned(fleet, None).to_do == ()
    assert wanted(planned(fleet.but(profiles=(wide(1),)), None)) == 1


SIZES: dict[str, tuple[ProfileForecast, int]] = {
    "nothing asked": (entry(), 1),
    "7.2 lanes and headroom at 70%: 13 slots of 4": (entry(7.2), 4),
    "exactly what four lanes carry": (entry(2.333), 1),
    "a little more than that": (entry(2.334), 2),
    "no more than the maximum": (entry(100), 6),
    "a rate without service times counts by the profile's": (
        entry(rate_mrpm=Band(low=0, likely=60_000, high=60_000), offered_mlanes=None, last_used_ms=NOW),
        3,
    ),
    "waiting requests need lanes": (entry(0.1, queue=24), 3),
    "one that waits is no queue": (entry(2.333, queue=1), 1),
    "a queue asks for one to spare": (entry(2.333, queue=2), 2),
    "latency in proportion to its objective": (entry(4, p95_ms=7_500), 3),
    "at most twice": (entry(4, p95_ms=60_000), 4),
    "latency within the objective is none": (entry(2.333, p95_ms=5_000), 1),
    "latency that demand does not explain asks for one to spare": (entry(0.1, p95_ms=5_100), 2),
    "errors in proportion": (entry(4, error_ppm=400_000), 3),
    "at most half again": (entry(8, error_ppm=1_000_000), 6),
    "a rare error is none": (entry(2.333, error_ppm=9_999), 1),
    "one error in a hundred asks for one to spare": (entry(0.1, error_ppm=10_000), 2),
    "latency does not count who waits a second time": (entry(0.1, queue=24, p95_ms=60_000), 3),
}


@pytest.mark.parametrize("name", SIZES)
def test_demand_becomes_replicas(name: str) -> None:
    asked, expected = SIZES[name]
    assert wanted(planned(standing(wide()), expect(asked))) == expected


def test_a_replica_for_demand_is_routine_growth_and_says_its_numbers() -> None:
    made = planned(standing(wide()), expect(entry(7.2)))
    assert [(d.kind, d.action_class, d.risk, d.cause.kind) for d in made.decisions] == [
        (DecisionKind.PLACE, ActionClass.SCALE_UP, Risk.ROUTINE, CauseKind.DEMAND)
    ] * 3
    assert made.decisions[0].cause.detail == "offered 7.2 lanes + 20% of 4 x 0.70 => 4 replicas"


def test_what_the_file_asks_for_is_not_laid_to_demand() -> None:
    made = planned(Fleet(hosts=HOSTS, profiles=(wide(2),)), expect(entry(7.2)))
    assert [d.cause.kind for d in made.decisions] == [CauseKind.INTENT] * 2 + [CauseKind.DEMAND] * 2
    assert made.decisions[0].cause.detail == "profile is new"


def test_pressure_is_said_with_its_numbers() -> None:
    made = planned(standing(wide()), expect(entry(0.5, queue=3, p95_ms=9_000, error_ppm=40_000)))
    assert made.decisions[0].cause.detail == (
        "offered 0.5 lanes + 20% of 4 x 0.70, queue 3, p95 9 s over 5 s, 4% errors, one to spare => 2 replicas"
    )


def test_pressure_asks_for_one_beyond_the_baseline_too() -> None:
    assert wanted(planned(standing(wide(2)), expect(entry(0.1, queue=2)))) == 3


def test_pressure_before_anything_is_ready_asks_for_no_spare() -> None:
    """The queue in front of a model that still loads says only that it loads."""
    fleet = standing(wide())
    assert fleet.parent is not None
    loading = fleet.reporting(
        "h0", residencies=(running(fleet.parent.placement[0], fleet.parent, ResidencyState.LOADING),)
    )
    assert wanted(planned(loading, expect(entry(0.5, queue=3)))) == 1


@pytest.mark.parametrize(
    "pressed", [{"p95_ms": 60_000}, {"error_ppm": 300_000}, {"queue": 7}, {"queue": 3, "p95_ms": 6_000}]
)
@pytest.mark.parametrize("narrow", [1, 4])
def test_the_same_pressure_grows_the_target_once(pressed: dict[str, Any], narrow: int) -> None:
    """Fifty minutes of the same numbers, with each new replica counted; new ones may be narrower than the first."""
    configs = (config("q8", 18, lanes=4, backends=("rocm",)), config("q4", 18, lanes=narrow))
    want = wide(1, 40, configs=configs, max_per_host=1)
    many = tuple(host(f"h{n:02d}") for n in range(40))
    fleet = standing(want, many)
    counts = []
    for minute in range(50):
        at = NOW + minute * MINUTE
        made = planned(fleet, expect(entry(2.3, last_used_ms=at, **pressed), made=at))
        counts.append(wanted(made))
        fleet = fleet.applied(made, later_ms=MINUTE)
    settled = counts[len(counts) // 2]
    assert counts == sorted(counts), "it never falls under steady pressure"
    assert counts[-1] == settled
    lanes = 2.3 * 1.2 / 0.7 * 2 + 4
    assert settled <= lanes / narrow + 2
    if narrow == 4:
        assert set(counts[1:]) == {counts[0]}, "one step, at once"


def test_growth_follows_the_lanes_that_stand_narrowest_first() -> None:
    """Two wide ones and a narrow one stand: whichever stay in the end, they suffice."""
    configs = (config("wide", 18, lanes=8), config("narrow", 10, lanes=1))
    hosts = (host("h0"), host("h1"), host("h2", (12,)), *(host(f"h{n}") for n in range(3, 8)))
    fleet = standing(wide(3, 6, configs=configs), hosts[:3]).but(hosts=hosts)
    fleet = fleet.but(profiles=(wide(1, 6, configs=configs),))
    assert fleet.parent is not None
    assert sorted(n.lanes for n in fleet.parent.launches for a in fleet.parent.placement if a.launch == _id(n)) == [
        1,
        8,
        8,
    ]
    # 12 slots: narrowest first 1 + 8 + 8; widest first would say two.
    assert wanted(planned(fleet, expect(entry(7, watermarks=(at(0, 7),))))) == 3
    assert wanted(planned(fleet, expect(entry(4.6, watermarks=(at(0, 4.6),))))) == 2


def _id(launch: Any) -> Digest:
    from gridops.footprint.need import identity

    return identity(launch)


SLOW = Timing(load_ms=120_000, warm_ms=5_000)


def rising(**more: Any) -> ProfileForecast:
    """Two lanes now, one more each minute."""
    return entry(2, trend_mrpm=12_000, **more)


RISES: dict[str, tuple[ProfileForecast, Any, int]] = {
    "as far as the start takes": (rising(), lambda f: f, 2),
    "not at all where the artifact is": (
        rising(),
        lambda f: f.reporting("h5", cached=(digest("q4"),)),
        1,
    ),
    "nor where the artifact is on a host that takes nothing": (
        rising(),
        lambda f: f.reporting("h5", cached=(digest("q4"),)).but(drains=(Drain(host=HostId("h5"), reason="fan"),)),
        2,
    ),
    "nor where it is on a host that is forbidden": (
        rising(),
        lambda f: f.reporting("h5", cached=(digest("q4"),)).but(
            profiles=(wide(1, 6, timing=SLOW, placement=PlacementRules(deny_hosts=(HostId("h5"),))),)
        ),
        2,
    ),
    "by the rate of the fastest link": (
        rising(),
        lambda f: f.but(hosts=tuple(replace(h, links=(Link(name="download", rate_bps=10**10),)) for h in f.hosts)),
        1,
    ),
    "half as far on half the confidence": (rising(confidence_ppm=100_000), lambda f: f, 1),
    "a falling trend is none": (entry(2, trend_mrpm=-12_000), lambda f: f, 1),
    "at most twice": (entry(2, trend_mrpm=10**9), lambda f: f, 2),
    "no further than the policy looks": (
        rising(),
        lambda f: f.but(policy=PlanningPolicy(look_ahead=LookAhead(max_ms=1_000))),
        1,
    ),
    "no more than the policy lets it grow": (
        rising(),
        lambda f: f.but(policy=PlanningPolicy(look_ahead=LookAhead(growth_ppm=1_050_000))),
        1,
    ),
}


@pytest.mark.parametrize("name", RISES)
def test_a_rising_trend_is_planned_for(name: str) -> None:
    asked, happen, expected = RISES[name]
    fleet = happen(standing(wide(1, 6, timing=SLOW)))
    assert wanted(planned(fleet, expect(asked))) == expected


def took(on: str, kind: TimeKind, ms: int) -> LearnedTime:
    first = wide().configs[0]
    return LearnedTime(
        host=HostId(on),
        profile=ProfileName("c"),
        config=first.name,
        revision=revision_of(first.artifact),
        kind=kind,
        count=8,
        ewma_ms=ms,
        last_ms=NOW,
    )


LEARNED: dict[str, tuple[tuple[LearnedTime, ...], Any, int]] = {
    "one host that fetches in a second": ((took("h5", TimeKind.FETCH, 1_000),), lambda f: f, 1),
    "one that is drained": (
        (took("h5", TimeKind.FETCH, 1_000),),
        lambda f: f.but(drains=(Drain(host=HostId("h5"), reason="fan"),)),
        2,
    ),
    "a start that takes long where nothing has to be fetched": (
        (took("h5", TimeKind.WARM, 180_000),),
        lambda f: f.reporting("h5", cached=(digest("q4"),)),
        2,
    ),
    "nothing beyond what everybody takes": ((took("h5", TimeKind.FETCH, 120_000),), lambda f: f, 2),
}


@pytest.mark.parametrize("name", LEARNED)
def test_a_rising_trend_is_planned_for_as_far_as_starts_were_learned_to_take(name: str) -> None:
    times, happen, expected = LEARNED[name]
    fleet = happen(standing(wide(1, 6, timing=SLOW)))
    asked = replace(fleet.inputs(), forecast=expect(rising()), learned=Learned(times=times))
    made = plan(asked)
    assert check(made, asked) == ()
    assert wanted(made) == expected


def test_one_that_is_on_its_way_is_not_started_a_second_time_for_the_same_trend() -> None:
    fleet = standing(wide(1, 6, timing=SLOW))
    made = planned(fleet, expect(rising()))
    assert wanted(made) == 2
    new = next(a for a in made.placement if a.replica == "c/2")
    warming = fleet.but(parent=made).reporting(
        new.seat.host, residencies=(running(new, made, ResidencyState.WARMING),), cached=(digest("q4"),)
    )
    assert wanted(planned(warming, expect(rising()))) == 2


def test_a_host_that_is_full_of_the_profile_is_no_fast_start() -> None:
    """The artifact lies on h0 alone, which may hold no second replica."""
    fleet = standing(wide(1, 6, timing=SLOW))
    assert digest("q4") in fleet.snapshot().hosts[0].cached
    made = planned(fleet, expect(rising()))
    assert made.decisions[0].cause.detail == ("offered 2 lanes + 20% of 4 x 0.70, rising to 4 in 2m05s => 2 replicas")


WEAK = WEAK_CONFIDENCE_PPM - 1
CANARIES = {
    "a weak workload": (entry(20, evidence=Evidence.AUTHORISED, confidence_ppm=WEAK), 1),
    "a sure workload": (entry(20, evidence=Evidence.AUTHORISED, confidence_ppm=WEAK + 1), 6),
    "a weak correlation": (entry(20, evidence=Evidence.CORRELATED, confidence_ppm=WEAK), 1),
    "requests themselves are never weak": (entry(20, confidence_ppm=1), 6),
    "what weak inference adds to requests": (entry(20, inferred_mrpm=18 * 12_000, confidence_ppm=WEAK), 1),
    "what sure inference adds to requests": (entry(20, inferred_mrpm=18 * 12_000, confidence_ppm=WEAK + 1), 6),
}


@pytest.mark.parametrize("name", CANARIES)
def test_weak_evidence_buys_one_canary(name: str) -> None:
    asked, expected = CANARIES[name]
    assert wanted(planned(standing(wide(0)), expect(asked))) == expected


def test_nor_is_what_presses_on_requests_weak() -> None:
    assert wanted(planned(standing(wide(1)), expect(entry(2, queue=2, confidence_ppm=1)))) == 2


def test_a_correlation_says_nothing_about_queues_latency_and_errors() -> None:
    inferred = entry(2.333, evidence=Evidence.CORRELATED, queue=40, p95_ms=60_000, error_ppm=500_000)
    assert wanted(planned(standing(wide()), expect(inferred))) == 1


def test_a_profile_that_was_just_used_is_wanted_although_nothing_stands() -> None:
    fleet = Fleet(hosts=HOSTS, profiles=(wide(0),))
    assert wanted(planned(fleet, expect(entry(last_used_ms=NOW - MINUTE)))) == 1
    assert wanted(planned(fleet, expect(entry()))) == 0


def test_pins_are_a_floor_whatever_the_demand() -> None:
    pins = PlacementRules(pins=(HostId("h5"), HostId("h6")))
    fleet = standing(wide(1, 4, placement=pins))
    idle = planned(fleet, expect(entry(last_used_ms=NOW - 60 * MINUTE)))
    assert set(seats(idle).values()) == {"h5", "h6"}
    busy = planned(fleet, expect(entry(7.2)))
    assert {"h5", "h6"} < set(seats(busy).values())
    assert wanted(busy) == 4


def test_demand_for_what_is_not_declared_is_nobodys() -> None:
    made = planned(standing(wide()), expect(entry(20, name="stranger")))
    assert made.to_do == ()


def test_a_forecast_goes_to_canonical_form_and_back() -> None:
    whole = expect(rising(watermarks=(at(3, 2),), p95_ms=40, queue=2, inferred_mrpm=1), entry(name="d"))
    assert from_data(Forecast, to_data(whole)) == whole
    assert [whole.of(ProfileName(n)) for n in ("d", "x")] == [entry(name="d"), None]


def test_replicas_for_demand_spread_over_failure_domains_too() -> None:
    hosts = tuple(host(f"h{n}", rack=f"r{n // 4}") for n in range(8))
    made = planned(standing(wide(1, 6, spread=Spread(by="rack", min=2)), hosts), expect(entry(4)))
    assert {h[1] >= "4" for h in seats(made).values()} == {True, False}


def test_the_second_replica_for_demand_goes_to_another_domain_although_it_starts_slower_there() -> None:
    hosts = tuple(host(f"h{n}", rack=f"r{n // 4}") for n in range(8))
    fleet = standing(wide(1, 6, spread=Spread(by="rack", min=2)), hosts).reporting("h1", cached=(digest("q4"),))
    made = planned(fleet, expect(entry(4)))
    assert {h[1] >= "4" for h in seats(made).values()} == {True, False}
    assert made.report.shortfalls == ()
