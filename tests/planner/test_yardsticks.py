"""The yardsticks themselves, and the planner against the exact optimum on the smallest of them.

What is measured by `bench` has to be right before it means anything: instances are the published ones, kept optima are
what the solver says, and the judge refuses what is wrong. Plans that are still more than 1 % of the weight away stand
in `NOT_YET`, which can only shrink.
"""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench import openb, robust
from bench.optimum import gap_percent, names, run
from bench.yard import cluster, columns, exact, kept
from bench.yard.instance import Instance, Machine, Model, named
from bench.yard.judge import Score, Wrong, score
from bench.yard.pods import Through, WholePlans, inputs, name_of
from bench.yard.published import FGD, BestFit
from bench.yard.translate import MB

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "tools" / "milp_yardstick.py"
"""The generator that the published figures were made with, where it lies beside the checkout."""

SMALL = names("16x8", range(8))
SAMPLE = ("16x8@0.7#0", "16x8@1#2", "16x8@1#7", "16x8@1.3#5", "16x8@1.3#7")
EQUAL_AT_LEAST = 20

NOT_YET: frozenset[str] = frozenset()
"""More than 1 % of the weight from the optimum that keeps gridops' own rules."""

DIGESTS = {
    "16x8@0.7#0": "696939ee9f67b5ff",
    "16x8@1#3": "81ed2b2eaa279d2f",
    "16x8@1.3#7": "faf478a4fe28215c",
    "64x32@0.7#1": "e78ffa6314349e6b",
    "64x32@1.3#2": "64a9688448cb913b",
    "256x64@1#0": "b876f77fc5461238",
}
"""Fingerprints of the reference's instances, of each size and tightness."""


@pytest.mark.parametrize("name", DIGESTS)
def test_an_instance_is_the_published_one_on_every_machine(name: str) -> None:
    found = {fingerprint(plain(named(name)))}
    if REFERENCE.exists():
        found.add(fingerprint(reference(name)))
    assert found == {DIGESTS[name]}


@pytest.mark.parametrize("rules", exact.ALL_RULES, ids=lambda r: r.name)
@pytest.mark.parametrize("name", ["16x8@1#0", "16x8@1.3#4"])
def test_whole_contents_of_hosts_bound_the_optimum_and_are_a_placement(name: str, rules: exact.Rules) -> None:
    best, found = kept.load()[f"{name} {rules.name}"], columns.solve(named(name), rules)
    assert found.bound <= best.unmet <= found.unmet
    assert found.unmet - found.bound <= 1 + 0.01 * named(name).total_weight


@pytest.mark.parametrize("rules", exact.ALL_RULES, ids=lambda r: r.name)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_kept_optimum_is_what_the_solver_says(name: str, rules: exact.Rules) -> None:
    given, found = named(name), kept.load()[f"{name} {rules.name}"]
    answer = exact.solve(given, rules)
    unmet, start, dropped = (stage.value for stage in answer.stages)
    assert unmet == pytest.approx(found.unmet)
    assert dropped == pytest.approx(found.dropped)
    assert start == pytest.approx(found.start_s, abs=0.01)
    own = score(given, answer.placed)
    assert own.unmet == pytest.approx(unmet)
    assert own.dropped == pytest.approx(dropped)
    assert own.start_s == pytest.approx(start, abs=0.01)
    assert found.proven


def test_rules_never_make_an_optimum_better() -> None:
    optima = kept.load()
    for name in SMALL:
        free, last, lower, both = (optima[f"{name} {r.name}"].unmet for r in exact.ALL_RULES)
        assert free <= min(last, lower) <= max(last, lower) <= both


@pytest.mark.parametrize("name", [n for n in SMALL if n not in NOT_YET])
def test_a_plan_is_within_one_percent_of_the_optimum(name: str) -> None:
    assert gap(name) <= 1


def test_what_is_farther_from_the_optimum_is_still_farther() -> None:
    assert [n for n in sorted(NOT_YET) if gap(n) <= 1] == [], "within 1 % now: take them out of NOT_YET"


@pytest.mark.parametrize("name", SMALL)
def test_a_plan_never_gives_up_the_last_running_replica(name: str) -> None:
    assert judged(name).ended == 0


def test_plans_equal_the_optimum_in_most_instances() -> None:
    optima = kept.load()
    equal = [n for n in SMALL if judged(n).unmet == optima[f"{n} plain"].unmet]
    assert len(equal) >= EQUAL_AT_LEAST, equal


