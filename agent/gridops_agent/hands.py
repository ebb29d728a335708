"""The running agent's side of `takeover` and `release`: gives back what was asked for, and knows what was handed over.

Called with each measurement by the shell, and by a start that looks whether the engine it wants runs already. Giving
back signals nobody: the residency is forgotten and its engine is somebody else's from then on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import aiohttp

from gridops.base.canon import digest_bytes
from gridops.base.ids import Digest, ProfileName
from gridops.model.snapshot import Residency
from gridops_agent.config import Config
from gridops_agent.core.events import Event, GivenBack
from gridops_agent.core.state import Handle, Held
from gridops_agent.doors import key_of
from gridops_agent.engines.base import Door, Engine, EngineSilent
from gridops_agent.front import Route
from gridops_agent.keep import external, taken
from gridops_agent.keep.base import Proof
from gridops_agent.keep.keepers import Keepers
from gridops_agent.keep.taken import Hands as OnFile
from gridops_agent.keep.taken import Taken
from gridops_agent.memory import Memory
from gridops_agent.platform.base import Platform

LOG = logging.getLogger("gridops_agent")
SAYS_HOW = "llama-server does with --slots and --metrics"
EVERY = 6
"""External engines are looked for with each so many measurements: every half minute."""


class Hands:
    """What people at this host handed over, and the engines that are theirs."""

    def __init__(self, config: Config, memory: Memory, keepers: Keepers, platform: Platform) -> None:
        self._path = config.hands
        self._routed = config.route_external
        self._memory = memory
        self._keepers = keepers
        self._platform = platform
        self._turns = 0
        self._seen: tuple[Residency, ...] = ()
        self._unfit: dict[int, str] = {}
        self._engines: tuple[external.External, ...] = ()

    def on_file(self) -> OnFile:
        """What stands in the file now."""
        return taken.read(self._path)

    def given(self) -> frozenset[Digest]:
        """Bodies whose engines were given back: no strays."""
        return frozenset(g.body for g in self.on_file().given)

    def is_theirs(self, body: Digest) -> bool:
        """Whether people took this one back. Asked right before a signal: a word of theirs is older than our look."""
        return body in self.given()

    def external(self) -> tuple[Residency, ...]:
        """Engines that are not ours, as of the last look."""
        return self._seen

    async def give_back(self, busy: Iterable[Digest], tell: Callable[[Event], Awaitable[bool]]) -> None:
        """Forget what people asked for, unless somebody is working on it in this moment."""
        wanted = {g.body for g in self.on_file().given} - set(busy)
        for body in sorted(wanted & set(self._memory.host.held)):
            await tell(GivenBack(body))

    def routes(self, managed: Iterable[Route]) -> tuple[Route, ...]:
        """Ways to engines that are not ours, where the owner agreed to it; an id that one of ours serves is ours."""
        served = {name for route in managed for name in route.serves}
        found = [(e, name) for e in self._engines for name in e.lists if self._routed and name not in served]
        return tuple(
            Route(
                body=digest_bytes(f"external {engine.port} {name}".encode()),
                profile=ProfileName(name),
                serves=(name,),
                door=Door(port=engine.port, key="", alias=name),
                admitting=True,
            )
            for engine, name in found
        )

    async def look(self, http: aiohttp.ClientSession) -> bool:
        """Every so many turns: which engines run here that are not ours. True when that has changed."""
        self._turns += 1
        if self._turns % EVERY != 1:
            return False
        handles = {body: h.handle for body, h in self._memory.host.held.items() if h.handle is not None}
        ours = frozenset(await self._keepers.processes_of(handles))
        found = await external.look(self._platform, http, ours, self.given())
        notes = {t.handle.pid: f", taken over{self._unfit.get(t.handle.pid, '')}" for t in self.on_file().taken}
        self._seen = tuple(r for e in found for r in e.residencies(notes.get(e.pid, "")))
        changed, self._engines = found != self._engines, found
        return changed

    async def match(self, held: Held, model: Path, http: aiohttp.ClientSession, engine: Engine) -> Handle | None:
        """An engine that was taken over and is what a launch wants: same engine, id, file and lanes. None: start one.

        Asked before it is adopted, since one that differs is a person's own and not to be ended for it.
        """
        used = {h.handle for h in self._memory.host.held.values() if h.handle is not None and h.body != held.body}
        launch = held.warm.launch
        for one in self.on_file().taken:
            if one.engine != launch.engine or launch.profile not in one.lists or _same(one.handle, used):
                continue
            if not names(one, model) or await self._keepers.judge(held.body, one.handle) is not Proof.OURS:
                continue
            key = await asyncio.to_thread(key_of, one.handle.key_file) if one.handle.key_file else ""
            door = Door(port=one.handle.port, key=key, alias=launch.profile, launch=launch)
            differs = await _differs(engine, http, door)
            if differs is None:
                return one.handle
            self._unfit[one.handle.pid] = f", not what {held.replica} wants: {differs}"
            LOG.warning("%s was handed over%s", one.called, self._unfit[one.handle.pid])
        return None


async def _differs(engine: Engine, http: aiohttp.ClientSession, door: Door) -> str | None:
    """Why an engine that runs is not what a launch wants; None when it is."""
    try:
        if not await engine.listed(http, door):
            return f"it does not list {door.alias}"
        return await engine.contradiction(http, door)
    except EngineSilent:
        return f"it does not say how it runs ({SAYS_HOW})"


def names(one: Taken, model: Path) -> bool:
    """Whether its command line names the proved file of the artifact, or the folder that it lies in."""
    wanted = {str(model), str(model.resolve()), str(model.parent), str(model.parent.resolve())}
    return bool(wanted & set(one.words))


def _same(handle: Handle, others: set[Handle]) -> bool:
    return any((o.pid, o.birth, o.name) == (handle.pid, handle.birth, handle.name) for o in others)
