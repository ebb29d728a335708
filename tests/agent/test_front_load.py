"""The front under many callers: a throttled host's share is kept to the last one, and nobody who is gone is counted."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gridops.base import limits
from gridops.model.snapshot import HostState
from gridops_agent.core.protection import Verdict
from gridops_agent.front import Front
from gridops_agent.front_table import Table
from tests.agent.callers import BODY, asked, front_alone, route
from tests.agent.site import CLIENT_KEY, KEYS, Site, until

LANES, SHARE = 8, 750_000
MOST = LANES * SHARE // 1_000_000
THROTTLED = Verdict(HostState.THROTTLED, ("busy: somebody else works",), lanes_ppm=SHARE, retry_after_ms=7_000)


@dataclass
class Engine:
    """Streams until its caller is gone; knows how many it works for, and how many those were at most."""

    port: int = 0
    now: int = 0
    most: int = 0
    chunk: bytes = b"data: .\n\n"
    pause_s: float = 0.02

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await reply.prepare(request)
            while True:
                await reply.write(self.chunk)
                await asyncio.sleep(self.pause_s)
        finally:
            self.now -= 1


@asynccontextmanager
async def engine(**changes: Any) -> AsyncIterator[Engine]:
    made = Engine(**changes)
    app = web.Application()
    app.router.add_post("/v1/{path:.*}", made.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    try:
        yield made
    finally:
        await runner.cleanup()


async def begin(http: aiohttp.ClientSession) -> aiohttp.ClientResponse:
    """A request that is let in or refused; of one that is let in the first bytes have come."""
    answer = await http.post("/v1/chat/completions", json=asked(stream=True))
    if answer.status == 200:
        await answer.content.readany()
    return answer


async def test_a_throttled_front_lets_in_its_share_of_many_and_forgets_who_vanishes(site: Site) -> None:
    async with engine() as behind, front_alone(site, Table()) as (front, http):
        front.table, front.verdict = Table((route(behind.port, lanes=LANES),), KEYS), THROTTLED
        for _ in range(3):
            answers = await asyncio.gather(*(begin(http) for _ in range(40)))
            inside = [a for a in answers if a.status == 200]
            refused = [a for a in answers if a.status != 200]
            assert (len(inside), front.in_flight[BODY]) == (MOST, MOST)
            assert {(a.status, a.headers["Retry-After"]) for a in refused} == {(503, "7")}
            assert {(await a.json())["error"]["code"] for a in refused} == {"host_throttled"}
            for answer in inside[: MOST // 2]:
                vanish(answer)
            await until(lambda: front.in_flight[BODY] == MOST - MOST // 2, "those who vanished to be forgotten")
            again = await asyncio.gather(*(begin(http) for _ in range(40)))
            assert sum(a.status == 200 for a in again) == MOST // 2, "their lanes are free at once"
            assert behind.most <= MOST, "never more than the share, at any moment"
            for answer in (*inside, *again):
                vanish(answer)
            await until(lambda: not front.in_flight and not behind.now, "an empty front and an idle engine")
        assert front.in_flight == {}


def vanish(answer: aiohttp.ClientResponse) -> None:
    """No goodbye: as a machine that loses its power after a reset of its network."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()
    answer.close()


async def test_who_was_let_in_before_the_host_is_throttled_is_not_cut_and_nobody_follows_until_the_share_fits(
    site: Site,
) -> None:
    async with engine() as behind, front_alone(site, Table((), KEYS)) as (front, http):
        front.table = Table((route(behind.port, lanes=LANES),), KEYS)
        inside = await asyncio.gather(*(begin(http) for _ in range(LANES + 4)))
        assert {a.status for a in inside} == {200}
        front.verdict = THROTTLED
        while len(inside) > MOST:
            assert (await begin(http)).status == 503
            await inside[-1].content.readany()
            vanish(inside.pop())
            await until(lambda: front.in_flight[BODY] == len(inside))
        assert (await begin(http)).status == 503, "the share is full, not free"
        vanish(inside.pop())
        await until(lambda: front.in_flight[BODY] == MOST - 1)
        inside.append(await begin(http))
        assert inside[-1].status == 200
        for answer in inside:
            vanish(answer)
        await until(lambda: not front.in_flight and not behind.now)


async def test_a_caller_who_takes_nothing_any_more_is_let_go_and_one_who_takes_little_is_not(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A laptop that was closed over its answer would otherwise keep an engine from its own owner for ever."""
    monkeypatch.setattr(limits, "FRONT_STALL_MS", 1_500)
    chunk = b"data: " + b"x" * 65_536 + b"\n\n"
    async with engine(chunk=chunk, pause_s=0) as behind, front_alone(site, Table()) as (front, _):
        front.table = Table((route(behind.port),), KEYS)
        frozen, slow = await connected(site, front), await connected(site, front)
        await until(lambda: front.in_flight[BODY] == 2, "both to be let in")
        until_alone = time.monotonic() + 60
        while front.in_flight[BODY] == 2 and time.monotonic() < until_alone:
            await slow[0].read(65_536)
            await asyncio.sleep(0.01)
        assert front.in_flight[BODY] == 1, "the frozen one is let go"
        began = time.monotonic()
        while time.monotonic() - began < 2 * limits.FRONT_STALL_MS / 1_000:
            assert await slow[0].read(65_536)
            await asyncio.sleep(0.01)
        assert front.in_flight[BODY] == 1, "and the slow one is not"
        assert front.outcomes.admits(BODY), "neither is the engine's fault"
        for _, writer in (frozen, slow):
            writer.transport.abort()
        await until(lambda: not front.in_flight and not behind.now, "an idle engine")


async def connected(site: Site, front: Front) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A caller by hand: who does not read leaves what comes in the sockets."""
    context = ssl.create_default_context(cafile=str(site.config.front_cert))
    assert front._entrance is not None
    assert front._entrance._listening is not None
    port = front._entrance._listening.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="127.0.0.1")
    body = b'{"model": "tiny", "messages": [], "stream": true}'
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {CLIENT_KEY}\r\n"
    writer.write(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    return reader, writer
