"""Where a replica goes, by harm to requests: what is there or learned, who shares the link, how fast it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from gridops.base.ids import ConfigName, HostId, ProfileName, ReplicaId
from gridops.model.fleet import Link
from gridops.model.forecast import Forecast
from gridops.model.learned import FailedStarts, Learned, LearnedTime, MeasuredSpeed, TimeKind
from gridops.model.plan import Plan
from gridops.model.profile import Profile
from gridops.model.snapshot import ResidencyState
from gridops.planner.check import check
from gridops.planner.constants import FAILED_START_MS
from gridops.planner.draft import begin
from gridops.planner.gather import gather
from gridops.planner.learned import revision_of
from gridops.planner.place import place
from gridops.planner.planner import Inputs, plan
from gridops.planner.rank import HARM_PARTS, Rank
from gridops.planner.rank_harm import DRAIN_MS
from gridops.planner.render_explain import explain_lines
from gridops.planner.render_text import Style
from gridops.planner.render_words import Context
from gridops.planner.seats import Seats
from gridops.planner.speed_devices import known_device
from gridops.planner.targets import choose
from gridops.planner.views import look
from tests.planner.fleet import NOW, Fleet, config, device, digest, host, laptop, profile, running, seats
from tests.planner.test_targets_forecast import entry, expect

DAY = 86_400_000
MBPS = 1_000_000
CONFIG = config("c-q4", 10, backends=("cuda", "metal"))
WANTED = profile("c", configs=(CONFIG,))


T = TypeVar("T")


def known(record: Callable[..., T], on: str, of: Profile = WANTED, **more: Any) -> T:
    """A record about the profile's first config on a host."""
    first = of.configs[0]
    about = {"profile": of.name, "config": first.name, "revision": revision_of(first.artifact)}
    return record(host=HostId(on), **{**about, **more})


def took(on: str, kind: TimeKind, ms: int, count: int = 8, at: int = NOW, **more: Any) -> LearnedTime:
    return known(LearnedTime, on, kind=kind, ewma_ms=ms, count=count, last_ms=at, **more)


def failed(on: str, count: int, at: int = NOW) -> FailedStarts:
    return known(FailedStarts, on, count=count, last_ms=at)


def rate(on: str, tokens: int, count: int = 8, at: int = NOW, **more: Any) -> MeasuredSpeed:
    return known(MeasuredSpeed, on, tokens_mps=tokens * 1000, tokens_count=count, tokens_at_ms=at, **more)


def made(fleet: Fleet, learned: Learned | None = None, forecast: Forecast | None = None, **more: Any) -> Plan:
    asked = replace(fleet.inputs(), learned=learned, forecast=forecast, **more)
    found = plan(asked)
    assert check(found, asked) == ()
    return found


def chosen(*args: Any, **more: Any) -> str:
    return seats(made(*args, **more))["c/1"]


def terms(found: Plan, replica: str = "c/1") -> dict[str, tuple[int, int | None]]:
    choice = next(c for c in found.report.choices if c.replica == replica)
    return {t.name: (t.winner, t.runner_up) for t in choice.terms}


def fleet_of(*names: str, **more: Any) -> Fleet:
    return Fleet(hosts=tuple(host(n, **more) for n in names), profiles=(WANTED,))


def cached(fleet: Fleet, *names: str) -> Fleet:
    for name in names:
        fleet = fleet.reporting(name, cached=(CONFIG.artifact.files[0].sha256,))
    return fleet


# -- without evidence -------------------------------------------------------------------------------------------------


