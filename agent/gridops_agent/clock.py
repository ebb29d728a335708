"""The machine's clocks, as the shell reads them and nobody else."""

from __future__ import annotations

import time
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# CLOCK_BOOTTIME is Linux's; macOS counts sleep in CLOCK_MONOTONIC as `clock_gettime` reads it there.
_AWAKE_OR_NOT: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# The counterpart that stands still: macOS has a clock of its own for it.
_AWAKE: int = getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC)


class SystemClock:
    """`base.clock.Clock` on this machine."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """For deadlines and freshness: it goes on in sleep, so that nothing that was said before one seems fresh."""
        return self.boottime_ms()

    def awake_ms(self) -> int:
        """Since some moment, sleep left out. What it falls behind `boottime_ms` the machine has slept."""
        return time.clock_gettime_ns(_AWAKE) // 1_000_000

    def boottime_ms(self) -> int:
        """Since this machine started, sleep included."""
        return time.clock_gettime_ns(_AWAKE_OR_NOT) // 1_000_000

    def boot_id(self) -> str:
        """The same until this machine starts anew. A wrong change costs an override's expiry a minute, no more."""
        try:
            return BOOT_ID.read_text("ascii").strip()
        except OSError:
            import psutil

            return str(int(psutil.boot_time()))
