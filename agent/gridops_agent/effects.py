"""Carries out what the heart decides: each effect in a task of its own, queued in its lanes, and never lost.

The work itself is done by `loads`, `starts`, `stops` and `giveback`; here is the order. Each command begins with a
question to the heart (`Began`) and ends with exactly one answer (`Ended`), both durable. When the ledger cannot be
written an outcome is told again and again until it can: nothing is forgotten, and nothing new begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from gridops.base.codes import host as codes
from gridops.base.errors import Refusal
from gridops.base.ids import Digest
from gridops.model.action import Drain, Evict, Load, Unload, Warm
from gridops.model.fleet import Runtime
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent import admission
from gridops_agent.core.events import (
    Act,
    AwaitListed,
    BeatSoon,
    Began,
    CancelTransfer,
    Effect,
    Ended,
    Enqueue,
    Event,
    Heard,
    StartAgain,
    StartFailed,
    Warn,
)
from gridops_agent.core.state import Command
from gridops_agent.giveback import give_back
from gridops_agent.lanes import Lanes
from gridops_agent.ledger import Unwritable
from gridops_agent.loads import Loads
from gridops_agent.memory import Memory
from gridops_agent.starts import Starts
from gridops_agent.stops import Stops
from gridops_agent.tools import Alerts, Says, Tools

LOG = logging.getLogger("gridops_agent")
LEDGER_RETRY_S = 2.0

Work = Callable[[Digest], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who hears what does not concern processes."""

    warn: Alerts
    beat_soon: Callable[[], None]


