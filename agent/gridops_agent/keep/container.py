"""Keeps engines as containers of this host's Docker or Podman.

Identity is the container's id, its labels and the moment it was started; ownership is the labels alone, so what does
not carry them is seen and never touched. The runtime restarts nothing (keep-alive is the agent's). A container that
failed is kept for its log, and only so many of them; one that a new one is to replace is not touched here at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gridops.base import limits
from gridops.base.codes import host as codes
from gridops.base.errors import Failed, GridopsError, Refusal
from gridops.base.ids import Digest, EngineName
from gridops.model.fleet import Runtime
from gridops.model.plan import Launch
from gridops_agent.core.state import Handle
from gridops_agent.engines.base import Start
from gridops_agent.keep import container_spec as spec
from gridops_agent.keep.base import STOP_STEPS, Place, PortLost, Proof, Publish, Spawn, Steps, Stopped, lasting, record
from gridops_agent.keep.container_api import Containers, Silent
from gridops_agent.keep.ways import Image

DOUBT_LOOKS, DOUBT_S = 4, 0.5
_POLL_S = 0.2
_PORT_WORDS = ("port is already allocated", "address already in use", "already in use")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a host says about its containers."""

    owner: spec.Owner
    images: Mapping[str, Image]
    folder: Callable[[Digest], Path]
    """Where the log of a body lies."""


