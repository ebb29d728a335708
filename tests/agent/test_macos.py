"""macOS by the words of its tools, as recorded on Macs with Intel and Apple processors; and what is not supported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from gridops.base.errors import BadSetup, Failed
from gridops_agent.cli import entry
from gridops_agent.platform import macos, macos_read, table
from gridops_agent.platform.base import Memory
from gridops_agent.platform.linux import Linux
from gridops_agent.sensors.host import Battery

RECORDED = Path(__file__).parent / "recorded"
INTEL = (RECORDED / "vm_stat_intel.txt").read_text()
APPLE = (RECORDED / "vm_stat_apple.txt").read_text()
IOREG = (RECORDED / "ioreg.txt").read_text()
SYSCTL_APPLE = "hw.memsize: 17179869184\nhw.optional.arm64: 1\niogpu.wired_limit_mb: 0\n"
SYSCTL_INTEL = (
    "hw.memsize: 34359738368\nsysctl: unknown oid 'hw.optional.arm64'\nsysctl: unknown oid 'iogpu.wired_limit_mb'\n"
)
THERM = (
    "Note: No thermal warning level has been recorded\n"
    "Note: No performance warning level has been recorded\n"
    "Note: No CPU power status has been recorded\n"
)


class Mac:
    """A Mac's tools by their first word (and the last, for pmset)."""

    def __init__(self, said: Mapping[str, str]) -> None:
        self._said = said

    def __call__(self, argv: tuple[str, ...]) -> str:
        for key in (f"{argv[0]} {argv[-1]}", argv[0]):
            if key in self._said:
                return self._said[key]
        raise Failed(f"{argv[0]} does not answer {argv[-1]}: not found")


def test_memory_that_cannot_be_given_back_counts_as_used() -> None:
    assert macos_read.used_bytes(INTEL) == (464_333 + 715_958 + 0 - 11_820) * 4_096
    assert macos_read.used_bytes(APPLE) == (363_641 + 106_741 + 110_063 - 4_133) * 16_384
    assert macos_read.used_bytes("Mach Virtual Memory Statistics: (page size of 4096 bytes)\nPages free: 1.") is None
    assert macos_read.used_bytes("") is None


@pytest.mark.parametrize(
    ("vm_stat", "sysctl", "memory"),
    [
        (INTEL, SYSCTL_INTEL, Memory(32 << 30, 1_168_471 * 4_096)),
        (APPLE, SYSCTL_APPLE, Memory(16 << 30, 576_312 * 16_384, unified=True, graphics_bytes=(16 << 30) * 2 // 3)),
    ],
)
def test_a_mac_tells_its_memory_and_whether_graphics_share_it(vm_stat: str, sysctl: str, memory: Memory) -> None:
    assert macos.MacOS(Mac({"vm_stat": vm_stat, "sysctl": sysctl})).memory() == memory


def test_where_vm_stat_is_silent_the_portable_answer_is_taken() -> None:
    seen = macos.MacOS(Mac({"sysctl": SYSCTL_APPLE})).memory()
    assert seen.unified
    assert abs(seen.total_bytes - Linux().memory().total_bytes) <= seen.total_bytes


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (SYSCTL_INTEL, None),
        (SYSCTL_APPLE, (16 << 30) * 2 // 3),
        (SYSCTL_APPLE.replace("17179869184", str(64 << 30)), (64 << 30) * 3 // 4),
        (SYSCTL_APPLE.replace("mb: 0", "mb: 14336"), 14 << 30),
        (SYSCTL_APPLE.replace("mb: 0", "mb: 99999"), 16 << 30),
    ],
    ids=["intel", "the system's choice", "a larger one", "as set", "more than there is"],
)
def test_what_graphics_may_wire(text: str, limit: int | None) -> None:
    assert macos.MacOS(Mac({"sysctl": text, "vm_stat": APPLE})).memory().graphics_bytes == limit


def test_idle_time_is_that_of_the_last_input() -> None:
    assert macos.idle(Mac({"ioreg": IOREG}), 0).value == 4_500
    two = IOREG + '"HIDIdleTime" = 21858429\n'
    assert macos_read.idle_ms(two) == 21, "somebody uses one of two keyboards"
    assert macos.idle(Mac({"ioreg": "nothing"}), 0).why == "ioreg tells no HIDIdleTime"
    assert "not found" in macos.idle(Mac({}), 0).why


@pytest.mark.parametrize(
    ("source", "state", "battery"),
    [
        ("Battery Power", "84%; discharging; 5:03 remaining present: true", Battery(840_000, True, False)),
        ("Battery Power", "100%; discharging; (no estimate) present: true", Battery(1_000_000, True, False)),
        ("AC Power", "87%; charging; 0:42 remaining present: true", Battery(870_000, False, True)),
        ("AC Power", "99%; finishing charge; 0:05 remaining present: true", Battery(990_000, False, True)),
        ("AC Power", "100%; charged; 0:00 remaining present: true", Battery(1_000_000, False, False)),
        ("AC Power", "7%; AC attached; not charging present: true", Battery(70_000, False, False)),
    ],
)
def test_the_battery_by_pmset(source: str, state: str, battery: Battery) -> None:
    text = f"Now drawing from '{source}'\n -InternalBattery-0 (id=22675555)\t{state}\n"
    assert macos.battery(Mac({"pmset": text})).value == battery


def test_a_mac_without_a_battery_has_none_and_a_strange_text_is_unknown() -> None:
    assert macos.battery(Mac({"pmset": "Now drawing from 'AC Power'\n"})).absent
    strange = macos.battery(Mac({"pmset": "hm"}))
    assert (strange.value, strange.absent, strange.why) == (None, False, "pmset tells nothing of the battery")


def test_heat_holds_a_mac_down() -> None:
    slow = "CPU_Scheduler_Limit \t= 100\n\tCPU_Available_CPUs \t= 8\n\tCPU_Speed_Limit \t= 62\n"
    assert macos.throttling(Mac({"pmset therm": slow})).value is True
    assert macos.throttling(Mac({"pmset therm": slow.replace("62", "100")})).value is False
    assert macos.throttling(Mac({"pmset therm": THERM})).value is False
    assert macos.throttling(Mac({"pmset therm": ""})).value is None


@pytest.mark.parametrize(("system", "name"), [("win32", "Windows"), ("cygwin", "Windows"), ("sunos5", "sunos5")])
def test_a_system_without_a_row_is_refused_by_name(system: str, name: str) -> None:
    with pytest.raises(BadSetup) as refused:
        table.mechanisms(system)
    assert refused.value.message == f"gridops-agent does not run on {name}: it runs on Linux and macOS"


@pytest.mark.parametrize("system", ["win32", "cygwin"])
def test_on_windows_every_command_says_so_and_nothing_else(
    system: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entry.sys, "platform", system)
    assert entry.main(["join", "TOKEN"]) == BadSetup("x").exit_code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("gridops-agent does not run on Windows: it runs on Linux and macOS.")


def test_every_row_of_the_table_makes_its_platform() -> None:
    assert isinstance(table.TABLE["darwin"].platform(), macos.MacOS)
    assert isinstance(table.TABLE["linux"].platform(), Linux)
    said = Mac({"ioreg": IOREG, "pmset batt": "Now drawing from 'AC Power'\n", "pmset therm": THERM})
    row = table.TABLE["darwin"]
    assert row.idle_ms(said, 0).value == 4_500
    assert row.battery(said).absent
    assert row.throttling(said)().value is False
