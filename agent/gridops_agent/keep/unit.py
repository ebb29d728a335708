"""Keeps engines as systemd user units that a person set up: started and stopped through systemd alone.

Identity is the invocation with its main process and control group. A unit that runs and was not started by this agent
is somebody else's until it is taken over. The unit file is never written; a drop-in of ours keeps units of one device
apart and says which command a unit was started for.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import dataclass, replace
from pathlib import Path

from gridops.base.codes import host as codes
from gridops.base.errors import Failed, Refusal
from gridops.base.ids import Digest, EngineName
from gridops.model.fleet import Runtime
from gridops.model.plan import Launch
from gridops_agent.core.state import Handle
from gridops_agent.engines.base import Start
from gridops_agent.hearsay import count
from gridops_agent.keep import systemctl
from gridops_agent.keep.base import STOP_STEPS, Place, Proof, Publish, Spawn, Steps, Stopped, lasting, record
from gridops_agent.keep.family import family
from gridops_agent.keep.systemctl import Seen
from gridops_agent.keep.unit_files import COOKIE, TAKEN_OVER, DropIns, rivals
from gridops_agent.keep.ways import Unit
from gridops_agent.platform.base import Platform

DOUBT_LOOKS, DOUBT_S = 4, 0.5
_POLL_S = 0.2
_SAFE_KILL = ("control-group", "mixed")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a host says about its units."""

    units: tuple[Unit, ...]
    drop_ins: DropIns
    groups: tuple[Path, ...] = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/systemd"))
    """Where control groups lie: v2, and the named hierarchy of v1."""