class Effects:
    """What one agent carries out. `carry_out` never waits; work goes on in tasks."""

    def __init__(self, memory: Memory, tools: Tools, listeners: Listeners) -> None:
        self._memory = memory
        self._tools = tools
        self._listeners = listeners
        self._says = Says(self.tell, self.tell_once, listeners.warn)
        self.stops = Stops(memory, tools, self.tell)
        self._starts = Starts(memory, tools, self._says, self.stops)
        self._loads = Loads(memory, tools, self.tell)
        self._lanes = Lanes()
        self._tasks: set[asyncio.Task[None]] = set()
        self.handled: set[Digest] = set()
        """Residencies whose process is being started or stopped right now: the watch leaves them alone."""

    # --- telling the heart ----------------------------------------------------------------------------------------

    async def tell(self, event: Event) -> bool:
        """Tell the heart, for as long as it takes the ledger to be writable. True when the effect may go on."""
        while True:
            try:
                return await self.tell_once(event)
            except Unwritable as error:
                self._listeners.warn(codes.LEDGER_UNWRITABLE.code, error.message)
                await asyncio.sleep(LEDGER_RETRY_S)

    async def tell_once(self, event: Event) -> bool:
        """Tell the heart or raise Unwritable: for what must not happen if it cannot be remembered.

        Raises Refusal for a directive that the heart refused as a whole, so that it counts as bad talk and its alarm
        ends with the next good one.
        """
        word = self._memory.host.last_word
        effects = await self._memory.take(event)
        refused = next((e for e in effects if isinstance(e, Warn)), None)
        if isinstance(event, Heard) and refused is not None and self._memory.host.last_word is word:
            raise Refusal(refused.code, refused.text)
        self.carry_out(tuple(e for e in effects if not isinstance(e, Act)))
        return any(isinstance(e, Act) for e in effects)

    def carry_out(self, effects: tuple[Effect, ...]) -> None:
        """Start what the heart decided."""
        for effect in effects:
            match effect:
                case Enqueue(body=body):
                    self._spawn(self._command(body))
                case StartAgain(body=body):
                    self._spawn(self._again(body, self._starts.start))
                case AwaitListed(body=body):
                    self._spawn(self._again(body, self._starts.go_on))
                case CancelTransfer(body=body):
                    self._loads.void(body)
                case Warn(code=code, text=text):
                    self._listeners.warn(code, text)
                case BeatSoon():
                    self._listeners.beat_soon()
                case Act():
                    raise AssertionError("an effect that acts is answered to the one who asked")

    def give_back(self, body: Digest) -> None:
        """Offload a residency for this host's owner; the watch has seen that it is time."""
        self._spawn(self._again(body, lambda body: give_back(body, self._memory, self.stops, self._says)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            LOG.error("an effect ended with a fault", exc_info=task.exception())
            self._listeners.warn(codes.AGENT_FAULT.code, f"{type(task.exception()).__name__} in an effect; see the log")

    async def settled(self) -> None:
        """Wait until nothing is being carried out."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def take_back(self) -> None:
        """The host takes no work: whatever is being brought or started is taken back. Told with every look."""
        self._loads.take_back()
        self._starts.take_back()

    async def leave(self) -> None:
        """Stop working and leave every engine as it is. Open commands are judged when the agent is back."""
        self._tools.artifacts.leave()
        self._loads.take_back()
        self._starts.leave()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- commands -------------------------------------------------------------------------------------------------

    async def _command(self, body: Digest) -> None:
        command = self._memory.host.commands.get(body)
        if command is None:
            return
        action = command.body.action
        async with self._lanes.of(self._memory.host, body, action):
            no = self._objection(command) or await admission.objection(self._memory.host, self._tools, action)
            if not await self.tell(Began(body, no)):
                return
            try:
                await self._act(body, command)
            except Exception as error:
                # Whether it had an effect is unknown, and unknown is an outcome; the capacity stays counted.
                LOG.exception("command %s met a fault", body)
                if body in self._memory.host.commands:
                    detail = f"{type(error).__name__}: {error}"
                    await self.tell(Ended(body, Outcome.UNKNOWN, codes.AGENT_FAULT.code, detail[:300]))

    def _objection(self, command: Command) -> tuple[str, str] | None:
        """What only the engine's adapter can object to."""
        action = command.body.action
        if not isinstance(action, Warm):
            return None
        adapter = self._tools.adapter(action.launch.engine)
        wanted = Runtime(engine=action.launch.engine, backend=action.launch.backend)
        if adapter is None or wanted not in self._tools.runtimes():
            return codes.NO_RUNTIME.code, f"this host has no runtime of {wanted.engine} for {wanted.backend}"
        words = adapter.objection(action.launch)
        return (codes.BAD_ARGUMENT.code, words) if words is not None else None

    async def _act(self, body: Digest, command: Command) -> None:
        match command.body.action:
            case Load() as load:
                await self._loads.load(body, load)
            case Evict() as evict:
                await self._loads.evict(body, evict)
            case Warm():
                await self._holding(body, self._starts.start(body))
                if body not in self._memory.host.held:
                    self._tools.doors.close(body)
            case Drain() as drain:
                await self.stops.drain(body, drain)
            case Unload() as unload:
                await self._holding(unload.incarnation, self.stops.unload(body, unload))

    async def _holding(self, residency: Digest, work: Coroutine[Any, Any, None]) -> None:
        self.handled.add(residency)
        try:
            await work
        finally:
            self.handled.discard(residency)

    async def _again(self, body: Digest, work: Work) -> None:
        """Keep-alive, adoption and giving back: no command asks for it, and it has the lanes of the residency too."""
        held = self._memory.host.held.get(body)
        if held is None:
            return
        self.handled.add(body)
        try:
            async with self._lanes.residency(body, held.warm.devices):
                await work(body)
        except Exception as error:
            LOG.exception("keeping %s alive met a fault", body)
            left = self._memory.host.held.get(body)
            if left is None or left.handle is not None or left.state is not ResidencyState.WARMING:
                raise
            # Nothing was started: it counts as one more start that failed. Forgotten, it would wait for ever.
            await self.tell(StartFailed(body, codes.AGENT_FAULT.code, f"{type(error).__name__}: {error}"[:300]))
        finally:
            self.handled.discard(body)

    async def settle_releases(self) -> None:
        """Open what has given its memory back."""
        await self._tools.releases.settle(self.handled, self.tell_once)
