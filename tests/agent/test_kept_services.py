"""Models in loopback services: brought in and taken out by a real agent, and everything that is not ours left alone."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from gridops.base.ids import Digest, EngineName
from gridops.model.action import Warm
from gridops.model.fleet import Runtime
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.keep import service, setup
from gridops_agent.keep.base import Proof
from gridops_agent.keep.ways import Ways
from gridops_agent.shell import Agent
from tests.agent.shelf_service import Shelf
from tests.agent.site import Site, command, done, free_ports, held_of, receipt, until

ROOT = Path(__file__).parents[2]


class Running:
    """The service as a process of somebody else's."""

    def __init__(self) -> None:
        self.port = free_ports(1)[0]
        self.adapter = Shelf(f"http://127.0.0.1:{self.port}")
        self.process: subprocess.Popen[bytes] | None = None

    async def begin(self) -> None:
        words = [sys.executable, "-m", "tests.agent.shelf_service", str(self.port)]
        self.process = subprocess.Popen(words, cwd=ROOT, start_new_session=True)
        async with aiohttp.ClientSession() as http:
            while await self.adapter.alive(http) is None:
                await asyncio.sleep(0.05)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    async def say(self, verb: str, **words: object) -> None:
        async with aiohttp.ClientSession() as http:
            await self.adapter.say(http, verb, **words)

    async def holds(self, name: str = "tiny") -> bool:
        async with aiohttp.ClientSession() as http:
            seen = await self.adapter._ask(http)
            return seen is not None and name in seen["memory"]


@pytest.fixture
def begun() -> Iterator[Running]:
    one = Running()
    yield one
    one.end()


@pytest.fixture
async def shelf(begun: Running, site: Site, monkeypatch: pytest.MonkeyPatch) -> Running:
    known = {EngineName("shelf"): begun.adapter}
    monkeypatch.setattr(setup, "services", lambda addresses: known)
    monkeypatch.setattr("gridops_agent.shell.services", lambda addresses: known)
    monkeypatch.setattr(service, "DOUBT_S", 0.01)
    site.config = replace(site.config, ways=Ways(services={"shelf": begun.adapter.address}))
    await begun.begin()
    return begun


def warm(site: Site, **launch: object) -> Warm:
    return site.warm(launch=replace(site.launch(), engine=EngineName("shelf"), **launch))  # type: ignore[arg-type]


async def warmed(agent: Agent, site: Site) -> Digest:
    body = await command(agent, site, warm(site))
    made = await receipt(agent, body)
    assert made.outcome is Outcome.SUCCEEDED, made
    return body


async def test_a_model_is_brought_served_and_taken_out_and_the_service_lives_on(shelf: Running, site: Site) -> None:
    assert shelf.process is not None
    async with site.agent() as agent:
        assert Runtime(engine=EngineName("shelf"), backend="cpu") in agent._readings().runtimes
        body = await warmed(agent, site)
        handle = held_of(agent, body).handle
        assert handle is not None
        assert (handle.keeper, handle.name, handle.port, handle.pid) == (
            "service",
            "shelf",
            shelf.port,
            shelf.process.pid,
        )
        assert await shelf.holds()
        assert await agent.keepers.processes_of({body: handle}) == (shelf.process.pid,)
        assert (await done(agent, site, site.drain(body))).outcome is Outcome.SUCCEEDED
        assert (await done(agent, site, site.unload(body))).outcome is Outcome.SUCCEEDED
        assert not await shelf.holds()
    assert shelf.process.poll() is None, "a service is never stopped"


async def test_what_was_in_memory_before_we_came_is_not_ours_and_stays(shelf: Running, site: Site) -> None:
    await shelf.say("bring", name="tiny")
    await shelf.say("bring", name="theirs")
    async with site.agent() as agent:
        made = await done(agent, site, warm(site))
        assert (made.outcome, made.code) == (Outcome.FAILED, "not_ours")
        assert await shelf.holds()
        await shelf.say("drop", name="tiny")
        body = await warmed(agent, site)
        await done(agent, site, site.drain(body))
        await done(agent, site, site.unload(body))
    assert await shelf.holds("theirs"), "only our model is taken out"


