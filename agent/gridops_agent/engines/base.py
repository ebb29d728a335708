"""What the agent asks of an engine. An adapter turns a signed launch into a command line, or into calls to a service.

An adapter starts no process, stops none and keeps none: that is the keepers' work, and draining is the front's. Rooms
that need to know what an engine can do ask its `Abilities` and never its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import aiohttp

from gridops.base.ids import Digest, EngineName
from gridops.model.action import DeviceShare
from gridops.model.fleet import Runtime
from gridops.model.plan import Launch
from gridops.model.profile import Artifact

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an engine can do: declared by its adapter, and held against the real thing by the contract test."""

    formats: frozenset[str]
    """Formats of artifacts that it reads."""
    modalities: frozenset[str]
    """What it can produce, by the words of profiles."""
    keyed: bool
    """It asks its callers for the private key of its door."""
    counts_work: bool
    """It says how many generations run. One that does not is idle only by the front's own count."""
    takes_share: bool
    """It is told which share of a card it may take; never a fixed one."""
    shards: bool
    """One replica of it can work over several devices of a host."""
    drains_on_term: bool
    """It finishes work in flight after TERM. Informative: draining is ours in any case."""
    api: str = "openai"
    """What it is asked by: OpenAI's API under /v1, or a service's own, which the front has a face for."""
    own_store: bool = False
    """It keeps artifacts in a store of its own, which it fills itself (`Service.fetch`); the agent's cache has none."""


@dataclass(frozen=True, slots=True)
class Start:
    """Everything an adapter needs to write a command line, or to bring a model into a service's memory."""

    launch: Launch
    model: Path
    """The first file of the artifact, proved; the others stand beside it by their relative paths."""
    port: int
    key_file: Path
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs it may use; empty on a CPU."""
    shares: tuple[DeviceShare, ...] = ()
    """How much of each device it may take, for engines that take a share (`Abilities.takes_share`)."""
    host: str = LOOPBACK
    """Where it listens: loopback; in a container, whose port is published on loopback only, everywhere inside."""
    image: bool = False
    """True: the command runs inside an image that brings the program, so nothing installed here is asked."""

    @property
    def alias(self) -> str:
        """The id the engine must list: the profile's name."""
        return self.launch.profile

    @property
    def folder(self) -> Path:
        """The folder that the artifact's paths are relative to."""
        return self.model.parents[self.launch.artifact.files[0].path.count("/")]

    def share_ppm(self) -> int | None:
        """What it may take of every one of its devices: the least of the planned shares. None: nobody said."""
        return min((share.ppm for share in self.shares), default=None)


@dataclass(frozen=True, slots=True)
class Door:
    """How to reach a started engine: loopback, its port, its private key, and the id it must list."""

    port: int
    key: str = field(repr=False)
    alias: str
    launch: Launch | None = None
    """What it was started as, for engines that can be asked what they really run."""

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


class Adapter(Protocol):
    """What every engine has, however it is kept."""

    @property
    def name(self) -> EngineName:
        """The name that configs use."""
        ...

    @property
    def abilities(self) -> Abilities:
        """What it can do."""
        ...

    def runtimes(self) -> tuple[Runtime, ...]:
        """What is installed here, by backend; empty when nothing is."""
        ...

    def problem(self) -> str | None:
        """Why the installed runtime could not start anything at all (a missing system library); None when it could."""
        ...

    def objection(self, launch: Launch) -> str | None:
        """What in a launch this adapter cannot honour, before anything is started."""
        ...

    async def listed(self, http: aiohttp.ClientSession, door: Door) -> bool:
        """Ready: it answers, and lists the alias to a caller with the key. An open port is not readiness."""
        ...

    async def busy(self, http: aiohttp.ClientSession, door: Door) -> int | None:
        """Generations in progress by the engine's own count; None when it does not say."""
        ...


class Engine(Adapter, Protocol):
    """A program that a keeper starts: as child, container or unit."""

    def command(self, start: Start) -> tuple[str, ...]:
        """The command line. Never holds a secret."""
        ...

    def environment(self, start: Start) -> Mapping[str, str]:
        """What the process needs besides the keeper's minimum. Never holds a secret."""
        ...

    def build(self) -> str:
        """Which build is installed here: its version, or the digest of its program. Empty when nobody can say."""
        ...

    def companions(self) -> tuple[Path, ...]:
        """Files of ours that the command line names: a container is given them read-only, at the same place."""
        ...

    async def contradiction(self, http: aiohttp.ClientSession, door: Door) -> str | None:
        """How what is listed differs from what was launched (context, lanes), in words. None: by nothing it tells.

        A replica that contradicts its launch is not ready, whatever it lists. Raises EngineSilent when it cannot be
        asked at the moment: then it is not ready yet.
        """
        ...


class Service(Adapter, Protocol):
    """A loopback service of the host. We bring models into its memory and out; it is never started or stopped."""

    @property
    def address(self) -> str:
        """Where it listens: `http://127.0.0.1:PORT`, loopback only."""
        ...

    async def alive(self, http: aiohttp.ClientSession) -> str | None:
        """Its version, when it answers; None when it does not."""
        ...

    async def stored(self, http: aiohttp.ClientSession) -> tuple[Digest, ...]:
        """Identities of what lies in its own store, as it says them now; empty where it has none."""
        ...

    async def fetch(self, http: aiohttp.ClientSession, artifact: Artifact) -> int | None:
        """Into its own store, exactly the one named: the bytes that came; None when it was there. Raises Refusal.

        Never replaces what lies there under the same name. Cancelling it ends the transfer.
        """
        ...

    async def verify(self, http: aiohttp.ClientSession, start: Start) -> str:
        """The immutable identity of what would be brought, held against the launch. Raises Refusal."""
        ...

    async def bring(self, http: aiohttp.ClientSession, start: Start) -> None:
        """The model into memory under the alias. Idempotent; overwrites nothing foreign. Raises Refusal."""
        ...

    async def drop(self, http: aiohttp.ClientSession, door: Door) -> None:
        """Take it out of memory. Deletes no file, and touches no other model where the service can tell them apart."""
        ...

    async def dropped(self, http: aiohttp.ClientSession, door: Door) -> bool:
        """True once it is no longer in memory. A service that does not answer has proved nothing: False."""
        ...


class EngineSilent(Exception):
    """An engine that answered a moment ago cannot be asked now. Unknown is a state; it is never good news."""
