"""The machine's own sensors through the real psutil over prepared trees, and the sample that protection gets."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from gridops.base.errors import Failed
from gridops.model.fleet import DeviceKind
from gridops.model.policy import Sensor
from gridops_agent.core.protection import GpuFault, GpuTrouble
from gridops_agent.platform import here
from gridops_agent.sensors import host, idle
from gridops_agent.sensors.bounded import Bounded
from gridops_agent.sensors.cards import Card, Cards, Condition
from gridops_agent.sensors.host import Battery
from gridops_agent.sensors.said import Said
from gridops_agent.sensors.senses import FRESH_S, CardSense, HostSaid, HostSense, Told, faults, sample, together

GIB = 1 << 30


class Sysfs:
    """A prepared /sys/class that the real psutil reads."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        linux: Any = psutil._pslinux  # type: ignore[attr-defined]
        (root / "sys/class/power_supply").mkdir(parents=True)
        patch.setattr(linux, "POWER_SUPPLY_PATH", str(root / "sys/class/power_supply"))
        real = linux.glob
        patch.setattr(linux, "glob", SimpleNamespace(glob=lambda pattern: real.glob(str(root) + pattern)))

    def write(self, path: str, value: object) -> None:
        file = self.root / "sys/class" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")

    def battery(self, status: str, percent: int = 42, mains: int = 0) -> None:
        for name, value in {"status": status, "capacity": percent, "type": "Battery", "present": 1}.items():
            self.write(f"power_supply/BAT0/{name}", value)
        self.write("power_supply/AC0/online", mains)


@pytest.fixture
def sysfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sysfs]:
    # psutil cuts these paths at the first underscore, and pytest's own folders are full of them.
    root = Path(tempfile.gettempdir()) / f"sysfs{os.getpid()}"
    yield Sysfs(root, monkeypatch)
    shutil.rmtree(root)


def test_a_battery_is_read_and_a_machine_without_one_has_none(sysfs: Sysfs) -> None:
    assert host.battery().absent
    sysfs.battery("Discharging")
    assert host.battery().value == Battery(420_000, on_battery=True)
    sysfs.battery("Charging", percent=97, mains=1)
    assert host.battery().value == Battery(970_000, on_battery=False)


def test_the_hottest_sensor_of_cpu_and_board_counts_and_nonsense_does_not(sysfs: Sysfs) -> None:
    assert host.temperature().absent
    for number, (chip, value) in enumerate(
        (("coretemp", 71_500), ("acpitz", 16_800), ("nvme", 88_000), ("k10temp", 127_000), ("amdgpu", 99_000))
    ):
        sysfs.write(f"hwmon/hwmon{number}/name", chip)
        sysfs.write(f"hwmon/hwmon{number}/temp1_input", value)
    assert host.temperature().value == 72
    sysfs.write("hwmon/hwmon0/temp1_input", -273_000)
    sysfs.write("hwmon/hwmon1/temp1_input", 0)
    seen = host.temperature()
    assert (seen.value, seen.absent, seen.why) == (None, False, "the sensors say nothing that can be")


def test_a_thermal_zone_counts_where_there_is_no_other_sensor(sysfs: Sysfs) -> None:
    sysfs.write("thermal/thermal_zone0/temp", 91_500)
    sysfs.write("thermal/thermal_zone0/type", "x86_pkg_temp")
    assert host.temperature().value == 92


def test_throttling_is_a_count_that_rises(tmp_path: Path) -> None:
    look = host.Throttling(tmp_path).look
    assert look().absent
    count = tmp_path / "cpu0/thermal_throttle/package_throttle_count"
    count.parent.mkdir(parents=True)
    story = []
    for value in (7, 7, 8, 8):
        count.write_text(f"{value}\n")
        story.append(look().value)
    assert story == [False, False, True, False]


def test_work_of_our_engines_is_not_somebody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"user": 100.0, "idle": 100.0, "own": 50.0}
    fields = SimpleNamespace
    monkeypatch.setattr(psutil, "cpu_times", lambda: _Times(now["user"], now["idle"]))
    process = lambda pid: fields(cpu_times=lambda: fields(user=now["own"], system=0.0))  # noqa: E731
    monkeypatch.setattr(psutil, "Process", process)
    share = host.CpuShare()
    assert share.look((7,)).value is None
    now |= {"user": 180.0, "idle": 120.0, "own": 110.0}
    assert share.look((7,)).value == 200_000
    now |= {"user": 260.0, "idle": 140.0, "own": 190.0}
    assert share.look(()).value == 800_000
    assert share.look(()).value is None, "no time has passed"


