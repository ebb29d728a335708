"""Who has shown no key: connections of the front are bounded, and each wait of theirs is."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from gridops.base import limits
from gridops_agent.front import Table
from tests.agent.callers import BODY, address, asked, echo, front_alone, route
from tests.agent.site import KEYS, Site, until


async def stranger(site: Site, port: int, *, says: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that asks nothing, or begins to."""
    context = ssl.create_default_context(cafile=str(site.config.front_cert))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="127.0.0.1")
    writer.write(says)
    await writer.drain()
    return reader, writer


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other side has closed; it said nothing."""
    try:
        return await reader.read(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True


async def test_two_hundred_idle_connections_stop_no_request(site: Site) -> None:
    async with echo() as (port, _), front_alone(site, Table((route(port),), KEYS)) as (_, http):
        many = await asyncio.gather(*(stranger(site, address(http)) for _ in range(200)))
        async with asyncio.timeout(5), http.post("/v1/chat/completions", json=asked()) as answer:
            assert answer.status == 200
        for _, writer in many:
            writer.transport.abort()


async def test_when_the_entrance_is_full_the_one_longest_idle_makes_room_and_no_work_is_cut(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FRONT_CONNECTIONS", 3)
    end = asyncio.Event()
    async with echo(end) as (port, _), front_alone(site, Table((route(port),), KEYS)) as (front, http):
        working = asyncio.ensure_future(http.post("/v1/chat/completions", json=asked()))
        await until(lambda: front.in_flight[BODY] == 1, "a request at work, on the oldest connection")
        first, kept = await stranger(site, address(http)), await stranger(site, address(http))
        newest = await stranger(site, address(http))
        async with asyncio.timeout(5):
            assert await ended(first[0])
        end.set()
        assert (await working).status == 200
        assert not kept[0].at_eof()
        for _, writer in (first, kept, newest):
            writer.transport.abort()


@pytest.mark.parametrize("says", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_whoever_asks_nothing_or_never_comes_to_the_end_of_a_head_is_let_go(
    site: Site, monkeypatch: pytest.MonkeyPatch, says: bytes
) -> None:
    monkeypatch.setattr(limits, "FRONT_IDLE_MS", 400)
    async with front_alone(site, Table((), KEYS)) as (_, http):
        reader, writer = await stranger(site, address(http), says=says)

        async def drips() -> None:
            while says:
                writer.write(b"x")
                await asyncio.sleep(0.05)

        dripping = asyncio.ensure_future(drips())
        async with asyncio.timeout(5):
            assert await ended(reader)
        dripping.cancel()
        writer.transport.abort()


async def test_a_handshake_that_does_not_come_is_not_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FRONT_HANDSHAKE_MS", 300)
    async with front_alone(site, Table((), KEYS)) as (_, http):
        reader, writer = await asyncio.open_connection("127.0.0.1", address(http))
        async with asyncio.timeout(5):
            assert await ended(reader)
        writer.transport.abort()


async def test_the_rest_of_a_refused_body_is_read_for_a_short_while_only(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FRONT_LINGER_MS", 300)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    async with front_alone(site, Table((), KEYS)) as (_, http):
        reader, writer = await stranger(site, address(http), says=head)
        async with asyncio.timeout(5):
            assert b" 401 " in await reader.readline()
            await reader.read()
        writer.transport.abort()


def test_the_entrance_has_room_for_all_work() -> None:
    assert limits.FRONT_CONNECTIONS > limits.FRONT_IN_FLIGHT + limits.FRONT_ARRIVING