def test_what_is_there_comes_first_and_a_persons_machine_last() -> None:
    """Ready, starting, cached and cold hosts, taken away one after the other; then the same on persons' machines."""
    fleet = Fleet(hosts=tuple(host(n) for n in ("s-cold", "s-cached", "s-warming", "s-ready")), profiles=(WANTED,))
    fleet = fleet.but(hosts=(*fleet.hosts, *(laptop(n) for n in ("l-cold", "l-cached", "l-warming"))))
    for name, state in (("s-warming", "warming"), ("s-ready", "ready"), ("l-warming", "warming")):
        alone = Fleet(hosts=(fleet.host(name),), profiles=(WANTED,)).plan()
        # Nobody's replica: it is no incumbent, just a process that is there.
        here = replace(running(alone.placement[0], alone, ResidencyState(state)), replica=None)
        fleet = fleet.reporting(name, residencies=(here,))
    fleet, order = cached(fleet, "s-cached", "l-cached"), []
    while fleet.hosts:
        order.append(chosen(fleet))
        fleet = fleet.but(hosts=tuple(h for h in fleet.hosts if h.id != order[-1]))
    assert order == ["s-ready", "s-warming", "l-warming", "s-cached", "l-cached", "s-cold", "l-cold"]


@pytest.mark.parametrize("most", [1, 2, None])
def test_without_a_rule_of_domains_each_host_is_its_own(most: int | None) -> None:
    """Two cards of one host are the tightest, and yet the second replica goes to the other."""
    fleet = Fleet(hosts=(host("ant", (24, 24)), host("bee", (80,))), profiles=(profile("c", 2, max_per_host=most),))
    found = made(fleet)
    assert seats(found) == {"c/1": "ant", "c/2": "bee"}
    assert terms(found, "c/2")["domain_replicas"] == (0, None if most == 1 else 1)


def test_harm_is_the_sum_of_its_parts_and_the_report_shows_them() -> None:
    fleet = cached(Fleet(hosts=(host("ant"), laptop("bee")), profiles=(WANTED,)), "bee")
    found = terms(made(fleet))
    assert set(HARM_PARTS) < set(found) == set(Rank._fields)
    for side in (0, 1):
        assert found["harm"][side] == sum(found[p][side] or 0 for p in HARM_PARTS)
    assert found["harm_starting"] == (5_000, 35_000)
    assert found["harm_interrupted"] == (1_000, 0)


def test_equal_harm_of_other_parts_is_told_by_its_parts() -> None:
    slow = replace(WANTED, timing=replace(WANTED.timing, load_ms=FAILED_START_MS))
    fleet = cached(Fleet(hosts=(host("ant"), host("bee")), profiles=(slow,)), "bee")
    found = terms(made(fleet, Learned(failures=(failed("bee", 1),))))
    assert found["harm"] == (FAILED_START_MS + 5_000, FAILED_START_MS + 5_000)
    assert found["harm_starting"] == (5_000, FAILED_START_MS + 5_000)
    assert found["harm_failing"] == (FAILED_START_MS, 0)


def test_equal_harm_of_waiting_and_of_fetching_is_told_by_its_parts() -> None:
    before = Fleet(hosts=(host("ant"), host("bee")), profiles=(profile("old", gib=20),))
    slow = replace(WANTED, timing=replace(WANTED.timing, load_ms=DRAIN_MS))
    found = terms(made(cached(before.applied(before.plan()).but(profiles=(slow,)), "ant")))
    assert found["harm"] == (DRAIN_MS + 5_000, DRAIN_MS + 5_000)
    assert found["harm_waiting"] == (DRAIN_MS, 0)
    assert found["harm_starting"] == (5_000, DRAIN_MS + 5_000)


def test_times_and_chances_of_nothing_still_put_a_persons_machine_last() -> None:
    quick = replace(WANTED, timing=replace(WANTED.timing, warm_ms=0, load_ms=0))
    assert chosen(Fleet(hosts=(laptop("ant", 10.9), host("bee", (80,))), profiles=(quick,))) == "bee"


# -- learned times ----------------------------------------------------------------------------------------------------


