"""The virtual clock: what happens next, in order of time and then of who asked first. One run is one walk of it."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from gridops.base.errors import Bug

EPOCH_MS = 1_796_000_000_000
"""Wall time at which every run begins."""


class Agenda:
    """Events by (time, number). Nothing here ever waits."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.steps = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._asked = 0

    def after(self, delay_ms: int, do: Callable[[], None]) -> None:
        """Have something done so much later."""
        if delay_ms < 0:
            raise Bug(f"nothing can be done {-delay_ms} ms ago")
        self._asked += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._asked, do))

    def step(self, until_ms: int) -> bool:
        """Do the next thing, if there is one before that time; else stand at that time."""
        if not self._heap or self._heap[0][0] > until_ms:
            self.now_ms = max(self.now_ms, until_ms)
            return False
        self.now_ms, _, do = heapq.heappop(self._heap)
        self.steps += 1
        do()
        return True


class MachineClock:
    """The two clocks of one machine: they may go too fast, and the wall may be set wrong or stand still."""

    def __init__(self, agenda: Agenda, drift_ppm: int = 0) -> None:
        self._agenda = agenda
        self._drift_ppm = drift_ppm
        self.wrong_ms = 0
        self._stands: tuple[int, int] | None = None
        """Until when, and at what."""

    def wall_ms(self) -> int:
        if self._stands is not None and self._agenda.now_ms < self._stands[0]:
            return self._stands[1]
        return EPOCH_MS + self.monotonic_ms() + self.wrong_ms

    def monotonic_ms(self) -> int:
        return self._agenda.now_ms + self._agenda.now_ms * self._drift_ppm // 1_000_000

    def stand(self, for_ms: int) -> None:
        """The wall clock stands still for so long; 0: it goes again."""
        self._stands = (self._agenda.now_ms + for_ms, self.wall_ms()) if for_ms else None
