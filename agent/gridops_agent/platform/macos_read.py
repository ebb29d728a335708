"""What macOS tools say, as values: `vm_stat`, `sysctl`, `ioreg`, `pmset`. Pure; tested on outputs that were recorded.

Each answers None for what the text does not hold: a newer macOS that says it differently makes a reading unknown, never
wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gridops.base.units import PPM
from gridops_agent.hearsay import count

_PAGE = re.compile(r"page size of ([0-9]{1,9}) bytes")
_PAGES = re.compile(r'^"?([A-Za-z -]+)"?:\s+([0-9]{1,15})\.?$')
_SYSCTL = re.compile(r"^([a-z0-9_.]+)[:=]\s*(\S.*)$")
_IDLE = re.compile(r'"HIDIdleTime"\s*=\s*([0-9]{1,20})\b')
_SOURCE = re.compile(r"Now drawing from '([^']+)'")
_BATTERY = re.compile(r"-InternalBattery-\d+[^\t]*\t\s*([0-9]{1,3})%;\s*([A-Za-z ]+);?")
_SPEED = re.compile(r"CPU_Speed_Limit\s*=\s*([0-9]{1,6})\b")


def used_bytes(vm_stat: str) -> int | None:
    """Memory that cannot be given back at once: anonymous, wired and compressed, less what may be purged."""
    page = _PAGE.search(vm_stat)
    pages: dict[str, int] = {}
    for line in vm_stat.splitlines():
        found = _PAGES.match(line.strip())
        if found:
            pages[found.group(1)] = int(found.group(2))
    needed = ("Anonymous pages", "Pages wired down", "Pages occupied by compressor")
    if page is None or any(name not in pages for name in needed):
        return None
    held = sum(pages[name] for name in needed) - pages.get("Pages purgeable", 0)
    return max(0, held) * int(page.group(1))


def sysctl(text: str) -> Mapping[str, int]:
    """`name: number` lines; what a machine does not know is left out (`sysctl: unknown oid ...`)."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        pair = _SYSCTL.match(line.strip())
        number = count(pair.group(2).strip()) if pair else None
        if pair and number is not None:
            found[pair.group(1)] = number
    return found


def gpu_limit_bytes(values: Mapping[str, int]) -> int | None:
    """What graphics may wire of unified memory: as set, else the system's own choice (two thirds, three quarters of
    more than 36 GB); None where memory is not unified."""
    total = values.get("hw.memsize")
    if total is None or values.get("hw.optional.arm64") != 1:
        return None
    limit = values.get("iogpu.wired_limit_mb", 0)
    if limit:
        return min(limit << 20, total)
    return total * 3 // 4 if total > 36 << 30 else total * 2 // 3


def idle_ms(ioreg: str) -> int | None:
    """Since the last input, from nanoseconds; the shortest where several devices count."""
    found = [int(value) for value in _IDLE.findall(ioreg)]
    return min(found) // 1_000_000 if found else None


@dataclass(frozen=True, slots=True)
class Power:
    """`pmset -g batt`. `charge_ppm` is None on a machine without a battery."""

    on_battery: bool
    charge_ppm: int | None
    charging: bool | None


def power(text: str) -> Power | None:
    """Where the machine draws from, and how full its own battery is; None when the text says neither."""
    source = _SOURCE.search(text)
    if source is None:
        return None
    battery = _BATTERY.search(text)
    if battery is None:
        return Power(source.group(1) == "Battery Power", None, None)
    state = battery.group(2).strip()
    charging = state in ("charging", "finishing charge")
    return Power(source.group(1) == "Battery Power", min(PPM, int(battery.group(1)) * 10_000), charging)


def throttled(therm: str) -> bool | None:
    """`pmset -g therm`: the CPU is held below its speed. None when nothing is said of it."""
    speed = _SPEED.search(therm)
    if speed is not None:
        return int(speed.group(1)) < 100
    return False if "No CPU power status has been recorded" in therm else None