TIMES = {
    "a fast fetch draws": ((took("bee", TimeKind.FETCH, 2_000),), "bee"),
    "a slow fetch repels": ((took("ant", TimeKind.FETCH, 90_000),), "bee"),
    "a slow warm repels": ((took("ant", TimeKind.WARM, 60_000),), "bee"),
    "a proof of files says nothing of a fetch": ((took("bee", TimeKind.VERIFY, 10),), "ant"),
    "one of other weights says nothing": ((took("bee", TimeKind.FETCH, 10, revision=digest("other")),), "ant"),
    "one of another config says nothing": ((took("bee", TimeKind.FETCH, 10, config=ConfigName("q8")),), "ant"),
    "one of another profile says nothing": ((took("bee", TimeKind.FETCH, 10, profile=ProfileName("d")),), "ant"),
    "a month old says nothing": ((took("bee", TimeKind.FETCH, 10, at=NOW - 30 * DAY),), "ant"),
    "nearly a month old still does": ((took("bee", TimeKind.FETCH, 10, at=NOW - 30 * DAY + 1),), "bee"),
    "one from the future says nothing": ((took("bee", TimeKind.FETCH, 10, at=NOW + DAY),), "ant"),
    "over an hour is no time": ((took("ant", TimeKind.FETCH, 3_600_001),), "ant"),
    "an hour is": ((took("ant", TimeKind.FETCH, 3_600_000),), "bee"),
    "less than nothing is no time": ((took("bee", TimeKind.FETCH, -1),), "ant"),
    "no samples are no time": ((took("bee", TimeKind.FETCH, 10, count=0),), "ant"),
}


@pytest.mark.parametrize("name", TIMES)
def test_a_learned_time(name: str) -> None:
    times, expected = TIMES[name]
    assert chosen(fleet_of("ant", "bee"), Learned(times=times)) == expected


@pytest.mark.parametrize(("count", "expected"), [(1, 27_000), (2, 19_000), (3, 11_000), (4, 3_000), (9, 3_000)])
def test_four_samples_replace_the_prior(count: int, expected: int) -> None:
    """Of a prior of 30 s + 5 s, learned 1 s and 2 s."""
    times = (took("ant", TimeKind.FETCH, 1_000, count), took("ant", TimeKind.WARM, 2_000, count))
    found = terms(made(fleet_of("ant"), Learned(times=times)))
    assert found["harm_starting"][0] == pytest.approx(expected, abs=1_000)


def explained(found: Plan) -> list[str]:
    lines = explain_lines(found, ReplicaId("c/1"), Context(now_ms=NOW), Style(width=100))
    assert lines is not None
    return lines


def test_a_decision_costs_what_was_learned_and_says_so() -> None:
    """The time that people read is the one that the seat was judged by."""
    times = (took("ant", TimeKind.FETCH, 9_000), took("ant", TimeKind.WARM, 2_000))
    for learned, expected in ((Learned(times=times), (11_000, True)), (Learned(times=times[1:]), (32_000, True))):
        found = made(fleet_of("ant"), learned)
        (decision,) = found.decisions
        assert (decision.cost.start_ms, decision.cost.learned) == expected
        assert terms(found)["harm_starting"][0] == expected[0]
        lines = explained(found)
        assert any(line.strip().startswith("costs") and line.endswith("(learned on ant)") for line in lines)
    plain = made(fleet_of("ant"), Learned(times=(took("bee", TimeKind.FETCH, 9_000),)))
    assert (plain.decisions[0].cost.start_ms, plain.decisions[0].cost.learned) == (35_000, None)
    assert not any("learned" in line for line in explained(plain))
    there = made(cached(fleet_of("ant"), "ant"), Learned(times=times[:1]))
    assert there.decisions[0].cost.learned is None, "what was learned of a fetch says nothing where none is needed"


def test_what_is_there_does_not_pay_for_a_fetch_again() -> None:
    learned = Learned(times=(took("ant", TimeKind.FETCH, 600_000),))
    found = made(cached(fleet_of("ant"), "ant"), learned)
    assert terms(found)["harm_starting"] == (5_000, None)


def test_failed_attempts_let_a_peer_be_tried_and_the_host_stays_the_fallback() -> None:
    fleet = cached(fleet_of("ant", "bee"), "ant")
    assert chosen(fleet) == "ant"
    found = made(fleet, Learned(failures=(failed("ant", 1),)))
    assert seats(found)["c/1"] == "bee"
    assert terms(found)["harm_failing"] == (0, 120_000)
    assert chosen(cached(fleet_of("ant"), "ant"), Learned(failures=(failed("ant", 99),))) == "ant"


