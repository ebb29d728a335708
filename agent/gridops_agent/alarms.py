"""What a host has to tell people: one alarm for each cause, with its newest words, until the cause is over.

The shell raises and ends them and shows them in heartbeat and status. A cause is a code and what it is about, never
the words: those hold times and numbers, and the same trouble told twice would look like two. What nobody ends goes
by itself after a while. It decides nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

from gridops.base import limits
from gridops.base.codes import host as codes

LOG = logging.getLogger("gridops_agent")

KEPT_S = 600.0
"""So long an alarm is shown after it was last met, where nothing tells that it is over."""
LOOKED_FOR_S = 10.0
"""So long what is met again at each look of the watch, twice a second, while it lasts."""
LOOKED_FOR = frozenset({codes.DRAIN_TIMEOUT.code})
LASTING = frozenset({codes.LEDGER_DAMAGED.code})
"""Until the agent starts anew: a person has to look."""
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class _Alarm:
    text: str
    met_s: float
    until_heard: bool


class Alarms:
    """The alarms of one agent; at most `limits.ALARMS`, the one longest not met goes first."""

    def __init__(self, mono_s: Callable[[], float]) -> None:
        self._mono_s = mono_s
        self._standing: dict[tuple[str, str], _Alarm] = {}

    def warn(self, code: str, text: str, about: str = "", *, until_heard: bool = False) -> None:
        """A cause was met. `until_heard`: the next good talk with the controller shows that it is over."""
        before = self._standing.pop((code, about), None)
        if before is None or _NUMBERS.sub("", before.text) != _NUMBERS.sub("", text):
            LOG.warning("%s: %s", code, text)
        self._standing[code, about] = _Alarm(text, self._mono_s(), until_heard)
        while len(self._standing) > limits.ALARMS:
            del self._standing[next(iter(self._standing))]

    def over(self, code: str) -> None:
        """Every cause of this code has ended."""
        self._standing = {key: alarm for key, alarm in self._standing.items() if key[0] != code}

    def heard(self) -> None:
        """The controller answered as it should."""
        self._standing = {key: alarm for key, alarm in self._standing.items() if not alarm.until_heard}

    def now(self) -> tuple[str, ...]:
        """What is shown, oldest first."""
        now_s = self._mono_s()
        return tuple(
            f"{code}: {alarm.text}"
            for (code, _), alarm in self._standing.items()
            if code in LASTING or now_s - alarm.met_s < (LOOKED_FOR_S if code in LOOKED_FOR else KEPT_S)
        )
