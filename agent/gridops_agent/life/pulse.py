"""The watchdog's food: given only while every loop of the agent goes round.

Each loop has a mark that changes with each round (a count, the time of its newest look). A loop whose mark stands still
for longer than any honest round takes starves the watchdog, and systemd restarts the agent; engines live on. A hung
event loop starves it by itself. Time is that of a machine that is awake, so that a sleep is no hang.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gridops_agent.notify import notify, watchdog_s

LOG = logging.getLogger("gridops_agent")
PATIENCE_S = 150.0
"""The longest honest round: a poll of 60 s, an answer that takes 25 s, a stop in steps, a slow disk. Half: an agent on
a machine that swaps is restarted for nothing; twice: a host is silent for that much longer before anybody acts."""
LEAST_S, MOST_S = 0.05, 15.0
Mark = Callable[[], object]


@dataclass
class _Loop:
    mark: object
    since_s: float


class Pulse:
    """Watches the loops of one agent. `awake_s` is a clock that stands still in sleep."""

    def __init__(
        self, loops: Mapping[str, Mark], awake_s: Callable[[], float], patience_s: float | None = None
    ) -> None:
        self._marks = dict(loops)
        self._awake_s = awake_s
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        now = awake_s()
        self._seen = {name: _Loop(mark(), now) for name, mark in self._marks.items()}
        self._hung: tuple[str, ...] = ()

    def look(self) -> tuple[str, ...]:
        """The loops that hang, sorted; none while all is well."""
        now = self._awake_s()
        for name, mark in self._marks.items():
            seen, newest = self._seen[name], mark()
            if newest != seen.mark:
                self._seen[name] = _Loop(newest, now)
        return tuple(sorted(name for name, seen in self._seen.items() if now - seen.since_s > self._patience_s))

    def feed(self) -> None:
        """One look, and what systemd is told of it."""
        hung = self.look()
        if hung and hung != self._hung:
            LOG.error("these loops do not go round any more: %s; the watchdog is not fed", ", ".join(hung))
        self._hung = hung
        if not hung:
            notify("WATCHDOG=1")

    async def run(self) -> None:
        """Feed for ever, four times in the time that the watchdog gives."""
        while True:
            self.feed()
            given = watchdog_s()
            await asyncio.sleep(MOST_S if given is None else min(MOST_S, max(LEAST_S, given / 4)))
