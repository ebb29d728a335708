"""Sensors that cannot be read: unknown is neither bad nor well, hides no danger and makes none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridops.model.policy import Sensor
from gridops.model.snapshot import HostState
from tests.agent.lookout import LAPTOP, Lookout
from tests.agent.readings import (
    ACCEPTING,
    BAD,
    LOST,
    PAUSED,
    READINGS,
    THROTTLED,
)


def test_every_sensor_is_asked_whether_it_is_known() -> None:
    # Slowed by heat is told by few machines, and the temperature counts for itself.
    assert set(READINGS) == set(Sensor) - {Sensor.THERMAL_THROTTLING}


@pytest.mark.parametrize(("sensor", "reading"), READINGS.items())
def test_an_unknown_sensor_throttles_where_the_class_says_so(sensor: Sensor, reading: str) -> None:
    host = Lookout()
    host.over(5)
    assert host.until(THROTTLED, **{reading: None}) == 5
    assert host.verdict.reasons == (f"sensor_unknown: {sensor} cannot be read",)
    assert host.until(ACCEPTING) == 60
    careless = Lookout(replace(LAPTOP, unknown_sensor="ignore"))
    assert set(careless.over(60, **{reading: None})) == {ACCEPTING}


def test_a_card_that_does_not_tell_is_unknown_however_cool_the_others_are() -> None:
    host = Lookout()
    host.over(5)
    assert host.until(THROTTLED, gpu_heat_untold=("gpu1",)) == 5
    assert host.verdict.reasons == ("sensor_unknown: gpu_temperature of gpu1 cannot be read",)
    assert host.until(ACCEPTING) == 60


def test_a_card_that_was_too_hot_and_tells_nothing_more_has_not_cooled_because_others_are_cool() -> None:
    careless = Lookout(replace(LAPTOP, unknown_sensor="ignore"))
    careless.until(PAUSED, gpu_temperature_c=95)
    assert set(careless.over(600, gpu_temperature_c=40, gpu_heat_untold=("gpu1",), gpu_heat_ceased=True)) == {PAUSED}
    # A card that never told anything was not the one.
    careless.until(ACCEPTING, gpu_temperature_c=40, gpu_heat_untold=("gpu2",))


def test_a_card_that_does_not_tell_its_memory_is_unknown_however_empty_the_others_are() -> None:
    host = Lookout()
    host.over(5)
    assert host.until(THROTTLED, gpu_memory_untold=("gpu1",)) == 5
    assert host.verdict.reasons == ("sensor_unknown: gpu_memory of gpu1 cannot be read",)
    assert host.until(ACCEPTING) == 60


def test_a_card_that_was_full_and_tells_nothing_more_is_not_empty_because_others_are() -> None:
    careless = Lookout(replace(LAPTOP, unknown_sensor="ignore"))
    careless.until(PAUSED, gpu_memory_ppm=990_000)
    assert set(careless.over(600, gpu_memory_ppm=100, gpu_memory_untold=("gpu1",), gpu_memory_ceased=True)) == {PAUSED}
    careless.until(ACCEPTING, gpu_memory_ppm=100, gpu_memory_untold=("gpu2",))
    careless.until(PAUSED, gpu_memory_ppm=990_000, gpu_memory_untold=("gpu1",), gpu_memory_ceased=True)
    assert careless.verdict.reasons[0].endswith("; not known of gpu1"), "what is shown says what it leaves out"


def test_a_card_that_is_too_hot_counts_though_another_does_not_tell() -> None:
    careless = Lookout(replace(LAPTOP, unknown_sensor="ignore"))
    careless.until(PAUSED, gpu_temperature_c=95, gpu_heat_untold=("gpu1",), gpu_heat_ceased=True)


@pytest.mark.parametrize(("sensor", "reading"), READINGS.items())
def test_a_sensor_that_the_machine_does_not_have_is_not_unknown(sensor: Sensor, reading: str) -> None:
    assert set(Lookout().over(60, **{reading: None, "absent": frozenset({sensor})})) == {ACCEPTING}


@pytest.mark.parametrize(("reading", "state", "after_s", "why"), BAD)
def test_what_is_read_of_a_sensor_that_is_not_there_says_nothing(
    reading: dict[str, Any], state: HostState, after_s: int, why: str
) -> None:
    assert set(Lookout().over(30, **reading, absent=frozenset(Sensor))) == {ACCEPTING}


@pytest.mark.parametrize(("reading", "state", "after_s", "why"), BAD)
def test_a_sensor_that_is_gone_never_makes_well_what_was_bad(
    reading: dict[str, Any], state: HostState, after_s: int, why: str
) -> None:
    host = Lookout()
    host.look(**reading)
    missing = dict.fromkeys(reading)
    missing.pop("gpus", None)
    assert set(host.over(600, **missing)) == {state}
    assert why in [r.partition(":")[0] for r in host.verdict.reasons]


def test_a_sensor_that_comes_and_goes_neither_counts_as_unknown_nor_as_well() -> None:
    host = Lookout()
    for _ in range(100):
        assert host.over(4, temperature_c=None) == [ACCEPTING] * 4
        assert host.look() is ACCEPTING
    host.over(10, temperature_c=90)
    for _ in range(100):
        assert set(host.over(59)) == {THROTTLED}
        assert host.look(temperature_c=None) is THROTTLED


@pytest.mark.parametrize(("reading", "state", "after_s", "why"), BAD)
@pytest.mark.parametrize("pattern", ["bu", "buu", "bbbbu"])
def test_a_sensor_that_fails_now_and_then_hides_no_danger(
    reading: dict[str, Any], state: HostState, after_s: int, why: str, pattern: str
) -> None:
    """What could not be read was not seen to end: only a look that saw no danger begins the debounce again."""
    unseen = {name: None for name in reading if name != "gpus"} | {"gpus": reading.get("gpus", 1)}
    host = Lookout()
    host.over(5)
    seen = [host.look(**(reading if pattern[n % len(pattern)] == "b" else unseen)) for n in range(60)]
    assert set(seen[:after_s]) == {ACCEPTING}
    first = next(n for n, now in enumerate(seen) if now is state)
    assert first <= after_s + len(pattern)
    assert set(seen[first:]) == {state}
    assert why in [r.partition(":")[0] for r in host.verdict.reasons]


def test_what_was_bad_once_counts_by_a_look_that_sees_it_and_never_by_failing_alone() -> None:
    host = Lookout(replace(LAPTOP, unknown_sensor="ignore"))
    host.over(5)
    host.look(temperature_c=96)
    assert set(host.over(600, temperature_c=None)) == {ACCEPTING}
    assert host.look(temperature_c=60) is ACCEPTING
    assert host.look(temperature_c=96) is ACCEPTING


def test_a_battery_whose_charge_is_unknown_is_unknown_only_while_it_is_used() -> None:
    assert set(Lookout().over(30, battery_ppm=None)) == {ACCEPTING}
    host = Lookout()
    host.over(30, on_battery=True, battery_ppm=None)
    assert host.verdict.reasons == ("sensor_unknown: battery cannot be read",)


def test_a_card_that_was_taken_out_is_no_trouble_any_more() -> None:
    host = Lookout()
    host.look(gpu_temperature_c=96, gpu_faults=(LOST,))
    gone = frozenset({Sensor.GPU_TEMPERATURE, Sensor.GPU_MEMORY, Sensor.GPU_HEALTH})
    readings = {"gpu_temperature_c": None, "gpu_memory_ppm": None, "gpu_faults": None, "gpus": 0, "absent": gone}
    assert host.until(ACCEPTING, **readings) == 60
