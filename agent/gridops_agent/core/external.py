"""External use over a while: the most of several samples, and when that was. Pure; kept by `gauge` for each device.

What others use moves by a factor of two within a minute, and a plan that trusted the low point would start what dies
at the next high one. So the reported number is the largest of the window, with its time: a high point is remembered
for as long as the window, a low point never hides one.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridops.base import limits


@dataclass(frozen=True, slots=True)
class Sample:
    """Others used so much at that moment; `mono_ms` orders, `at_ms` is told."""

    mono_ms: int
    at_ms: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Window:
    """The newest samples of one device, oldest first."""

    samples: tuple[Sample, ...] = ()

    def most(self) -> Sample | None:
        """The largest, and the newest of several equal ones. None: nothing was ever read."""
        return max(self.samples, key=lambda s: (s.used_bytes, s.mono_ms), default=None)


def seen(window: Window, sample: Sample | None, now_ms: int) -> Window:
    """The window with one more look. Nothing read (None) takes nothing away: what was known last stays known."""
    kept = window.samples if sample is None else (*window.samples, sample)
    fresh = tuple(s for s in kept if now_ms - s.mono_ms < limits.EXTERNAL_WINDOW_MS)
    return Window((fresh or kept[-1:])[-limits.EXTERNAL_SAMPLES :])
