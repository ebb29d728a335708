"""All senses of one host behind one door: the cards of every driver, and one sample for the host's protection.

Made once by the shell, asked from threads. A source that fails or hangs costs its own reading and a reason, never
another reading and never the loop; `why` says what could not be read the last time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from gridops.base import limits
from gridops_agent.sensors.bounded import Bounded
from gridops_agent.sensors.cards import Cards
from gridops_agent.sensors.nvml import Nvml

PATIENCE_S = 3.0
"""NVML answers in milliseconds; with a card that wakes up, in a second."""
FRESH_S = 0.2
"""Readings this old are handed out again: protection, gauge and releases look at the same cards."""


class CardSense:
    """The cards of every driver on this machine, together."""

    def __init__(self, drivers: Iterable[Bounded[Cards]] | None = None) -> None:
        self._drivers = tuple(drivers) if drivers is not None else _drivers()
        self._turn = threading.Lock()
        self._last: tuple[float, Cards] | None = None

    def look(self) -> Cards:
        """Every card now, or as of a moment ago."""
        with self._turn:
            now_s = time.monotonic()
            if self._last is None or now_s - self._last[0] > FRESH_S:
                self._last = (time.monotonic(), together(self._ask(driver) for driver in self._drivers))
            return self._last[1]

    def _ask(self, driver: Bounded[Cards]) -> Cards:
        answer, why = driver.ask()
        return answer if answer is not None else Cards(known=False, why=(why,))


def _drivers() -> tuple[Bounded[Cards], ...]:
    nvml: Callable[[], Cards] = Nvml().read
    return (Bounded("nvml", nvml, PATIENCE_S),)


def together(looks: Iterable[Cards]) -> Cards:
    """Several drivers as one: what one of them does not know is not known."""
    all_looks = tuple(looks)
    return Cards(
        cards=tuple(card for look in all_looks for card in look.cards),
        known=all(look.known for look in all_looks),
        absent=next((look.absent for look in all_looks if look.absent is not None), None),
        why=tuple(why for look in all_looks for why in look.why)[: limits.SENSOR_REASONS],
    )
