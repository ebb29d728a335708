"""The machine's clocks, as the shell reads them and nobody else."""

from __future__ import annotations

import time


class SystemClock:
    """`base.clock.Clock` on this machine."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
