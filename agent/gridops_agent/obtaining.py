"""Carries out loads: into the agent's own cache, or into the store of the service that the artifact is for.

Which of the two follows from the artifact's format, since a store takes formats that nothing else reads. A load is
taken back by its controller, and then nothing of it stays, or by its host, that has no time for it now: then what has
arrived stays for the next load, or a machine whose owner comes and goes would never have a large model. Called by the
effects runner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from threading import Event

import aiohttp

from gridops.base.codes import refusals as codes
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, EngineName
from gridops.model.action import Load
from gridops.model.profile import Artifact
from gridops.protocol.messages import Outcome
from gridops_agent.artifacts import Artifacts, TakenBack
from gridops_agent.core.events import Ended
from gridops_agent.engines.base import Service

_LOOK_S = 0.2


class Transfers:
    """The loads of one agent that are under way."""

    def __init__(
        self, artifacts: Artifacts, services: Mapping[EngineName, Service], http: aiohttp.ClientSession
    ) -> None:
        self._artifacts = artifacts
        self._services = services
        self._http = http
        self._flags: dict[Digest, Event] = {}
        self._voided: set[Digest] = set()
        """Those that the controller took back; all others that end so were taken back by this host."""

    def take_back(self) -> None:
        """The host takes no work, or its agent leaves: end them all, and keep what has arrived."""
        for flag in self._flags.values():
            flag.set()

    def void(self, body: Digest) -> None:
        """The controller does not want one of them any more: end it, and keep nothing."""
        if body in self._flags:
            self._voided.add(body)
            self._flags[body].set()

    async def carry_out(self, body: Digest, load: Load) -> Ended:
        """Run one load to its end."""
        flag = self._flags[body] = Event()
        try:
            fetched = await obtain(self._artifacts, self._services, self._http, load, flag)
        except TakenBack:
            if body in self._voided:
                await self._artifacts.away(self._artifacts.drop, load.artifact)
                return Ended(body, Outcome.VOIDED)
            words = "taken back: this host takes no work; what has arrived is kept for the next load"
            return Ended(body, Outcome.FAILED, codes.HOST_STATE.code, words)
        except Refusal as refusal:
            words = "; ".join((refusal.message, *refusal.evidence, *refusal.hints))
            return Ended(body, Outcome.FAILED, refusal.code, words)
        finally:
            del self._flags[body]
            self._voided.discard(body)
        return Ended(body, Outcome.SUCCEEDED, fetched_bytes=fetched)


async def obtain(
    artifacts: Artifacts,
    services: Mapping[EngineName, Service],
    http: aiohttp.ClientSession,
    load: Load,
    flag: Event,
) -> int | None:
    """The bytes that had to come; None when everything was there and was only proved. Raises Refusal and TakenBack."""
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
