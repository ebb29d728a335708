"""Carries out what the heart decides: queues commands in their lanes and runs load, drain and unload.

Each effect begins with a question to the heart (`Began`) and ends with exactly one answer (`Ended`), both durable.
Starts are `starts`; here is everything else a command can do, and keep-alive's watch. When the ledger cannot be written
an outcome is told again and again until it can: nothing is forgotten, and nothing new begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from gridops.base.codes import refusals as codes
from gridops.base.errors import GridopsError, Refusal
from gridops.base.ids import Digest
from gridops.model.action import Drain, Evict, Load, Unload, Warm
from gridops.model.fleet import Runtime
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core import guesses, keepalive, yielding
from gridops_agent.core.events import (
    Act,
    AwaitListed,
    BeatSoon,
    Began,
    CancelTransfer,
    Died,
    Effect,
    Ended,
    Enqueue,
    Event,
    Heard,
    Proved,
    Recall,
    RetryDue,
    StartAgain,
    StartFailed,
    Stuck,
    Warn,
)
from gridops_agent.core.state import Command, Held
from gridops_agent.giveback import GivesBack, Says
from gridops_agent.keep.base import FORCE_STEPS, STOP_STEPS, Proof
from gridops_agent.lanes import Lanes
from gridops_agent.ledger import Unwritable
from gridops_agent.memory import Memory
from gridops_agent.obtaining import Transfers
from gridops_agent.starts import Starts, Tools
from gridops_agent.supervise import tail, trim_log

LOG = logging.getLogger("gridops_agent")
WATCH_S = 0.5
LEDGER_RETRY_S = 2.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who hears what does not concern processes."""

    warn: Callable[[str, str], None]
    beat_soon: Callable[[], None]


