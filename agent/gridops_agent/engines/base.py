"""What the agent asks of an engine. An adapter turns a signed launch into a command line and answers two questions.

An adapter starts nothing, stops nothing and keeps nothing: processes are the supervisor's, draining is the front's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import aiohttp

from gridops.base.ids import EngineName
from gridops.model.fleet import Runtime
from gridops.model.plan import Launch


@dataclass(frozen=True, slots=True)
class Start:
    """Everything an adapter needs to write a command line."""

    launch: Launch
    model: Path
    """The first file of the artifact, proved."""
    port: int
    key_file: Path
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs it may use; empty on a CPU."""

    @property
    def alias(self) -> str:
        """The id the engine must list: the profile's name."""
        return self.launch.profile


@dataclass(frozen=True, slots=True)
class Door:
    """How to reach a started engine: loopback, its port, its private key, and the id it must list."""

    port: int
    key: str = field(repr=False)
    alias: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


class Engine(Protocol):
    """One engine."""

    @property
    def name(self) -> EngineName:
        """The name that configs use."""
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

    def command(self, start: Start) -> tuple[str, ...]:
        """The command line. Never holds a secret."""
        ...

    def environment(self, start: Start) -> Mapping[str, str]:
        """What the process needs besides the supervisor's minimum. Never holds a secret."""
        ...

    async def listed(self, http: aiohttp.ClientSession, door: Door) -> bool:
        """Ready: it answers, and lists the alias to a caller with the key. An open port is not readiness."""
        ...

    async def busy(self, http: aiohttp.ClientSession, door: Door) -> int | None:
        """Generations in progress by the engine's own count; None when it does not say."""
        ...
