"""Keeps engines as child processes: starts, proves, adopts and stops them.

Identity is a cookie in the environment the process was started with, its birth time, and its executable once it has
been ready. No signal is sent without that proof, and a process that cannot be proved is left alone. Engines live in
their own session and never die with the agent (no PDEATHSIG), so that a restarted agent can come back and adopt them.
Called by the effects runner; decides nothing about when a process should run.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gridops.base.canon import digest_bytes
from gridops.base.errors import Failed
from gridops.base.ids import Digest, short
from gridops.model.fleet import Runtime
from gridops.model.plan import Launch
from gridops_agent.core.state import Handle
from gridops_agent.engines.base import Start
from gridops_agent.keep.base import STOP_STEPS, Place, Proof, Publish, Spawn, Steps, Stopped, lasting, record
from gridops_agent.keep.family import family, listener
from gridops_agent.platform.base import Platform, Process
from gridops_agent.platform.groups import Groups
from gridops_agent.statefolder import is_held
from gridops_agent.supervise import Child, begin

COOKIE = "GRIDOPS_BODY"
"""Names the command that started the process. A digest, not a secret."""
HOME = "GRIDOPS_STATE"
"""Names the state folder of the agent that started it, so that two agents on one machine never mix theirs."""
DOUBT_LOOKS, DOUBT_S = 40, 0.05


class ChildKeeper:
    """Processes of one agent. Holds only what a restart can find again: the children it may still reap."""

    kind = "child"

    def __init__(self, platform: Platform, home: Path, groups: Groups | None = None) -> None:
        self._platform = platform
        self._home = str(home.resolve())
        self._groups = groups or Groups()
        self._children: dict[int, Child] = {}

    def runtimes(self) -> tuple[Runtime, ...]:
        """What can be started as a child is what the adapters find."""
        return ()

    async def refresh(self) -> None:
        """Nothing is remembered."""

    def place(self, launch: Launch) -> Place | None:
        """The agent chooses port and key."""
        return None

    def build(self, launch: Launch) -> str | None:
        """The program on PATH, or the one that agent.toml names."""
        return None

    @property
    def own_network(self) -> bool:
        """A child sees what the agent sees."""
        return False

    def inside(self, start: Start) -> Start:
        """A child sees this host as the agent does."""
        return start

    async def start(self, spawn: Spawn, publish: Publish) -> Handle:
        """Start the process and publish its handle at once. A child that cannot be published is ended again."""
        child = self._spawn(spawn)
        seen = self._platform.process(child.pid)
        if seen is None:
            code = child.wait()
            self._children.pop(child.pid, None)
            raise Failed(f"{spawn.argv[0]} ended at once with {_status(code)}")
        handle = Handle(
            pid=child.pid,
            birth=seen.birth,
            port=spawn.port,
            key_file=str(spawn.key_file),
            executable=self._platform.executable(child.pid),
        )

        async def undo() -> None:
            self._end_unrecorded(child, spawn.body, handle)

        await record(publish, handle, undo)
        await self.judge(spawn.body, handle)
        return handle

    def _end_unrecorded(self, child: Child, body: Digest, handle: Handle) -> None:
        """Nobody would know of this process after a restart: neither it nor what it started may outlive this moment."""
        now = self._platform.process(handle.pid)
        if now is not None and now.birth == handle.birth:
            # Our own child, alive or not yet reaped, and nobody reaps between two lines: the number is still its own.
            os.killpg(handle.pid, signal.SIGKILL)
            child.wait()
        if self._children.get(handle.pid) is child:
            del self._children[handle.pid]
        for process in self.members(body, None):
            self._platform.send(process, signal.SIGKILL)

    def _spawn(self, spawn: Spawn) -> Child:
        told = {"OMP_WAIT_POLICY": "passive", **spawn.environment, COOKIE: spawn.body, HOME: self._home}
        child = begin(spawn.argv, told, spawn.folder, spawn.log)
        self._groups.enter(self._group(spawn.body), child.pid)
        self._children[child.pid] = child
        return child

    def look(self, body: Digest, handle: Handle) -> Proof:
        """Is the process of this handle alive and ours? Reaps it if it was our child and has ended."""
        self._reap(handle.pid)
        now = self._platform.process(handle.pid)
        if now is None or now.zombie or now.birth != handle.birth:
            # Another birth under the same pid is another process: ours is dead, and the number was given away.
            return Proof.GONE
        if (
            handle.taken
        ):  # it carries no mark of ours: the same birth and the same program are what a person handed over
            return Proof.OURS if self._platform.executable(handle.pid) == handle.executable else Proof.NOT_OURS
        environment = self._platform.environment(handle.pid)
        if environment is None or not self._marked(environment, body):
            return Proof.NOT_OURS
        if handle.settled and self._platform.executable(handle.pid) != handle.executable:
            return Proof.NOT_OURS
        return Proof.OURS

    async def prove(self, body: Digest, handle: Handle) -> Proof:
        """A look reads three small files: it needs no thread."""
        return self.look(body, handle)

    async def judge(self, body: Digest, handle: Handle) -> Proof:
        """`prove`, and a doubt only if it lasts: a process shows no environment while it begins and while it ends."""
        return await lasting(lambda: self.prove(body, handle), DOUBT_LOOKS, DOUBT_S)

    def answers(self, body: Digest, handle: Handle) -> bool:
        """Whether its port is its own. Where the system does not say who listens, nobody is accused."""
        found = listener(self._platform, handle.port)
        return found is None or found.pid in {p.pid for p in self.members(body, handle)}

    def settle(self, handle: Handle) -> Handle:
        """The handle enriched once the process is ready: a start script has by then become the real program."""
        return replace(handle, executable=self._platform.executable(handle.pid), settled=True)

    async def recover(self, body: Digest, port: int, key_file: Path) -> Handle | None:
        """The handle of a living process that carries a body's cookie; the leader of its session comes first."""
        carrying = self._carrying(body)
        for process in sorted(carrying, key=lambda p: (p.pid != p.session, p.pid)):
            return Handle(
                pid=process.pid,
                birth=process.birth,
                port=port,
                key_file=str(key_file),
                executable=self._platform.executable(process.pid),
            )
        return None

    async def strangers(self, known: frozenset[Digest]) -> tuple[tuple[str, str], ...]:
        """Living processes that this agent's state folder started for bodies nobody remembers."""
        found: list[tuple[str, str]] = []
        for process in self._platform.processes():
            environment = {} if process.zombie else self._platform.environment(process.pid) or {}
            body = environment.get(COOKIE)
            if body is not None and environment.get(HOME) == self._home and body not in known:
                found.append((f"pid {process.pid}", body))
        return tuple(found)

    def members(self, body: Digest, handle: Handle | None) -> tuple[Process, ...]:
        """Every living process that is proved to belong to a body.

        With a proved leader its whole group and session; without one only those that carry the cookie, since the
        number of a dead leader's group may have been given to others.
        """
        found = {p.pid: p for p in (*self._carrying(body), *self._grouped(body))}
        if handle is None:
            return tuple(found[pid] for pid in sorted(found))
        if handle.taken:  # its session may be a person's shell: only what it leads itself comes with it
            leader = self._platform.process(handle.pid)
            near = {p.pid: p for p in family(self._platform, leader)} if leader is not None else {}
        else:
            living = (p for p in self._platform.processes() if not p.zombie)
            near = {p.pid: p for p in living if handle.pid in (p.group, p.session)}
        # Proved after the look: a leader that is alive now has kept its number to itself all the while.
        if self.look(body, handle) is Proof.OURS:
            found |= near
        return tuple(found[pid] for pid in sorted(found))

    def _grouped(self, body: Digest) -> list[Process]:
        """Whom the kernel keeps in the body's control group. Read twice: a number given away is in no group."""
        name = self._group(body)
        found = [self._platform.process(pid) for pid in self._groups.pids(name)]
        still = set(self._groups.pids(name)) if found else set()
        return [p for p in found if p is not None and not p.zombie and p.pid in still]

    def _group(self, body: Digest) -> str:
        """The control group of a body: of this agent, and of no other on the machine."""
        return f"gridops-{short(body, 16)}-{short(digest_bytes(self._home.encode()), 8)}"

    def _carrying(self, body: Digest) -> list[Process]:
        found: list[Process] = []
        for process in self._platform.processes():
            if not process.zombie:
                environment = self._platform.environment(process.pid)
                if environment is not None and self._marked(environment, body):
                    found.append(process)
        return found

    def _marked(self, environment: Mapping[str, str], body: Digest) -> bool:
        """Whether a process says that it was started for this body, by this agent.

        A state folder that was moved goes on with its engines. One that was copied does not while the agent of the
        other one lives: both would hold the same command, and each would end or replace what is the other's.
        """
        home = environment.get(HOME, self._home)
        return environment.get(COOKIE) == body and (home == self._home or not is_held(Path(home)))

    async def stop(self, body: Digest, handle: Handle | None, steps: Steps = STOP_STEPS) -> Stopped:
        """Gently, then firmly; done when every proved member is gone. Zombies are gone: they hold no memory."""
        if handle is not None and await self.judge(body, handle) is Proof.NOT_OURS:
            return Stopped(False, f"pid {handle.pid} is alive and cannot be proved to be ours: it is not signalled")
        members = self.members(body, handle)
        for number, patience in steps:
            for process in members:
                self._platform.send(process, number)
            members = await self._wait_gone(members, patience)
            if not members:
                # A child started while we were stopping carries the cookie too.
                members = self.members(body, handle)
                if not members:
                    self._groups.leave(self._group(body))
                    return Stopped(True)
        pids = ", ".join(str(p.pid) for p in members)
        return Stopped(False, f"still alive after KILL: pid {pids}")

    async def _wait_gone(self, members: tuple[Process, ...], patience: float) -> tuple[Process, ...]:
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        while True:
            members = tuple(p for p in members if self._alive(p))
            if not members or loop.time() >= end:
                return members
            await asyncio.sleep(0.05)

    def _alive(self, process: Process) -> bool:
        self._reap(process.pid)
        now = self._platform.process(process.pid)
        return now is not None and now.birth == process.birth and not now.zombie

    def _reap(self, pid: int) -> None:
        child = self._children.get(pid)
        if child is not None:
            child.poll()

    def ending(self, handle: Handle) -> str:
        """How the process ended, as far as this agent can know (only its own children tell)."""
        child = self._children.get(handle.pid)
        code = child.poll() if child is not None else None
        return f"pid {handle.pid} ended" + (f" with {_status(code)}" if code is not None else "")

    def forget(self, handle: Handle) -> None:
        """Drop what is kept about a process that has ended."""
        child = self._children.get(handle.pid)
        if child is not None and child.poll() is not None:
            del self._children[handle.pid]

    async def pids(self, body: Digest, handle: Handle) -> tuple[int, ...]:
        """The session and the group of a proved process."""
        return self.processes_of({body: handle})

    async def close(self) -> None:
        """A child needs no connection."""

    def processes_of(self, handles: Mapping[Digest, Handle]) -> tuple[int, ...]:
        """Every pid in the session or group of a proved process, in one pass over all processes."""
        proved = {body: handle for body, handle in handles.items() if self.look(body, handle) is Proof.OURS}
        if not proved:
            return ()
        leaders = {handle.pid for handle in proved.values()}
        living = (p for p in self._platform.processes() if not p.zombie)
        found = {p.pid for p in living if p.session in leaders or p.group in leaders}
        found |= {p.pid for body in proved for p in self._grouped(body)}
        return tuple(sorted(found))


def _status(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
