"""The protection loop over time: each sensor, flapping, missing readings, sleep, clocks, overrides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridops.base import limits
from gridops.model.policy import Levels, Sensor
from gridops.model.snapshot import HostState
from gridops_agent.core.protection import GpuFault, GpuTrouble, Override, OverrideKind
from tests.agent.lookout import LAPTOP, SERVER, Lookout

ACCEPTING, THROTTLED, DRAINING, PAUSED, UNHEALTHY, QUARANTINED = HostState
HERE = {"idle_ms": 0}
LOST = GpuFault(GpuTrouble.LOST, "gpu0")

# reading, the state it leads to, after how many seconds, the first code of its reasons
BAD: list[tuple[dict[str, Any], HostState, int, str]] = [
    (HERE, PAUSED, 10, "owner_active"),
    ({"idle_ms": 59_999}, PAUSED, 10, "owner_active"),
    ({"on_battery": True, "battery_ppm": 300_000}, THROTTLED, 5, "on_battery"),
    ({"on_battery": True, "battery_ppm": 120_000}, PAUSED, 5, "on_battery"),
    ({"temperature_c": 80}, THROTTLED, 5, "too_hot"),
    ({"temperature_c": 95}, PAUSED, 5, "too_hot"),
    ({"gpu_temperature_c": 87}, THROTTLED, 5, "gpu_too_hot"),
    ({"gpu_temperature_c": 95}, PAUSED, 5, "gpu_too_hot"),
    ({"thermal_throttling": True}, THROTTLED, 5, "slowed_by_heat"),
    ({"ram_ppm": 850_000}, THROTTLED, 5, "memory_pressure"),
    ({"ram_ppm": 950_000}, PAUSED, 5, "memory_pressure"),
    ({"gpu_memory_ppm": 920_000}, THROTTLED, 5, "gpu_memory_pressure"),
    ({"gpu_memory_ppm": 980_000}, PAUSED, 5, "gpu_memory_pressure"),
    ({"cpu_ppm": 900_000}, THROTTLED, 5, "cpu_busy"),
    ({"load_ppm": 1_250_000}, THROTTLED, 5, "load_high"),
    ({"disk_free_bytes": (1 << 30) - 1}, THROTTLED, 5, "disk_low"),
    ({"network_up": False}, UNHEALTHY, 5, "network_down"),
    ({"gpu_faults": (LOST,)}, UNHEALTHY, 5, "gpu_fault"),
    ({"gpu_faults": (LOST,), "gpus": 2}, THROTTLED, 5, "gpu_fault"),
    ({"gpu_faults": (GpuFault(GpuTrouble.MISMATCH),), "gpus": 2}, UNHEALTHY, 5, "gpu_fault"),
]
FINE: list[dict[str, Any]] = [
    {"idle_ms": 60_000},
    {"on_battery": True, "battery_ppm": 300_001},
    {"on_battery": True, "charging": True, "battery_ppm": 10_000},
    {"on_battery": False, "battery_ppm": 10_000},
    {"temperature_c": 79},
    {"gpu_temperature_c": 86},
    {"ram_ppm": 849_999},
    {"gpu_memory_ppm": 919_999},
    {"cpu_ppm": 899_999},
    {"load_ppm": 1_249_999},
    {"disk_free_bytes": 1 << 30},
]


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


# --- unknown ----------------------------------------------------------------------------------------------------------

READINGS = {
    Sensor.ACTIVITY: "idle_ms",
    Sensor.BATTERY: "on_battery",
    Sensor.TEMPERATURE: "temperature_c",
    Sensor.GPU_TEMPERATURE: "gpu_temperature_c",
    Sensor.MEMORY: "ram_ppm",
    Sensor.GPU_MEMORY: "gpu_memory_ppm",
    Sensor.CPU: "cpu_ppm",
    Sensor.LOAD: "load_ppm",
    Sensor.DISK: "disk_free_bytes",
    Sensor.NETWORK: "network_up",
    Sensor.GPU_HEALTH: "gpu_faults",
}


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
