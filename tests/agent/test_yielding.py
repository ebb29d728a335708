"""An owner comes back to his computer: a real agent with a real engine yields to him, and comes back when he goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from gridops.base.codes import host as codes
from gridops.base.codes import protocol as protocol_codes
from gridops.base.ids import Digest
from gridops.base.record import digest_of
from gridops.model.policy import ClassProtection, protection_default
from gridops.model.snapshot import HostState, ResidencyState
from gridops.protocol.messages import GrantMode, Outcome
from gridops_agent.core.events import Heard
from gridops_agent.core.report import Readings, inventory
from gridops_agent.shell import Agent
from tests.agent.callers import asked, client, lasting
from tests.agent.origin import Trick, serving
from tests.agent.shelf import QUICK as IMPATIENT
from tests.agent.site import Site, command, done, hear, held_of, pid_of, receipt, until
from tests.agent.test_transfers import HALF, MODEL, arrived, far

QUICK = replace(
    protection_default("opportunistic"),
    activity_debounce_ms=400,
    debounce_ms=400,
    recovery_ms=1_500,
    drain_grace_ms=1_500,
    retry_after_ms=7_000,
)
"""The defaults of a laptop, in a hurry."""
HERE, AWAY = {"idle_ms": 0}, {"idle_ms": 3_600_000}


@asynccontextmanager
async def running(site: Site, rules: ClassProtection = QUICK) -> AsyncIterator[Agent]:
    """An agent with its loops, but for the talk with a controller."""
    async with site.agent() as agent:
        directive = replace(site.directive(acked=agent.memory.host.receipts.acked), protection=rules)
        await agent.effects.tell(Heard(directive, floor_ms=directive.now_ms, epoch=1))
        loops = [asyncio.ensure_future(agent.watch.run()), asyncio.ensure_future(quick_looks(agent))]
        try:
            yield agent
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)


async def quick_looks(agent: Agent) -> None:
    while True:
        await agent.protection.tick()
        await asyncio.sleep(0.1)


async def warm(agent: Agent, site: Site, **changes: Any) -> Digest:
    directive_of = site.directive
    site.directive = lambda *a, **k: replace(directive_of(*a, **k), protection=QUICK)  # type: ignore[method-assign]
    changes = {"launch": site.launch(context=32_768)} | changes
    body = await command(agent, site, site.warm(**changes))
    assert (await receipt(agent, body)).outcome is Outcome.SUCCEEDED
    return body


def is_(agent: Agent, body: Digest, state: ResidencyState) -> Callable[[], bool]:
    return lambda: held_of(agent, body).state is state


async def answers(http: aiohttp.ClientSession) -> tuple[int, dict[str, Any], str | None]:
    async with http.post("/v1/chat/completions", json=asked()) as answer:
        return answer.status, await answer.json(), answer.headers.get("Retry-After")


async def test_an_owner_has_his_computer_within_seconds_and_the_model_comes_back_when_he_goes(site: Site) -> None:
    async with running(site) as agent, client(agent) as http:
        body = await warm(agent, site)
        before, pid = held_of(agent, body), pid_of(agent, body)
        async with http.post("/v1/chat/completions", json=lasting()) as stream:
            await stream.content.readany()
            site.readings = dict(HERE)
            # No new request is admitted, while the one that runs goes on.
            await until(lambda: agent.memory.host.state is HostState.DRAINING, "the host to drain")
            status, said, later = await answers(http)
            assert (status, said["error"]["code"], later) == (503, "host_draining", "7")
            await stream.content.readany()
            # The grace ends with work in flight: paused, and still nothing is cut.
            await until(lambda: agent.memory.host.state is HostState.PAUSED, "the host to pause")
            late = "drain_timeout: tiny/1: 1 request "
            await until(lambda: any(alarm.startswith(late) for alarm in agent.alarms.now()), "the alarm")
            await stream.content.readany()
            assert pid_of(agent, body) == pid
            assert not held_of(agent, body).offload
        # The stream has ended: memory is given back.
        await until(is_(agent, body, ResidencyState.OFFLOADED), "the memory to come back")
        assert site.processes() == []
        assert agent.memory.host.reasons == ("owner_active: somebody uses this computer",)
        status, said, later = await answers(http)
        assert (status, said["error"]["code"], later) == (503, "host_paused", "7"), "it is here, and not now"
        async with http.get("/v1/models") as answer:
            assert await answer.json() == {"object": "list", "data": [], "host": {"state": "paused"}}
            assert answer.headers["Retry-After"] == "7"
        seen = inventory(agent.memory.host, Readings()).residencies[0]
        assert (seen.state, seen.device_bytes) == (ResidencyState.OFFLOADED, 64 << 20)
        # He goes, and the model answers again by the same plan.
        site.readings = dict(AWAY)
        await until(is_(agent, body, ResidencyState.READY), "the model to come back")
        assert (await answers(http))[0] == 200
        after = held_of(agent, body)
        assert after.handle != before.handle
        plain = {"handle": None, "detail": None, "port": None}
        assert replace(after, **plain) == replace(before, **plain), "restarts, age and all else are what they were"


async def test_with_nothing_in_flight_a_host_pauses_at_once(site: Site) -> None:
    async with running(site) as agent:
        body = await warm(agent, site)
        seen: list[HostState] = []
        site.readings = dict(HERE)

        def offloaded() -> bool:
            seen.append(agent.memory.host.state)
            return held_of(agent, body).state is ResidencyState.OFFLOADED

        await until(offloaded)
        assert HostState.DRAINING not in seen


async def test_an_agent_that_starts_anew_under_its_owner_s_hands_brings_nothing_back(site: Site) -> None:
    async with running(site) as agent:
        body = await warm(agent, site)
        site.readings = dict(HERE)
        await until(is_(agent, body, ResidencyState.OFFLOADED))
    async with running(site) as agent, client(agent) as http:
        await asyncio.sleep(1.5)
        assert held_of(agent, body).state is ResidencyState.OFFLOADED
        assert site.processes() == []
        site.readings = dict(AWAY)
        await until(is_(agent, body, ResidencyState.READY))
        assert (await answers(http))[0] == 200
        assert held_of(agent, body).restarts == 0


async def test_an_agent_that_ends_in_the_middle_of_giving_back_goes_on_with_it(site: Site) -> None:
    async with running(site) as agent:
        body = await warm(agent, site)
        pid = pid_of(agent, body)
        stopping, go = asyncio.Event(), asyncio.Event()
        stop = agent.keepers.stop

        async def slow(*args: Any) -> Any:
            stopping.set()
            await go.wait()
            return await stop(*args)

        agent.keepers.stop = slow  # type: ignore[method-assign]
        site.readings = dict(HERE)
        await asyncio.wait_for(stopping.wait(), 30)
        assert held_of(agent, body).offload
        assert pid_of(agent, body) == pid
    async with running(site) as agent:  # the engine lives, and the owner has gone meanwhile
        site.readings = dict(AWAY)
        await until(lambda: not held_of(agent, body).offload and is_(agent, body, ResidencyState.READY)())
        assert pid_of(agent, body) != pid
        assert held_of(agent, body).restarts == 0


async def test_an_engine_that_dies_while_its_host_is_paused_is_not_started_before_the_owner_goes(site: Site) -> None:
    async with running(site) as agent, client(agent) as http:
        body = await warm(agent, site)
        async with http.post("/v1/chat/completions", json=lasting()) as stream:
            await stream.content.readany()
            site.readings = dict(HERE)
            await until(lambda: agent.memory.host.state is HostState.PAUSED)
            await agent.keepers.stop(body, held_of(agent, body).handle)
        await until(lambda: held_of(agent, body).handle is None)
        await asyncio.sleep(1)
        assert site.processes() == []
        site.readings = dict(AWAY)
        await until(is_(agent, body, ResidencyState.READY))


async def test_an_offloaded_model_can_be_drained_and_unloaded_and_does_not_come_back(site: Site) -> None:
    async with running(site) as agent:
        body = await warm(agent, site)
        site.readings = dict(HERE)
        await until(is_(agent, body, ResidencyState.OFFLOADED))
        assert (await done(agent, site, site.drain(body))).outcome is Outcome.SUCCEEDED
        assert held_of(agent, body).state is ResidencyState.DRAINING
        site.readings = dict(AWAY)
        await until(lambda: agent.memory.host.verdict.admits)
        await asyncio.sleep(1)
        assert held_of(agent, body).handle is None
        assert (await done(agent, site, site.unload(body))).outcome is Outcome.SUCCEEDED
        assert body not in agent.memory.host.held


async def test_the_room_of_an_offloaded_model_is_kept_for_it(site: Site) -> None:
    async with running(site) as agent:
        total = agent.memory.host.measured[0].total_bytes
        most = total - agent.memory.host.measured[0].external_bytes
        body = await warm(agent, site, device_bytes=most * 6 // 10)
        site.readings = dict(HERE)
        await until(is_(agent, body, ResidencyState.OFFLOADED))
        site.readings = dict(AWAY)
        await until(lambda: agent.memory.host.verdict.admits)
        refused = await done(agent, site, site.warm(number=2, device_bytes=most * 6 // 10))
        assert (refused.outcome, refused.code) == (Outcome.REFUSED, protocol_codes.OVER_CEILING.code)


async def test_a_start_that_is_under_way_is_taken_back_when_the_host_stops_taking_work(site: Site) -> None:
    async with running(site) as agent:
        await warm(agent, site)
        listed = agent._engines["llama.cpp"].listed  # type: ignore[index]

        async def never(*args: Any) -> bool:
            return False

        agent._engines["llama.cpp"].listed = never  # type: ignore[index,method-assign]
        second = await command(agent, site, site.warm(number=2))
        await until(lambda: second in agent.memory.host.held and held_of(agent, second).handle is not None)
        site.readings = dict(HERE)
        ended = await receipt(agent, second)
        assert (ended.outcome, ended.code) == (Outcome.FAILED, codes.HOST_STATE.code)
        assert second not in agent.memory.host.held
        agent._engines["llama.cpp"].listed = listed  # type: ignore[index,method-assign]
        refused = await done(agent, site, site.warm(number=2))
        assert (refused.outcome, refused.code) == (Outcome.REFUSED, codes.HOST_STATE.code)


async def test_a_throttled_host_lets_in_its_share_of_the_lanes(site: Site) -> None:
    async with running(site) as agent, client(agent) as http:
        await warm(agent, site)
        assert agent.memory.host.state is HostState.ACCEPTING
        site.readings = {"cpu_ppm": 990_000}
        await until(lambda: agent.memory.host.state is HostState.THROTTLED)
        async with http.post("/v1/chat/completions", json=lasting()) as stream:  # one of two lanes
            await stream.content.readany()
            assert agent.front.in_flight.total() == 1
            status, said, later = await answers(http)
            assert (status, said["error"]["code"], later) == (503, "host_throttled", "7")
        await until(lambda: not agent.front.in_flight)
        assert (await answers(http))[0] == 200


@pytest.mark.parametrize("voided", [False, True])
async def test_a_transfer_under_way_is_taken_back_and_what_came_of_it_is_kept_unless_nobody_wants_it(
    site: Site, voided: bool
) -> None:
    site.config = replace(site.config, artifacts=replace(IMPATIENT, stall_ms=60_000))
    with serving(**{"m.gguf": MODEL}) as origin:
        async with running(site) as agent:
            await warm(agent, site)
            origin.tricks = [Trick(stall_after=HALF)]
            made = site.body(site.load(artifact=far(origin)))
            await hear(agent, site, site.grant(made))
            await until(lambda: [t.done_bytes for t in agent._readings().transfers] == [HALF], "half of the file")
            if voided:
                await hear(agent, site, site.grant(made, GrantMode.VOID))
            else:
                site.readings = dict(HERE)
            ended = await receipt(agent, digest_of(made))
            wanted = (Outcome.VOIDED, None) if voided else (Outcome.FAILED, codes.HOST_STATE.code)
            assert (ended.outcome, ended.code) == wanted
            assert ("what has arrived is kept" in (ended.detail or "")) is not voided
            assert arrived(site) == (0 if voided else HALF)
            site.readings = dict(AWAY)
            await until(lambda: agent.memory.host.verdict.admits, "the owner to go")
            again = await done(agent, site, site.load(artifact=far(origin)))
            assert again.outcome is Outcome.SUCCEEDED, again
            assert origin.ranges()[-1] == ("" if voided else f"bytes={HALF}-")


async def test_loads_that_wait_while_the_owner_comes_are_refused_and_ask_nobody(site: Site) -> None:
    site.config = replace(site.config, artifacts=replace(IMPATIENT, stall_ms=60_000))
    with serving(**{"m.gguf": MODEL}) as origin:
        async with running(site) as agent:
            await warm(agent, site)
            origin.tricks = [Trick(stall_after=HALF)]
            bodies = [await command(agent, site, site.load(f"m{n}", artifact=far(origin))) for n in range(3)]
            await until(lambda: bool(agent._readings().transfers), "the first of them")
            site.readings = dict(HERE)
            ended = [await receipt(agent, body) for body in bodies]
            assert [(e.outcome, e.code) for e in ended] == [
                (Outcome.FAILED, codes.HOST_STATE.code),
                (Outcome.REFUSED, codes.HOST_STATE.code),
                (Outcome.REFUSED, codes.HOST_STATE.code),
            ]
            assert len(origin.asked) == 1
