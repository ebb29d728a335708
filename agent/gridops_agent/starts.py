"""Starts an engine for a residency: prove the artifact, take a port, spawn, wait until the model is listed.

Called with the residency's lanes held, for a first start and for every restart alike. Before a process exists its port
is durable, and right after it exists its handle is; a process whose handle cannot be recorded is ended again. A start
that does not become ready is stopped and reported once nothing of it is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event as Flag

import aiohttp

from gridops.base.codes import devices as device_codes
from gridops.base.codes import host as codes
from gridops.base.errors import EdgeError, Refusal
from gridops.base.ids import Digest
from gridops.base.units import render_ms
from gridops.disk.atomic import write_atomic
from gridops.model.snapshot import ResidencyState
from gridops_agent.artifacts import TakenBack
from gridops_agent.core import local
from gridops_agent.core.events import Listed, Placed, Spawned, StartFailed, Stuck
from gridops_agent.core.state import Handle, Held, drop
from gridops_agent.engines.base import Door, Engine, EngineSilent, Start
from gridops_agent.keep.base import Keeper, Place, PortLost, Proof, Publish, Spawn
from gridops_agent.ledger import Unwritable
from gridops_agent.memory import Memory
from gridops_agent.stops import Stops
from gridops_agent.supervise import tail
from gridops_agent.tools import Says, Tools

WARM_FLOOR_MS = 60_000
WARM_FACTOR = 6
PORT_TRIES = 3
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class _Ended:
    """A start that ended by itself: why, and whether another process has its port."""

    why: str
    port_lost: bool
    code: str = codes.START_FAILED.code


class Starts:
    """Starts and adoptions of one agent."""

    def __init__(self, memory: Memory, tools: Tools, says: Says, stops: Stops) -> None:
        self._memory = memory
        self._tools = tools
        self._tell = says.tell
        self._tell_once = says.tell_once
        self._stops = stops
        self._taken: set[int] = set()
        self._leaving = False
        self._reading: dict[Digest, Flag] = {}
        """Starts that read model files now: set, the reading stops."""

    def leave(self) -> None:
        """Stop reading model files: the agent is leaving."""
        self._leaving = True
        self.take_back()

    def take_back(self) -> None:
        """Stop reading model files: the host takes no work. Processes that come up look at its state themselves."""
        for flag in self._reading.values():
            flag.set()

    async def start(self, body: Digest) -> None:
        """Start the residency's process and wait until it is ready, or until nothing of it is left."""
        held = self._memory.host.held.get(body)
        if held is None or held.handle is not None or held.state is not ResidencyState.WARMING:
            return
        # One body has at most one living process: nothing that carries its cookie may be left from before.
        swept = await self._tools.keepers.sweep(body, held)
        if not swept.gone:
            await self._tell(Stuck(body, codes.RELEASE_STUCK.code, swept.detail))
            return
        no = await self._not_now(held)
        if no is not None:
            await self._tell(no)
            return
        try:
            self._reading[body] = Flag()
            failure = await self._try(held) if not self._leaving else None
        except Refusal as refusal:
            words = "; ".join((refusal.message, *refusal.evidence))
            failure = StartFailed(body, refusal.code, words)
        except EdgeError as error:
            failure = StartFailed(body, codes.START_FAILED.code, error.message)
        except TakenBack:
            if self._leaving:  # what is open is judged when it is back
                return
            failure = StartFailed(body, codes.HOST_STATE.code, self._closed() or "this host took no work for a moment")
        finally:
            del self._reading[body]
        if failure is not None:
            await self._tell(failure)

    async def _not_now(self, held: Held) -> StartFailed | Stuck | None:
        """Memory that must come back first, and for a command whether it still fits by a look of this moment: others
        may have come while it waited for its lanes."""
        owed = await self._tools.releases.gate(held)
        first = held.body in self._memory.host.commands
        if owed:
            return (StartFailed if first else Stuck)(held.body, codes.RELEASE_STUCK.code, owed)
        if not first:
            return None
        with contextlib.suppress(Unwritable):
            await self._tools.measure()
        host = self._memory.host
        no = local.room(replace(host, held=drop(host.held, held.body)), held.warm)
        return StartFailed(held.body, *no) if no is not None else None

    async def go_on(self, body: Digest) -> None:
        """Wait for a process that an earlier run of the agent started, or that is proved again."""
        held = self._memory.host.held.get(body)
        if held is None or held.handle is None:
            return
        guard = await asyncio.to_thread(self._guard_again, held)
        ended = await self._until_listed(held, held.handle, guard)
        if ended is not None:
            await self._tell(StartFailed(body, ended.code, ended.why))

    def _closed(self) -> str:
        """Why this host takes no work now; empty when it does. Its own word outranks every start."""
        host = self._memory.host
        return "" if host.verdict.admits else f"taken back: {'; '.join((f'this host is {host.state}', *host.reasons))}"

    async def _try(self, held: Held) -> StartFailed | None:
        launch = held.warm.launch
        keeper, model = self._tools.keepers.of_launch(launch), Path()
        place = keeper.place(launch)
        if place is None or place.weights:
            model = await self._tools.artifacts.away(
                self._tools.artifacts.locate, launch.artifact, self._reading[held.body]
            )
            if (program := self._tools.engines.get(launch.engine)) is not None:  # a service is nobody's to hand over
                there = await self._tools.hands.match(held, model, self._tools.http, program)
                if there is not None:
                    return await self._adopt(held, there)
        if place is not None:
            return await self._try_at(held, keeper, place, model)
        guard = await asyncio.to_thread(self._guard, held, model)
        engine = self._tools.engines[launch.engine]
        key_file = await asyncio.to_thread(self._tools.doors.key_file, held.body)
        why = "no port was tried"
        for _ in range(PORT_TRIES):
            if closed := self._closed():
                return StartFailed(held.body, codes.HOST_STATE.code, closed)
            with self._port(held) as port:
                start = self._start(held, model, port, key_file)
                inside = keeper.inside(start)
                spawn = Spawn(
                    body=held.body,
                    argv=await asyncio.to_thread(engine.command, inside),
                    environment=engine.environment(inside),
                    folder=self._tools.doors.folder(held.body),
                    port=port,
                    key_file=key_file,
                    begin=start,
                    known=frozenset(self._memory.host.held),
                    companions=engine.companions(),
                )
                await self._tell_once(Placed(held.body, port))
                try:
                    handle = await keeper.start(spawn, self._publish(held.body))
                except PortLost as lost:
                    why = lost.message
                    continue
            ended = await self._until_listed(held, handle, guard)
            if ended is None:
                return None
            why = ended.why
            if not ended.port_lost:
                return StartFailed(held.body, ended.code, why)
        return StartFailed(held.body, codes.PORT_TAKEN.code, f"the port was taken each time; {why}")

    async def _adopt(self, held: Held, there: Handle) -> StartFailed | None:
        """A person handed over exactly this while it runs: it is ours from here on, and nothing is restarted."""
        await self._tell_once(Placed(held.body, there.port))
        await self._tell_once(Spawned(held.body, there))
        ended = await self._until_listed(held, there)
        return StartFailed(held.body, ended.code, ended.why) if ended is not None else None

    async def _try_at(self, held: Held, keeper: Keeper, place: Place, model: Path) -> StartFailed | None:
        """The same for what a person set up: its port and its key are given, and no other port would do."""
        if closed := self._closed():
            return StartFailed(held.body, codes.HOST_STATE.code, closed)
        key_file = Path(place.key_file)
        spawn = Spawn(
            body=held.body,
            argv=(),
            environment={},
            folder=self._tools.doors.folder(held.body),
            port=place.port,
            key_file=key_file,
            begin=self._start(held, model, place.port, key_file),
            known=frozenset(self._memory.host.held),
        )
        await self._tell_once(Placed(held.body, place.port))
        guard = await asyncio.to_thread(self._guard, held, model)
        handle = await keeper.start(spawn, self._publish(held.body))
        ended = await self._until_listed(held, handle, guard)
        return StartFailed(held.body, ended.code, ended.why) if ended is not None else None

    def _start(self, held: Held, model: Path, port: int, key_file: Path) -> Start:
        measured = {d.id: d.uuid for d in self._memory.host.measured}
        gone = sorted(set(held.warm.devices) - measured.keys())
        if gone:  # an engine that is given fewer cards than were planned would start on what is another's
            raise Refusal(device_codes.DEVICE_LOST.code, f"this host has no {gone[0]} now")
        return Start(
            launch=held.warm.launch,
            model=model,
            port=port,
            key_file=key_file,
            gpus=tuple(uuid for device in held.warm.devices if (uuid := measured.get(device))),
            shares=held.warm.shares or (),
        )

    def _guard(self, held: Held, model: Path) -> Callable[[], str]:
        """Says later what of a start's files is not what was proved any more. Without files of ours: nothing.

        Where they lie is noted beside the engine's log, so that an agent that comes back in the middle asks the same.
        """
        note = self._model_note(held)
        if not model.parts:
            note.unlink(missing_ok=True)
            return lambda: ""
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(note, os.fsencode(model))
        return self._tools.artifacts.finder.guard(held.warm.launch.artifact, model)

    def _guard_again(self, held: Held) -> Callable[[], str]:
        """The same for a start that an earlier run of the agent began. What was ready once has read its files."""
        if held.handle is None or held.handle.settled or held.handle.taken:
            return lambda: ""
        try:
            model = Path(os.fsdecode(self._model_note(held).read_bytes()))
        except OSError:
            return lambda: ""
        return self._tools.artifacts.finder.guard(held.warm.launch.artifact, model)

    def _model_note(self, held: Held) -> Path:
        return self._tools.doors.folder(held.body) / "model"

    def _publish(self, body: Digest) -> Publish:
        async def publish(handle: Handle) -> None:
            await self._tell_once(Spawned(body, handle))

        return publish

    async def _until_listed(self, held: Held, handle: Handle, guard: Callable[[], str] = lambda: "") -> _Ended | None:
        """None when it is ready, or when what lives cannot be judged any more (already told). `guard` says in words
        what of its files is not what was proved before it read them."""
        body, loop = held.body, asyncio.get_running_loop()
        patience_ms = max(WARM_FLOOR_MS, WARM_FACTOR * held.warm.warm_ms)
        end = loop.time() + patience_ms / 1000
        name, door = held.warm.launch.engine, self._door(held, handle)
        adapter, engine = self._tools.adapter(name), self._tools.engines.get(name)
        while True:
            proof = await self._tools.keepers.judge(body, handle)
            if proof is Proof.NOT_OURS:
                await self._tell(Stuck(body, codes.NOT_OURS.code, self._tools.keepers.doubt(handle)))
                return None
            if proof is Proof.GONE:
                return await self._after_end(held, handle, self._tools.keepers.ending(handle))
            listed = adapter is not None and await adapter.listed(self._tools.http, door)
            differs = await _differs(engine, self._tools.http, door) if listed else None
            differs = guard() if differs == "" else differs
            if differs:
                return await self._after_end(held, handle, f"not as launched: {differs}")
            # Only what is still alive after it answered, and listens itself, is what answered.
            if differs == "" and not await self._tools.keepers.answers(body, handle):
                return await self._after_end(held, handle, f"another process answers at port {handle.port}")
            if differs == "" and await self._tools.keepers.judge(body, handle) is Proof.OURS:
                await self._tell(Listed(body, self._tools.keepers.settle(handle)))
                return None
            if closed := self._closed():
                ended = await self._after_end(held, handle, closed)
                return None if ended is None else replace(ended, code=codes.HOST_STATE.code, port_lost=False)
            if loop.time() >= end:
                return await self._after_end(held, handle, f"not ready within {render_ms(patience_ms)}")
            await asyncio.sleep(_POLL_S)

    def _door(self, held: Held, handle: Handle) -> Door:
        door = self._tools.doors.door(replace(held, handle=handle))
        assert door is not None
        return door

    async def _after_end(self, held: Held, handle: Handle, why: str) -> _Ended | None:
        """Leave nothing behind, then say why. What cannot be ended keeps its memory counted."""
        left = await self._stops.end(replace(held, handle=handle), handle)
        if left.code is not None:
            await self._tell(Stuck(held.body, left.code, f"{why}; {left.words}"))
            return None
        last = tail(self._tools.doors.folder(held.body) / "log", 3)
        return _Ended("; ".join((why, *last)), port_lost=not _free(handle.port))

    @contextlib.contextmanager
    def _port(self, held: Held) -> Iterator[int]:
        """A free port of the range, kept from other starts until it is recorded; the one it had before comes first."""
        first, last = self._tools.ports
        others = {h.port for h in self._memory.host.held.values() if h.body != held.body} | self._taken
        before = [held.port] if held.port is not None and first <= held.port <= last else []
        for port in (*before, *range(first, last + 1)):
            if port not in others and _free(port):
                self._taken.add(port)
                try:
                    yield port
                finally:
                    self._taken.discard(port)
                return
        raise Refusal(codes.PORT_TAKEN.code, f"no port between {first} and {last} is free on 127.0.0.1")


async def _differs(engine: Engine | None, http: aiohttp.ClientSession, door: Door) -> str | None:
    """How it differs from its launch; empty when by nothing, None when it cannot be asked at the moment."""
    if engine is None:  # a service is held against the launch before anything is brought into it
        return ""
    try:
        return await engine.contradiction(http, door) or ""
    except EngineSilent:
        return None


def _free(port: int) -> bool:
    """Nobody listens on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