def gap(name: str) -> float:
    return gap_percent(named(name), judged(name).unmet, kept.load()[f"{name} both"].unmet)


@cache
def judged(name: str) -> Score:
    return run(named(name)).score


# Two hosts in two domains, a third that is drained; model 0 wants two domains, 0 and 1 exclude each other.
TINY = Instance(
    name="tiny",
    machines=(
        Machine(10, 2, 0, 1.0, ("e",)),
        Machine(10, 2, 1, 1.0, ("e",)),
        Machine(10, 2, 0, 1.0, ("e",)),
        Machine(10, 2, 0, 1.0, ("e",)),
    ),
    models=(Model(4, 3, 5, 2, "e"), Model(4, 1, 2, 1, "e"), Model(7, 1, 1, 1, "e")),
    excludes=frozenset({(0, 1)}),
    pins=frozenset({(2, 0)}),
    drained=frozenset({2}),
    current=frozenset({(2, 0), (0, 2)}),
)


def test_the_judge_adds_up_weight_seconds_and_departures() -> None:
    found = score(TINY, frozenset({(2, 0), (0, 1), (0, 3)}))
    assert (found.unmet, found.dropped, found.crowded) == (5 + 2, 1, 0)
    assert found.start_s == pytest.approx(2 * (4 + 1.5))


def test_the_judge_counts_only_what_keeps_the_domain_rule() -> None:
    wide = replace(TINY, machines=(*TINY.machines[:3], replace(TINY.machines[3], domain=1)))
    together = score(wide, frozenset({(2, 0), (0, 1), (0, 3)}))
    assert (together.unmet, together.crowded) == (5 * 2 + 2, 1)


def test_the_judge_gives_nothing_for_what_still_stands_on_a_drained_host() -> None:
    waiting = score(TINY, frozenset({(2, 0), (0, 2)}))
    assert (waiting.unmet, waiting.left_on_drained, waiting.ended) == (5 * 3 + 2, 1, 0)


def test_the_judge_counts_models_that_run_nowhere_any_more() -> None:
    assert score(TINY, frozenset({(2, 0), (1, 1)})).ended == 1


@pytest.mark.parametrize(
    ("placed", "why"),
    [
        ({(2, 0), (1, 2)}, "may not stand"),
        ({(0, 1)}, "are not kept"),
        ({(2, 0), (0, 0)}, "11 of 10 MB"),
        ({(2, 0), (0, 1), (1, 1)}, "exclude each other"),
        ({(2, 0), (1, 1), (1, 3)}, "1 wanted"),
    ],
)
def test_the_judge_refuses_what_is_wrong(placed: set[tuple[int, int]], why: str) -> None:
    with pytest.raises(Wrong, match=why):
        score(TINY, placed)


def test_lost_demand_is_what_replicas_cannot_carry() -> None:
    placed = frozenset({(2, 0), (0, 1), (0, 3)})
    # Of 0.7 * (5*3 + 2*1 + 1*1) asked: model 0 lacks 0.1 of a replica, model 1 all of its 0.7, model 2 nothing.
    assert robust.lost(TINY, placed) == pytest.approx(100 * (5 * 0.1 + 2 * 0.7) / (0.7 * 18))
    assert robust.lost(TINY, placed, 2) == pytest.approx(100 * (5 * 2.2 + 2 * 1.4 + 1 * 0.4) / (1.4 * 18))


def test_a_lost_domain_takes_its_replicas_with_it() -> None:
    found = robust.worth(TINY, frozenset({(2, 0), (0, 1), (0, 3)}))
    # Domain 0 holds hosts 0 and 3: model 2 is dark, model 0 keeps one of three.
    assert found.lost_domain == pytest.approx(100 * (5 * 1.1 + 2 * 0.7 + 1 * 0.7) / (0.7 * 18))
    assert found.dark == 1


def test_loads_on_one_host_follow_each_other() -> None:
    assert robust.loads(TINY, frozenset({(2, 0), (0, 1), (2, 1)})) == {1: pytest.approx(4 + 1.5 + 7 + 1.5)}
    assert robust.loads(TINY, frozenset({(0, 1)}), 1.5) == {1: pytest.approx(6 + 1.5)}


BEST_FIT = {"default": 93.08, "gpushare40": 91.69, "multigpu20": 93.93}
GRADIENT = {"multigpu20": 95.65}
"""Percent of all GPUs in the paper's own simulator, mean of ten seeds. One list is enough for the slow one."""