def test_failures_are_bounded_and_end() -> None:
    fleet = fleet_of("ant", "bee")
    both = [Learned(failures=(failed("ant", n), failed("bee", 4))) for n in (99, 4)]
    assert [chosen(fleet, b) for b in both] == ["ant", "ant"], "ninety-nine count as four"
    assert chosen(fleet, Learned(failures=(failed("ant", 4, NOW - 31 * DAY),))) == "ant"


# -- links ------------------------------------------------------------------------------------------------------------


def linked(name: str, mbps: int, **more: Any) -> Any:
    return host(name, links=(Link(name="download", rate_bps=mbps * MBPS),), **more)


def test_a_transfer_under_way_takes_half_the_link() -> None:
    fleet = Fleet(hosts=(linked("ant", 1000), linked("bee", 900)), profiles=(WANTED, profile("d", 0)))
    assert chosen(fleet) == "ant"
    alone = terms(made(fleet))["harm_starting"][0]
    other = profile("d", configs=(config("d-q4", 4, weights="d"),))
    plan_d = Fleet(hosts=(fleet.hosts[0],), profiles=(other,)).plan()
    loading = running(plan_d.placement[0], plan_d, ResidencyState.LOADING)
    busy = fleet.reporting("ant", residencies=(loading,))
    assert chosen(busy) == "bee"
    only = terms(made(busy.but(hosts=(fleet.hosts[0],))))["harm_starting"][0]
    assert only - 5_000 == 2 * (alone - 5_000)


def test_transfers_of_this_plan_go_over_different_links_where_they_can() -> None:
    hosts = (linked("ant", 1000, gpus=(48,)), linked("bee", 900, gpus=(48,)))
    both = (WANTED, profile("d", configs=(config("d-q4", 10, weights="d"),)))
    found = made(Fleet(hosts=hosts, profiles=both))
    assert sorted(seats(found).values()) == ["ant", "bee"]
    lone = made(Fleet(hosts=(hosts[0],), profiles=both))
    starts = sorted(terms(lone, r)["harm_starting"][0] - 5_000 for r in ("c/1", "d/1"))
    assert starts[1] == 2 * starts[0], "of equal size: each planned transfer adds one turn"
    shared = made(Fleet(hosts=(hosts[0],), profiles=(WANTED, profile("d", configs=(config("d-q4", weights="c-q4"),)))))
    assert len({terms(shared, r)["harm_starting"][0] for r in ("c/1", "d/1")}) == 1, "the same file comes once"


def test_making_room_judges_starts_with_the_link_to_itself() -> None:
    """What is moved takes its transfers along, so the times that the search compares must not hold them."""
    both = (WANTED, profile("d", configs=(config("d-q4", 10, weights="d"),)))
    world = look(Fleet(hosts=(linked("ant", 1000, gpus=(48,)),), profiles=both).inputs())
    found = Seats(begin(world, choose(world, gather(world))))
    (before,) = [int(o.start_ms[0]) for o in found.openings(both[1])]
    place(found)
    (after,) = found.openings(both[1])
    assert int(after.start_ms[0]) == before
    assert int(after.soon_ms[0]) - 5_000 == 2 * (before - 5_000)


def test_a_guess_of_the_profile_is_nobodys_link() -> None:
    both = (WANTED, profile("d", configs=(config("d-q4", 10, weights="d"),)))
    found = made(Fleet(hosts=(host("ant", (48,)),), profiles=both))
    assert {terms(found, r)["harm_starting"][0] for r in ("c/1", "d/1")} == {35_000}


# -- speed ------------------------------------------------------------------------------------------------------------


def test_a_measured_slow_host_loses_among_equals() -> None:
    fleet = fleet_of("ant", "bee")
    assert chosen(fleet, Learned(speeds=(rate("ant", 20), rate("bee", 40)))) == "bee"
    assert chosen(fleet, Learned(speeds=(rate("ant", 40), rate("bee", 20)))) == "ant"


