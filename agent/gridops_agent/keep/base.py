"""What the agent asks of the way an engine is kept: start it, prove it, stop it, find it again.

There are several ways (a child process, a container, a systemd unit, a loopback service), chosen by how this host runs
the engine; a handle names its own. A keeper signals only what it can prove, and says so where it cannot; it decides
nothing about when an engine should run.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from gridops.base.errors import Refusal
from gridops.base.ids import Digest
from gridops.model.fleet import Runtime
from gridops.model.plan import Launch
from gridops_agent.core.state import Handle
from gridops_agent.engines.base import Start

STOP_STEPS = ((signal.SIGTERM, 6.0), (signal.SIGTERM, 3.0), (signal.SIGKILL, 5.0))
"""llama-server leaves at once on a second TERM; only what ignores both is killed."""
FORCE_STEPS = ((signal.SIGTERM, 0.5), (signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0))
"""For work that people have approved to cut: no time is left for it."""
HUNG_STEPS = ((signal.SIGTERM, 2.0), (signal.SIGTERM, 1.0), (signal.SIGKILL, 5.0))
"""For what says nothing any more and works for nobody: its owner waits for the memory."""

Steps = tuple[tuple[int, float], ...]
"""Signals in order, each with the seconds that are waited for its effect."""
Publish = Callable[[Handle], Awaitable[None]]


class Proof(Enum):
    """What can be said about the engine of a handle."""

    OURS = "ours"
    GONE = "gone"
    NOT_OURS = "not ours"
    """Something lives that cannot be proved to be what we started, or nobody can be asked whether it lives."""


async def lasting(look: Callable[[], Awaitable[Proof]], looks: int, pause_s: float) -> Proof:
    """What `look` says, and a doubt only if it lasts over so many further looks."""
    proof = await look()
    for _ in range(looks):
        if proof is not Proof.NOT_OURS:
            break
        await asyncio.sleep(pause_s)
        proof = await look()
    return proof


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
    known: frozenset[Digest] = frozenset()
    """Every body that this host holds."""
    companions: tuple[Path, ...] = ()
    """Files of ours that the command line names."""

    @property
    def log(self) -> Path:
        return self.folder / "log"


@dataclass(frozen=True, slots=True)
class Stopped:
    """Whether everything of it is proved gone, and what remains if it is not."""

    gone: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an engine is to be reached that a person set up: port and key are not the agent's to choose."""

    port: int
    key_file: str
    """Empty where it asks its callers for no key."""
    weights: bool
    """Whether it reads the artifact's files, which are then proved before it is started."""


class PortLost(Refusal):
    """Somebody took the port between the look at it and the start. Another one may do."""


async def record(publish: Publish, handle: Handle, undo: Callable[[], Awaitable[None]]) -> None:
    """Publish a handle right after its engine exists; undo the engine if it cannot be recorded.

    When the agent is leaving in this very moment, an engine that is recorded stays: the next run adopts it.
    """
    recording = asyncio.ensure_future(publish(handle))
    try:
        await asyncio.shield(recording)
    except asyncio.CancelledError:
        await asyncio.wait((recording,))
        if recording.cancelled() or recording.exception() is not None:
            await undo()
        raise
    except BaseException:
        await undo()
        raise


class Keeper(Protocol):
    """One way to keep engines."""

    @property
    def kind(self) -> str:
        """The word that a handle carries: `child`, `container`, `unit`, `service`."""
        ...

    def runtimes(self) -> tuple[Runtime, ...]:
        """What can be started this way, as of the last `refresh`; a child's are what its adapter finds."""
        ...

    async def refresh(self) -> None:
        """Look again what can be started this way."""
        ...

    def place(self, launch: Launch) -> Place | None:
        """Where a launch will be reached; None when the agent chooses port and key."""
        ...

    def build(self, launch: Launch) -> str | None:
        """Which build is started this way; None: the program that is installed here. Empty when nobody can say."""
        ...

    @property
    def own_network(self) -> bool:
        """Whether what is started this way sees a network of its own, and not that of this host."""
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

    async def close(self) -> None:
        """Let go of connections. Every engine stays as it is."""
        ...
