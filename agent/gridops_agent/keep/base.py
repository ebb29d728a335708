"""What the agent asks of the way an engine is kept: start it, prove it, stop it, find it again.

There are several ways (a child process, a container, a systemd unit, a loopback service), chosen by how this host runs
the engine; a handle names its own. A keeper signals only what it can prove, and says so where it cannot; it decides
nothing about when an engine should run.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from gridops.base.ids import Digest
from gridops_agent.core.state import Handle
from gridops_agent.engines.base import Start

STOP_STEPS = ((signal.SIGTERM, 6.0), (signal.SIGTERM, 3.0), (signal.SIGKILL, 5.0))
"""llama-server leaves at once on a second TERM; only what ignores both is killed."""
FORCE_STEPS = ((signal.SIGTERM, 0.5), (signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0))
"""For work that people have approved to cut: no time is left for it."""

Steps = tuple[tuple[int, float], ...]
"""Signals in order, each with the seconds that are waited for its effect."""
Publish = Callable[[Handle], Awaitable[None]]


class Proof(Enum):
    """What can be said about the engine of a handle."""

    OURS = "ours"
    GONE = "gone"
    NOT_OURS = "not ours"
    """Something lives that cannot be proved to be what we started, or nobody can be asked whether it lives."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """One engine to start for one body."""

    body: Digest
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    """Working directory; the log lies in it."""
    port: int
    key_file: Path
    begin: Start | None = None
    """What is to be served, as this host sees it: for keepers that need more than a command line."""

    @property
    def log(self) -> Path:
        return self.folder / "log"


@dataclass(frozen=True, slots=True)
class Stopped:
    """Whether everything of it is proved gone, and what remains if it is not."""

    gone: bool
    detail: str = ""


class Keeper(Protocol):
    """One way to keep engines."""

    @property
    def kind(self) -> str:
        """The word that a handle carries: `child`, `container`, `unit`, `service`."""
        ...

    def inside(self, start: Start) -> Start:
        """The same start as the engine will see it: a container has paths and a port of its own."""
        ...

    async def start(self, spawn: Spawn, publish: Publish) -> Handle:
        """Start it, and publish its handle right after it exists. What cannot be recorded is ended again."""
        ...

    def look(self, body: Digest, handle: Handle) -> Proof:
        """One look, which may take a moment: for callers without a loop."""
        ...

    async def prove(self, body: Digest, handle: Handle) -> Proof:
        """One look that keeps nobody waiting."""
        ...

    async def judge(self, body: Digest, handle: Handle) -> Proof:
        """`prove`, and a doubt only if it lasts."""
        ...

    async def stop(self, body: Digest, handle: Handle | None, steps: Steps = STOP_STEPS) -> Stopped:
        """Gently, then firmly; done when everything is proved gone. Without a handle: whatever carries the body."""
        ...

    async def recover(self, body: Digest, port: int, key_file: Path) -> Handle | None:
        """The handle of what lives and carries a body; None when there is nothing."""
        ...

    async def pids(self, body: Digest, handle: Handle) -> tuple[int, ...]:
        """The processes whose memory is this residency's."""
        ...

    async def strangers(self, known: frozenset[Digest]) -> tuple[tuple[str, str], ...]:
        """What this agent's state folder started for bodies that nobody remembers: (what it is, body)."""
        ...

    def ending(self, handle: Handle) -> str:
        """How it ended, as far as can be known."""
        ...

    def settle(self, handle: Handle) -> Handle:
        """The handle enriched once it is ready."""
        ...

    def forget(self, handle: Handle) -> None:
        """Drop what is kept about what has ended."""
        ...
