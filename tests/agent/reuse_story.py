"""Engines whose pid the kernel gives to a stranger, told in a process of its own: `python -m tests.agent.reuse_story`.

Run as the first process of a PID namespace it makes the kernel reuse the number for real (`ns_last_pid`), and whatever
it leaves ends with the namespace. Without one (`pretended`) the agent's memory is made to name a stranger's pid with
the birth of the engine that had it, which is what a reused number looks like. Ends with 0 when everything held.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.canon import digest_bytes
from gridops.base.errors import Failed
from gridops.base.ids import Digest
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core.state import Handle, put
from gridops_agent.keep.base import Proof, Spawn
from gridops_agent.keep.child import ChildKeeper
from gridops_agent.platform import here
from gridops_agent.shell import Agent
from tests.agent.site import Site, command, done, held_of, pid_of, receipt, until
from tests.builders.tiny_gguf import write_tiny_gguf

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
STRANGER = ("/bin/sleep", "300")
"""Any signal that an agent sends ends it."""
STARTED: list[subprocess.Popen[bytes]] = []


def stranger(pid: int | None) -> subprocess.Popen[bytes]:
    """A process that is none of ours, under this pid if one is given."""
    time.sleep(0.05)  # a birth is told in hundredths of a second, and no pid comes round within one
    for _ in range(50):
        if pid is not None:
            LAST_PID.write_text(str(pid - 1))
        made = subprocess.Popen(STRANGER, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        STARTED.append(made)
        if pid is None or made.pid == pid:
            return made
        made.kill()
        made.wait()
    raise AssertionError(f"the kernel did not give {pid} again")


def take_over(agent: Agent, site: Site, body: Digest, real: bool) -> subprocess.Popen[bytes]:
    """End the engine as a fault would, reap it, and let a stranger have its pid. Nothing else happens meanwhile."""
    handle = held_of(agent, body).handle
    assert handle is not None
    child = agent.keepers.child._children[handle.pid]
    child.kill()
    child.wait()
    if real:
        return stranger(handle.pid)
    other = stranger(None)
    old = agent.memory.host
    new = replace(old, held=put(old.held, body, replace(old.held[body], handle=replace(handle, pid=other.pid))))
    agent._ledger.write(old, new)
    agent.memory.host = new
    return other


async def kept_alive(agent: Agent, site: Site, body: Digest, restarts: int) -> None:
    watch = asyncio.ensure_future(agent.watch.run())
    await until(lambda: held_of(agent, body).restarts == restarts, "keep-alive")
    await until(lambda: held_of(agent, body).state is ResidencyState.READY, "the new engine")
    watch.cancel()
    assert site.processes() == [pid_of(agent, body)], "one engine, no second one"


async def engines(site: Site, real: bool) -> None:
    """Beside a running agent, while the agent was away, and in the moment of an unload."""
    others = []
    async with site.agent() as agent:
        body = await command(agent, site, site.warm())
        assert (await receipt(agent, body)).outcome is Outcome.SUCCEEDED
        others.append(take_over(agent, site, body, real))
        handle = held_of(agent, body).handle
        assert handle is not None
        assert handle.pid == others[0].pid
        assert agent.keepers.look(body, handle) is Proof.GONE
        assert agent.keepers.child.members(body, handle) == ()
        await kept_alive(agent, site, body, 1)
        assert pid_of(agent, body) != others[0].pid
        others.append(take_over(agent, site, body, real))
    async with site.agent() as agent:
        await kept_alive(agent, site, body, 2)
        others.append(take_over(agent, site, body, real))
        for action in (site.drain(body), site.unload(body)):
            assert (await done(agent, site, action)).outcome is Outcome.SUCCEEDED
        assert agent.memory.host.held == {}, "what is gone is absent"
    assert site.processes() == []
    untouched(others)


async def unrecorded(folder: Path, real: bool) -> None:
    """The child dies, is reaped and gives its pid away just before the ledger says that it cannot be written."""
    supervisor, others = ChildKeeper(here(), folder), []

    async def refuse(handle: Handle) -> None:
        child = supervisor._children[handle.pid]
        child.kill()
        child.wait()
        others.append(stranger(handle.pid if real else None))
        raise Failed("the ledger cannot be written")

    spawn = Spawn(digest_bytes(os.urandom(8)), STRANGER, {}, folder, 18_300, folder / "engine.key")
    with pytest.raises(Failed, match="ledger"):
        await supervisor.start(spawn, refuse)
    assert supervisor._children == {}
    untouched(others)


def untouched(others: list[subprocess.Popen[bytes]]) -> None:
    for other in others:
        assert other.poll() is None, f"the stranger {other.pid} was signalled: {other.returncode}"


def main(folder: Path, real: bool) -> None:
    if real:
        assert os.getpid() == 1, "this is not the first process of a namespace"
    model = write_tiny_gguf(folder / "tiny.gguf")
    site = Site(folder / "state", model).join()
    try:
        asyncio.run(engines(site, real))
        asyncio.run(unrecorded(folder, real))
    finally:
        site.end()
        for process in STARTED:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "real")
