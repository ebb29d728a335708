"""An engine that hangs and does not hear TERM: its owner has his memory all the same, and nobody's work is cut."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gridops.base.ids import Digest
from gridops.model.snapshot import HostState, ResidencyState
from gridops_agent import front_flights, front_silence
from gridops_agent.shell import Agent
from gridops_agent.stopping import SILENT, stop_engines
from gridops_agent.stops import HUNG_S, UNTOLD
from tests.agent import deaf_server
from tests.agent.callers import asked, client
from tests.agent.site import Site, done, held_of, pid_of, until
from tests.agent.test_yielding import AWAY, HERE, is_, running, warm


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridops_agent.engines.asking.PATIENCE", aiohttp.ClientTimeout(total=0.4))


def deaf(site: Site) -> None:
    program = (sys.executable, str(Path(deaf_server.__file__)))
    site.config = replace(site.config, engine_command={"llama.cpp": program})


def hang(agent: Agent, body: Digest, *, hangs: bool = True) -> None:
    file = agent.doors.folder(body) / deaf_server.HANGS
    file.touch() if hangs else file.unlink()


async def test_an_engine_that_hangs_for_nobody_is_killed_and_its_owner_has_the_memory(site: Site) -> None:
    deaf(site)
    async with running(site) as agent:
        body = await warm(agent, site)
        pid = pid_of(agent, body)
        hang(agent, body)
        site.readings = dict(HERE)
        await until(lambda: agent.memory.host.state is HostState.PAUSED, "the host to pause")
        began = asyncio.get_running_loop().time()
        await until(is_(agent, body, ResidencyState.OFFLOADED), "the memory to come back")
        assert asyncio.get_running_loop().time() - began >= HUNG_S, "a moment's silence is no proof"
        assert site.processes() == []
        assert f"engine_hung: tiny/1: {UNTOLD} after 5 s, and no request is with it" in agent.alarms.now()
        assert held_of(agent, body).restarts == 0
        hang(agent, body, hangs=False)
        site.readings = dict(AWAY)
        await until(is_(agent, body, ResidencyState.READY), "the model to come back")
        assert pid_of(agent, body) != pid


async def test_a_request_that_waits_for_a_hung_engine_is_never_cut(site: Site) -> None:
    deaf(site)
    async with running(site) as agent, client(agent) as http:
        body = await warm(agent, site)
        pid = pid_of(agent, body)
        waiting = asyncio.ensure_future(http.post("/v1/chat/completions", json=asked()))
        await until(lambda: agent.front.in_flight[body] == 1, "the request to be in flight")
        hang(agent, body)
        site.readings = dict(HERE)
        await until(lambda: agent.memory.host.state is HostState.PAUSED, "the host to pause")
        await asyncio.sleep(HUNG_S + 2)
        assert pid_of(agent, body) == pid
        assert not held_of(agent, body).offload
        assert any(alarm.startswith("drain_timeout: tiny/1: 1 request ") for alarm in agent.alarms.now())
        waiting.cancel()
        await until(is_(agent, body, ResidencyState.OFFLOADED), "the memory to come back once nobody waits")
        assert site.processes() == []


async def test_a_request_to_an_engine_that_hangs_ends_with_the_grace_of_its_profile_and_not_before(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf(site)
    for module in (front_flights, front_silence):
        monkeypatch.setattr(module, "LOOK_S", 0.2)
    async with running(site) as agent, client(agent) as http:
        watching = asyncio.ensure_future(front_silence.watch_silence(agent.tools, agent.alarms.warn))
        body = await warm(agent, site, drain_ms=2_000)
        pid = pid_of(agent, body)
        waiting = asyncio.ensure_future(http.post("/v1/chat/completions", json=asked()))
        await until(lambda: agent.front.in_flight[body] == 1, "the request to be in flight")
        await asyncio.sleep(3)
        assert not waiting.done(), "it brings nothing for longer than that, and says that it lives"
        hang(agent, body)
        answer = await asyncio.wait_for(waiting, 20)
        assert answer.status == 504
        assert (await answer.json())["error"]["code"] == "engine_silent"
        assert agent.front.in_flight[body] == 0
        assert pid_of(agent, body) == pid, "the engine itself is not touched"
        assert (
            "engine_silent: tiny: its engine answered nothing for 2 s; 1 request that waited ended"
            in agent.alarms.now()
        )
        site.readings = dict(HERE)
        await until(is_(agent, body, ResidencyState.OFFLOADED), "its owner to have the memory, with nothing in flight")
        watching.cancel()


async def test_stop_says_of_an_engine_that_hangs_what_force_costs_and_force_ends_it(site: Site) -> None:
    deaf(site)
    async with running(site) as agent:
        body = await warm(agent, site)
    (agent.doors.folder(body) / deaf_server.HANGS).touch()
    lines, left = await stop_engines(site.config, False)
    assert left
    assert lines == (f"tiny/1  left alone: {SILENT}",)
    assert "hangs" in SILENT
    assert "--force ends it all the same: what it works on is cut, and its callers lose their answers" in SILENT
    assert len(site.processes()) == 1
    began = time.monotonic()
    assert await stop_engines(site.config, True) == (("tiny/1  stopped",), False)
    assert time.monotonic() - began < 6, "with the time of a force, not that of an orderly end"
    assert site.processes() == []


async def test_an_engine_that_answers_again_in_time_ends_gently_as_an_idle_one(site: Site) -> None:
    deaf(site)
    async with running(site) as agent:
        body = await warm(agent, site)
        hang(agent, body)
        site.readings = dict(HERE)
        await until(lambda: any(UNTOLD in alarm for alarm in agent.alarms.now()), "its silence to be said")
        steps: list[Any] = []
        stop = agent.keepers.stop

        async def seen(of: Digest, handle: Any, how: Any) -> Any:
            steps.append(how)
            return await stop(of, handle, how)

        agent.keepers.stop = seen  # type: ignore[method-assign]
        hang(agent, body, hangs=False)
        await until(lambda: bool(steps), "it to be stopped")
        assert steps[0][0][1] == 6.0, "with all the time that an orderly end takes"
        assert not any("engine_hung" in alarm for alarm in agent.alarms.now())
        await until(is_(agent, body, ResidencyState.OFFLOADED))


@pytest.mark.parametrize("foreign", ["taken over", "without a key", "a port that a person chose"])
async def test_an_engine_that_others_may_ask_by_themselves_is_busy_while_it_says_nothing(
    site: Site, foreign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf(site)
    async with running(site) as agent:
        body = await warm(agent, site)
        held = held_of(agent, body)
        assert held.handle is not None
        changes = {"taken over": {"taken": True}, "without a key": {"key_file": ""}}.get(foreign, {})
        held = replace(held, handle=replace(held.handle, **changes))
        if not changes:
            monkeypatch.setattr(agent.keepers, "chose_port", lambda *_: False)
        agent.effects.stops._untold[body] = (0.0, 60.0)
        assert not agent.effects.stops.hangs(held)
        monkeypatch.undo()
        assert agent.effects.stops.hangs(held_of(agent, body))
        agent.effects.stops._untold[body] = (0.0, HUNG_S - 0.1)
        assert not agent.effects.stops.hangs(held_of(agent, body))


async def test_questions_that_are_far_apart_are_no_silence(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    deaf(site)
    async with running(site) as agent:
        body = await warm(agent, site)
        hang(agent, body)
        agent.effects.stops._untold[body] = (0.0, asyncio.get_running_loop().time() - 31)
        assert await agent.effects.stops.in_flight(held_of(agent, body)) == UNTOLD
        assert not agent.effects.stops.hangs(held_of(agent, body))
        assert (await done(agent, site, site.unload(body))).code == "not_drained"
