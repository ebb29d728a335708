"""The lab's processes beside real ones: found again by their command, outliving their agent, gone once and wholly."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from gridops.base.canon import digest_bytes
from gridops.base.ids import Digest
from gridops.lab.agenda import Agenda
from gridops.lab.dice import Dice
from gridops.lab.options import Options
from gridops.lab.procs import Processes
from gridops_agent.core.state import Handle
from gridops_agent.keep.base import Spawn
from gridops_agent.keep.child import COOKIE, ChildKeeper
from gridops_agent.platform import here
from tests.agent.site import until

ONE, OTHER = digest_bytes(b"one" + os.urandom(8)), digest_bytes(b"other" + os.urandom(8))
PORT = 18_311
SLEEP = (sys.executable, "-Sc", "import time; time.sleep(60)")


class Table(Protocol):
    """What the lab takes a machine to do with processes."""

    def start(self, body: Digest) -> int: ...

    def of(self, body: Digest) -> int | None: ...

    def stop(self, body: Digest) -> bool: ...

    def dies(self, pid: int) -> None: ...

    def another_agent(self) -> None: ...


class LabTable:
    def __init__(self) -> None:
        self._processes = Processes(Agenda(), Options(seed=1), Dice(1, "twins"))

    def start(self, body: Digest) -> int:
        return self._processes.spawn(body, 1).pid

    def of(self, body: Digest) -> int | None:
        found = self._processes.of(body)
        return found.pid if found is not None else None

    def stop(self, body: Digest) -> bool:
        found = self._processes.of(body)
        return found is None or self._processes.stop(found.pid)

    def dies(self, pid: int) -> None:
        self._processes.end(pid)

    def another_agent(self) -> None:
        """Processes are the machine's."""


class RealTable:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handles: dict[Digest, Handle] = {}
        self.another_agent()

    def start(self, body: Digest) -> int:
        async def keep(handle: Handle) -> None:
            self._handles[body] = handle

        folder = self._folder / body[7:15]
        folder.mkdir(exist_ok=True)
        (folder / "engine.key").touch(mode=0o600)
        spawn = Spawn(body, SLEEP, {}, folder, PORT, folder / "engine.key")
        return asyncio.run(self._keeper.start(spawn, keep)).pid

    def of(self, body: Digest) -> int | None:
        found = asyncio.run(self._keeper.recover(body, PORT, self._folder / body[7:15] / "engine.key"))
        return found.pid if found is not None else None

    def stop(self, body: Digest) -> bool:
        return asyncio.run(self._keeper.stop(body, self._handles.get(body))).gone

    def dies(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        asyncio.run(until(lambda: all(p.pid != pid or p.zombie for p in here().processes())))

    def another_agent(self) -> None:
        self._keeper = ChildKeeper(here(), self._folder)


@pytest.fixture(params=["real", "lab"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    yield RealTable(tmp_path) if request.param == "real" else LabTable()
    for process in here().processes():
        environment = here().environment(process.pid) or {}
        if not process.zombie and environment.get(COOKIE) in (ONE, OTHER):
            here().send(process, signal.SIGKILL)


def test_a_process_is_found_by_its_command_and_outlives_its_agent(machine: Table) -> None:
    assert machine.of(ONE) is None
    pid = machine.start(ONE)
    assert machine.of(ONE) == pid
    assert machine.of(OTHER) is None
    machine.another_agent()
    assert machine.of(ONE) == pid


def test_a_process_that_was_stopped_is_gone_and_no_other_one(machine: Table) -> None:
    machine.start(ONE)
    other = machine.start(OTHER)
    assert machine.stop(ONE)
    assert machine.of(ONE) is None
    assert machine.of(OTHER) == other
    assert machine.stop(ONE), "whoever is gone can be told to go again"


def test_a_process_that_died_is_not_found(machine: Table) -> None:
    machine.dies(machine.start(ONE))
    assert machine.of(ONE) is None
    assert machine.start(ONE) == machine.of(ONE), "its command may be started again"
