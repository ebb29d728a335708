"""Callers of a front, and an engine behind it that says what it was asked. Used by every test that asks a front."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType

import aiohttp
from aiohttp import web

from gridops.base.canon import digest_bytes
from gridops.base.ids import Digest, EngineName, ProfileName
from gridops.protocol.messages import Outcome
from gridops_agent.engines.base import Door
from gridops_agent.front import Front, Route, Table, tls_context
from gridops_agent.shell import Agent
from tests.agent.site import CLIENT_KEY, Site, command, receipt

MINE = {"Authorization": f"Bearer {CLIENT_KEY}"}
BODY = digest_bytes(b"one")


@asynccontextmanager
async def client(agent: Agent) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that pins the front's certificate."""
    context = ssl.create_default_context(cafile=str(agent.config.front_cert))
    async with aiohttp.ClientSession(
        agent.opened.endpoint, connector=aiohttp.TCPConnector(ssl=context), headers=MINE
    ) as session:
        yield session


def asked(model: str = "tiny", **more: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8} | more


def lasting(**more: object) -> dict[str, object]:
    """A request that goes on for many seconds unless somebody ends it."""
    return asked(**({"stream": True, "max_tokens": 15_000, "ignore_eos": True} | more))


@asynccontextmanager
async def front_alone(
    site: Site, table: Table, apis: Mapping[EngineName, str] = MappingProxyType({})
) -> AsyncIterator[tuple[Front, aiohttp.ClientSession]]:
    front = Front(apis)
    port = await front.open("127.0.0.1", 0, tls_context(site.config.front_cert, site.config.front_key))
    front.table = table
    context = ssl.create_default_context(cafile=str(site.config.front_cert))
    try:
        async with aiohttp.ClientSession(
            f"https://127.0.0.1:{port}", connector=aiohttp.TCPConnector(ssl=context), headers=MINE
        ) as http:
            yield front, http
    finally:
        await front.close()


@asynccontextmanager
async def echo(end: asyncio.Event | None = None) -> AsyncIterator[tuple[int, list[tuple[dict[str, str], bytes]]]]:
    """An engine that says what it was asked; with `end` no answer is over before that is set."""
    seen: list[tuple[dict[str, str], bytes]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append((dict(request.headers), await request.read()))
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Set-Cookie": "a=b", "Server": "x"})
        await reply.prepare(request)
        for n in range(3):
            await reply.write(b"data: %d\n\n" % n)
            await asyncio.sleep(0.05)
        if end is not None:
            await end.wait()
        return reply

    app = web.Application()
    app.router.add_post("/v1/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1], seen
    finally:
        await runner.cleanup()


def route(port: int, **changes: object) -> Route:
    made = Route(BODY, ProfileName("tiny"), ("tiny",), Door(port=port, key="engine", alias="tiny"), admitting=True)
    return replace(made, **changes)  # type: ignore[arg-type]


def address(http: aiohttp.ClientSession) -> int:
    assert http._base_url is not None
    return int(http._base_url.port or 0)


@asynccontextmanager
async def warmed(site: Site, **changes: object) -> AsyncIterator[tuple[Agent, Digest]]:
    async with site.agent() as agent:
        body = await command(agent, site, site.warm(**changes))
        assert (await receipt(agent, body)).outcome is Outcome.SUCCEEDED
        yield agent, body
