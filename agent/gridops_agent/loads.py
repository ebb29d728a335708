"""Carries out loads and evictions: files come into the agent's own cache, or into the store of a service, and go again.

Which of the two follows from the artifact's format, since a store takes formats that nothing else reads. Called by
`effects` in the lane of transfers. A load is taken back by its controller, and then nothing of it stays, or by its
host, that has no time for it now: then what has arrived stays for the next load, or a machine whose owner comes and
goes would never have a large model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from threading import Event

import aiohttp

from gridops.base.codes import host as codes
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, EngineName
from gridops.model.action import Evict, Load
from gridops.model.profile import Artifact
from gridops.protocol.messages import Outcome
from gridops_agent.artifacts import Artifacts, TakenBack
from gridops_agent.core import guesses
from gridops_agent.core.events import Ended
from gridops_agent.engines.base import Service
from gridops_agent.memory import Memory
from gridops_agent.tools import Tell, Tools

_LOOK_S = 0.2


class Loads:
    """Loads and evictions of one agent."""

    def __init__(self, memory: Memory, tools: Tools, tell: Tell) -> None:
        self._memory = memory
        self._tools = tools
        self._tell = tell
        self._transfers: dict[Digest, Event] = {}
        """Transfers that go on, by command. Set, they end."""
        self._voided: set[Digest] = set()
        """Those that the controller took back; all others that end so were taken back by this host."""

    def void(self, body: Digest) -> None:
        """The controller does not want a load any more: it ends, and nothing of it is kept."""
        if body in self._transfers:
            self._voided.add(body)
            self._transfers[body].set()

    def take_back(self) -> None:
        """The host takes no work, or its agent leaves: they end, and what has arrived is kept."""
        for flag in self._transfers.values():
            flag.set()

    async def load(self, body: Digest, load: Load) -> None:
        """Bring the files, or find and prove them where they lie."""
        flag = self._transfers[body] = Event()
        try:
            fetched = await obtain(self._tools.artifacts, self._tools.services, self._tools.http, load, flag)
        except TakenBack:
            words = "taken back: this host takes no work; what has arrived is kept for the next load"
            ended = Ended(body, Outcome.FAILED, codes.HOST_STATE.code, words)
            if body in self._voided:
                await self._tools.artifacts.away(self._tools.artifacts.drop, load.artifact)
                ended = Ended(body, Outcome.VOIDED)
        except Refusal as refusal:
            said = "; ".join((refusal.message, *refusal.evidence, *refusal.hints))
            ended = Ended(body, Outcome.FAILED, refusal.code, said)
        else:
            ended = Ended(body, Outcome.SUCCEEDED, fetched_bytes=fetched)
        finally:
            del self._transfers[body]
            self._voided.discard(body)
        await self._tell(ended)

    async def evict(self, body: Digest, evict: Evict) -> None:
        """Delete what was fetched on a guess and never used."""
        name = guesses.named(self._memory.host, evict.files)
        try:
            if name is not None:
                await self._tools.artifacts.away(self._tools.artifacts.delete, name)
        except OSError as error:
            detail = f"{error.filename or 'the cache'} cannot be deleted: {error.strerror}"
            await self._tell(Ended(body, Outcome.FAILED, codes.NOT_A_GUESS.code, detail))
            return
        await self._tell(Ended(body, Outcome.SUCCEEDED))


async def obtain(
    artifacts: Artifacts,
    services: Mapping[EngineName, Service],
    http: aiohttp.ClientSession,
    load: Load,
    flag: Event,
) -> int | None:
    """The bytes that had to come; None when everything was there and was only proved. Raises TakenBack and Refusal."""
    service = store_of(services, load.artifact)
    if service is None:
        return await artifacts.away(artifacts.obtain, load.artifact, flag, bool(load.guess))
    fetching = asyncio.ensure_future(service.fetch(http, load.artifact))
    try:
        while not (await asyncio.wait((fetching,), timeout=_LOOK_S))[0]:
            if flag.is_set():
                raise TakenBack
        return fetching.result()
    finally:
        fetching.cancel()


def store_of(services: Mapping[EngineName, Service], artifact: Artifact) -> Service | None:
    """The service whose own store takes this artifact; None: it lies in the agent's cache."""
    stores = [s for _, s in sorted(services.items()) if s.abilities.own_store]
    return next((s for s in stores if artifact.format in s.abilities.formats), None)


async def stored(services: Mapping[EngineName, Service], http: aiohttp.ClientSession) -> tuple[Digest, ...]:
    """What lies in the stores of this host's services, as they say it now."""
    found: set[Digest] = set()
    for _, service in sorted(services.items()):
        if service.abilities.own_store:
            found.update(await service.stored(http))
    return tuple(sorted(found))
