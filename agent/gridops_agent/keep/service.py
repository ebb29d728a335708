"""Keeps models in the memory of loopback services that this host runs anyway: brought in, taken out, never more.

The service itself is never started, stopped or signalled. What was in its memory before we came is somebody else's and
stays there. Our residency ends with the process of the service, or when the model is not in its memory any more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from gridops.base.codes import host as codes
from gridops.base.errors import Failed, GridopsError, Refusal
from gridops.base.ids import Digest, EngineName
from gridops.model.fleet import Runtime
from gridops.model.plan import Launch
from gridops_agent.core.state import Handle
from gridops_agent.engines.base import Door, Service, Start
from gridops_agent.keep.base import STOP_STEPS, Place, Proof, Publish, Spawn, Steps, Stopped, lasting, record
from gridops_agent.keep.family import family, listener
from gridops_agent.platform.base import Platform

DOUBT_LOOKS, DOUBT_S = 4, 0.5
_POLL_S = 0.2


class ServiceKeeper:
    """Models in the services of one host."""

    kind = "service"

    def __init__(
        self, platform: Platform, services: Mapping[EngineName, Service], launch_of: Callable[[Digest], Launch | None]
    ) -> None:
        self._platform = platform
        self._services = services
        self._session: aiohttp.ClientSession | None = None
        self._ready: tuple[Runtime, ...] = ()
        self._versions: dict[EngineName, str] = {}
        self._launch_of = launch_of

    @property
    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        return self._session

    async def close(self) -> None:
        """Let go of the connections. What is in memory stays there."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def runtimes(self) -> tuple[Runtime, ...]:
        """Services that answered when they were last asked."""
        return self._ready

    async def refresh(self) -> None:
        """Ask each whether it answers."""
        ready: list[Runtime] = []
        for name in sorted(self._services):
            service = self._services[name]
            version = await service.alive(self._http)
            self._versions[name] = version or ""
            if version is not None:
                ready += service.runtimes()
        self._ready = tuple(ready)

    def place(self, launch: Launch) -> Place | None:
        """The service's own address. One with a store of its own reads that; the files of others are proved by us."""
        service = self._services[launch.engine]
        return Place(port=_port(service), key_file="", weights=not service.abilities.own_store)

    def build(self, launch: Launch) -> str | None:
        """The version that it gave when it was asked last."""
        return self._versions.get(launch.engine, "")

    @property
    def own_network(self) -> bool:
        """It runs however a person set it up."""
        return False

    def inside(self, start: Start) -> Start:
        """A service sees no file of ours."""
        return start

    # --- bringing -------------------------------------------------------------------------------------------------

    async def start(self, spawn: Spawn, publish: Publish) -> Handle:
        """Prove what would be brought, record that it is ours, bring it. What is there already is not ours to bring."""
        assert spawn.begin is not None
        launch = spawn.begin.launch
        service = self._services[launch.engine]
        version = await service.alive(self._http)
        if version is None:
            raise Failed(f"{launch.engine} does not answer at {service.address}")
        await service.verify(self._http, spawn.begin)
        handle = self._handle(launch.engine, spawn.port, version)
        if not await service.dropped(self._http, self._door(handle, launch)):
            raise Refusal(
                codes.NOT_OURS.code,
                f"{launch.profile} is in the memory of {launch.engine} already, and not by this host's doing",
                hints=("take it out there, or leave it: it is shown as an external residency",),
            )

        async def undo() -> None:
            """Nothing was brought yet."""

        await record(publish, handle, undo)
        try:
            await service.bring(self._http, spawn.begin)
        except GridopsError:
            if (await self._drop(service, handle, launch, STOP_STEPS)).gone:
                raise
            # Something of it may be in memory: the handle stays, and whoever waits for it finds out and says so.
        return handle

    def _handle(self, engine: EngineName, port: int, version: str) -> Handle:
        found = listener(self._platform, port)
        return Handle(
            pid=found.pid if found is not None else 0,
            birth=found.birth if found is not None else "",
            port=port,
            key_file="",
            executable=version,
            keeper=self.kind,
            name=engine,
        )

    def _door(self, handle: Handle, launch: Launch) -> Door:
        return Door(port=handle.port, key="", alias=launch.profile, launch=launch)

    # --- proving --------------------------------------------------------------------------------------------------

    def look(self, body: Digest, handle: Handle) -> Proof:
        """Without a loop only the service's process can be looked at, or whether anybody answers at its port."""
        if handle.pid:
            return Proof.OURS if self._same(handle) else Proof.GONE
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return Proof.OURS if probe.connect_ex(("127.0.0.1", handle.port)) == 0 else Proof.NOT_OURS

    def _same(self, handle: Handle) -> bool:
        now = self._platform.process(handle.pid)
        return now is not None and not now.zombie and now.birth == handle.birth

    async def prove(self, body: Digest, handle: Handle) -> Proof:
        """Ours while the same process of the service has the model in memory."""
        if handle.pid and not self._same(handle):
            return Proof.GONE  # its memory went with it; what a new one holds was brought by somebody else
        service, launch = self._service(handle), self._launch_of(body)
        if service is None or launch is None or await service.alive(self._http) is None:
            return Proof.NOT_OURS
        return Proof.GONE if await service.dropped(self._http, self._door(handle, launch)) else Proof.OURS

    async def judge(self, body: Digest, handle: Handle) -> Proof:
        """`prove`, and a doubt only if it lasts."""
        return await lasting(lambda: self.prove(body, handle), DOUBT_LOOKS, DOUBT_S)

    def _service(self, handle: Handle) -> Service | None:
        return self._services.get(EngineName(handle.name or ""))

    # --- dropping -------------------------------------------------------------------------------------------------

    async def stop(self, body: Digest, handle: Handle | None, steps: Steps = STOP_STEPS) -> Stopped:
        """Take the model out of memory, and prove that it is out. Without a handle nothing was brought."""
        if handle is None:
            return Stopped(True)
        proof = await self.judge(body, handle)
        if proof is Proof.GONE:
            return Stopped(True)
        service, launch = self._service(handle), self._launch_of(body)
        if proof is Proof.NOT_OURS or service is None or launch is None:
            return Stopped(False, f"{handle.name} cannot be asked what is in its memory: nothing is done")
        return await self._drop(service, handle, launch, steps)

    async def _drop(self, service: Service, handle: Handle, launch: Launch, steps: Steps) -> Stopped:
        loop, door = asyncio.get_running_loop(), self._door(handle, launch)
        end = loop.time() + sum(patience for _, patience in steps)
        while not await service.dropped(self._http, door):
            if loop.time() >= end:
                return Stopped(False, f"{handle.name} still holds {launch.profile} in its memory")
            try:
                await service.drop(self._http, door)
            except GridopsError as error:
                return Stopped(False, error.message)
            await asyncio.sleep(_POLL_S)
        return Stopped(True)

    # --- the rest -------------------------------------------------------------------------------------------------

    async def recover(self, body: Digest, port: int, key_file: Path) -> Handle | None:
        """A handle is recorded before anything is brought: there is nothing to find."""
        return None

    async def pids(self, body: Digest, handle: Handle) -> tuple[int, ...]:
        """The service's processes. What it holds for others beside ours cannot be told apart from outside."""
        now = self._platform.process(handle.pid) if handle.pid and self._same(handle) else None
        return tuple(p.pid for p in family(self._platform, now)) if now is not None else ()

    async def strangers(self, known: frozenset[Digest]) -> tuple[tuple[str, str], ...]:
        """A service carries no marks of ours."""
        return ()

    def ending(self, handle: Handle) -> str:
        """Whether the service went, or only the model."""
        if handle.pid and not self._same(handle):
            return f"the process of {handle.name} that held it is gone"
        return f"it is not in the memory of {handle.name} any more"

    def settle(self, handle: Handle) -> Handle:
        """It is what it was."""
        return replace(handle, settled=True)

    def forget(self, handle: Handle) -> None:
        """Nothing is kept."""


def _port(service: Service) -> int:
    port = urlsplit(service.address).port
    assert port is not None, "agent.toml demands one"
    return port