def delay(on: str, ms: int, **more: Any) -> MeasuredSpeed:
    return known(MeasuredSpeed, on, latency_ms=ms, latency_count=8, latency_at_ms=NOW, **more)


MEASURED = {
    "too old": (rate("ant", 20, at=NOW - 900_000), 0),
    "half as old": (rate("ant", 20, at=NOW - 450_000), 15_000),
    "fresh": (rate("ant", 20), 30_000),
    "half the samples": (rate("ant", 20, count=4), 15_000),
    "of other weights": (rate("ant", 20, revision=digest("other")), 0),
    "of another profile": (rate("ant", 20, profile=ProfileName("d")), 0),
    "by latency": (delay("ant", 2_000), 30_000),
    "no rate at all": (rate("ant", 0), 0),
    "a fresh delay keeps no old rate": (
        replace(rate("ant", 20, at=NOW - 900_000), latency_ms=1_000, latency_count=8, latency_at_ms=NOW),
        0,
    ),
    "a hundred times as slow counts as four times": (delay("ant", 100_000), 90_000),
}


@pytest.mark.parametrize("name", MEASURED)
def test_a_measurement_fades_and_weak_samples_weigh_little(name: str) -> None:
    """Harm of half the speed over 300 s at a tenth of a lane: 30 request-seconds."""
    record, expected = MEASURED[name]
    best = replace(rate("bee", 40), latency_ms=1_000, latency_count=8, latency_at_ms=NOW)
    found = made(fleet_of("ant"), Learned(speeds=(record, best)))
    assert terms(found)["harm_slower"][0] == 0, "alone there is nothing to be slower than"
    pinned = replace(WANTED, placement=replace(WANTED.placement, pins=(HostId("ant"),)))
    found = made(Fleet(hosts=(host("ant"), host("bee")), profiles=(pinned,)), Learned(speeds=(record, best)))
    assert terms(found)["harm_slower"][0] == expected


def gpu(name: str, model: str) -> Any:
    return host(name, devices=(device("gpu0", 24, model=model), device("cpu0", 64)))


def test_hardware_settles_ties_among_cold_hosts_and_never_outweighs_files_at_light_demand() -> None:
    fleet = Fleet(hosts=(gpu("ant", "Tesla T4"), gpu("bee", "NVIDIA GeForce RTX 4090")), profiles=(WANTED,))
    assert chosen(fleet) == "bee"
    assert chosen(cached(fleet, "ant")) == "ant"
    light = expect(entry(1.0, name="c"))
    assert chosen(cached(fleet, "ant"), forecast=light) == "ant"


def test_sustained_demand_pays_for_the_faster_cold_host() -> None:
    lanes = profile("c", 1, replicas_max=1, configs=(replace(CONFIG, lanes=4),))
    fleet = Fleet(hosts=(gpu("ant", "Tesla T4"), gpu("bee", "RTX 4090")), profiles=(lanes,))
    hot, light = expect(entry(40.0, name="c")), expect(entry(0.5, name="c"))
    assert chosen(cached(fleet, "ant"), forecast=hot) == "bee"
    assert chosen(cached(fleet, "ant"), forecast=light) == "ant"
    found = [made(cached(fleet, "ant"), forecast=expect(entry(n, name="c"))) for n in (40.0, 4000.0)]
    assert terms(found[0])["harm"] == terms(found[1])["harm"], "at most eight times, whatever the demand"


def test_where_little_is_asked_files_win_against_speed_and_where_much_is_speed_does() -> None:
    """Half the speed costs 15 request-seconds at a twentieth of a lane, and a fetch 30: one request waits for it."""
    fleet, learned = cached(fleet_of("ant", "bee"), "ant"), Learned(speeds=(rate("ant", 20), rate("bee", 40)))
    assert chosen(fleet, learned, expect(entry(0.05, name="c"))) == "ant"
    assert chosen(fleet, learned, expect(entry(0.6, name="c"))) == "bee"


