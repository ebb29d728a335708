"""The machine itself through psutil: battery, temperatures, CPU, load, network. Each by itself; nothing is made up.

Called by `senses` once a second. What this machine certainly does not have (no battery, no thermal sensor) is said to
be absent, which is not the same as unknown: only an unknown reading makes a host careful.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from gridops.base.units import PPM
from gridops_agent.hearsay import count
from gridops_agent.sensors.said import Said

OF_DISKS_AND_CARDS = ("nvme", "drivetemp", "amdgpu", "nouveau", "iwlwifi", "ath", "mt76", "jc42", "spd5118")
"""Chips whose heat says nothing of CPU and board."""
SANE_C = (1, 125)
"""Sensors that nobody wired say 0, -273 or 127."""


@dataclass(frozen=True, slots=True)
class Battery:
    """The battery of a laptop. `charging` is None where the system does not tell."""

    charge_ppm: int | None
    on_battery: bool | None
    charging: bool | None = None


def battery() -> Said[Battery]:
    """The battery by psutil; absent on a machine without one."""
    seen: Any = psutil.sensors_battery()
    if seen is None:
        return Said(absent=True)
    charge = round(float(seen.percent) * 10_000)
    plugged = seen.power_plugged
    return Said(Battery(max(0, min(PPM, charge)), None if plugged is None else not plugged))


def temperature() -> Said[int]:
    """The hottest sensor of CPU and board, in degrees."""
    read = getattr(psutil, "sensors_temperatures", None)
    chips = read() if read is not None else {}
    known = [
        float(entry.current)
        for chip, entries in sorted(chips.items())
        for entry in entries
        if not chip.startswith(OF_DISKS_AND_CARDS) and entry.current is not None
    ]
    sane = [value for value in known if SANE_C[0] <= value <= SANE_C[1]]
    if sane:
        return Said(round(max(sane)))
    return Said(why="the sensors say nothing that can be") if known else Said(absent=True)


class Throttling:
    """Whether firmware slowed the CPU down since the last look, by the counters of the kernel (Intel has them)."""

    def __init__(self, root: Path = Path("/sys/devices/system/cpu")) -> None:
        self._root = root
        self._last: int | None = None

    def look(self) -> Said[bool]:
        counts = [_number(path) for path in sorted(self._root.glob("cpu*/thermal_throttle/*_throttle_count"))]
        if not counts:
            return Said(absent=True)
        total = sum(count or 0 for count in counts)
        before, self._last = self._last, total
        return Said(before is not None and total > before)


class CpuShare:
    """The share of all CPUs that is busy with what is not our engines, between two looks."""

    def __init__(self) -> None:
        self._busy: tuple[float, float] | None = None
        self._own: dict[int, float] = {}

    def look(self, ours: Iterable[int]) -> Said[int]:
        """Since the last look; the first one knows nothing."""
        times = psutil.cpu_times()
        waiting = float(times.idle) + float(getattr(times, "iowait", 0.0))
        # Guests are counted in user and nice already.
        guests = float(getattr(times, "guest", 0.0)) + float(getattr(times, "guest_nice", 0.0))
        total = sum(float(value) for value in times) - guests
        own = {pid: used for pid in ours if (used := _cpu_seconds(pid)) is not None}
        before, self._busy = self._busy, (total, total - waiting)
        spent = sum(max(0.0, used - self._own[pid]) for pid, used in own.items() if pid in self._own)
        self._own = own
        if before is None or total <= before[0]:
            return Said(why="a first look")
        share = (total - waiting - before[1] - spent) / (total - before[0])
        return Said(round(max(0.0, min(1.0, share)) * PPM))


def _cpu_seconds(pid: int) -> float | None:
    try:
        times = psutil.Process(pid).cpu_times()
    except (psutil.Error, OSError):
        return None
    return float(times.user) + float(times.system)


def load() -> Said[int]:
    """Load average of one minute for each CPU."""
    cpus = psutil.cpu_count() or 0
    if cpus < 1:
        return Said(why="the number of CPUs is not known")
    return Said(round(os.getloadavg()[0] / cpus * PPM))


def network() -> Said[bool]:
    """An interface other than loopback is up and has an address that reaches beyond its link."""
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    for name, addresses in psutil.net_if_addrs().items():
        if name in up and any(_reaches(str(address.address)) for address in addresses):
            return Said(True)
    return Said(False)


def _reaches(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:  # a hardware address
        return False
    return not (address.is_loopback or address.is_link_local)


def _number(path: Path) -> int | None:
    try:
        return count(path.read_text("ascii", "replace").strip())
    except OSError:
        return None
