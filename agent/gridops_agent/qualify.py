"""`gridops-agent qualify`: the whole life of one engine with one model, run for real on this host, and measured.

Called by the command line while no agent runs, since it takes the place of what runs here. It uses the adapters and the
keepers of the agent and nothing of its own; whatever happens, the engine is ended and proved gone before it returns.
What it found is signed by the host, whether it passed or not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from gridops.base import limits
from gridops.base.errors import Failed, GridopsError, Refusal
from gridops.base.ids import Digest
from gridops.base.record import digest_of
from gridops.base.units import render_bytes, render_ms
from gridops.protocol.qualification import DeviceReading, Found, Step
from gridops_agent.artifacts import sanity
from gridops_agent.core.state import Handle
from gridops_agent.engines.base import Adapter, Door, Engine, EngineSilent, Service, Start
from gridops_agent.keep.base import Keeper, Proof, Spawn
from gridops_agent.qualify_memory import Memories

PATIENCE_S = 900.0
_POLL_S = 0.1
_ASK = aiohttp.ClientTimeout(total=300)


@dataclass(frozen=True, slots=True)
class Bench:
    """What is qualified, and with what."""

    engine: Engine | None
    service: Service | None
    """One of the two: a program that is started, or a service that a model is brought into."""
    keeper: Keeper
    start: Start
    door: Door
    spawn: Spawn
    memories: Memories
    refused: str | None = None
    """Why it cannot be started at all."""
    build: str = ""
    """Of a program: what is started, in words that change with it."""
    settle_ms: int = limits.QUALIFY_SETTLE_MS

    @property
    def adapter(self) -> Adapter:
        found = self.engine or self.service
        assert found is not None
        return found


@dataclass(slots=True)
class Outcome:
    """What was found."""

    steps: list[Found] = field(default_factory=list)
    readings: tuple[DeviceReading, ...] = ()
    host_bytes: int = 0
    version: str = "unknown"
    identity: str = ""
    refused: str | None = None

    @property
    def passed(self) -> bool:
        return len(self.steps) == len(Step) and all(step.passed for step in self.steps)


class _Stop(Failed):
    """A step did not pass."""


class Run:
    """One qualification."""

    def __init__(self, bench: Bench, http: aiohttp.ClientSession, say: Callable[[Found], None]) -> None:
        self._bench = bench
        self._http = http
        self._say = say
        self._handle: Handle | None = None
        self.outcome = Outcome()

    @property
    def _body(self) -> Digest:
        return self._bench.spawn.body

    async def all(self) -> Outcome:
        """Every step in order, up to the first that fails; the engine is gone afterwards or said to be left."""
        ways: dict[Step, Callable[[], Awaitable[str]]] = {
            Step.INVENTORY: self._inventory,
            Step.IDENTITY: self._identity,
            Step.WARM: self._warm,
            Step.OWNERSHIP: self._ownership,
            Step.READINESS: self._readiness,
            Step.INFERENCE: self._inference,
            Step.ACTIVITY: self._activity,
            Step.MEMORY: self._memory,
            Step.DRAIN: self._drain,
        }
        try:
            for step, way in ways.items():
                if not await self._try(step, way):
                    break
        finally:
            if self._handle is not None:
                await self._try(Step.STOP, self._stop)
        return self.outcome

    async def _try(self, step: Step, way: Callable[[], Awaitable[str]]) -> bool:
        began = time.monotonic()
        try:
            passed, detail = True, await way()
        except (GridopsError, EngineSilent, TimeoutError) as error:
            passed, detail = False, getattr(error, "message", "") or f"{type(error).__name__}"
        found = Found(step=step, passed=passed, took_ms=round((time.monotonic() - began) * 1_000), detail=detail[:500])
        self.outcome.steps.append(found)
        self._say(found)
        return passed

    # --- the steps ------------------------------------------------------------------------------------------------

    async def _inventory(self) -> str:
        adapter, launch = self._bench.adapter, self._bench.start.launch
        await self._bench.keeper.refresh()
        kept = [r for r in self._bench.keeper.runtimes() if r.engine == launch.engine]
        there = sorted({r.backend for r in (*kept, *(adapter.runtimes() if not kept else ()))})
        if launch.backend not in there:
            raise _Stop(f"{launch.engine} is here for {', '.join(there) or 'nothing'}, not for {launch.backend}")
        words = adapter.problem() or self._bench.refused
        if words is not None:
            raise _Stop(words)
        return f"{launch.engine} for {launch.backend}"

    async def _identity(self) -> str:
        service, start = self._bench.service, self._bench.start
        if service is not None:
            self.outcome.version = await service.alive(self._http) or "unknown"
            self.outcome.identity = await service.verify(self._http, start)
        else:
            # Engines trust what a file says of itself; the agent reads it first, and so is it here.
            await asyncio.to_thread(sanity.check, start.launch.artifact, start.model)
            self.outcome.version = self._bench.build or "unknown"
            self.outcome.identity = digest_of(start.launch.artifact)
        return self.outcome.identity

    async def _warm(self) -> str:
        async def publish(handle: Handle) -> None:
            self._handle = handle

        self._handle = await self._bench.keeper.start(self._bench.spawn, publish)
        return f"pid {self._handle.pid}, port {self._handle.port}, kept as {self._handle.keeper}"

    async def _ownership(self) -> str:
        assert self._handle is not None
        proof = await self._bench.keeper.judge(self._body, self._handle)
        if proof is not Proof.OURS:
            raise _Stop(f"it cannot be proved to be ours: {proof.value}")
        return "proved"

    async def _readiness(self) -> str:
        assert self._handle is not None
        adapter, door = self._bench.adapter, self._bench.door
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not await adapter.listed(self._http, door):
            if await self._bench.keeper.judge(self._body, self._handle) is Proof.GONE:
                raise _Stop(f"it ended before it was ready: {self._bench.keeper.ending(self._handle)}")
            if loop.time() - began > PATIENCE_S:
                raise _Stop(f"not ready within {render_ms(round(PATIENCE_S * 1000))}")
            await asyncio.sleep(_POLL_S)
        if await adapter.listed(self._http, replace(door, alias="gridops-nothing-like-it", launch=None)):
            raise _Stop("it lists a model that nobody started")
        engine = self._bench.engine
        differs = await engine.contradiction(self._http, door) if engine is not None else None
        if differs is not None:
            raise _Stop(f"not as launched: {differs}")
        return f"lists {door.alias}"

    async def _inference(self) -> str:
        if not self._bench.adapter.abilities.modalities & {"text", "embedding"}:
            return "run once while it was brought"
        told = brought(await self._ask(8), self._embeds)
        if told is None:
            raise _Stop("it answered with nothing")
        return told

    @property
    def _embeds(self) -> bool:
        args = {arg.name: arg.value for arg in self._bench.start.launch.args}
        return args.get("embeddings") == "true" or args.get("runner") == "pooling"

    async def _ask(self, tokens: int) -> Any:
        """One real request, and what came back."""
        door = self._bench.door
        asked: dict[str, object] = {"model": door.alias}
        path = "embeddings" if self._embeds else "chat/completions"
        if self._embeds:
            asked["input"] = "a sentence to be measured"
        else:
            messages = [{"role": "user", "content": "Write a long story."}]
            asked |= {"messages": messages, "max_tokens": tokens, "ignore_eos": True}
        try:
            async with self._http.post(
                f"{door.url}/v1/{path}", json=asked, headers=door.headers, timeout=_ASK
            ) as answer:
                said = await answer.json()
                if answer.status != 200:
                    raise _Stop(f"HTTP {answer.status}: {str(said)[:200]}")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _Stop(f"no answer: {type(error).__name__}") from error
        return said

    async def _activity(self) -> str:
        adapter = self._bench.adapter
        if not adapter.abilities.counts_work:
            return "it does not say what it works on: only the front counts"
        await self._idle()
        asked = asyncio.ensure_future(self._ask(max(64, self._bench.start.launch.context // 2)))
        try:
            while not asked.done():
                if await adapter.busy(self._http, self._bench.door):
                    return "one request was counted while it ran"
                await asyncio.sleep(0.005)
            raise _Stop("a request ran and was never counted")
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    async def _memory(self) -> str:
        assert self._handle is not None
        await self._idle()
        await asyncio.sleep(self._bench.settle_ms / 1_000)
        handle, bench = self._handle, self._bench

        async def pids() -> tuple[int, ...]:
            return await bench.keeper.pids(self._body, handle)

        # One that does not count its work is idle all the same: nobody but us asks it anything.
        busy = await bench.adapter.busy(self._http, bench.door) if bench.adapter.abilities.counts_work else 0
        try:
            self.outcome.readings, self.outcome.host_bytes, many = await bench.memories.weighed(pids, busy)
        except Refusal as refusal:
            self.outcome.refused = refusal.message
            raise
        each = ", ".join(f"{r.device} {render_bytes(r.own_bytes)}" for r in self.outcome.readings)
        return f"{each}, host {render_bytes(self.outcome.host_bytes)}, over {many} processes"

    async def _idle(self) -> None:
        end = asyncio.get_running_loop().time() + 60
        while await self._bench.adapter.busy(self._http, self._bench.door):
            if asyncio.get_running_loop().time() > end:
                raise _Stop("it does not become idle")
            await asyncio.sleep(_POLL_S)

    async def _drain(self) -> str:
        await self._idle()
        return "nothing is in flight"

    async def _stop(self) -> str:
        assert self._handle is not None
        stopped = await self._bench.keeper.stop(self._body, self._handle)
        if not stopped.gone:
            raise _Stop(stopped.detail)
        if await self._bench.adapter.listed(self._http, self._bench.door):
            raise _Stop("it is gone, and its port still lists the model")
        return "gone, and proved to be"


def brought(said: Any, embeds: bool) -> str | None:
    """How much an answer holds, as the engine itself counts it; None where it holds nothing."""
    rows = said.get("data" if embeds else "choices") if isinstance(said, dict) else None
    first = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    if embeds:
        vector = first.get("embedding")
        return f"{len(vector)} numbers" if isinstance(vector, list) and vector else None
    usage = said.get("usage") if isinstance(said, dict) else None
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if type(tokens) is int and tokens > 0:
        return f"{tokens} tokens"
    return "an answer, and it does not say of how many tokens" if first else None