@pytest.mark.parametrize("name", BEST_FIT)
def test_best_fit_fills_the_cluster_as_published(name: str) -> None:
    order, total, given = everybody(name)
    assert total == 6_212 * cluster.WHOLE
    assert cluster.fill(BestFit(cluster.Cluster(order)), given, total) == pytest.approx(BEST_FIT[name], abs=0.5)


@pytest.mark.parametrize("name", GRADIENT)
def test_fragmentation_gradient_descent_fills_the_cluster_as_published(name: str) -> None:
    order, total, given = everybody(name)
    found = cluster.fill(FGD(cluster.Cluster(order), cluster.pods(name)), given, total)
    assert found == pytest.approx(GRADIENT[name], abs=0.5)


def everybody(name: str) -> tuple[range, int, list[cluster.Pod]]:
    """All hosts, their GPUs, and arrivals mixed as in the published experiments."""
    order = range(len(cluster.machines()))
    total = cluster.total_gpu(order)
    return order, total, cluster.arrivals(cluster.pods(name), total, shuffled=42)


def test_pods_come_in_order_and_again_from_the_beginning() -> None:
    total = cluster.total_gpu(range(len(cluster.machines())))
    listed, given = cluster.pods("default"), cluster.arrivals(cluster.pods("default"), total)
    assert given[: len(listed)] == list(listed)
    assert given[len(listed)] == listed[0]
    asked = sum(p.demand for p in given)
    assert asked - given[-1].demand < 1.3 * total <= asked


def test_gridops_meets_the_same_arrivals_and_never_takes_what_is_not_there() -> None:
    hosts = openb.sample(6)
    setting = openb.Setting(hosts, "default", permutations=1)
    given = setting.arrivals
    seats = WholePlans(inputs(hosts))
    policy = Through(seats)
    taken = [pod for n, pod in enumerate(given) if policy.seat(n, pod) is not None]
    assert 0.8 * setting.total < sum(p.demand for p in taken) <= setting.total
    assert sum(
        a.device_bytes * len(a.seat.devices) for a in seats.seats.values() if a.seat.devices[0].startswith("gpu")
    ) == sum(p.demand * MB for p in taken)
    policy.leave(0, given[0])
    assert name_of(0) not in seats.seats


def test_stays_end_when_they_are_recorded_to() -> None:
    stay = cluster.Pod(cpu=0, mem=0, gpus=1, share=1000, born=0, gone=10)
    late = replace(stay, born=10, gone=20)
    clash = replace(stay, born=5, gone=15)

    class OneSeat:
        held: int | None = None

        def seat(self, number: int, pod: cluster.Pod) -> object | None:
            if self.held is not None:
                return None
            self.held = number
            return number

        def leave(self, number: int, pod: cluster.Pod) -> None:
            assert self.held == number
            self.held = None

    found = cluster.turn_over(OneSeat(), [stay, late, clash], 1000)
    assert found.served_percent == pytest.approx(200 / 3)
    assert (found.refused, found.peak_percent) == (1, 100)


def plain(given: Instance) -> dict[str, Any]:
    """An instance as the reference states it."""
    return {
        "hosts": [(m.mem, m.slots, m.domain, round(m.rate, 6), m.engines) for m in given.machines],
        "models": [(m.mem, m.replicas, m.weight, m.domains, m.engine) for m in given.models],
        "sets": [sorted(s) for s in (given.excludes, given.pins, given.allowed, given.current)],
        "load": [round(given.start_s(pair), 6) for pair in sorted(given.allowed)],
    }


def reference(name: str) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("milp_yardstick", REFERENCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    size, _, rest = name.partition("@")
    tightness, _, seed = rest.partition("#")
    hosts, models = (int(n) for n in size.split("x"))
    given = module.instance(hosts, models, int(seed), float(tightness))
    return {
        "hosts": [(h["mem"], h["slots"], h["dom"], round(h["bw"], 6), h["rt"]) for h in given["hosts"]],
        "models": [(m["mem"], m["R"], m["w"], m["F"], m["rt"]) for m in given["models"]],
        "sets": [sorted(given[key]) for key in ("excl", "pins", "ok", "cur")],
        "load": [round(given["load"][pair], 6) for pair in sorted(given["ok"])],
    }


def fingerprint(given: dict[str, Any]) -> str:
    return hashlib.sha256(repr(given).encode()).hexdigest()[:16]
