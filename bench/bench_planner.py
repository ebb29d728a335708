"""What a plan costs: cold fleets, converged fleets and one changed profile, from four hosts to a thousand.

`gridops.planner.planner.plan` alone, in process; the checker, the steps, explanations and proven changes are timed
apart. The sizes are those of the planner's yardsticks, so that numbers can be compared over time.
"""

from __future__ import annotations

from functools import cache

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.speed_cases import CASES, Case, Round
from gridops.planner.actions import actions
from gridops.planner.check import check
from gridops.planner.explain import choice_in, missing_in, walk
from gridops.planner.fixes import fixes_for
from gridops.planner.planner import plan
from gridops.planner.why import homeless, unplaced
from tests.planner.fleet import Fleet, host, profile

SIZES = {
    "4 hosts x 4 profiles": (4, 4, 1),
    "8 x 8": (8, 8, 1),
    "64 x 32": (64, 32, 2),
    "256 x 64": (256, 64, 4),
    "1000 x 100, 1000 replicas": (1000, 100, 10),
}


@cache
def cold(hosts: int, profiles: int, replicas: int) -> Fleet:
    """Hosts of four sizes in eight racks; profiles of six sizes that want more than is there in places."""
    return Fleet(
        hosts=tuple(
            host(
                f"h{n:04d}", ((24,), (24, 24), (48,), (80,))[n % 4], rack=f"r{n % 8}", price_per_hour_micro=n % 7 * 100
            )
            for n in range(hosts)
        ),
        profiles=tuple(
            profile(f"p{n:03d}", replicas, gib=(5, 9, 14, 20, 30, 40)[n % 6], priority=100 + n % 3 * 50)
            for n in range(profiles)
        ),
    )


@cache
def converged(hosts: int, profiles: int, replicas: int) -> Fleet:
    fleet = cold(hosts, profiles, replicas)
    return fleet.applied(plan(fleet.inputs()), later_ms=1000)


@pytest.mark.parametrize("size", SIZES)
def bench_plan_of_a_cold_fleet(benchmark: BenchmarkFixture, size: str) -> None:
    inputs = cold(*SIZES[size]).inputs()
    made = benchmark.pedantic(plan, (inputs,), rounds=3, warmup_rounds=1)
    assert made.placement


@pytest.mark.parametrize("size", SIZES)
def bench_plan_of_a_converged_fleet(benchmark: BenchmarkFixture, size: str) -> None:
    inputs = converged(*SIZES[size]).inputs()
    made = benchmark.pedantic(plan, (inputs,), rounds=3, warmup_rounds=1)
    assert not made.to_do


@pytest.mark.parametrize("size", SIZES)
def bench_plan_after_one_profile_grew(benchmark: BenchmarkFixture, size: str) -> None:
    fleet = converged(*SIZES[size])
    grown = (profile("p000", SIZES[size][2] + 1, gib=5), *fleet.profiles[1:])
    inputs = fleet.but(profiles=grown).inputs()
    made = benchmark.pedantic(plan, (inputs,), rounds=3, warmup_rounds=1)
    assert len(made.to_do) == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def bench_yardstick_of_speed(benchmark: BenchmarkFixture, case: Case) -> None:
    """`python -m bench.speed` prints these as a table, in CPU seconds beside what is wanted."""
    run, rounds = case.begin(), min(5, case.most_rounds)
    benchmark.pedantic(Round.plan, setup=lambda: ((run.next(),), {}), rounds=rounds, warmup_rounds=case.warm)
    benchmark.extra_info["earlier allocator, CPU s"] = case.earlier
    benchmark.extra_info["wanted, s"] = case.wanted_s or "-"


def bench_check_of_a_large_plan(benchmark: BenchmarkFixture) -> None:
    inputs = cold(256, 64, 4).inputs()
    made = plan(inputs)
    assert benchmark.pedantic(check, (made, inputs), rounds=3, warmup_rounds=1) == ()


def bench_steps_of_a_large_plan(benchmark: BenchmarkFixture) -> None:
    fleet = cold(256, 64, 4)
    made = plan(fleet.inputs())
    desired = fleet.inputs().intent.desired
    found = benchmark.pedantic(
        actions, (made, fleet.snapshot(), fleet.now), {"desired": desired}, rounds=3, warmup_rounds=1
    )
    assert len(found) == 2 * len(made.placement)


@cache
def overloaded(hosts: int, profiles: int, replicas: int) -> Fleet:
    """A converged fleet of which every third profile then wants three times as many replicas of the largest size."""
    fleet = converged(hosts, profiles, replicas)
    larger = tuple(
        profile(p.name, replicas * 3, gib=78, priority=p.priority) if n % 3 == 2 else p
        for n, p in enumerate(fleet.profiles)
    )
    return fleet.but(profiles=larger)


EXPLAINED = {name: SIZES[name] for name in ("64 x 32", "256 x 64", "1000 x 100, 1000 replicas")}


@pytest.mark.parametrize("size", EXPLAINED)
def bench_why_all_who_stand_nowhere_do_so(benchmark: BenchmarkFixture, size: str) -> None:
    """The part of a plan that is about unplaced replicas: lines up to the bound, counts beyond it."""
    walked = walk(overloaded(*EXPLAINED[size]).inputs())
    found = benchmark.pedantic(unplaced, (walked.seats, walked.left), rounds=3, warmup_rounds=1)
    benchmark.extra_info["unplaced"] = len(found)
    assert found


@pytest.mark.parametrize("size", EXPLAINED)
def bench_why_one_replica_stands_where_it_does(benchmark: BenchmarkFixture, size: str) -> None:
    """A line per host and the comparison with the best other one, from the finished draft."""
    inputs = overloaded(*EXPLAINED[size]).inputs()
    walked = walk(inputs)
    replica = plan(inputs).placement[0].replica
    assert benchmark.pedantic(choice_in, (walked, replica), rounds=3, warmup_rounds=1) is not None


@pytest.mark.parametrize("size", EXPLAINED)
def bench_a_line_per_host_for_one_unplaced_replica(benchmark: BenchmarkFixture, size: str) -> None:
    walked = walk(overloaded(*EXPLAINED[size]).inputs())
    replica = homeless(walked.left)[0].replica
    found = benchmark.pedantic(missing_in, (walked, replica), rounds=3, warmup_rounds=1)
    assert found is not None
    assert len(found.hosts) == EXPLAINED[size][0]


@pytest.mark.parametrize("size", list(EXPLAINED)[:2])
def bench_what_would_place_one_replica(benchmark: BenchmarkFixture, size: str) -> None:
    """Proven changes: up to eight plans."""
    inputs = overloaded(*EXPLAINED[size]).inputs()
    made = plan(inputs)
    replica = made.report.unplaced[0].replica
    found = benchmark.pedantic(fixes_for, (inputs, made, replica), rounds=1)
    benchmark.extra_info["plans made"] = found.tried
    benchmark.extra_info["proven"] = len(found.fixes)
    assert found.tried
