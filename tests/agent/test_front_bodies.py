"""Bodies that arrive slowly or never: they have their time and their places, and hold nothing up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from gridops.base import limits
from gridops.protocol.messages import Outcome
from gridops_agent.front import Table
from tests.agent.callers import BODY, asked, client, echo, front_alone, route, warmed
from tests.agent.site import KEYS, Site, done, until


async def drip(http: aiohttp.ClientSession, left: asyncio.Event) -> aiohttp.ClientResponse:
    """A request whose body begins and then comes byte by byte, for as long as the front listens."""

    async def body() -> AsyncIterator[bytes]:
        yield b'{"model": "tiny", "x": "'
        while not left.is_set():
            yield b"x"
            await asyncio.sleep(0.02)

    return await http.post("/v1/chat/completions", data=body())


async def test_a_body_that_never_becomes_whole_is_answered_408_with_the_reason(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FRONT_BODY_MS", 300)
    async with echo() as (port, seen), front_alone(site, Table((route(port),), KEYS)) as (front, http):
        left = asyncio.Event()
        answer = await drip(http, left)
        left.set()
        assert (answer.status, answer.headers["Connection"]) == (408, "close")
        assert "did not arrive whole within 300 ms" in (await answer.json())["error"]["message"]
        assert (front.arriving, front.in_flight, seen) == (set(), {}, [])


async def test_fifty_slow_senders_do_not_stop_a_quick_request_and_are_counted_until_they_leave(site: Site) -> None:
    end, left = asyncio.Event(), asyncio.Event()
    async with echo(end) as (port, _), front_alone(site, Table((route(port),), KEYS)) as (front, http):
        slow = [asyncio.ensure_future(drip(http, left)) for _ in range(50)]
        await until(lambda: len(front.arriving) == 50, "fifty slow senders")
        assert front.in_flight == {}, "no residency is busy with them"
        async with http.post("/v1/chat/completions", json=asked()) as answer:
            assert answer.status == 200
            assert (len(front.arriving), dict(front.in_flight)) == (50, {BODY: 1})
            end.set()
            await answer.read()
        for one in slow[:20]:
            one.cancel()
        await until(lambda: len(front.arriving) == 30, "those who walked away to be forgotten")
        left.set()
        for ended in await asyncio.gather(*slow[20:]):
            assert ended.status == 400, "what they sent was not JSON"
        assert (front.arriving, front.in_flight) == (set(), {})


@pytest.mark.parametrize("limit", ["FRONT_ARRIVING", "FRONT_IN_FLIGHT"])
async def test_more_slow_senders_than_the_front_takes_are_refused_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(limits, limit, 2)
    async with echo() as (port, _), front_alone(site, Table((route(port),), KEYS)) as (front, http):
        left = asyncio.Event()
        slow = [asyncio.ensure_future(drip(http, left)) for _ in range(2)]
        await until(lambda: len(front.arriving) == 2, "two slow senders")
        async with http.post("/v1/chat/completions", json=asked()) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
            assert (await answer.json())["error"]["code"] == "overloaded"
        left.set()
        await asyncio.gather(*slow)


async def test_who_leaves_waits_for_no_body_that_has_not_arrived(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FRONT_BODY_MS", 3_600_000)
    async with echo() as (port, seen), front_alone(site, Table((route(port),), KEYS)) as (front, http):
        left = asyncio.Event()
        slow = asyncio.ensure_future(drip(http, left))
        await until(lambda: len(front.arriving) == 1, "the slow sender")
        front.fence()
        answer = await asyncio.wait_for(slow, 60)
        left.set()
        assert answer.status == 503
        assert (await answer.json())["error"]["code"] == "leaving"
        async with http.post("/v1/chat/completions", json=asked()) as late:
            assert late.status == 503
        assert (front.arriving, seen) == (set(), [])


async def test_a_drain_does_not_wait_for_a_body_that_never_arrives_and_admits_it_no_more(site: Site) -> None:
    async with warmed(site) as (agent, body), client(agent) as http:
        ending, begun = asyncio.Event(), json.dumps(asked()).encode()

        async def late() -> AsyncIterator[bytes]:
            yield begun[:-1]
            await ending.wait()
            yield begun[-1:]

        asking = asyncio.ensure_future(http.post("/v1/chat/completions", data=late()))
        await until(lambda: len(agent.front.arriving) == 1, "a body that is not whole")
        assert (await done(agent, site, site.drain(body, grace_ms=60_000))).outcome is Outcome.SUCCEEDED
        assert len(agent.front.arriving) == 1, "it was there all the time"
        ending.set()
        answer = await asking
        assert answer.status == 503
        assert (await answer.json())["error"]["code"] == "model_draining"
        assert agent.front.in_flight == {}
