"""Who gets the scarce seat: urgency, fair shares, and measured harm; names decide only among equals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.base.ids import HostId
from gridops.model.forecast import Band, Evidence, Forecast, ProfileForecast
from gridops.model.profile import DeviceNeed, PlacementRules, Profile
from gridops.planner.draft import Draft, Item, begin
from gridops.planner.gather import gather
from gridops.planner.harm import Harm, Needs, Urgency
from gridops.planner.movers import gather_movers
from gridops.planner.place import place
from gridops.planner.seats import Seats
from gridops.planner.targets import choose
from gridops.planner.views import look
from tests.planner.fleet import NOW, Fleet, config, host, profile
from tests.planner.test_targets_forecast import entry, expect, planned

MINUTE = 60_000


def model(name: str, least: int = 0, most: int = 4, **more: Any) -> Profile:
    more.setdefault("configs", (config(f"{name}-q4", 18, weights="same"),))
    return profile(name, least, replicas_max=most, **more)


@dataclass(frozen=True)
class Given:
    """Seats as they are given in order, before anybody rearranges them."""

    draft: Draft
    left: tuple[Item, ...]
    seats: Seats


def given_seats(fleet: Fleet, forecast: Forecast | None) -> Given:
    world = look(replace(fleet.inputs(), forecast=forecast))
    draft = begin(world, choose(world, gather(world)))
    seats = Seats(draft)
    return Given(draft, place(seats), seats)


def contest(*profiles: Profile, entries: tuple[ProfileForecast, ...], hosts: int = 1) -> Given:
    fleet = Fleet(hosts=tuple(host(f"h{n}") for n in range(hosts)), profiles=profiles)
    return given_seats(fleet, expect(*entries))


def owners(made: Given) -> list[str]:
    return sorted(s.assignment.profile for s in made.draft.seats.values())


URGENCIES = {
    "the baseline before requests": (model("z", 1), (entry(0.5, name="a", queue=99),)),
    "requests before a correlation": (
        model("z"),
        (entry(9, name="a", evidence=Evidence.CORRELATED), entry(0.1, name="z")),
    ),
    "an authorised workload before a correlation": (
        model("z"),
        (entry(9, name="a", evidence=Evidence.CORRELATED), entry(0.1, name="z", evidence=Evidence.AUTHORISED)),
    ),
    "a correlation before what is only remembered": (
        model("z"),
        (
            entry(name="a", last_used_ms=NOW - MINUTE),
            entry(0.1, name="z", evidence=Evidence.CORRELATED, last_used_ms=None),
        ),
    ),
    "requests before what a correlation adds to requests": (
        model("z"),
        (entry(0.1, name="a", inferred_mrpm=1_200, p95_ms=60_000), entry(0.1, name="z")),
    ),
}


@pytest.mark.parametrize("name", URGENCIES)
def test_what_is_urgent_goes_first(name: str) -> None:
    winner, entries = URGENCIES[name]
    assert owners(contest(model("a"), winner, entries=entries)) == ["z"]


def test_priority_outranks_urgency() -> None:
    made = contest(model("a", 1), model("z", priority=900), entries=(entry(0.1, name="z"),))
    assert owners(made) == ["z"]


def test_a_pin_outranks_priority() -> None:
    pinned = model("z", placement=PlacementRules(pins=(HostId("h0"),)))
    made = contest(model("a", priority=900), pinned, entries=(entry(9, name="a"),))
    assert owners(made) == ["z"]


HARMS = {
    "a longer queue": ({"queue": 9}, {"queue": 8}),
    "a queue before latency": ({"queue": 3}, {"queue": 2, "p95_ms": 60_000}),
    "latency over its own objective": ({"p95_ms": 9_000}, {"p95_ms": 8_000}),
    "latency before errors": ({"p95_ms": 9_000}, {"p95_ms": 8_000, "error_ppm": 900_000}),
    "more errors": ({"error_ppm": 200_000}, {"error_ppm": 100_000}),
    "errors before concurrency": ({"error_ppm": 2}, {"error_ppm": 1, "offered_mlanes": 900}),
    "more concurrency": ({"offered_mlanes": 501}, {"offered_mlanes": 500}),
    "more requests": ({"observed_mrpm": 7_000}, {"observed_mrpm": 6_999}),
}


@pytest.mark.parametrize("name", HARMS)
@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("names", ["az", "za"])
def test_among_equals_the_more_harmed_one_is_served(name: str, least: int, names: str) -> None:
    worse, better = HARMS[name]
    made = contest(
        *(model(n, least) for n in sorted(names)),
        entries=(entry(0.5, name=names[0], **worse), entry(0.5, name=names[1], **better)),
    )
    assert owners(made) == [names[0]]


def test_the_objective_decides_how_late_late_is() -> None:
    """2 s late where 1 s was promised is worse than 6 s where 5 s was."""
    hasty = model("z")
    hasty = replace(hasty, demand=replace(hasty.demand, latency_slo_ms=1_000))
    made = contest(model("a"), hasty, entries=(entry(0.5, name="a", p95_ms=6_000), entry(0.5, name="z", p95_ms=2_000)))
    assert owners(made) == ["z"]


def test_an_inference_is_no_harm() -> None:
    loud = entry(9, name="a", evidence=Evidence.CORRELATED, queue=50, p95_ms=90_000, observed_mrpm=0)
    quiet = entry(0.1, name="z", evidence=Evidence.CORRELATED, observed_mrpm=1)
    assert owners(contest(model("a"), model("z"), entries=(loud, quiet))) == ["z"]


def test_demand_takes_turns_and_counts_what_each_has() -> None:
    """Both want four. Four hosts, of which `a` has two already: the free ones go to `z`."""
    fleet = Fleet(hosts=tuple(host(f"h{n}") for n in range(2)), profiles=(model("a", 2), model("z")))
    fleet = fleet.applied(planned(fleet, None))
    grown = fleet.but(hosts=tuple(host(f"h{n}") for n in range(4)), profiles=(model("a"), model("z")))
    made = given_seats(grown, expect(entry(2, name="a", queue=9), entry(2, name="z")))
    assert owners(made) == ["a", "a", "z", "z"]


def test_a_baseline_that_stands_lends_no_urgency_to_what_demand_adds() -> None:
    fleet = Fleet(hosts=(host("h0"),), profiles=(model("a", 1), model("z")))
    fleet = fleet.applied(planned(fleet, None)).but(hosts=(host("h0"), host("h1")))
    assert owners(given_seats(fleet, expect(entry(2, name="a", queue=9), entry(2, name="z")))) == ["a", "z"]


def test_a_profile_in_need_does_not_take_every_turn() -> None:
    made = contest(model("a"), model("z"), entries=(entry(9, name="a", queue=9), entry(9, name="z")), hosts=4)
    assert owners(made) == ["a", "a", "z", "z"]


def test_the_larger_one_goes_first_whatever_the_harm() -> None:
    """Harm settles ties only: what fits nowhere else later has to go first."""
    made = contest(
        model("a"),
        model("z", configs=(config("z-q4", 20),)),
        entries=(entry(0.5, name="a", queue=9), entry(0.5, name="z")),
    )
    assert owners(made) == ["z"]


ENTRIES = st.builds(
    lambda rate, queue, p95, errors, lanes, evidence: ProfileForecast(
        profile="x",  # type: ignore[arg-type]
        evidence=evidence,
        rate_mrpm=Band(low=rate, likely=rate, high=rate),
        observed_mrpm=rate,
        offered_mlanes=lanes,
        queue=queue,
        p95_ms=p95,
        error_ppm=errors,
        confidence_ppm=1_000_000,
        last_used_ms=NOW,
    ),
    st.integers(1, 100_000),
    st.integers(0, 4),
    st.sampled_from((None, 1_000, 4_000, 20_000)),
    st.sampled_from((0, 20_000, 300_000)),
    st.integers(1, 4_000),
    st.sampled_from(tuple(Evidence)),
)
NAMES = st.lists(st.sampled_from(("ant", "bee", "cat", "dog", "eel")), min_size=3, max_size=3, unique=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(ENTRIES, min_size=3, max_size=3), NAMES, NAMES, st.integers(1, 5), st.integers(0, 1))
def test_renaming_equals_never_moves_a_scarce_seat(
    entries: list[ProfileForecast], one: list[str], other: list[str], hosts: int, least: int
) -> None:
    """The same three demands under other names get the same numbers of seats, unless two are equal in everything."""

    def seats_of(names: list[str]) -> list[int]:
        made = contest(
            *(model(n, least) for n in sorted(names)),
            entries=tuple(replace(e, profile=n) for e, n in zip(entries, names, strict=True)),  # type: ignore[arg-type]
            hosts=hosts,
        )
        return [owners(made).count(n) for n in names]

    if len({replace(e, confidence_ppm=0) for e in entries}) == 3 and _all_differ(entries):
        assert seats_of(one) == seats_of(other)
    else:
        assert sorted(seats_of(one)) == sorted(seats_of(other))


def _all_differ(entries: list[ProfileForecast]) -> bool:
    """In what counts as harm, so that names have nothing left to decide."""
    seen = {
        (e.observed_mrpm,)
        if e.evidence is Evidence.CORRELATED
        else (e.queue, e.p95_ms or 0, e.error_ppm, e.offered_mlanes, e.observed_mrpm)
        for e in entries
    }
    return len(seen) == 3


def test_harm_sorts_the_worst_first() -> None:
    assert Harm(queue=2).relief_first < Harm(queue=1, latency_ppm=9, error_ppm=9).relief_first < Harm().relief_first


def test_without_a_forecast_nothing_is_more_urgent_than_anything() -> None:
    fleet = Fleet(hosts=(host("h0"),), profiles=(model("a", 1), model("z", 1)))
    assert list(given_seats(fleet, None).draft.seats) == ["a/1"]


def claims(made: Given) -> dict[str, int]:
    """What each replica is worth when whole placements are compared, as `movers` tells the search."""
    movers = gather_movers(made.seats, made.left)
    return {m.replica: p.claim for m, p in zip(movers.movers, movers.puzzle.pieces, strict=True)}


def test_claims_rank_replicas_as_the_order_does() -> None:
    """Baselines, then who is asked by how few it has, then harm; a correlation last."""
    made = contest(
        model("a", 1),
        model("b"),
        model("c"),
        model("d"),
        entries=(
            entry(1, name="a", queue=9),
            entry(1, name="b", queue=2),
            entry(1, name="c", queue=3),
            entry(1, name="d", evidence=Evidence.CORRELATED),
        ),
    )
    found = claims(made)
    ranked = sorted(found, key=lambda r: (-found[r], r))
    assert ranked[:6] == ["a/1", "c/1", "b/1", "a/2", "c/2", "b/2"]
    assert all(found[f"d/{n}"] < found["b/2"] for n in (1, 2))


def test_the_second_of_a_constrained_profile_is_worth_more_than_the_third_of_another() -> None:
    """However much more is asked of the other: rounds come before harm, also where others are moved."""
    pair = DeviceNeed(count=2, shard="tensor")
    wide = profile("a", 1, replicas_max=3, configs=(config("a", 18, devices=pair),))
    fleet = Fleet(hosts=(host("h0", (24, 24)), host("h1")), profiles=(wide, model("b")))
    found = claims(given_seats(fleet, expect(entry(3, name="a"), entry(30, name="b", queue=99))))
    assert found["a/2"] > found["b/3"]


@pytest.mark.parametrize("name", HARMS)
@pytest.mark.parametrize("names", ["az", "za"])
def test_whatever_is_rearranged_the_more_harmed_one_keeps_the_seat(name: str, names: str) -> None:
    worse, better = HARMS[name]
    fleet = Fleet(hosts=(host("h0"),), profiles=tuple(model(n) for n in sorted(names)))
    made = planned(fleet, expect(entry(0.5, name=names[0], **worse), entry(0.5, name=names[1], **better)))
    assert [a.profile for a in made.placement] == [names[0]]


def test_what_was_observed_is_counted_by_the_lanes_of_those_that_have_a_seat() -> None:
    """Two that stand with one lane each do not suffice for two lanes of demand with headroom, one of eight would."""
    configs = (config("wide", 30, lanes=8), config("narrow", 10, lanes=1))
    asks = entry(2, inferred_mrpm=12_000)
    for lanes, urgency in ((1, Urgency.ASKED), (8, Urgency.CORRELATED)):
        stands = model("c", 1, configs=(configs[0], replace(configs[1], lanes=lanes)), max_per_host=9)
        made = contest(stands, entries=(asks,))
        assert next(s.launch.lanes for s in made.draft.of(stands.name)) == lanes, "only the second config fits"
        assert Needs(made.draft).urgency(stands, 1, 1) is urgency


def test_a_seat_is_judged_by_the_lanes_of_its_own_config() -> None:
    """As many requests wait for a replica as it would serve: five of eight lanes, one where it has one."""
    configs = (config("wide", 20, lanes=8), config("narrow", 10, lanes=1))
    both = model("c", 1, configs=configs)
    for hosts, waiting in (((host("h0"),), 5), ((host("h0", (12,)),), 1)):
        fleet = Fleet(hosts=hosts, profiles=(both,))
        made = planned(fleet, expect(entry(5)))
        choice = next(c for c in made.report.choices if c.replica == "c/1")
        start = next(t.winner for t in choice.terms if t.name == "harm_starting")
        assert start == waiting * (both.timing.load_ms + both.timing.warm_ms)
