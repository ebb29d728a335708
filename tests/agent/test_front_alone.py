"""The front by itself, before an engine that says what it was asked: what passes, to whom, and when it is full."""

from __future__ import annotations

import asyncio
import json

import pytest

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.ids import ProfileName
from gridops.protocol.messages import GatewayKey
from gridops_agent.front import Table
from tests.agent.callers import BODY, asked, echo, front_alone, route
from tests.agent.site import KEYS, Site, until


async def test_the_front_passes_no_client_secret_up_and_no_engine_header_down(site: Site) -> None:
    async with echo() as (port, seen), front_alone(site, Table((route(port),), KEYS)) as (_, http):
        headers = {"Cookie": "secret=1", "X-Api-Key": "client", "traceparent": "00-ab-cd-01"}
        sent = json.dumps(asked()).encode()
        async with http.post("/v1/chat/completions", data=sent, headers=headers) as answer:
            arrived = [chunk async for chunk in answer.content.iter_any()]
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            assert "Set-Cookie" not in answer.headers
        up, body = seen[0]
        assert up["Authorization"] == "Bearer engine"
        assert up["traceparent"] == "00-ab-cd-01"
        assert "Cookie" not in up
        assert "X-Api-Key" not in up
        assert body == sent, "a request reaches the engine as it was sent"
        assert len(arrived) > 1, "a stream is passed on as it comes, not gathered"


async def test_a_key_for_some_profiles_sees_and_reaches_only_those(site: Site) -> None:
    narrow = (GatewayKey(name="narrow", sha256=KEYS[0].sha256, profiles=(ProfileName("other"),)),)
    async with echo() as (port, seen), front_alone(site, Table((route(port),), narrow)) as (_, http):
        async with http.get("/v1/models") as answer:
            assert (await answer.json())["data"] == []
        async with http.post("/v1/chat/completions", json=asked()) as answer:
            assert answer.status == 404
        assert seen == []


async def test_of_two_copies_the_less_busy_one_is_asked_and_a_draining_one_never(site: Site) -> None:
    other = digest_bytes(b"two")
    end = asyncio.Event()
    async with echo(end) as (port, _), front_alone(site, Table()) as (front, http):
        front.table = Table((route(port), route(port, body=other)), KEYS)

        async def ask() -> None:
            async with http.post("/v1/chat/completions", json=asked()) as answer:
                await answer.read()

        both = asyncio.gather(ask(), ask())
        await until(lambda: dict(front.in_flight) == {BODY: 1, other: 1}, "one request for each")
        end.set()
        await both
        end.clear()
        front.table = Table((route(port, admitting=False), route(port, body=other)), KEYS)
        async with http.post("/v1/chat/completions", json=asked()) as answer:
            assert dict(front.in_flight) == {other: 1}
            end.set()
            await answer.read()


async def test_a_front_that_is_full_says_so_instead_of_queueing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FRONT_IN_FLIGHT", 0)
    async with echo() as (port, seen), front_alone(site, Table((route(port),), KEYS)) as (_, http):
        async with http.post("/v1/chat/completions", json=asked()) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
        assert seen == []
