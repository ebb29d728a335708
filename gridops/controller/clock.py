"""Controller time: the wall clock, made steady. It never goes back, and a jump does not age what was just heard.

A machine's clock may be set by an hour at any moment. Forwards, time is followed and the jump is reported, so that
the caller can shift the ages of heartbeats with it (else every host would fall silent at once). Backwards, time goes
on by the monotonic clock until the wall has caught up: no expiry is ever extended, no term of the past revived.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from gridops.base.clock import Clock

TOLERANCE_MS = 2_000
"""Less than this is drift or a busy machine, not a jump."""


class MachineClock:
    """The clocks of this machine."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Reading:
    now_ms: int
    jumped_ms: int = 0
    """By how much the wall leapt forwards since the last reading."""
    behind_ms: int = 0
    """By how much the wall is behind what has already been said."""


class Steady:
    """Controller time. `floor_ms` is the newest time in the journal."""

    def __init__(self, clock: Clock, floor_ms: int = 0) -> None:
        self._clock = clock
        self._mono_ms = clock.monotonic_ms()
        self._now_ms = max(clock.wall_ms(), floor_ms)
        self._run_ms = self._now_ms
        """Where time would be by the monotonic clock alone, since the wall was last there: what it lags behind adds up,
        so that a wall that stands still, or loses a second at each look, holds time up by the tolerance and no more."""

    def read(self) -> Reading:
        mono_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        self._run_ms += max(mono_ms - self._mono_ms, 0)
        self._mono_ms = mono_ms
        apart_ms = wall_ms - self._run_ms
        if apart_ms > TOLERANCE_MS:
            self._now_ms = self._run_ms = wall_ms
            return Reading(wall_ms, jumped_ms=apart_ms)
        if apart_ms < -TOLERANCE_MS:
            self._now_ms = max(self._now_ms, self._run_ms)
            return Reading(self._now_ms, behind_ms=-apart_ms)
        self._run_ms = max(self._run_ms, wall_ms)
        self._now_ms = max(self._now_ms, wall_ms)
        return Reading(self._now_ms)