class UnitKeeper:
    """Units of one person's systemd."""

    kind = "unit"

    def __init__(self, platform: Platform, setup: Setup) -> None:
        self._platform = platform
        self._setup = setup
        self._ready: tuple[Runtime, ...] = ()
        self._endings: dict[str, str] = {}
        self._tidied = False

    def serves(self, launch: Launch) -> bool:
        """Whether a unit of this host is set up for a launch."""
        return self._of(launch) is not None

    def _of(self, launch: Launch) -> Unit | None:
        found = (u for u in self._setup.units if (u.engine, u.profile) == (launch.engine, launch.profile))
        return next(found, None)

    def runtimes(self) -> tuple[Runtime, ...]:
        """The engines whose units are loaded."""
        return self._ready

    async def refresh(self) -> None:
        """Ask for each unit; remove drop-ins of units that are named no more."""
        self._ready = await asyncio.to_thread(self._found)

    def _found(self) -> tuple[Runtime, ...]:
        found = set()
        with contextlib.suppress(Failed):
            if not self._tidied and self._setup.drop_ins.tidy():
                systemctl.reload()
            self._tidied = True
            for unit in self._setup.units:
                if systemctl.show(unit.name).loaded:
                    found.add(Runtime(engine=EngineName(unit.engine), backend=unit.backend))
        return tuple(sorted(found, key=lambda r: (r.engine, r.backend)))

    def place(self, launch: Launch) -> Place | None:
        """Port and key are the unit's own; its weights are held against the artifact."""
        unit = self._of(launch)
        return Place(port=unit.port, key_file=unit.key_file, weights=True) if unit is not None else None

    def build(self, launch: Launch) -> str | None:
        """The unit's name: what it starts is what a person wrote into it."""
        unit = self._of(launch)
        return unit.name if unit is not None else ""

    @property
    def own_network(self) -> bool:
        """It sees what its file lets it see, which is not read here."""
        return False

    def inside(self, start: Start) -> Start:
        """A unit sees this host as we do."""
        return start

    async def close(self) -> None:
        """Nothing is kept open."""

    # --- starting -------------------------------------------------------------------------------------------------

    async def start(self, spawn: Spawn, publish: Publish) -> Handle:
        """Check, write the drop-in, start through systemd, publish."""
        assert spawn.begin is not None
        unit = self._of(spawn.begin.launch)
        if unit is None:
            raise Refusal(codes.NO_RUNTIME.code, f"no unit of this host serves {spawn.begin.launch.profile}")
        handle = await asyncio.to_thread(self._begin, unit, spawn)

        async def undo() -> None:
            await self._end(unit.name, STOP_STEPS)

        await record(publish, handle, undo)
        return handle

    def _begin(self, unit: Unit, spawn: Spawn) -> Handle:
        self._refuse(unit, spawn)
        self._setup.drop_ins.write(unit, spawn.body)
        systemctl.reload()
        seen = systemctl.show(unit.name)
        if seen.said.get("KillMode") not in _SAFE_KILL:
            words = f"{unit.name} has KillMode={seen.said.get('KillMode')}, which leaves processes behind"
            raise Refusal(codes.BAD_ARGUMENT.code, words)
        systemctl.start(unit.name)
        seen = systemctl.show(unit.name)
        if not seen.lives or not seen.life:
            raise Failed(f"{unit.name} did not come up: {seen.ending}")
        return self._handle(unit, seen)

    def _refuse(self, unit: Unit, spawn: Spawn) -> None:
        assert spawn.begin is not None
        seen = systemctl.show(unit.name)
        if not seen.loaded:
            raise Refusal(codes.NO_RUNTIME.code, f"systemd has no unit {unit.name} ({seen.said.get('LoadState')})")
        if seen.lives:
            raise Refusal(
                codes.NOT_OURS.code,
                f"{unit.name} runs already and was not started by this agent",
                hints=(f"gridops-agent takeover {unit.name}", f"systemctl --user stop {unit.name}"),
            )
        begin = spawn.begin
        if not {str(begin.model), str(begin.model.resolve()), str(begin.folder)} & set(seen.words):
            raise Refusal(codes.NO_ARTIFACT.code, f"the command line of {unit.name} does not name {begin.model}")
        for rival in rivals(unit, self._setup.units):
            if systemctl.show(rival).lives:
                raise Refusal(codes.DEVICE_TAKEN.code, f"{rival} runs on a device that {unit.name} needs")

    def _handle(self, unit: Unit, seen: Seen) -> Handle:
        return Handle(
            pid=seen.pid,
            birth=seen.life,
            port=unit.port,
            key_file=unit.key_file,
            executable=self._platform.executable(seen.pid) if seen.pid else None,
            keeper=self.kind,
            name=unit.name,
        )

    # --- proving --------------------------------------------------------------------------------------------------

    def look(self, body: Digest, handle: Handle) -> Proof:
        """Ask systemd. The same invocation is the same life; its main process must be in its control group."""
        assert handle.name is not None
        try:
            seen = systemctl.show(handle.name)
        except (Failed, ValueError):
            return Proof.NOT_OURS
        if not seen.lives or seen.life != handle.birth:
            self._endings[handle.name] = f"the unit {handle.name} ended: {seen.ending}"
            return Proof.GONE
        if handle.taken or not seen.pid:
            return Proof.OURS
        told = self._platform.environment(seen.pid)
        return Proof.OURS if told is not None and told.get(COOKIE) == body else Proof.NOT_OURS

    async def prove(self, body: Digest, handle: Handle) -> Proof:
        """One look, in a thread: systemctl is a program."""
        return await asyncio.to_thread(self.look, body, handle)

    async def judge(self, body: Digest, handle: Handle) -> Proof:
        """`prove`, and a doubt only if it lasts: a process shows no environment while it begins."""
        return await lasting(lambda: self.prove(body, handle), DOUBT_LOOKS, DOUBT_S)

    async def recover(self, body: Digest, port: int, key_file: Path) -> Handle | None:
        """The unit that was started for a body and whose start was never recorded."""
        for unit, seen, carried in await asyncio.to_thread(self._running):
            if carried == body:
                return self._handle(unit, seen)
        return None

    def _running(self) -> tuple[tuple[Unit, Seen, str], ...]:
        found = []
        for unit in self._setup.units:
            with contextlib.suppress(Failed):
                seen = systemctl.show(unit.name)
                told = self._platform.environment(seen.pid) if seen.lives and seen.pid else None
                if told is not None and told.get(COOKIE, TAKEN_OVER) != TAKEN_OVER:
                    found.append((unit, seen, told[COOKIE]))
        return tuple(found)

    async def strangers(self, known: frozenset[Digest]) -> tuple[tuple[str, str], ...]:
        """Units that run for a body that nobody remembers."""
        running = await asyncio.to_thread(self._running)
        return tuple((f"the unit {unit.name}", body) for unit, _, body in running if body not in known)

    async def pids(self, body: Digest, handle: Handle) -> tuple[int, ...]:
        """Every process of its control group; the main one may be only a wrapper."""
        return await asyncio.to_thread(self._members, body, handle)

    def _members(self, body: Digest, handle: Handle) -> tuple[int, ...]:
        if self.look(body, handle) is not Proof.OURS or handle.name is None:
            return ()
        with contextlib.suppress(Failed):
            seen = systemctl.show(handle.name)
            inside = self._in_group(seen.group)
            main = self._platform.process(seen.pid) if seen.pid else None
            near = {p.pid for p in family(self._platform, main)} if main is not None else set()
            return tuple(sorted(inside or near))
        return ()

    def _in_group(self, group: str) -> set[int]:
        if not group.strip("/"):
            return set()
        found: set[int] = set()
        for root in self._setup.groups:
            for file in (root / group.lstrip("/")).glob("**/cgroup.procs"):
                with contextlib.suppress(OSError):
                    found |= {pid for pid in map(count, file.read_text("ascii", "replace").split()) if pid is not None}
        return found

    # --- stopping -------------------------------------------------------------------------------------------------

    async def stop(self, body: Digest, handle: Handle | None, steps: Steps = STOP_STEPS) -> Stopped:
        """Have systemd stop it, then kill it. Never a signal of ours."""
        if handle is None:
            handle = await self.recover(body, 0, Path())
            if handle is None:
                return Stopped(True)
        proof = await self.judge(body, handle)
        if proof is Proof.NOT_OURS:
            return Stopped(False, f"the unit {handle.name} cannot be proved to be ours: it is left alone")
        if proof is Proof.GONE:
            return Stopped(True)
        return await self._end(str(handle.name), steps)

    async def _end(self, name: str, steps: Steps) -> Stopped:
        gentle = sum(patience for number, patience in steps if number != signal.SIGKILL)
        try:
            await asyncio.to_thread(systemctl.stop, name)
            if await self._at_rest(name, gentle):
                return Stopped(True)
            await asyncio.to_thread(systemctl.kill, name)
            if await self._at_rest(name, steps[-1][1]):
                return Stopped(True)
        except Failed as error:
            return Stopped(False, error.message)
        return Stopped(False, f"{name} is not at rest after systemd killed it")

    async def _at_rest(self, name: str, patience: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        while True:
            seen = await asyncio.to_thread(systemctl.show, name)
            if not seen.lives and not self._in_group(seen.group):
                return True
            if loop.time() >= end:
                return False
            await asyncio.sleep(_POLL_S)

    def ending(self, handle: Handle) -> str:
        """Systemd's result, and the status of the main process."""
        return self._endings.get(handle.name or "", f"the unit {handle.name} ended")

    def settle(self, handle: Handle) -> Handle:
        """The main process may have become the real program by now."""
        return replace(handle, settled=True)

    def forget(self, handle: Handle) -> None:
        """Its end has been told."""
        self._endings.pop(handle.name or "", None)