class Effects:
    """The hands of one agent. `carry_out` never waits; work goes on in tasks."""

    def __init__(self, memory: Memory, tools: Tools, listeners: Listeners) -> None:
        self._memory = memory
        self._tools = tools
        self._listeners = listeners
        self._starts = Starts(memory, tools, self.tell, self.tell_once)
        self._gives_back = GivesBack(memory, tools, Says(self.tell, self.tell_once, self.in_flight, listeners.warn))
        self._lanes = Lanes()
        self._tasks: set[asyncio.Task[None]] = set()
        self._transfers = Transfers(tools.artifacts, tools.services, tools.http)
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
                    self._transfers.void(body)
                case Warn(code=code, text=text):
                    self._listeners.warn(code, text)
                case BeatSoon():
                    self._listeners.beat_soon()
                case Act():
                    raise AssertionError("an effect that acts is answered to the one who asked")

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
        self._transfers.take_back()
        self._starts.take_back()

    async def leave(self) -> None:
        """Stop working and leave every engine as it is. Open commands are judged when the agent is back."""
        self._tools.artifacts.leave()
        self._transfers.take_back()
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
            if not await self.tell(Began(body, self._objection(command))):
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
                await self.tell(await self._transfers.carry_out(body, load))
            case Evict() as evict:
                await self._evict(body, evict)
            case Warm():
                await self._holding(body, self._starts.start(body))
                if body not in self._memory.host.held:
                    self._tools.doors.close(body)
            case Drain() as drain:
                await self._drain(body, drain)
            case Unload() as unload:
                await self._holding(unload.incarnation, self._unload(body, unload))

    async def _holding(self, residency: Digest, work: Coroutine[Any, Any, None]) -> None:
        self.handled.add(residency)
        try:
            await work
        finally:
            self.handled.discard(residency)

    async def _again(self, body: Digest, work: Callable[[Digest], Coroutine[Any, Any, None]]) -> None:
        """Keep-alive and adoption, in the lanes of the residency."""
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

    async def _evict(self, body: Digest, evict: Evict) -> None:
        name = guesses.named(self._memory.host, evict.files)
        try:
            if name is not None:
                await self._tools.artifacts.away(self._tools.artifacts.delete, name)
        except OSError as error:
            detail = f"{error.filename or 'the cache'} cannot be deleted: {error.strerror}"
            await self.tell(Ended(body, Outcome.FAILED, codes.NOT_A_GUESS.code, detail))
            return
        await self.tell(Ended(body, Outcome.SUCCEEDED))

    async def _drain(self, body: Digest, drain: Drain) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + drain.grace_ms / 1000
        while True:
            held = self._memory.host.held.get(drain.incarnation)
            work = await self.in_flight(held) if held is not None else ""
            if work == "":
                await self.tell(Ended(body, Outcome.SUCCEEDED))
                return
            if loop.time() >= end:
                await self.tell(Ended(body, Outcome.FAILED, codes.DRAIN_TIMEOUT.code, f"{work}; nothing was cut"))
                return
            await asyncio.sleep(_POLL_S)

    async def in_flight(self, held: Held) -> str:
        """What is still being worked on, in words; empty when it is known to be nothing."""
        count = self._tools.front.in_flight[held.body]
        if count:
            return f"{count} requests are in flight at the front"
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
            return "the engine does not say whether it is idle"
        return f"{busy} generations are running by the engine's own count" if busy else ""

    async def _unload(self, body: Digest, unload: Unload) -> None:
        residency = unload.incarnation
        held = self._memory.host.held.get(residency)
        handle = held.handle if held is not None else None
        if held is not None and not unload.force and held.state is not ResidencyState.FAILED:
            work = await self.in_flight(held)
            if work:
                await self.tell(Ended(body, Outcome.FAILED, codes.WORK_IN_FLIGHT.code, f"{work}; nothing was cut"))
                return
        steps = FORCE_STEPS if unload.force else STOP_STEPS
        keepers, releases = self._tools.keepers, self._tools.releases
        if held is not None:
            await releases.before(held, self.tell)
        if handle is not None:
            stopped = await keepers.stop(residency, handle, steps)
        else:
            stopped = await keepers.sweep(residency, held, steps)
        if not stopped.gone:
            doubt = handle is not None and await keepers.prove(residency, handle) is Proof.NOT_OURS
            code = codes.NOT_OURS.code if doubt else codes.RELEASE_STUCK.code
            if held is not None:
                await self.tell(Stuck(residency, code, stopped.detail))
            await self.tell(Ended(body, Outcome.FAILED, code, stopped.detail))
            return
        if handle is not None:
            keepers.forget(handle)
        back, remark = await releases.after(residency)
        if not back:
            await self.tell(Stuck(residency, codes.RELEASE_STUCK.code, remark))
            await self.tell(Ended(body, Outcome.FAILED, codes.RELEASE_STUCK.code, remark))
            return
        await self.tell(Ended(body, Outcome.SUCCEEDED, detail=remark or None))
        self._tools.doors.close(residency)

    async def settle_releases(self) -> None:
        """Open what has given its memory back."""
        await self._tools.releases.settle(self.handled, self.tell_once)

    # --- keep-alive -----------------------------------------------------------------------------------------------

    async def watch(self, went_round: Callable[[], None] = lambda: None) -> None:
        """Look at every process twice a second, for ever."""
        while True:
            went_round()
            try:
                await self.look()
            except GridopsError as error:
                code = codes.LEDGER_UNWRITABLE if isinstance(error, Unwritable) else codes.AGENT_FAULT
                self._listeners.warn(code.code, error.message)
                await asyncio.sleep(LEDGER_RETRY_S)
            await asyncio.sleep(WATCH_S)

    async def look(self) -> None:
        """One look at every residency that nobody is working on."""
        for body in sorted(self._memory.host.held):
            held = self._memory.host.held.get(body)
            if held is None or body in self.handled:
                continue
            if held.handle is not None:
                await self._look_at(held)
                trim_log(self._tools.doors.folder(body) / "log")
                self._give_back(body)
            elif held.state is ResidencyState.OFFLOADED and self._memory.host.verdict.admits:
                await self.tell_once(Recall(body))
            elif keepalive.due(held, self._memory.now_ms()):
                await self.tell_once(RetryDue(body))

    def _give_back(self, body: Digest) -> None:
        host = self._memory.host
        held = host.held.get(body)
        if held is not None and body not in self.handled and yielding.gives_back(host, held):
            self._spawn(self._again(body, self._gives_back))

    async def _look_at(self, held: Held) -> None:
        assert held.handle is not None
        keepers, body = self._tools.keepers, held.body
        known = held.code == codes.NOT_OURS.code
        proof = await (keepers.prove if known else keepers.judge)(body, held.handle)
        match proof:
            case Proof.OURS:
                if known:
                    await self.tell_once(Proved(body))
            case Proof.NOT_OURS:
                await self.tell_once(Stuck(body, codes.NOT_OURS.code, keepers.doubt(held.handle)))
            case Proof.GONE:
                # What the dead leader started may still hold memory; it carries our cookie, so it can be proved.
                swept = await keepers.sweep(body, held)
                if not swept.gone:
                    await self.tell_once(Stuck(body, codes.RELEASE_STUCK.code, swept.detail))
                    return
                last = tail(self._tools.doors.folder(body) / "log", 1)
                why = "; ".join((keepers.ending(held.handle), *last))
                try:
                    await self.tell_once(Died(body, why, self._tools.releases.seen(body)))
                except Unwritable as error:
                    raise Unwritable(
                        f"{held.replica} is dead ({why}), and {error.message}", hints=error.hints
                    ) from error
                keepers.forget(held.handle)
