"""Ends engines: waits until nothing is in flight, stops, and proves that their memory is back.

Called with the residency's lanes held, by `effects` for drains and unloads, by `starts` for a start that failed, by
`giveback` for an owner. What cannot be proved ours is never signalled (the keepers see to that), nor what a person took
back a moment ago; what is in flight is cut only by an approved force, and an engine that is not wholly gone keeps its
memory counted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gridops.base.codes import host as codes
from gridops.base.ids import Digest
from gridops.base.units import counted
from gridops.model.action import Drain, Unload
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core.events import Ended, GivenBack, Stuck
from gridops_agent.core.state import Handle, Held
from gridops_agent.keep.base import FORCE_STEPS, HUNG_STEPS, STOP_STEPS, Proof, Steps
from gridops_agent.memory import Memory
from gridops_agent.tools import Tell, Tools

_POLL_S = 0.1
UNTOLD = "the engine does not say whether it is idle"
HUNG_S = 5.0
"""After so long without an answer, and with nothing of the front's with it, an engine hangs (`Stops.hangs`)."""
_IN_A_ROW_S = 30.0
"""Two questions that are further apart say nothing of the time between them."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of an engine after a stop. Without a code nothing is, and its memory is back."""

    code: str | None
    words: str


class Stops:
    """Drains and stops of one agent."""

    def __init__(self, memory: Memory, tools: Tools, tell: Tell) -> None:
        self._memory = memory
        self._tools = tools
        self._tell = tell
        self._untold: dict[Digest, tuple[float, float]] = {}
        """Engines that were asked and did not say whether they are idle: since when, and when last."""

    async def in_flight(self, held: Held) -> str:
        """What is still being worked on, in words; empty when it is known to be nothing."""
        work = await self._work(held)
        if work == UNTOLD:
            now = asyncio.get_running_loop().time()
            since, last = self._untold.get(held.body, (now, now))
            self._untold[held.body] = (since if now - last < _IN_A_ROW_S else now, now)
        else:
            self._untold.pop(held.body, None)
        return work

    async def _work(self, held: Held) -> str:
        count = self._tools.front.in_flight[held.body]
        if count:
            return f"{counted(count, 'request')} in flight at the front"
        door = self._tools.doors.door(held)
        if door is None or held.handle is None:
            return ""
        if await self._tools.keepers.prove(held.body, held.handle) is Proof.GONE:
            return ""
        adapter = self._tools.adapter(held.warm.launch.engine)
        if adapter is not None and not adapter.abilities.counts_work:
            return ""  # the front's own count is all there is
        busy = await adapter.busy(self._tools.http, door) if adapter is not None else None
        if busy is None:
            return UNTOLD
        return f"{busy} generations are running by the engine's own count" if busy else ""

    def hangs(self, held: Held) -> bool:
        """Whether an engine works for nobody, and has said nothing about itself for so long that it never may again.

        Only the front's own count can tell, so only of an engine that nobody else can ask: the agent chose its port and
        made its key. Any other may be at work for callers that no count here knows. For an owner who wants his
        memory; a command of the controller takes what is untold for work, and has its approved force.
        """
        since, last = self._untold.get(held.body, (0.0, 0.0))
        if last - since < HUNG_S:
            return False
        return self._alone(held) and not self._tools.front.in_flight[held.body]

    def _alone(self, held: Held) -> bool:
        """Whether the front is the only way to an engine."""
        adapter, handle = self._tools.adapter(held.warm.launch.engine), held.handle
        if adapter is None or handle is None or handle.taken or not handle.key_file:
            return False
        return adapter.abilities.keyed and self._tools.keepers.chose_port(held.warm.launch, handle)

    async def told(self, held: Held) -> str:
        """`in_flight`, once an engine that says nothing at first has said something or is known to hang."""
        while True:
            work = await self.in_flight(held)
            if self.hangs(held):
                return ""
            if work != UNTOLD or not self._alone(held):
                return work
            await asyncio.sleep(_POLL_S)

    async def idle(self, held: Held) -> Steps:
        """Wait until nothing is in flight, however long that takes; answers how it is to be stopped then."""
        while True:
            if not await self.in_flight(held):
                return STOP_STEPS
            if self.hangs(held):
                return HUNG_STEPS
            await asyncio.sleep(_POLL_S)

    async def drain(self, body: Digest, drain: Drain) -> None:
        """Wait for work in flight until the grace ends; then it is left alone, and the receipt says what it was."""
        loop = asyncio.get_running_loop()
        end = loop.time() + drain.grace_ms / 1000
        while True:
            held = self._memory.host.held.get(drain.incarnation)
            work = await self.in_flight(held) if held is not None else ""
            if work == "":
                await self._tell(Ended(body, Outcome.SUCCEEDED))
                return
            if loop.time() >= end:
                await self._tell(Ended(body, Outcome.FAILED, codes.DRAIN_TIMEOUT.code, f"{work}; nothing was cut"))
                return
            await asyncio.sleep(_POLL_S)

    async def unload(self, body: Digest, unload: Unload) -> None:
        """End a residency's engine, and whatever carries its body though no handle names it."""
        residency = unload.incarnation
        held = self._memory.host.held.get(residency)
        if held is not None and not unload.force and held.state is not ResidencyState.FAILED:
            work = await self.in_flight(held)
            if work:
                await self._tell(Ended(body, Outcome.FAILED, codes.WORK_IN_FLIGHT.code, f"{work}; nothing was cut"))
                return
        steps = FORCE_STEPS if unload.force else STOP_STEPS
        left = await self.end_all(residency, held, steps)
        if left.code is not None:
            if held is not None:
                await self._tell(Stuck(residency, left.code, left.words))
            await self._tell(Ended(body, Outcome.FAILED, left.code, left.words))
            return
        await self._tell(Ended(body, Outcome.SUCCEEDED, detail=left.words or None))
        self._tools.doors.close(residency)

    async def end_all(self, residency: Digest, held: Held | None, steps: Steps = STOP_STEPS) -> Left:
        """End what a residency's handle names, or without one whatever carries its body."""
        if held is not None and held.handle is not None:
            return await self.end(held, held.handle, steps)
        return await self._sweep(residency, held, steps)

    async def end(self, held: Held, handle: Handle, steps: Steps = STOP_STEPS) -> Left:
        """Stop the engine of a handle, wait for its memory, and say what is left. Tells the heart what it owes."""
        keepers, releases = self._tools.keepers, self._tools.releases
        if self._tools.hands.is_theirs(held.body):
            await self._tell(GivenBack(held.body))
            return Left(codes.GIVEN_BACK.code, "given back at the host: it runs on")
        await releases.before(held, self._tell)
        self._untold.pop(held.body, None)
        stopped = await keepers.stop(held.body, handle, steps)
        if not stopped.gone:
            doubt = await keepers.prove(held.body, handle) is Proof.NOT_OURS
            return Left(codes.NOT_OURS.code if doubt else codes.RELEASE_STUCK.code, stopped.detail)
        keepers.forget(handle)
        return await self._memory_back(held.body)

    async def _sweep(self, residency: Digest, held: Held | None, steps: Steps) -> Left:
        swept = await self._tools.keepers.sweep(residency, held, steps)
        if not swept.gone:
            return Left(codes.RELEASE_STUCK.code, swept.detail)
        return await self._memory_back(residency)

    async def _memory_back(self, residency: Digest) -> Left:
        back, remark = await self._tools.releases.after(residency)
        return Left(None if back else codes.RELEASE_STUCK.code, remark)
