"""What holds for every forecast: bounds, monotony, order, and rest under steady demand."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.base.ids import HostId, ProfileName
from gridops.base.record import to_bytes
from gridops.base.units import PPM
from gridops.model.forecast import Band, Evidence, Forecast, ProfileForecast, Watermark
from gridops.model.policy import LookAhead
from gridops.model.profile import PlacementRules, Profile, Timing
from gridops.planner.planner import plan
from gridops.planner.pressure import ahead, offered, pressure_of, slots
from gridops.planner.sizing import replicas
from tests.planner.fleet import NOW, Fleet, config, host, profile
from tests.planner.test_targets_forecast import expect, planned, wanted
from tests.planner.worlds import rolled, shuffled

MINUTE = 60_000
HOSTS = tuple(host(f"h{n}") for n in range(5))
SOME = settings(max_examples=80, deadline=None)
RATES = st.integers(0, 60_000)
MOMENTS = st.sampled_from((None, NOW, NOW - 10 * MINUTE, NOW - 20 * MINUTE, NOW + 5 * MINUTE))


@st.composite
def entries(draw: st.DrawFn, name: str = "c") -> ProfileForecast:
    low, likely, high = sorted(draw(st.lists(RATES, min_size=3, max_size=3)))
    marks = draw(st.lists(st.tuples(st.integers(-2, 30), st.integers(0, 12_000)), max_size=3))
    return ProfileForecast(
        profile=ProfileName(name),
        evidence=draw(st.sampled_from(tuple(Evidence))),
        rate_mrpm=Band(low=low, likely=likely, high=high),
        observed_mrpm=draw(RATES),
        inferred_mrpm=draw(st.integers(0, likely)),
        offered_mlanes=draw(st.none() | st.integers(0, 12_000)),
        queue=draw(st.integers(0, 12)),
        p95_ms=draw(st.none() | st.integers(0, 30_000)),
        error_ppm=draw(st.sampled_from((0, 5_000, 20_000, PPM))),
        confidence_ppm=draw(st.integers(0, PPM)),
        trend_mrpm=draw(st.integers(-30_000, 30_000)),
        last_used_ms=draw(MOMENTS),
        watermarks=tuple(Watermark(at_ms=NOW - m * MINUTE, offered_mlanes=v) for m, v in sorted(marks, reverse=True)),
    )


@st.composite
def profiles(draw: st.DrawFn, name: str = "c") -> Profile:
    least = draw(st.integers(0, 3))
    return profile(
        name,
        least,
        replicas_max=max(1, draw(st.integers(least, 6))),
        configs=(config(f"{name}-q4", 18, lanes=draw(st.sampled_from((1, 4)))),),
        placement=PlacementRules(pins=draw(st.sampled_from(((), (HostId("h1"),), (HostId("h1"), HostId("h4")))))),
        timing=Timing(load_ms=draw(st.sampled_from((1_000, 240_000)))),
    )


@SOME
@given(profiles(), entries(), entries())
def test_targets_stay_within_bounds_and_every_plan_is_clean(
    want: Profile, first: ProfileForecast, then: ProfileForecast
) -> None:
    """`planned` compares with minimum, maximum and pins."""
    fleet = Fleet(hosts=HOSTS, profiles=(want,))
    fleet = fleet.applied(planned(fleet, expect(first)), later_ms=MINUTE)
    planned(fleet, expect(then, made=fleet.now))


def more(draw: st.DrawFn, entry: ProfileForecast) -> ProfileForecast:
    """The same with more demand in one way."""
    by = draw(st.integers(1, 40_000))
    band = entry.rate_mrpm
    match draw(st.sampled_from(("offered", "queue", "p95", "errors", "trend", "confidence", "high", "mark"))):
        case "offered" if entry.offered_mlanes is not None:
            return replace(entry, offered_mlanes=entry.offered_mlanes + by)
        case "offered" | "queue":
            return replace(entry, queue=entry.queue + by % 9 + 1)
        case "p95":
            return replace(entry, p95_ms=(entry.p95_ms or 0) + by)
        case "errors":
            return replace(entry, error_ppm=min(PPM, entry.error_ppm + by * 10))
        case "trend":
            return replace(entry, trend_mrpm=entry.trend_mrpm + by)
        case "confidence":
            return replace(entry, confidence_ppm=min(PPM, entry.confidence_ppm + by * 10))
        case "high":
            return replace(entry, rate_mrpm=replace(band, high=band.high + by))
        case _:
            return replace(entry, watermarks=(*entry.watermarks, Watermark(at_ms=NOW, offered_mlanes=by)))


@SOME
@given(st.data(), profiles(), entries(), entries())
def test_more_demand_never_means_fewer_replicas(
    data: st.DataObject, want: Profile, before: ProfileForecast, entry: ProfileForecast
) -> None:
    fleet = Fleet(hosts=HOSTS, profiles=(want,))
    fleet = fleet.applied(planned(fleet, expect(before)))
    if data.draw(st.booleans()):
        # Old enough that nothing is kept for its age.
        fleet = fleet.but(now=fleet.now, parent=replace(fleet.parent, created_ms=NOW - 60 * MINUTE))  # type: ignore[type-var]
    pressed = data.draw(st.composite(lambda draw: more(draw, entry))())
    if not entry.watermarks and pressed.watermarks:
        entry = replace(entry, watermarks=(Watermark(at_ms=NOW, offered_mlanes=0),))
    assert wanted(planned(fleet, expect(pressed))) >= wanted(planned(fleet, expect(entry)))


@SOME
@given(st.data(), st.integers(0, 2**30))
def test_the_order_of_anything_is_irrelevant(data: st.DataObject, seed: int) -> None:
    names = ("a", "b", "c")
    wants = tuple(data.draw(profiles(n)) for n in names)
    found = expect(*(data.draw(entries(n)) for n in names))
    fleet = Fleet(hosts=HOSTS, profiles=wants)
    order = random.Random(seed)
    mixed = replace(found, profiles=tuple(order.sample(found.profiles, 3)))
    inputs = replace(shuffled(fleet, order).inputs(), forecast=mixed)
    assert to_bytes(plan(inputs)) == to_bytes(planned(fleet, found))


@SOME
@given(profiles(), entries())
def test_the_same_demand_comes_to_rest(want: Profile, entry: ProfileForecast) -> None:
    """Once carried out, the same forecast asks for nothing, except for a spare when the first replica is ready."""
    fleet = Fleet(hosts=HOSTS, profiles=(want,))
    for _ in range(3):
        fleet = fleet.applied(planned(fleet, expect(entry, made=fleet.now)))
    assert planned(fleet, expect(entry, made=fleet.now)).to_do == ()


@SOME
@given(st.integers(0, 60))
def test_an_empty_forecast_moves_nothing(seed: int) -> None:
    """Unknown demand is no reason for anything; worlds of all kinds."""
    from tests.planner.worlds import make_fleet

    fleet = make_fleet(rolled(seed)).but(forecast=None)
    fleet = fleet.applied(fleet.plan())
    asked = replace(fleet.inputs(), forecast=Forecast(made_ms=NOW, horizon_ms=MINUTE))
    assert plan(asked).placement == plan(fleet.inputs()).placement


@given(st.integers(0, 200), st.lists(st.integers(1, 16), max_size=8), st.integers(1, 16))
def test_whoever_stays_suffices(slots_wanted: int, widths: list[int], each: int) -> None:
    """Any choice of so many of those that stand, with new ones for the rest, carries the lanes."""
    lanes = sorted(widths)
    count = replicas(slots_wanted, lanes, each)
    kept = lanes[: min(count, len(lanes))]
    assert sum(kept) + each * max(0, count - len(lanes)) >= slots_wanted
    assert replicas(slots_wanted, [*lanes, each], each) <= max(count, len(lanes) + 1)


@given(profiles(), entries(), st.integers(0, 900_000))
def test_a_trend_never_lowers_and_never_passes_its_bounds(want: Profile, entry: ProfileForecast, reach: int) -> None:
    rule = LookAhead()
    rate = ahead(entry, reach, rule)
    assert entry.rate_mrpm.likely <= rate <= entry.rate_mrpm.likely * 2
    if entry.trend_mrpm <= 0:
        assert rate == entry.rate_mrpm.likely
    lanes = slots(want, pressure_of(want, entry, offered(want, entry, rate)), 200_000)
    assert lanes * 1000 * 0.7 >= offered(want, entry, rate) * 1.2 - 1e-6