class _Times(tuple[float, ...]):
    """psutil's cpu times: user, idle."""

    def __new__(cls, user: float, idle: float) -> _Times:
        made = super().__new__(cls, (user, idle))
        made.idle, made.user = idle, user
        return made

    idle: float
    user: float


def test_a_network_needs_an_address_that_reaches_beyond_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    up, addresses = {"lo": True, "eth0": True, "wlan0": False}, {"lo": ["127.0.0.1"], "wlan0": ["10.1.2.3"]}
    monkeypatch.setattr(
        psutil, "net_if_stats", lambda: {name: SimpleNamespace(isup=is_up) for name, is_up in up.items()}
    )
    monkeypatch.setattr(
        psutil, "net_if_addrs", lambda: {n: [SimpleNamespace(address=a) for a in all_] for n, all_ in addresses.items()}
    )
    assert host.network().value is False
    addresses["eth0"] = ["00:11:22:33:44:55", "fe80::1%eth0", "169.254.3.4"]
    assert host.network().value is False
    addresses["eth0"].append("2001:db8::1")
    assert host.network().value is True


# --- idle time ------------------------------------------------------------------------------------------------------

NOW_MS = 10_000_000


def loginctl(sessions: str, shown: str = "") -> Any:
    def ask(argv: tuple[str, ...]) -> str:
        if argv[:2] == ("loginctl", "list-sessions"):
            return sessions
        if argv[:2] == ("loginctl", "show-session"):
            return shown
        raise Failed(f"{argv[0]} is not here")

    return ask


def block(kind: str, hint: str, since_ms: int, **more: str) -> str:
    pairs = {"Class": "user", "State": "active", "Type": kind, "IdleHint": hint}
    pairs |= {"IdleSinceHintMonotonic": str(since_ms * 1_000), **more}
    return "\n".join(f"{key}={value}" for key, value in pairs.items())


