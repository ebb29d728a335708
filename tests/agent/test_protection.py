"""The protection loop over time: each sensor, flapping, missing readings, sleep, clocks, overrides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridops.base import limits
from gridops.model.policy import Levels, Sensor
from gridops.model.snapshot import HostState
from gridops_agent.core.protection import Override, OverrideKind
from tests.agent.lookout import LAPTOP, SERVER, Lookout
from tests.agent.readings import (
    ACCEPTING,
    BAD,
    DRAINING,
    FINE,
    HERE,
    PAUSED,
    QUARANTINED,
    READINGS,
    THROTTLED,
    UNHEALTHY,
)


def code(lookout: Lookout) -> str:
    return lookout.verdict.reasons[0].partition(":")[0]


@pytest.mark.parametrize(("reading", "state", "after_s", "why"), BAD)
def test_each_threshold_counts_after_its_debounce_and_says_why(
    reading: dict[str, Any], state: HostState, after_s: int, why: str
) -> None:
    host = Lookout()
    assert host.over(5) == [ACCEPTING] * 5
    assert host.until(state, **reading) == after_s
    assert code(host) == why


@pytest.mark.parametrize(("reading", "state", "after_s", "why"), BAD)
def test_one_spike_changes_nothing(reading: dict[str, Any], state: HostState, after_s: int, why: str) -> None:
    host = Lookout()
    host.over(5)
    for _ in range(20):
        assert host.over(after_s, **reading) == [ACCEPTING] * after_s
        assert host.look() is ACCEPTING


@pytest.mark.parametrize(("reading", "state", "after_s", "why"), BAD)
def test_what_is_bad_at_the_first_look_counts_at_once(
    reading: dict[str, Any], state: HostState, after_s: int, why: str
) -> None:
    assert Lookout().look(**reading) is state


@pytest.mark.parametrize("reading", FINE)
def test_just_on_the_good_side_of_a_threshold_nothing_happens(reading: dict[str, Any]) -> None:
    assert set(Lookout().over(30, **reading)) == {ACCEPTING}


@pytest.mark.parametrize(
    ("bad", "between", "well"),
    [
        ({"temperature_c": 85}, {"temperature_c": 73}, {"temperature_c": 72}),
        ({"gpu_temperature_c": 90}, {"gpu_temperature_c": 79}, {"gpu_temperature_c": 78}),
        ({"ram_ppm": 900_000}, {"ram_ppm": 765_001}, {"ram_ppm": 765_000}),
        ({"cpu_ppm": 950_000}, {"cpu_ppm": 810_001}, {"cpu_ppm": 810_000}),
        ({"load_ppm": 3_000_000}, {"load_ppm": 1_125_001}, {"load_ppm": 1_125_000}),
        ({"disk_free_bytes": 1}, {"disk_free_bytes": 1 << 30}, {"disk_free_bytes": 11 << 30}),
        (
            {"on_battery": True, "battery_ppm": 200_000},
            {"on_battery": True, "battery_ppm": 329_999},
            {"on_battery": True, "battery_ppm": 330_000},
        ),
    ],
)
def test_between_threshold_and_recovery_it_stays_and_beyond_it_recovers_after_its_time(
    bad: dict[str, Any], between: dict[str, Any], well: dict[str, Any]
) -> None:
    host = Lookout()
    host.over(10, **bad)
    assert set(host.over(300, **between)) == {THROTTLED}
    assert host.until(ACCEPTING, **well) == 60


def test_from_a_pause_it_comes_back_by_way_of_less_work() -> None:
    host = Lookout()
    assert host.look(temperature_c=96) is PAUSED
    assert host.until(THROTTLED, temperature_c=79) == 60
    assert set(host.over(200, temperature_c=79)) == {THROTTLED}
    assert host.until(ACCEPTING, temperature_c=60) == 60


def test_a_recovery_that_is_broken_begins_again() -> None:
    host = Lookout()
    host.look(**HERE)
    for _ in range(10):
        assert set(host.over(60)) == {PAUSED}
        assert host.look(**HERE) is PAUSED
    assert host.until(ACCEPTING) == 60


def test_recoveries_of_activity_and_heat_are_their_own() -> None:
    rules = replace(LAPTOP, activity_recovery_ms=20_000, thermal_recovery_ms=120_000)
    host = Lookout(rules)
    host.look(**HERE)
    assert host.until(ACCEPTING) == 20
    hot = Lookout(rules)
    hot.look(temperature_c=90)
    assert hot.until(ACCEPTING) == 120


def test_a_recovery_threshold_may_be_given() -> None:
    host = Lookout(replace(LAPTOP, memory=Levels(throttle_ppm=850_000, pause_ppm=950_000, recover_ppm=500_000)))
    host.look(ram_ppm=900_000)
    assert set(host.over(100, ram_ppm=500_001)) == {THROTTLED}
    assert host.until(ACCEPTING, ram_ppm=500_000) == 60


def test_work_in_flight_has_the_grace_and_no_more() -> None:
    host = Lookout(busy=True)
    host.over(3)
    assert host.until(DRAINING, **HERE) == 10
    assert host.verdict.lanes_ppm == 0
    assert not host.verdict.yields
    assert host.until(PAUSED, **HERE) == 29  # thirty seconds after it began to drain
    assert host.verdict.yields


def test_once_nothing_is_in_flight_it_pauses_at_once_and_stays_paused() -> None:
    host = Lookout(busy=True)
    host.look(**HERE)
    host.over(5, **HERE)
    host.busy = False
    assert host.look(**HERE) is PAUSED
    host.busy = True
    assert host.look(**HERE) is PAUSED


def test_a_new_pause_has_a_new_grace() -> None:
    host = Lookout(busy=True)
    host.over(40, **HERE)
    host.until(ACCEPTING)
    assert host.until(DRAINING, **HERE) == 10
    assert host.until(PAUSED, **HERE) == 29


def test_only_a_pause_gives_memory_back() -> None:
    for reading, state, _, _ in BAD:
        host = Lookout()
        host.look(**reading)
        assert host.verdict.yields is (state is PAUSED), reading


def test_a_fenced_host_still_gives_memory_back_to_its_owner() -> None:
    host = Lookout(override=Override(OverrideKind.QUARANTINE, "smoke"))
    assert host.look(**HERE) is QUARANTINED
    assert host.verdict.yields


@pytest.mark.parametrize(
    ("reading", "share"), [({}, 1_000_000), ({"cpu_ppm": 990_000}, 500_000), ({"cpu_ppm": None}, 750_000), (HERE, 0)]
)
def test_the_share_of_the_lanes_follows_the_state(reading: dict[str, Any], share: int) -> None:
    host = Lookout()
    host.over(20, **reading)
    assert host.verdict.lanes_ppm == share
    assert host.verdict.retry_after_ms == (0 if share == 1_000_000 else 30_000)


# --- flapping, sleep, clocks ------------------------------------------------------------------------------------------


def test_a_reading_that_flaps_around_its_threshold_changes_the_state_once() -> None:
    host = Lookout()
    seen = [host.look(temperature_c=79 + n % 2 * 2) for n in range(600)]
    assert set(seen) == {ACCEPTING}  # never five seconds without a break
    host = Lookout()
    seen = [state for _ in range(60) for state in (*host.over(6, temperature_c=81), *host.over(6, temperature_c=71))]
    assert set(seen) == {THROTTLED}  # bad from the first look on, and never well for long enough


def test_a_sleep_ends_neither_debounce_nor_recovery() -> None:
    host = Lookout()
    host.over(3)
    host.over(3, **HERE)
    host.at += 8 * 3_600
    assert host.look(**HERE) is ACCEPTING  # one look after eight hours is no activity that lasts
    assert host.until(PAUSED, **HERE) == 9
    host.look()
    host.at += 8 * 3_600
    assert host.until(ACCEPTING) == 60  # nobody saw it quiet while it slept


def test_looks_that_are_rare_but_regular_still_count() -> None:
    host = Lookout()
    gap = limits.PROTECTION_GAP_MS // 1_000
    host.look()
    host.at += gap - 1
    assert host.look(**HERE) is ACCEPTING
    host.at += gap - 1
    assert host.look(**HERE) is PAUSED


def test_a_clock_that_goes_back_starts_what_is_under_way_again() -> None:
    host = Lookout(at=10_000, busy=True)
    host.over(5)
    host.over(5, **HERE)
    host.at -= 5_000
    assert host.until(DRAINING, **HERE) == 10
    host.at -= 4_000
    assert host.until(PAUSED, **HERE) == 30
    host.at -= 500
    assert host.until(ACCEPTING) == 60


# --- classes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reading", [HERE, {"on_battery": True, "battery_ppm": 10_000}, {"cpu_ppm": 1_000_000}, {"load_ppm": 9_000_000}]
)
def test_a_server_minds_neither_people_nor_battery_nor_busy_processors(reading: dict[str, Any]) -> None:
    assert set(Lookout(SERVER).over(120, **reading)) == {ACCEPTING}
    assert set(Lookout(SERVER).over(120, **dict.fromkeys(reading))) == {ACCEPTING}


def test_a_server_minds_heat_later_and_memory_as_everybody() -> None:
    assert set(Lookout(SERVER).over(60, temperature_c=84)) == {ACCEPTING}
    assert Lookout(SERVER).look(temperature_c=85) is THROTTLED
    assert Lookout(SERVER).look(ram_ppm=960_000) is PAUSED


def test_whatever_a_class_ignores_is_not_looked_at() -> None:
    rules = replace(LAPTOP, ignore=tuple(Sensor))
    for reading in (*(row[0] for row in BAD), *({name: None} for name in READINGS.values())):
        assert set(Lookout(rules).over(30, **reading)) == {ACCEPTING}


def test_activity_may_ask_for_less_work_only() -> None:
    assert Lookout(replace(LAPTOP, activity="throttle")).look(**HERE) is THROTTLED


# --- overrides --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "state"),
    [(OverrideKind.DRAIN, DRAINING), (OverrideKind.PAUSE, PAUSED), (OverrideKind.QUARANTINE, QUARANTINED)],
)
def test_a_person_s_word_holds_at_once_and_ends_at_once(kind: OverrideKind, state: HostState) -> None:
    host = Lookout()
    host.over(5)
    host.override = Override(kind, "taking it home", 3_600_000)
    assert host.look() is state
    assert host.verdict.reasons == (f"local_override: {kind} by a person: taking it home, 60 min left",)
    assert host.verdict.yields is (kind is OverrideKind.PAUSE)
    host.override = None
    assert host.look() is ACCEPTING


def test_an_override_to_pause_lets_work_end_within_the_grace() -> None:
    host = Lookout(busy=True, override=Override(OverrideKind.PAUSE, "mine"))
    assert host.over(30) == [DRAINING] * 30
    assert host.look() is PAUSED


def test_safety_makes_an_override_stricter() -> None:
    host = Lookout(override=Override(OverrideKind.DRAIN, "later"))
    assert host.look(temperature_c=96) is PAUSED
    assert host.look(network_up=False) is PAUSED
    assert host.until(UNHEALTHY, network_up=False) == 4
    host.override = Override(OverrideKind.QUARANTINE, "smoke")
    assert host.look(network_up=False) is QUARANTINED


def test_a_person_who_takes_a_word_back_does_not_take_back_what_safety_says() -> None:
    host = Lookout(override=Override(OverrideKind.PAUSE, "mine"))
    host.look(temperature_c=96)
    host.override = None
    assert host.look(temperature_c=96) is PAUSED


def test_a_fault_of_the_agent_is_unhealthy_for_as_long_as_it_is_named() -> None:
    host = Lookout(faults=("ledger_damaged: does not verify",))
    assert host.look() is UNHEALTHY
    assert host.verdict.reasons == ("ledger_damaged: does not verify",)
