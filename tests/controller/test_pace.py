"""When hosts speak again: no more in a second than one controller answers, spread out, and silence moves with it."""

from __future__ import annotations

import statistics

import pytest

from gridops.base import limits
from gridops.base.ids import HostId, ScopeName
from gridops.controller.core.pace import BUSY_POLL_MS, busy_ms, calm_ms, longest_ms
from gridops.files.pace import LONGEST_MS, interval_ms, paced
from gridops.model.fleet import Host, HostClass
from gridops.model.policy import Heartbeat, PlanningPolicy
from gridops_agent.core.pace import POLL_MS
from tests.controller.fleet import Desk

BEAT = Heartbeat()
LONG_UP_MS = BEAT.recovery_grace_ms


def hosts(count: int, host_class: HostClass = HostClass.DEDICATED) -> list[Host]:
    return [
        Host(id=HostId(f"{host_class.value}-{n}"), scope=ScopeName("default"), host_class=host_class)
        for n in range(count)
    ]


def nonces(count: int = 400) -> list[str]:
    return [f"nonce-{n}" for n in range(count)]


@pytest.mark.parametrize("count", [1, 500, 1_000])
def test_a_fleet_that_keeps_within_the_rate_is_asked_for_what_the_file_says(count: int) -> None:
    planning = PlanningPolicy()
    assert paced(planning, hosts(count)) is planning


@pytest.mark.parametrize("count", [1_001, 2_500, 5_000, 20_000])
def test_a_larger_fleet_says_no_more_in_a_second_up_to_what_agents_follow(count: int) -> None:
    beat = paced(PlanningPolicy(), hosts(count)).heartbeat
    assert beat.every_ms == min(interval_ms(count), LONGEST_MS)
    assert count * 1_000 <= limits.HEARTBEATS_PER_S * interval_ms(count)
    assert calm_ms(beat, "any", LONG_UP_MS + 60_000, count) <= limits.POLL_MOST_MS


def test_silence_is_called_as_long_after_a_heartbeat_that_did_not_come_as_the_file_says() -> None:
    beat = paced(PlanningPolicy(), hosts(3_000)).heartbeat
    assert beat.every_ms == 30_000
    assert beat.stale_after_ms - beat.every_ms == BEAT.stale_after_ms - BEAT.every_ms
    assert beat.recovery_grace_ms - beat.every_ms == BEAT.recovery_grace_ms - BEAT.every_ms


def test_endpoints_of_others_do_not_speak_and_are_not_counted() -> None:
    planning = PlanningPolicy()
    assert paced(planning, [*hosts(900), *hosts(900, HostClass.EXTERNAL)]) is planning


def test_a_slow_file_stays_as_slow_as_it_is() -> None:
    planning = PlanningPolicy(heartbeat=Heartbeat(every_ms=120_000, stale_after_ms=600_000))
    assert paced(planning, hosts(5_000)) is planning
    assert calm_ms(planning.heartbeat, "any", 10**9, 5_000) == 120_000


def test_wishes_are_spread_over_an_eighth_and_never_below_the_interval() -> None:
    told = [calm_ms(BEAT, nonce, LONG_UP_MS, 1_000) for nonce in nonces()]
    assert BEAT.every_ms <= min(told)
    assert max(told) < BEAT.every_ms * 9 // 8
    assert statistics.pstdev(told) > BEAT.every_ms / 8 / 5


def test_a_controller_that_has_just_begun_is_spoken_to_over_twice_the_time() -> None:
    told = [calm_ms(BEAT, nonce, LONG_UP_MS - 1, 1_000) for nonce in nonces()]
    assert BEAT.every_ms <= min(told)
    assert BEAT.every_ms * 3 // 2 < statistics.fmean(told) + 500
    assert max(told) < BEAT.every_ms * 2


def test_a_small_fleet_does_not_wait_for_a_crowd_that_it_is_not() -> None:
    assert max(calm_ms(BEAT, nonce, 0, 60) for nonce in nonces()) < BEAT.every_ms * 9 // 8


def test_no_wish_comes_near_the_silence_that_means_lost() -> None:
    tight = Heartbeat(every_ms=10_000, stale_after_ms=11_000)
    assert max(calm_ms(tight, nonce, up, 1_000) for nonce in nonces() for up in (0, 10**9)) < 10_500


def test_the_longest_wish_is_longer_than_any() -> None:
    assert max(calm_ms(BEAT, nonce, 0, 20_000) for nonce in nonces()) < longest_ms(BEAT) == 20_000


def test_the_same_heartbeat_gets_the_same_wish() -> None:
    assert calm_ms(BEAT, "n", 0, 9) == calm_ms(BEAT, "n", 0, 9)


@pytest.mark.parametrize(("crowd", "told"), [(1, BUSY_POLL_MS), (50, BUSY_POLL_MS), (200, 2_000), (5_000, 10_000)])
def test_hosts_that_have_something_to_do_share_one_rate(crowd: int, told: int) -> None:
    assert busy_ms(BEAT, crowd) == told


def test_who_has_nothing_to_do_any_more_leaves_the_crowd(desk: Desk) -> None:
    desk.settle(2)
    desk.apply()
    desk.beat()
    assert desk.controller.soft.quick
    desk.settle()
    assert not desk.controller.soft.quick


def test_agents_follow_the_longest_wish() -> None:
    assert POLL_MS[1] == limits.POLL_MOST_MS
