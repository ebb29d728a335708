"""Carries out a load: into the agent's own cache, or into the store of the service that the artifact is for.

Which of the two follows from the artifact's format, since a store takes formats that nothing else reads. Called by the
effects runner; raises Refusal, and TakenBack when the command was voided while it ran.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from threading import Event

import aiohttp

from gridops.base.ids import Digest, EngineName
from gridops.model.action import Load
from gridops.model.profile import Artifact
from gridops_agent.artifacts import Artifacts, TakenBack
from gridops_agent.engines.base import Service

_LOOK_S = 0.2


async def obtain(
    artifacts: Artifacts,
    services: Mapping[EngineName, Service],
    http: aiohttp.ClientSession,
    load: Load,
    flag: Event,
) -> int | None:
    """The bytes that had to come; None when everything was there and was only proved."""
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
