"""Engine, agent and both are killed at every step of a life: one process or none, one receipt for each command.

`test_crash` kills the agent alone. Here the engine dies in front of the n-th write while its agent lives on, and both
die in front of it, as when a machine's memory ran out or somebody was thorough. n grows until the story runs through.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil
import pytest

from gridops.base.codes.host import WORK_IN_FLIGHT
from gridops.base.ids import Digest
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.ledger import Ledger
from gridops_agent.platform import here
from gridops_agent.shell import Agent
from tests.agent.site import Site, command, done, pid_of, receipt, until
from tests.agent.test_crash import child, recovered, story


def end_engines(site: Site) -> int:
    """Kill every process with this site's mark; how many that were. One just started shows it a moment later."""
    pids, over = site.processes(), time.monotonic() + 1
    while not pids and time.monotonic() < over and _starting():
        time.sleep(0.005)
        pids = site.processes()
    for pid in pids:
        process = here().process(pid)
        if process is not None:
            here().send(process, signal.SIGKILL)
    return len(pids)


def _starting() -> bool:
    """A process of ours lives, whatever it shows of itself yet."""
    return any(child.status() != psutil.STATUS_ZOMBIE for child in psutil.Process().children())


def settled(agent: Agent, site: Site, body: Digest) -> bool:
    """What is wanted lives. A death is seen a moment later; a second process would be there at once."""
    living = site.processes()
    assert len(living) <= 1
    held = agent.memory.host.held.get(body)
    ready = held is not None and held.state is ResidencyState.READY and held.handle is not None
    return held is None or (ready and living == [pid_of(agent, body)])


async def life(site: Site) -> str:
    """Warm, drain, unload, whatever befalls the engine; what came of the warm."""
    async with site.agent() as agent:
        watch = asyncio.ensure_future(agent.watch.run())
        body = await command(agent, site, site.warm())
        made = await receipt(agent, body)
        await until(lambda: settled(agent, site, body), "one living engine, or none that is wanted")
        if body in agent.memory.host.held:
            drained = await done(agent, site, site.drain(body))
            assert drained.outcome is Outcome.SUCCEEDED, drained
            gone = await done(agent, site, site.unload(body))
            if gone.code == WORK_IN_FLIGHT.code:
                # The signal was on its way: for a moment it lived and said nothing. Its controller asks again.
                gone = await done(agent, site, site.unload(body))
            assert gone.outcome is Outcome.SUCCEEDED, gone
        assert agent.memory.host.held == {}
        assert site.processes() == []
        assert [r.seq for r in agent.memory.host.receipts.kept] == list(range(1, site.seq + 1))
        watch.cancel()
        return made.outcome.value


def test_an_engine_killed_in_front_of_any_write_is_one_engine_or_none_and_every_command_is_answered(
    make_site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, seen, killed = Ledger._write, [], 0
    for at in range(1, 60):
        site, count = make_site(f"at-{at}"), 0

        def counted(self: Ledger, put: dict[Any, Any], gone: Any, site: Site = site, at: int = at) -> None:
            nonlocal count, killed
            count += bool(put or gone)
            if count == at and (put or gone):
                killed += end_engines(site)
            write(self, put, gone)

        monkeypatch.setattr(Ledger, "_write", counted)
        seen.append(asyncio.run(life(site)))
        if count < at:
            break
    assert len(seen) >= 10
    assert killed >= 3, "no engine was killed: the story proves nothing"
    assert {"failed", "succeeded"} == set(seen), "it dies before it is ready, and after"


def test_agent_and_engine_killed_together_at_any_write_come_back_as_one_engine_or_none(
    make_site: Callable[..., Site],
) -> None:
    seen: list[str] = []
    for at in range(1, 40):
        site = make_site(f"at-{at}")
        pid = os.fork()
        if pid == 0:
            child(site, at, story, partial(end_engines, site))
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        assert site.processes() == []
        seen.append(asyncio.run(recovered(site)))
    assert len(seen) >= 10, f"the story has only {len(seen)} writes"
    assert {"nothing", "warming", "draining"} <= set(seen), seen
