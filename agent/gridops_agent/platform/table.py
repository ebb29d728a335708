"""The table of mechanisms: what each operating system is asked by, for what, and whether that ever ran there.

`here()` and `senses` take their mechanisms from it; `docs/SCOPE.md` names what is unproven. A system that has no row is
not supported, and `join` says so instead of failing in the middle.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from gridops.base.errors import BadSetup
from gridops_agent.platform.base import Platform
from gridops_agent.sensors import host, idle
from gridops_agent.sensors.host import Battery
from gridops_agent.sensors.said import Ask, Said


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """One system: its processes and memory, and what the protection loop reads of it."""

    system: str
    platform: Callable[[], Platform]
    idle_ms: Callable[[Ask, int], Said[int]]
    """Given CLOCK_MONOTONIC in ms."""
    battery: Callable[[Ask], Said[Battery]]
    throttling: Callable[[Ask], Callable[[], Said[bool]]]
    services: tuple[str, ...]
    """Service managers, the first that answers is used."""


def _linux() -> Platform:
    from gridops_agent.platform.linux import Linux

    return Linux()


def _macos() -> Platform:
    from gridops_agent.platform.macos import MacOS

    return MacOS()


def _mac_idle(ask: Ask, mono_ms: int) -> Said[int]:
    from gridops_agent.platform import macos

    return macos.idle(ask, mono_ms)


def _mac_battery(ask: Ask) -> Said[Battery]:
    from gridops_agent.platform import macos

    return macos.battery(ask)


def _mac_throttling(ask: Ask) -> Callable[[], Said[bool]]:
    from gridops_agent.platform import macos

    return lambda: macos.throttling(ask)


TABLE = {
    "linux": Mechanisms(
        system="Linux",
        platform=_linux,
        idle_ms=idle.linux,
        battery=lambda ask: host.battery(),
        throttling=lambda ask: host.Throttling().look,
        services=("systemctl",),
    ),
    "darwin": Mechanisms(
        system="macOS",
        platform=_macos,
        idle_ms=_mac_idle,
        battery=_mac_battery,
        throttling=_mac_throttling,
        services=("launchctl",),
    ),
}


def mechanisms(system: str = sys.platform) -> Mechanisms:
    """The row of this machine's system. Raises BadSetup for one that is not supported."""
    row = TABLE.get(system)
    if row is None:
        known = " and ".join(sorted(row.system for row in TABLE.values()))
        name = "Windows" if system in ("win32", "cygwin") else system
        raise BadSetup(
            f"gridops-agent does not run on {name}: it runs on {known}",
            hints=("run it on another machine, or in a Linux virtual machine that has the card",),
        )
    return row
