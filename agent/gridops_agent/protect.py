"""The protection loop: once a second look at the machine, judge, close or open the front, and tell the heart.

The front goes by a verdict at once, also when the ledger cannot be written: an owner does not wait for a disk. What
the heart makes of it (loads taken back, memory given back) is durable first, as everything else. A sensor that hangs
makes its readings unknown and never stops the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from gridops.base.codes import host as codes
from gridops.base.errors import GridopsError
from gridops.model.policy import ClassProtection, Sensor, protection_default
from gridops_agent.alarms import Alarms
from gridops_agent.clock import SystemClock
from gridops_agent.core.events import StateChanged
from gridops_agent.core.pressure import pressed
from gridops_agent.core.protection import Guard, Sample, Verdict
from gridops_agent.core.verdict import Look, judge
from gridops_agent.effects import Effects
from gridops_agent.front import Front
from gridops_agent.ledger import Unwritable
from gridops_agent.memory import Memory
from gridops_agent.overrides import Overrides
from gridops_agent.readouts import Readouts

TICK_S = 1.0
PATIENCE_S = 5.0
"""How long sensors may take. Half: a machine that swaps looks blind; twice: an owner is seen ten seconds late."""
WORDS_EVERY_MS = 30_000
"""Numbers in reasons are told anew only so often; the state and its codes at once."""
BEFORE_A_WORD = protection_default("opportunistic")
"""Until the first directive says of which class this host is: yielding too much hurts nobody."""

Senses = Callable[[], Sample]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loop works with. `boottime_ms` is the clock of samples where sensors give none."""

    memory: Memory
    effects: Effects
    front: Front
    alarms: Alarms
    overrides: Overrides
    senses: Senses
    boottime_ms: Callable[[], int]
    wall_ms: Callable[[], int] = lambda: SystemClock().wall_ms()
    show: Callable[[], None] = lambda: None
    """Called when there is something new to show people."""


class Protection:
    """One host's loop. `faults` is set by the shell: coded faults of the agent itself."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._guard = Guard()
        self._reading: asyncio.Future[Sample] | None = None
        self._told_ms: int | None = None
        self.faults: tuple[str, ...] = ()
        self.sample: Sample | None = None
        """The newest look, weighed against the plan."""
        self.readouts = Readouts()
        """The same as it was read, for `status`."""

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self.tick()
            except GridopsError as error:
                code = codes.LEDGER_UNWRITABLE if isinstance(error, Unwritable) else codes.AGENT_FAULT
                self._parts.alarms.warn(code.code, error.message)

    async def tick(self) -> Verdict:
        """One look and what follows from it. Raises Unwritable; the front has followed all the same."""
        parts = self._parts
        host = parts.memory.host
        seen = await self._sense()
        self.readouts.note(seen, parts.wall_ms())
        self.sample = pressed(host, seen)
        override = await asyncio.to_thread(parts.overrides.now)
        look = Look(self.sample, parts.front.in_flight.total() > 0, override, self.faults)
        self._guard, verdict = judge(self._guard, look, self._rules())
        parts.front.verdict = verdict
        if not verdict.admits:
            parts.effects.take_back()
        if self._is_news(verdict):
            await parts.effects.tell_once(StateChanged(verdict))
            self._told_ms = self.sample.mono_ms
            parts.show()
        return verdict

    def _rules(self) -> ClassProtection:
        return self._parts.memory.host.last_word.protection or BEFORE_A_WORD

    async def _sense(self) -> Sample:
        if self._reading is None:
            self._reading = asyncio.ensure_future(asyncio.to_thread(self._parts.senses))
        done, _ = await asyncio.wait((self._reading,), timeout=PATIENCE_S)
        unknown = Sample(mono_ms=self._parts.boottime_ms())
        if not done:
            return unknown  # the thread is left to itself, and no second one is started beside it
        reading, self._reading = self._reading, None
        if (error := reading.exception()) is not None:
            self._parts.alarms.warn(codes.AGENT_FAULT.code, f"sensors: {type(error).__name__}: {error}"[:200])
            return unknown
        return self._local(reading.result())

    def _local(self, sample: Sample) -> Sample:
        """A front on loopback serves this machine alone, and needs no network."""
        if not self._parts.front.is_local:
            return sample
        return replace(sample, absent=sample.absent | {Sensor.NETWORK})

    def _is_news(self, verdict: Verdict) -> bool:
        before = self._parts.memory.host.verdict
        if _spoken(before) != _spoken(verdict):
            return True
        waited = self._told_ms is None or self.sample is None or self.sample.mono_ms - self._told_ms >= WORDS_EVERY_MS
        return before != verdict and waited


def _spoken(verdict: Verdict) -> tuple[object, ...]:
    """All of a verdict but the numbers in its words."""
    said = tuple(reason.partition(":")[0] for reason in verdict.reasons)
    return verdict.state, verdict.yields, verdict.lanes_ppm, verdict.retry_after_ms, said