@pytest.mark.parametrize(
    ("shown", "idle_ms"),
    [
        ((block("wayland", "yes", NOW_MS - 400_000),), 400_000),
        ((block("wayland", "no", NOW_MS - 400_000),), 0),
        ((block("x11", "no", 0),), 0),
        ((block("tty", "no", NOW_MS - 90_000),), 90_000),
        ((block("wayland", "yes", NOW_MS - 400_000), block("tty", "no", NOW_MS - 3_000)), 3_000),
        ((block("wayland", "no", 0, Class="greeter"),), NOW_MS),
        ((block("wayland", "no", 0, State="closing"), block("tty", "yes", NOW_MS - 5)), 5),
    ],
    ids=[
        "desktop idle",
        "desktop in use",
        "x without a hint",
        "terminal",
        "terminal in use",
        "login screen",
        "closing",
    ],
)
def test_idle_time_by_logind(shown: tuple[str, ...], idle_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    listed = "  c1 1000 ada seat0 tty2\n   7 1000 ada -     pts/1\n"
    assert idle.linux(loginctl(listed, "\n\n".join(shown)), NOW_MS).value == idle_ms


def test_nobody_logged_in_is_idle_since_the_start_and_no_logind_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    assert idle.linux(loginctl(""), NOW_MS).value == NOW_MS
    said = idle.linux(loginctl("System has not been booted with systemd as init system (PID 1)."), NOW_MS)
    assert (said.value, said.why) == (
        None,
        "loginctl: System has not been booted with systemd as init system (PID 1).",
    )

    def nothing(argv: tuple[str, ...]) -> str:
        raise Failed(f"{argv[0]} does not answer: not found")

    assert idle.linux(nothing, NOW_MS) == Said(why="loginctl does not answer: not found")


@pytest.mark.parametrize("tool", ["xprintidle", "xssstate", "x_idle.py"])
def test_an_x_server_is_believed_over_the_hint_of_its_session(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    logind = loginctl("2 1000 ada seat0", block("x11", "no", 0))

    def ask(argv: tuple[str, ...]) -> str:
        if argv[0] == tool or argv[-1].endswith(tool):
            return "77000\n"
        return str(logind(argv))

    assert idle.linux(ask, NOW_MS).value == 77_000


def test_without_a_display_the_x_script_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":98765")
    assert idle.linux(loginctl("2 1000 ada seat0", block("x11", "yes", NOW_MS - 9)), NOW_MS).value == 9


# --- the sample -----------------------------------------------------------------------------------------------------


def readings(**more: Said[Any]) -> HostSaid:
    fields: dict[str, Said[Any]] = {
        "idle": Said(5),
        "battery": Said(absent=True),
        "temperature": Said(absent=True),
        "throttling": Said(absent=True),
        "cpu": Said(1),
        "load": Said(2),
        "network": Said(True),
        "ram_ppm": Said(3),
        "disk_free": Said(4),
    }
    return HostSaid(**(fields | more))


def card(**more: object) -> Card:
    fields = {"id": "gpu0", "total_bytes": 8 * GIB, "used_bytes": 6 * GIB, "by_pid": {}, "temperature_c": 61}
    return Card(**(fields | {"throttle": ()} | more))  # type: ignore[arg-type]


def test_what_a_machine_does_not_have_is_absent_and_not_unknown() -> None:
    seen = sample(1, Cards(), readings())
    assert seen.absent == {
        Sensor.BATTERY,
        Sensor.TEMPERATURE,
        Sensor.THERMAL_THROTTLING,
        Sensor.GPU_TEMPERATURE,
        Sensor.GPU_MEMORY,
        Sensor.GPU_HEALTH,
    }
    assert (seen.on_battery, seen.battery_ppm, seen.gpus, seen.gpu_faults) == (False, None, 0, ())
    assert (seen.idle_ms, seen.cpu_ppm, seen.load_ppm, seen.ram_ppm, seen.disk_free_bytes) == (5, 1, 2, 3, 4)


def test_a_driver_that_does_not_answer_is_unknown_and_not_absent() -> None:
    seen = sample(1, Cards(known=False), readings())
    assert (seen.gpu_faults, seen.gpu_memory_ppm, seen.absent & {Sensor.GPU_HEALTH, Sensor.GPU_MEMORY}) == (
        None,
        None,
        set(),
    )
    nothing = sample(1, Cards(), None)
    assert (nothing.ram_ppm, nothing.on_battery, Sensor.BATTERY in nothing.absent) == (None, None, False)


def test_the_hottest_and_the_fullest_card_count() -> None:
    cards = Cards(cards=(card(), card(id="gpu1", used_bytes=GIB, temperature_c=84, throttle=("thermal slowdown",))))
    seen = sample(1, cards, readings(battery=Said(Battery(300_000, True, False))))
    assert (seen.gpu_temperature_c, seen.gpu_memory_ppm, seen.thermal_throttling, seen.gpus) == (84, 750_000, True, 2)
    assert (seen.on_battery, seen.battery_ppm, seen.charging) == (True, 300_000, False)
    assert sample(1, Cards(cards=(card(throttle=None),)), readings()).thermal_throttling is None


def test_a_card_that_tells_no_temperature_is_not_hidden_by_the_others() -> None:
    mute, silent = card(id="gpu1", temperature_c=None), card(id="gpu2", condition=Condition.SILENT)
    seen = sample(1, Cards(cards=(card(), mute, silent)), readings())
    assert (seen.gpu_temperature_c, seen.gpu_heat_untold) == (61, ("gpu1", "gpu2"))
    assert Sensor.GPU_TEMPERATURE not in seen.absent
    assert sample(1, Cards(cards=(card(), card(id="gpu1"))), readings()).gpu_heat_untold == ()
    assert not seen.gpu_heat_ceased
    assert sample(1, Cards(cards=(card(), mute)), readings(), Told(heat=frozenset({"gpu1"}))).gpu_heat_ceased
    lost = card(id="gpu1", temperature_c=None, condition=Condition.LOST)
    assert sample(1, Cards(cards=(card(), lost)), readings()).gpu_heat_untold == (), "its fault is told"


def test_a_card_that_told_its_temperature_and_ceases_is_remembered(tmp_path: Path) -> None:
    now = [Cards(cards=(card(), card(id="gpu1", temperature_c=90), card(id="gpu2", temperature_c=None)))]
    senses = HostSense(here(), CardSense((Bounded("nvml", lambda: now[0], 2),)), tmp_path, lambda: ())
    seen = senses.read()
    assert (seen.gpu_temperature_c, seen.gpu_heat_untold, seen.gpu_heat_ceased) == (90, ("gpu2",), False)
    now[0] = Cards(cards=(card(), card(id="gpu1", temperature_c=None), card(id="gpu2", temperature_c=None)))
    time.sleep(FRESH_S + 0.05)
    seen = senses.read()
    assert (seen.gpu_temperature_c, seen.gpu_heat_untold, seen.gpu_heat_ceased) == (61, ("gpu1", "gpu2"), True)


def test_a_card_that_does_not_tell_how_full_it_is_is_not_hidden_by_the_fullest() -> None:
    mute, silent = card(id="gpu1", used_bytes=None), card(id="gpu2", condition=Condition.SILENT)
    seen = sample(1, Cards(cards=(card(), mute, silent)), readings())
    assert (seen.gpu_memory_ppm, seen.gpu_memory_untold, seen.gpu_memory_ceased) == (750_000, ("gpu1", "gpu2"), False)
    assert sample(1, Cards(cards=(card(), mute)), readings(), Told(memory=frozenset({"gpu1"}))).gpu_memory_ceased
    unified = card(id="unified0", kind=DeviceKind.UNIFIED, used_bytes=None)
    lost = card(id="gpu1", used_bytes=None, condition=Condition.LOST)
    assert sample(1, Cards(cards=(card(), unified, lost)), readings()).gpu_memory_untold == ()


def test_a_card_that_told_how_full_it_is_and_ceases_is_remembered(tmp_path: Path) -> None:
    now = [Cards(cards=(card(), card(id="gpu1", used_bytes=7 * GIB), card(id="gpu2", used_bytes=None)))]
    senses = HostSense(here(), CardSense((Bounded("nvml", lambda: now[0], 2),)), tmp_path, lambda: ())
    seen = senses.read()
    assert (seen.gpu_memory_ppm, seen.gpu_memory_untold, seen.gpu_memory_ceased) == (875_000, ("gpu2",), False)
    now[0] = Cards(cards=(card(), card(id="gpu1", used_bytes=None), card(id="gpu2", used_bytes=None)))
    time.sleep(FRESH_S + 0.05)
    seen = senses.read()
    assert (seen.gpu_memory_ppm, seen.gpu_memory_untold, seen.gpu_memory_ceased) == (750_000, ("gpu1", "gpu2"), True)


def test_cards_in_trouble_are_told_apart() -> None:
    lost = card(condition=Condition.LOST)
    assert faults(Cards(cards=(card(), lost))) == (GpuFault(GpuTrouble.LOST, "gpu0"),)
    assert faults(Cards(cards=(card(ecc_uncorrected=1),))) == (GpuFault(GpuTrouble.ECC, "gpu0"),)
    assert faults(Cards(cards=(lost,), absent="x")) == (GpuFault(GpuTrouble.MISMATCH, "gpu0"),)
    assert faults(Cards(absent="x")) == (GpuFault(GpuTrouble.MISMATCH),)
    assert faults(Cards(cards=(card(condition=Condition.SILENT),))) is None


def test_several_drivers_are_one_and_the_unknown_of_one_is_unknown() -> None:
    seen = together((Cards(cards=(card(),), why=("a",)), Cards(known=False, why=("b",))))
    assert (len(seen.cards), seen.known, seen.why) == (1, False, ("a", "b"))


def test_a_sense_that_hangs_costs_only_its_own_reading(tmp_path: Path) -> None:
    hung = threading.Event()
    stuck: Bounded[Cards] = Bounded("nvml", lambda: Cards(known=hung.wait(20)), 0.2)
    senses = HostSense(here(), CardSense((stuck,)), tmp_path, lambda: (os.getpid(),))
    began = time.monotonic()
    seen = senses.read()
    assert time.monotonic() - began < 5
    assert seen.gpu_faults is None
    assert seen.ram_ppm is not None
    assert seen.disk_free_bytes is not None
    hung.set()


def test_a_fault_of_a_source_is_a_reading_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Said[int]:
        raise RuntimeError("no bus")

    monkeypatch.setattr(host, "load", broken)
    senses = HostSense(here(), CardSense(()), tmp_path, lambda: ())
    assert senses.read().load_ppm is None
    assert "load: load: RuntimeError: no bus" in senses.why