def test_what_was_measured_outweighs_what_the_hardware_suggests() -> None:
    fleet = Fleet(hosts=(gpu("ant", "Tesla T4"), gpu("bee", "NVIDIA GeForce RTX 4090")), profiles=(WANTED,))
    assert chosen(fleet, Learned(speeds=(rate("ant", 40), rate("bee", 20)))) == "ant"


def test_unknown_hardware_is_neither_fast_nor_slow() -> None:
    hosts = (gpu("ant", "Tesla T4"), gpu("bee", "RTX 4090"), gpu("cat", "Voodoo 2"), gpu("dog", "L40S"))
    slower = {}
    for name in ("ant", "bee", "cat", "dog"):
        pinned = replace(WANTED, placement=replace(WANTED.placement, pins=(HostId(name),)))
        slower[name] = terms(made(Fleet(hosts=hosts, profiles=(pinned,))))["harm_slower"][0]
    assert slower["bee"] == 0 < slower["cat"] == slower["dog"] < slower["ant"] < 600


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("NVIDIA A100-SXM4-80GB", 2040),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 576),
        ("NVIDIA GeForce RTX 4090", 1010),
        ("L40S", 864),
        ("Apple M2 Ultra", 800),
        ("Apple M2", 100),
        ("NVIDIA H100 80GB HBM3", 2040),
        ("NVIDIA RTX A1000", None),
        ("", None),
        (None, None),
    ],
)
def test_a_device_is_known_by_the_words_of_its_name(name: str | None, bandwidth: int | None) -> None:
    found = known_device(name)
    assert (None if found is None else found.bandwidth) == bandwidth


# -- no gratuitous move -----------------------------------------------------------------------------------------------


def noisy(fleet: Fleet, tick: int, waiting: Plan | None = None) -> Inputs:
    """Measurements that jitter by 5 % and change sides at every tick."""
    speeds = tuple(rate(h.id, 100 + (tick * 7 + n * 3) % 6) for n, h in enumerate(fleet.hosts))
    times = tuple(took(h.id, TimeKind.WARM, 5_000 + (tick * 131 + n * 57) % 250) for n, h in enumerate(fleet.hosts))
    learned, demand = Learned(times=times, speeds=speeds), expect(entry(0.6, name="c"))
    return replace(fleet.inputs(), learned=learned, forecast=demand, waiting=waiting)


def test_a_hundred_ticks_of_noise_move_nothing() -> None:
    settled = fleet_of("ant", "bee", "cat").applied(fleet_of("ant", "bee", "cat").plan())
    for tick in range(100):
        assert plan(noisy(settled, tick)).decisions == ()


def test_a_hundred_ticks_of_noise_do_not_overturn_a_plan_under_review() -> None:
    fleet = fleet_of("ant", "bee", "cat")
    waiting = plan(noisy(fleet, 0))
    digests = {plan(noisy(fleet, tick, waiting)).decisions_digest for tick in range(100)}
    assert digests == {waiting.decisions_digest}
    assert len({plan(noisy(fleet, tick)).decisions_digest for tick in range(6)}) > 1, "without it the noise decides"


def test_what_is_truly_better_overturns_a_plan_under_review() -> None:
    fleet = fleet_of("ant", "bee")
    waiting = made(fleet)
    assert seats(waiting)["c/1"] == "ant"
    found = made(cached(fleet, "bee"), waiting=waiting)
    assert seats(found)["c/1"] == "bee"
    assert terms(found)["harm_reviewed"] == (7_000, 0)


def test_an_incumbent_stays_though_another_host_is_better_in_every_part() -> None:
    settled = fleet_of("ant").applied(fleet_of("ant").plan())
    grown = cached(settled.but(hosts=(host("ant"), gpu("bee", "H200"))), "bee")
    learned = Learned(failures=(failed("ant", 4),), speeds=(rate("ant", 1), rate("bee", 99)))
    assert made(grown, learned, expect(entry(0.6, name="c"))).decisions == ()
