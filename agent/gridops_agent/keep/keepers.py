"""The ways of keeping engines that this host has, behind one door: each call goes to the keeper of its handle.

Called by whoever starts, looks at, or stops an engine. Which keeper a new start gets is this host's own choice
(`agent.toml`), never the controller's. A handle of a keeper that is not set up here any more is never proved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from gridops.base.ids import Digest, EngineName
from gridops.model.fleet import Runtime
from gridops.model.plan import Launch
from gridops_agent.core.state import Handle, Held
from gridops_agent.engines.base import Adapter
from gridops_agent.keep.base import STOP_STEPS, Keeper, Proof, Steps, Stopped
from gridops_agent.keep.child import ChildKeeper
from gridops_agent.keep.unit import UnitKeeper


class Keepers:
    """Every keeper of one agent. `ways` says by engine which one starts it; the others are child processes."""

    def __init__(self, child: ChildKeeper) -> None:
        self.child = child
        self._by_kind: dict[str, Keeper] = {child.kind: child}
        self._ways: dict[str, str] = {}
        self._launch_of: Callable[[Digest], Launch | None] = lambda body: None

    def add(self, keeper: Keeper, engines: Iterable[str]) -> None:
        """One more way, and the engines that are started by it."""
        self._by_kind[keeper.kind] = keeper
        self._ways |= dict.fromkeys(engines, keeper.kind)

    def know(self, launch_of: Callable[[Digest], Launch | None]) -> None:
        """Where to look up what a body started: some can be proved only by what they were to be."""
        self._launch_of = launch_of

    def launch_of(self, body: Digest) -> Launch | None:
        """What a body started, as far as anybody has told."""
        return self._launch_of(body)

    def of_launch(self, launch: Launch) -> Keeper:
        """Who starts an engine on this host."""
        unit = self._by_kind.get(UnitKeeper.kind)
        if isinstance(unit, UnitKeeper) and unit.serves(launch):
            return unit
        return self._by_kind[self._ways.get(launch.engine, self.child.kind)]

    def chose_port(self, launch: Launch, handle: Handle) -> bool:
        """Whether port and key of an engine are this agent's choice, so that nobody else was told the way to it."""
        keeper = self.of(handle)
        return keeper is not None and keeper.place(launch) is None

    def of(self, handle: Handle) -> Keeper | None:
        """Who knows a handle; None when nothing on this host does any more."""
        return self._by_kind.get(handle.keeper)

    def runtimes(self, own: Mapping[EngineName, Adapter]) -> tuple[Runtime, ...]:
        """What this host can start: by their adapters the programs, by their keepers everything else."""
        found = {r for name, adapter in own.items() if name not in self._ways for r in adapter.runtimes()}
        found |= {r for kind in sorted(self._by_kind) for r in self._by_kind[kind].runtimes()}
        return tuple(sorted(found, key=lambda r: (r.engine, r.backend)))

    async def refresh(self) -> None:
        """Look again what can be started."""
        for kind in sorted(self._by_kind):
            await self._by_kind[kind].refresh()

    async def close(self) -> None:
        """Let go of connections. Every engine stays as it is."""
        for kind in sorted(self._by_kind):
            await self._by_kind[kind].close()

    def look(self, body: Digest, handle: Handle) -> Proof:
        """One look, which may take a moment."""
        keeper = self.of(handle)
        return keeper.look(body, handle) if keeper is not None else Proof.NOT_OURS

    async def prove(self, body: Digest, handle: Handle) -> Proof:
        """Is the engine of this handle alive and ours?"""
        keeper = self.of(handle)
        return await keeper.prove(body, handle) if keeper is not None else Proof.NOT_OURS

    async def judge(self, body: Digest, handle: Handle) -> Proof:
        """`prove`, and a doubt only if it lasts."""
        keeper = self.of(handle)
        return await keeper.judge(body, handle) if keeper is not None else Proof.NOT_OURS

    async def stop(self, body: Digest, handle: Handle, steps: Steps = STOP_STEPS) -> Stopped:
        """End the engine of a handle, and whatever it left that can be proved."""
        keeper = self.of(handle)
        return await keeper.stop(body, handle, steps) if keeper is not None else Stopped(False, self.doubt(handle))

    async def sweep(self, body: Digest, held: Held | None, steps: Steps = STOP_STEPS) -> Stopped:
        """End whatever carries a body, though no handle names it. What is not known to be held may be kept anyhow."""
        if held is None:
            kinds = frozenset(self._by_kind)
        else:
            kinds = frozenset((self.child.kind, self.of_launch(held.warm.launch).kind))
            kinds |= {held.handle.keeper} if held.handle is not None else frozenset()
        for kind in sorted(kinds & frozenset(self._by_kind)):
            stopped = await self._by_kind[kind].stop(body, None, steps)
            if not stopped.gone:
                return stopped
        return Stopped(True)

    async def recover(self, held: Held, key_file: Path) -> Handle | None:
        """What lives of a residency whose handle was never recorded."""
        port = held.port if held.port is not None else 0
        for keeper in dict.fromkeys((self.of_launch(held.warm.launch), self.child)):
            found = await keeper.recover(held.body, port, key_file)
            if found is not None:
                return found
        return None

    async def absent(self, held: Held) -> bool:
        """Nothing of a residency is left, neither what its handle names nor what carries its body."""
        if held.handle is not None and await self.prove(held.body, held.handle) is not Proof.GONE:
            return False
        return await self.recover(held, Path()) is None

    async def processes_of(self, handles: Mapping[Digest, Handle]) -> tuple[int, ...]:
        """Every process of proved engines: what facts may count as ours. Children are found in one pass."""
        own = self.child.kind
        found = set(self.child.processes_of({body: h for body, h in handles.items() if h.keeper == own}))
        for body, handle in handles.items():
            keeper = self.of(handle)
            if keeper is not None and handle.keeper != own:
                found.update(await keeper.pids(body, handle))
        return tuple(sorted(found))

    async def strangers(self, known: frozenset[Digest]) -> tuple[tuple[str, str], ...]:
        """What this agent's state folder started for bodies that nobody remembers: (what it is, body)."""
        found: list[tuple[str, str]] = []
        for kind in sorted(self._by_kind):
            found += await self._by_kind[kind].strangers(known)
        return tuple(found)

    async def answers(self, body: Digest, handle: Handle) -> bool:
        """Whether what answers at a child's port is the child. False only when it is known to be somebody else."""
        if handle.keeper != self.child.kind:
            return True
        return await asyncio.to_thread(self.child.answers, body, handle)

    def doubt(self, handle: Handle) -> str:
        """Why a living engine is left alone, in words."""
        if self.of(handle) is None:
            return f"it is kept as a {handle.keeper}, and this host has no way to ask about those (agent.toml)"
        if handle.name is not None:
            return f"the {handle.keeper} {handle.name} cannot be proved to be ours: it is left alone"
        return f"pid {handle.pid} is alive and cannot be proved to be ours: it is not signalled"

    def ending(self, handle: Handle) -> str:
        """How it ended, as far as can be known."""
        keeper = self.of(handle)
        return keeper.ending(handle) if keeper is not None else "it ended"

    def settle(self, handle: Handle) -> Handle:
        """The handle enriched once it is ready."""
        keeper = self.of(handle)
        return keeper.settle(handle) if keeper is not None else handle

    def forget(self, handle: Handle) -> None:
        """Drop what is kept about what has ended."""
        keeper = self.of(handle)
        if keeper is not None:
            keeper.forget(handle)