async def test_what_the_store_has_is_held_against_the_launch_before_anything_is_brought(
    shelf: Running, site: Site
) -> None:
    async with site.agent() as agent:
        made = await done(agent, site, warm(site, context=1))
        assert (made.outcome, made.code) == (Outcome.FAILED, "wrong_digest")
        assert not await shelf.holds()


async def test_a_bring_that_fails_halfway_is_taken_out_again(shelf: Running, site: Site) -> None:
    await shelf.say("set", refuses=True)
    async with site.agent() as agent:
        made = await done(agent, site, warm(site))
        assert (made.outcome, made.code) == (Outcome.FAILED, "start_failed")
        assert agent.memory.host.held == {}
    assert not await shelf.holds()


async def test_what_cannot_be_taken_out_keeps_its_memory_counted(
    shelf: Running, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridops_agent.stops.STOP_STEPS", ((15, 0.3), (9, 0.1)))
    async with site.agent() as agent:
        body = await warmed(agent, site)
        await shelf.say("set", stubborn=True)
        await done(agent, site, site.drain(body))
        made = await done(agent, site, site.unload(body))
        assert (made.outcome, made.code) == (Outcome.FAILED, "release_stuck")
        assert "still holds tiny" in (made.detail or "")
        assert body in agent.memory.host.held


async def test_an_agent_that_comes_back_finds_its_model_and_brings_nothing_twice(shelf: Running, site: Site) -> None:
    async with site.agent() as agent:
        body = await warmed(agent, site)
        before = held_of(agent, body).handle
    async with site.agent() as agent:
        assert held_of(agent, body).handle == before
        assert held_of(agent, body).state is ResidencyState.READY


async def test_a_model_that_the_service_evicted_is_brought_again(shelf: Running, site: Site) -> None:
    async with site.agent() as agent:
        body = await warmed(agent, site)
        await agent.effects.settled()
        await shelf.say("drop", name="tiny")
        watch = asyncio.ensure_future(agent.watch.run())
        await until(lambda: held_of(agent, body).restarts == 1, "keep-alive")
        await until(lambda: held_of(agent, body).state is ResidencyState.READY)
        watch.cancel()
        assert await shelf.holds()


async def test_a_service_that_was_restarted_lost_our_model_and_gets_it_again(shelf: Running, site: Site) -> None:
    async with site.agent() as agent:
        body = await warmed(agent, site)
        await agent.effects.settled()
        shelf.end()
        handle = held_of(agent, body).handle
        assert handle is not None
        assert await agent.keepers.judge(body, handle) is Proof.GONE, "its memory went with the process"
        assert "process of shelf" in agent.keepers.ending(handle)
        await shelf.begin()
        watch = asyncio.ensure_future(agent.watch.run())
        await until(lambda: held_of(agent, body).restarts == 1, "keep-alive")
        await until(lambda: held_of(agent, body).state is ResidencyState.READY)
        watch.cancel()


async def test_a_service_that_hangs_proves_nothing_and_nothing_is_done(shelf: Running, site: Site) -> None:
    import os
    import signal

    assert shelf.process is not None
    async with site.agent() as agent:
        body = await warmed(agent, site)
        await agent.effects.settled()
        os.kill(shelf.process.pid, signal.SIGSTOP)
        handle = held_of(agent, body).handle
        assert handle is not None
        shelf.adapter.alive = _silent  # type: ignore[method-assign]
        assert await agent.keepers.judge(body, handle) is Proof.NOT_OURS
        assert not (await agent.keepers.stop(body, handle)).gone
        os.kill(shelf.process.pid, signal.SIGCONT)


async def _silent(http: aiohttp.ClientSession) -> None:
    return None
