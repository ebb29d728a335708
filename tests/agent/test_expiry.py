"""What expires ends no engine: roots, directives, grants and keys run out, and what was applied serves and is kept.

The rule (`docs/howto/run-as-services.md`): an expiry forbids what would be new. It never takes away, since whoever
routes to a host may go on for as long as its last word counts, and a dead port behind a live route helps nobody.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from gridops.base import limits
from gridops.base.record import digest_of
from gridops.model.snapshot import ResidencyState
from gridops.protocol import fresh
from gridops_agent.clock import SystemClock
from gridops_agent.shell import Agent
from tests.agent.callers import asked, client
from tests.agent.site import DAY, Site, command, hear, held_of, pid_of, receipt, until, wall_ms


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Move every clock of this host ahead."""
    wall, boot = SystemClock.wall_ms, SystemClock.boottime_ms

    def move(ms: int) -> None:
        monkeypatch.setattr(SystemClock, "wall_ms", lambda self: wall(self) + ms)
        monkeypatch.setattr(SystemClock, "boottime_ms", lambda self: boot(self) + ms)

    return move


async def serves(agent: Agent) -> None:
    async with client(agent) as http, http.post("/v1/chat/completions", json=asked()) as answer:
        assert answer.status == 200, "the keys of the last directive count until another one comes"


async def test_what_was_applied_serves_and_is_kept_alive_long_after_everything_has_expired(
    site: Site, later: Callable[[int], None]
) -> None:
    async with site.agent() as agent:
        body = await command(agent, site, site.warm())
        await receipt(agent, body)
        later(400 * DAY)
        assert agent.memory.host.chain.root.expires_ms < agent.hours.now_ms(), "the root has expired"
        assert not fresh.is_fresh(agent.hours.session, agent._clock.monotonic_ms())
        await agent.watch.look()
        await serves(agent)
        os.kill(pid_of(agent, body), signal.SIGKILL)
        watch = asyncio.ensure_future(agent.watch.run())
        await until(lambda: held_of(agent, body).restarts == 1, "keep-alive, which no expiry stops")
        await until(lambda: held_of(agent, body).state is ResidencyState.READY)
        await serves(agent)
        watch.cancel()
        pid = pid_of(agent, body)
    async with site.agent() as again:
        assert pid_of(again, body) == pid, "adopted by an agent that never saw anything in force"
        await serves(again)


async def test_an_expiry_forbids_what_would_be_new(site: Site) -> None:
    async with site.agent() as agent:
        body = site.body(site.warm())
        site.offset_ms = -2 * limits.STALE_SESSION_MS  # the grant is of long ago
        late = site.grant(body)
        site.offset_ms = 0
        await hear(agent, site, late)
        assert digest_of(body) not in agent.memory.host.commands
        assert site.processes() == []
        assert wall_ms() > 0


async def test_an_accepted_command_is_carried_out_after_its_grant_has_expired(
    site: Site, later: Callable[[int], None]
) -> None:
    """A grant says until when it may be accepted. What was accepted is a promise, and ends in a receipt."""
    async with site.agent() as agent:
        body = await command(agent, site, site.warm())
        later(DAY)
        assert (await receipt(agent, body)).final
        assert held_of(agent, body).state is ResidencyState.READY
