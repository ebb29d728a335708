"""The newest events in memory, for `/v1/events` and the log. Filled from journal rows, also at replay."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gridops.base import limits


@dataclass(frozen=True, slots=True)
class Event:
    """`n` is the number of the journal row it came from."""

    n: int
    at_ms: int
    kind: str
    text: str


class EventRing:
    """A bounded ring; whoever listens hears each new event once."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=limits.EVENTS_IN_MEMORY)
        self.listener: Callable[[Event], None] | None = None

    def add(self, n: int, at_ms: int, kind: str, text: str) -> None:
        event = Event(n, at_ms, kind, text)
        self._events.append(event)
        if self.listener is not None:
            self.listener(event)

    def after(self, n: int) -> tuple[Event, ...]:
        """Events of rows behind number `n`, oldest first."""
        return tuple(e for e in self._events if e.n > n)

    @property
    def bounds(self) -> tuple[int, int]:
        """Oldest and newest number kept; zeros when there is none."""
        return (self._events[0].n, self._events[-1].n) if self._events else (0, 0)
