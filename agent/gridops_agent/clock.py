"""The machine's clocks, as the shell reads them and nobody else."""

from __future__ import annotations

import time
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# CLOCK_BOOTTIME is Linux's; macOS counts sleep in CLOCK_MONOTONIC as `clock_gettime` reads it there.
_AWAKE_OR_NOT: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """`base.clock.Clock` on this machine."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

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
