"""What a seat costs the others: places lost are counted in whole replicas, and clusters fill accordingly.

The pods of openb come one by one to the rooms that seat a replica in a plan, on some of the trace's hosts and on all of
them; the published policies meet the same pods in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench import openb
from bench.yard import cluster
from gridops.model.fleet import Runtime
from gridops.model.profile import DeviceNeed, Profile
from gridops.planner import scarce
from gridops.planner.draft import begin
from gridops.planner.gather import gather
from gridops.planner.seats import Seats
from gridops.planner.targets import choose
from gridops.planner.views import look
from tests.planner.fleet import Fleet, config, host, profile

MICRO = 1_000_000


def filled(policy: str, setting: openb.Setting) -> float:
    return cluster.fill(openb.POLICIES[policy](setting.hosts, setting.name), setting.arrivals, setting.total)


@pytest.mark.parametrize("name", cluster.LISTS)
def test_some_hosts_get_fuller_than_by_best_fit(name: str) -> None:
    setting = openb.Setting(openb.sample(80), name, permutations=1)
    assert filled("gridops", setting) > filled("BestFit without CPU", setting)


def test_the_whole_cluster_gets_as_full_as_is_wanted() -> None:
    setting = openb.Setting(openb.sample(0), "default", permutations=1)
    assert filled("gridops", setting) >= 95.1


def test_few_hosts_are_those_that_the_recorded_peak_is_too_much_for() -> None:
    listed = cluster.pods("default")
    for seed in range(3):
        hosts = openb.few(listed, seed)
        assert cluster.peak_of(listed) >= 1.3 * cluster.total_gpu(hosts)
        assert cluster.peak_of(listed) < 1.3 * (cluster.total_gpu(hosts) + 8 * cluster.WHOLE)


def test_where_stays_end_no_more_are_turned_away_than_by_best_fit() -> None:
    setting = openb.Setting(openb.sample(80), "default", permutations=1)
    crowd = cluster.twice(setting.pods)
    longer = cluster.stretch_to(crowd, setting.total)
    ours, theirs = (
        cluster.turn_over(openb.POLICIES[policy](setting.hosts, setting.name), crowd, setting.total, longer)
        for policy in ("gridops", "BestFit without CPU")
    )
    assert 0 < ours.refused <= theirs.refused
    assert ours.peak_percent >= theirs.peak_percent


# -- one price --------------------------------------------------------------------------------------------------------

BOTH = tuple(Runtime(engine="llama.cpp", backend=b) for b in ("cpu", "cuda"))  # type: ignore[arg-type]


def prices(hosts: tuple[Any, ...], profiles: tuple[Profile, ...], who: str) -> dict[str, int]:
    """What a seat of the profile would take from everybody, by host, in millionths of a replica."""
    world = look(Fleet(hosts=hosts, profiles=profiles).inputs())
    found = Seats(begin(world, choose(world, gather(world))))
    (opening,) = found.openings(world.profiles[who])  # type: ignore[index]
    at = np.arange(len(opening.rows))
    return {str(found.grid.ids[r]): int(c) for r, c in zip(opening.rows, opening.stranded(at), strict=True)}


def on_ram(name: str, gib: float, replicas: int = 1) -> Profile:
    return profile(name, replicas, configs=(config(f"{name}-q4", gib, backends=("cpu",)),))


def test_ram_is_kept_beside_devices_for_who_needs_both() -> None:
    hosts = (host("ant", (24, 24), ram=64, runtimes=BOTH), host("bee", (), ram=64, runtimes=BOTH))
    heavy = profile("heavy", 2, configs=(config("heavy-q4", 20, host_gib=20),))
    found = prices(hosts, (heavy, on_ram("plain", 30)), "plain")
    assert found["ant"] > found["bee"]
    light = profile("heavy", 2, configs=(config("heavy-q4", 20, host_gib=1),))
    found = prices(hosts, (light, on_ram("plain", 30)), "plain")
    assert found["ant"] == found["bee"], "RAM that no device could use any more is free"


def test_a_seat_on_devices_counts_the_ram_that_it_takes_beside_them() -> None:
    hosts = (host("ant", (24, 24), ram=64), host("bee", (24, 24), ram=200))
    greedy = profile("greedy", configs=(config("greedy-q4", 10, host_gib=50),))
    heavy = profile("heavy", 2, configs=(config("heavy-q4", 10, host_gib=20),))
    found = prices(hosts, (greedy, heavy), "greedy")
    assert found["ant"] > found["bee"]


def test_a_place_costs_its_wanted_replicas_divided_by_all_places() -> None:
    hosts = (host("ant", (48,)), host("bee", (24, 24)), host("cow", (24,)))
    # Heavy has one place and small has two on each device of 24, four on that of 48: ten.
    heavy, small = profile("heavy", gib=40), profile("small", 5, gib=10)
    found = prices(hosts, (heavy, small), "small")
    assert found == {"ant": MICRO + MICRO // 2, "bee": MICRO // 2, "cow": MICRO // 2}
    found = prices((*hosts, host("dog", (48,))), (heavy, small), "small")
    assert found["ant"] == MICRO // 2 + 5 * MICRO // 14, "of two large places each costs half"


def test_devices_that_work_together_are_one_place() -> None:
    pair = profile("pair", configs=(config("pair-q4", 20, devices=DeviceNeed(count=2)),))
    hosts = (host("ant", (24, 24)), host("bee", (24, 24, 24)))
    found = prices(hosts, (pair, profile("small", gib=10)), "small")
    assert found["ant"] > found["bee"], "the third device is nobody's pair"


def test_only_the_dearest_kinds_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = (host("ant", (48,)), host("bee", (24,)))
    heavy, small = profile("heavy", gib=40), profile("small", gib=10)
    monkeypatch.setattr(scarce, "SCARCE_KINDS", 1)
    assert prices(hosts, (heavy, small), "small") == {"ant": MICRO, "bee": 0}
