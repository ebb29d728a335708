"""macOS: psutil for processes, `vm_stat` and `sysctl` for memory, `ioreg` for idle time, `pmset` for the battery.

What the tools say is read by `macos_read`. Never run on a Mac yet: docs/SCOPE.md lists what is unproven.
"""

from __future__ import annotations

from gridops_agent.platform import macos_read as read
from gridops_agent.platform.base import Memory
from gridops_agent.platform.portable import Portable
from gridops_agent.sensors.host import Battery
from gridops_agent.sensors.said import Ask, Said, ask, words

SYSCTL = ("sysctl", "hw.memsize", "hw.optional.arm64", "iogpu.wired_limit_mb")


class MacOS(Portable):
    """Processes as everywhere without procfs; memory as this system counts it."""

    def __init__(self, asking: Ask = ask) -> None:
        self._ask = asking

    def memory(self) -> Memory:
        """RAM by vm_stat. Where that cannot be read, psutil's answer, which counts a little differently."""
        values = read.sysctl(words(self._ask, SYSCTL)[0] or "")
        used = read.used_bytes(words(self._ask, ("vm_stat",))[0] or "")
        total = values.get("hw.memsize")
        unified, graphics = values.get("hw.optional.arm64") == 1, read.gpu_limit_bytes(values)
        if total is None or used is None:
            seen = super().memory()
            return Memory(seen.total_bytes, seen.used_bytes, unified, graphics)
        return Memory(total, min(used, total), unified, graphics)


def idle(asking: Ask, mono_ms: int) -> Said[int]:
    """Since the last input of anybody at this Mac."""
    text, why = words(asking, ("ioreg", "-c", "IOHIDSystem", "-d", "4"))
    found = read.idle_ms(text or "")
    return Said(found, why or ("" if found is not None else "ioreg tells no HIDIdleTime"))


def battery(asking: Ask) -> Said[Battery]:
    """The battery as power management sees it."""
    text, why = words(asking, ("pmset", "-g", "batt"))
    found = read.power(text or "")
    if found is None:
        return Said(why=why or "pmset tells nothing of the battery")
    if found.charge_ppm is None:
        return Said(absent=True)
    return Said(Battery(found.charge_ppm, found.on_battery, found.charging))


def throttling(asking: Ask) -> Said[bool]:
    """Whether the CPU is held below its speed because of heat."""
    text, why = words(asking, ("pmset", "-g", "therm"))
    found = read.throttled(text or "")
    return Said(found, why or ("" if found is not None else "pmset tells no CPU_Speed_Limit"))
