"""What a plan costs: cold fleets, converged fleets and one changed profile, from four hosts to a thousand.

`gridops.planner.planner.plan` alone, in process; the checker, the steps and the explanation of one replica are timed
apart. The sizes are those of the planner's yardsticks, so that numbers can be compared over time.
"""

from __future__ import annotations

from functools import cache

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from gridops.base.ids import ReplicaId
from gridops.planner.actions import actions
from gridops.planner.check import check
from gridops.planner.explain import rejected_by
from gridops.planner.planner import plan
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


def bench_why_one_replica_stands_where_it_does(benchmark: BenchmarkFixture) -> None:
    inputs = cold(256, 64, 4).inputs()
    lines = benchmark.pedantic(rejected_by, (inputs, ReplicaId("p005/1")), rounds=3, warmup_rounds=1)
    assert lines
