"""The talk with the controller, for ever: at the pace that it asks for, at once when there is news, slower unanswered.

Run by the shell as a loop; one heartbeat and the proof of its answer are `beats`. Whatever goes wrong becomes words for
people and the next try: nothing ends the loop. Decides nothing about the host.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from gridops.base.codes import host as codes
from gridops.base.errors import EdgeError, Refusal
from gridops_agent.alarms import Alarms
from gridops_agent.beats import Beats
from gridops_agent.clock import SystemClock
from gridops_agent.core import pace
from gridops_agent.core.report import Readings
from gridops_agent.ledger import Unwritable

BEAT_GAP_S = 0.1


@dataclass(frozen=True, slots=True)
class Topics:
    """What is told with each heartbeat, and who hears how it went."""

    version: str
    readings: Callable[[], Readings]
    away: Callable[[], bool]
    """Whether this host says now that it is leaving for a while."""
    alarms: Alarms
    show: Callable[[str], None]
    """Called after each try, with the newest word about the controller."""


class Talk:
    """One host's talk with its controller."""

    def __init__(self, beats: Beats, clock: SystemClock, topics: Topics) -> None:
        self._beats = beats
        self._clock = clock
        self._topics = topics
        self._wake = asyncio.Event()
        self._said = asyncio.Event()
        self.pace = pace.Pace()
        """When it asks again."""
        self.word = "not yet asked"
        """`fresh`, `pending` (not admitted yet) or why the controller does not answer."""
        self.heard_ms: int | None = None
        """When the last fresh directive came, in this host's wall time."""

    def soon(self) -> None:
        """There is news: the next heartbeat goes out at once."""
        self._wake.set()

    async def run(self, went_round: Callable[[], None] = lambda: None) -> None:
        """Talk for ever."""
        while True:
            self._wake.clear()
            went_round()
            self.pace = await self.attempt()
            wait_s = self.pace.wait_ms / 1000
            self._topics.show(self.word)
            await asyncio.sleep(BEAT_GAP_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait() if self.pace.wakes else asyncio.sleep(wait_s + 1), wait_s)

    async def attempt(self) -> pace.Pace:
        """One heartbeat, whatever comes of it, and the pace from then on."""
        alarms = self._topics.alarms
        try:
            return await self.beat()
        except Refusal as refusal:
            if refusal.code == pace.NOT_ADMITTED:
                self.word = "pending: not admitted yet"
            else:
                self.word = f"refused: {refusal.message}"
                alarms.warn(refusal.code, refusal.message, until_heard=True)
            return pace.refused(self.pace, refusal.code)
        except Unwritable as error:
            # The heartbeat went out and shows the alarm; what the directive wanted will be wanted again.
            self.word = error.message
            alarms.warn(codes.LEDGER_UNWRITABLE.code, error.message)
        except EdgeError as error:
            self.word = error.message
        return pace.unanswered(self.pace)

    async def beat(self) -> pace.Pace:
        """One heartbeat that is answered, and the pace that is wanted. Raises what `beats` raises."""
        topics = self._topics
        away = topics.away()
        directive = await self._beats.beat(topics.readings, topics.version)
        if away == topics.away():
            self._said.set()
        self.word, self.heard_ms = "fresh", self._clock.wall_ms()
        topics.alarms.heard()
        return pace.answered(self.pace, directive.next_poll_ms)

    async def say_away(self) -> None:
        """Wait until the controller has answered a heartbeat that tells whether this host is away."""
        self._said.clear()
        self._wake.set()
        await self._said.wait()