class ContainerKeeper:
    """Containers of one agent."""

    kind = "container"

    def __init__(self, containers: Containers, setup: Setup) -> None:
        self._api = containers
        self._setup = setup
        self._endings: dict[str, str] = {}
        self._ready: tuple[Runtime, ...] = ()

    def runtimes(self) -> tuple[Runtime, ...]:
        """The engines whose images lie here. An image that is not here is not fetched, and starts nothing."""
        return self._ready

    async def refresh(self) -> None:
        """Ask for the images; while the runtime cannot be asked, nothing can be started by it."""
        self._ready = await asyncio.to_thread(self._found)

    def _found(self) -> tuple[Runtime, ...]:
        with contextlib.suppress(Failed):
            images = sorted(self._setup.images.items())
            return tuple(Runtime(engine=EngineName(n), backend=i.backend) for n, i in images if self._has(i))
        return ()

    def _has(self, image: Image) -> bool:
        return self._api.has_image(image.reference)

    def place(self, launch: Launch) -> Place | None:
        """The agent chooses port and key."""
        return None

    async def close(self) -> None:
        """Connections are the library's own."""

    def build(self, launch: Launch) -> str | None:
        """The image, by its digest."""
        return self._setup.images[launch.engine].reference

    @property
    def own_network(self) -> bool:
        """Only one port of it is this host's, on loopback."""
        return True

    def inside(self, start: Start) -> Start:
        """The paths and the port inside the container."""
        return spec.inside(start, self._setup.images[start.launch.engine])

    # --- starting -------------------------------------------------------------------------------------------------

    async def start(self, spawn: Spawn, publish: Publish) -> Handle:
        """Create, start, publish. What was created and does not run is removed; nothing else is touched."""
        assert spawn.begin is not None
        image = self._setup.images[spawn.begin.launch.engine]
        wanted = await asyncio.to_thread(spec.request, spawn, image, self._setup.owner, secrets.token_hex(3))
        await asyncio.to_thread(self._refuse, wanted.name, image, spawn)
        name = await asyncio.to_thread(self._api.create, wanted)
        try:
            await asyncio.to_thread(self._api.start, name)
            handle = await asyncio.to_thread(self._handle, name, spawn.port, str(spawn.key_file))
        except GridopsError as error:
            await asyncio.to_thread(self._undo, name)
            if any(word in error.message for word in _PORT_WORDS):
                raise PortLost(codes.PORT_TAKEN.code, error.message) from error
            raise

        async def undo() -> None:
            await asyncio.to_thread(self._undo, name)

        await record(publish, handle, undo)
        return handle

    def _refuse(self, name: str, image: Image, spawn: Spawn) -> None:
        """Everything that speaks against creating it, asked before anything is created."""
        assert spawn.begin is not None
        model = spawn.begin.launch.profile
        if not self._api.has_image(image.reference):
            raise Refusal(codes.NO_RUNTIME.code, f"the image is not on this host: docker pull {image.reference}")
        if self._api.inspect(name) is not None:
            raise Refusal(codes.START_FAILED.code, f"a container is called {name} already")
        for row in self._api.listed({**self._setup.owner.labels(), spec.MODEL: model}):
            body = row["Labels"].get(spec.BODY)
            if body != spawn.body and body not in spawn.known:
                shown = str(row["Id"])[:12]
                raise Refusal(
                    codes.STRAY_PROCESS.code,
                    f"{model} is served already by the container {shown}, which carries a command that this host does "
                    "not know",
                    hints=(f"look at it and end it: docker logs {shown}; docker stop {shown}",),
                )

    def _handle(self, name: str, port: int, key_file: str) -> Handle:
        seen = self._api.inspect(name)
        if seen is None:
            raise Failed(f"the container {name[:12]} is gone right after it was started")
        return Handle(
            pid=int(seen["State"].get("Pid") or 0),
            birth=str(seen["State"]["StartedAt"]),
            port=port,
            key_file=key_file,
            executable=str(seen["Image"]),
            keeper=self.kind,
            name=str(seen["Id"]),
        )

    def _undo(self, name: str) -> None:
        """Nobody would know of it: it may not outlive this moment."""
        with contextlib.suppress(GridopsError):
            self._api.kill(name)
        self._api.remove(name)

    # --- proving --------------------------------------------------------------------------------------------------

    def look(self, body: Digest, handle: Handle) -> Proof:
        """Inspect it. A runtime that cannot be asked proves nothing."""
        assert handle.name is not None
        try:
            seen = self._api.inspect(handle.name)
        except Failed:
            return Proof.NOT_OURS
        if seen is None or not _lives(seen) or seen["State"]["StartedAt"] != handle.birth:
            # Another start of the same container is another life: ours is over.
            self._remember_end(body, handle.name, seen)
            return Proof.GONE
        if handle.taken:
            return Proof.OURS if seen["Image"] == handle.executable else Proof.NOT_OURS
        return Proof.OURS if spec.owns(seen["Config"].get("Labels"), self._setup.owner, body) else Proof.NOT_OURS

    async def prove(self, body: Digest, handle: Handle) -> Proof:
        """One look, in a thread: the runtime may take its time."""
        return await asyncio.to_thread(self.look, body, handle)

    async def judge(self, body: Digest, handle: Handle) -> Proof:
        """`prove`, and a doubt only if it lasts: a runtime that is being restarted is back within seconds."""
        return await lasting(lambda: self.prove(body, handle), DOUBT_LOOKS, DOUBT_S)

    def _remember_end(self, body: Digest, name: str, seen: Mapping[str, Any] | None) -> None:
        """How it ended, and the end of its log where those of child processes lie."""
        if name in self._endings:
            return
        if seen is None:
            self._endings[name] = f"the container {name[:12]} is not there any more"
            return
        state = seen["State"]
        why = ["out of memory"] if state.get("OOMKilled") else []
        why += [str(state["Error"])[:200]] if state.get("Error") else []
        words = f"the container {name[:12]} ended with exit code {state.get('ExitCode')}"
        self._endings[name] = words + (f" ({'; '.join(why)})" if why else "")
        with contextlib.suppress(GridopsError, OSError):
            (self._setup.folder(body) / "log").write_text(self._api.log(name), "utf-8")

    def ending(self, handle: Handle) -> str:
        """Exit code, and whether the kernel ended it for its memory."""
        name = handle.name or ""
        return self._endings.get(name, f"the container {name[:12]} ended")

    def settle(self, handle: Handle) -> Handle:
        """A container is what it was from the start."""
        return replace(handle, settled=True)

    def forget(self, handle: Handle) -> None:
        """Its end has been told."""
        self._endings.pop(handle.name or "", None)

    # --- finding --------------------------------------------------------------------------------------------------

    async def recover(self, body: Digest, port: int, key_file: Path) -> Handle | None:
        """The newest running container that carries a body."""
        rows = await asyncio.to_thread(self._api.listed, self._setup.owner.labels(body))
        for row in sorted(rows, key=lambda r: (-int(r.get("Created", 0)), str(r["Id"]))):
            return await asyncio.to_thread(self._handle, str(row["Id"]), port, str(key_file))
        return None

    async def pids(self, body: Digest, handle: Handle) -> tuple[int, ...]:
        """Every process of the container; none where the runtime keeps them out of sight (a virtual machine)."""
        if await self.prove(body, handle) is not Proof.OURS or handle.name is None:
            return ()
        found: tuple[int, ...] = ()
        with contextlib.suppress(Failed):
            found = await asyncio.to_thread(self._api.processes, handle.name)
        # A list that leaves out the first process is of other numbers than this host's.
        return found if handle.pid in found else (handle.pid,) if handle.pid else ()

    async def strangers(self, known: frozenset[Digest]) -> tuple[tuple[str, str], ...]:
        """Running containers of this agent for bodies that nobody remembers."""
        try:
            rows = await asyncio.to_thread(self._api.listed, self._setup.owner.labels())
        except Failed:
            return ()
        found = ((f"the container {str(r['Id'])[:12]}", str(r["Labels"].get(spec.BODY, ""))) for r in rows)
        return tuple((what, body) for what, body in sorted(found) if body not in known)

    # --- stopping -------------------------------------------------------------------------------------------------

    async def stop(self, body: Digest, handle: Handle | None, steps: Steps = STOP_STEPS) -> Stopped:
        """Stop with the grace, then kill; gone is what `inspect` says. Never a signal of ours."""
        if handle is not None and await self.judge(body, handle) is Proof.NOT_OURS:
            return Stopped(False, f"the container {handle.name} cannot be proved to be ours: it is left alone")
        try:
            rows = await asyncio.to_thread(self._api.listed, self._setup.owner.labels(body))
            names = {str(row["Id"]) for row in rows}
            if handle is not None and handle.taken and await self.prove(body, handle) is Proof.OURS:
                names.add(str(handle.name))
            left = [name for name in sorted(names) if not await self._end(name, steps)]
            if not left:
                await asyncio.to_thread(self._tidy, body, handle)
        except Failed as error:
            return Stopped(False, error.message)
        if left:
            return Stopped(False, f"still running after kill: {', '.join(name[:12] for name in left)}")
        return Stopped(True)

    async def _end(self, name: str, steps: Steps) -> bool:
        grace = sum(patience for number, patience in steps if number != signal.SIGKILL)
        await asyncio.to_thread(self._api.stop, name, math.ceil(grace))
        if await self._gone(name, 1.0):
            return True
        with contextlib.suppress(Silent):
            await asyncio.to_thread(self._api.kill, name)
        return await self._gone(name, steps[-1][1])

    async def _gone(self, name: str, patience: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        while True:
            seen = await asyncio.to_thread(self._api.inspect, name)
            if seen is None or not _lives(seen):
                return True
            if loop.time() >= end:
                return False
            await asyncio.sleep(_POLL_S)

    def _tidy(self, body: Digest, handle: Handle | None) -> None:
        """Remove what served and was stopped in order; keep the newest of those that failed, for their logs."""
        ended = [r for r in self._api.listed(self._setup.owner.labels(), stopped=True) if r.get("State") in _ENDED]
        ended.sort(key=lambda r: (-int(r.get("Created", 0)), str(r["Id"])))
        served = handle.name if handle is not None and handle.settled and not handle.taken else None
        for number, row in enumerate(ended):
            if row["Id"] == served or number >= limits.ENDED_CONTAINERS_KEPT:
                with contextlib.suppress(Failed):  # somebody else may have removed it a moment ago
                    self._api.remove(str(row["Id"]))


_ENDED = ("created", "exited", "dead", "stopped")


def _lives(seen: Mapping[str, Any]) -> bool:
    """Anything but proved not to run. A paused one lives: it holds its memory."""
    state = seen["State"]
    if state.get("Running") or state.get("Paused") or state.get("Restarting"):
        return True
    return str(state.get("Status", "")) not in (*_ENDED, "removing", "initialized", "configured")
