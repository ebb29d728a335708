"""The front: who may ask, where a request goes, what is counted, and what happens to it while a model drains."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType

import aiohttp
import pytest
from aiohttp import web

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.ids import Digest, EngineName, ProfileName, ReplicaId
from gridops.protocol.messages import GatewayKey, Outcome
from gridops_agent.core.report import Readings, inventory
from gridops_agent.engines.base import Door
from gridops_agent.front import Front, Route, Table, tls_context
from gridops_agent.shell import Agent
from tests.agent.site import CLIENT_KEY, KEYS, Site, command, done, held_of, pid_of, receipt, until

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
async def warmed(site: Site, **changes: object) -> AsyncIterator[tuple[Agent, Digest]]:
    async with site.agent() as agent:
        body = await command(agent, site, site.warm(**changes))
        assert (await receipt(agent, body)).outcome is Outcome.SUCCEEDED
        yield agent, body


async def test_a_chat_goes_through_the_front_under_every_served_id(site: Site) -> None:
    async with warmed(site) as (agent, _), client(agent) as http:
        async with http.get("/v1/models") as answer:
            assert [m["id"] for m in (await answer.json())["data"]] == ["tiny", "tiny-alias"]
        for model in ("tiny", "tiny-alias"):
            async with http.post("/v1/chat/completions", json=asked(model)) as answer:
                assert answer.status == 200
                assert (await answer.json())["usage"]["completion_tokens"] > 0


async def test_nobody_gets_in_without_a_key_of_the_last_directive(site: Site) -> None:
    async with warmed(site) as (agent, _), client(agent) as http:
        for headers in (
            {"Authorization": ""},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {CLIENT_KEY}"},
        ):
            for method, path in (("GET", "/v1/models"), ("POST", "/v1/chat/completions")):
                async with http.request(method, path, json=asked(), headers=headers) as answer:
                    assert answer.status == 401, headers
                    assert (await answer.json())["error"]["code"] == "invalid_api_key"
        door = agent.doors.door(next(iter(agent.memory.host.held.values())))
        assert door is not None
        async with http.get("/v1/models", headers=door.headers) as answer:
            assert answer.status == 401, "the engine's own key opens nothing at the front"


async def test_what_is_asked_wrongly_is_answered_in_the_form_clients_know(site: Site) -> None:
    async with warmed(site) as (agent, _), client(agent) as http:
        cases = [
            (b"{", 400, "invalid_json"),
            (b"[]", 400, "model_missing"),
            (b'{"model": 7}', 400, "model_missing"),
            (b'{"model": "nothing-like-it"}', 404, "model_not_found"),
        ]
        for body, status, code in cases:
            async with http.post("/v1/chat/completions", data=body) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (status, code)
        for path in ("/slots", "/v1/../slots", "/metrics", "/models/load", "/v1/%2e%2e/slots"):
            async with http.get(path) as answer:
                assert answer.status in (404, 405), path
                assert "error" in await answer.json()
        too_much = b'{"model": "tiny", "x": "' + b"x" * limits.FRONT_BODY_BYTES + b'"}'
        async with http.post("/v1/chat/completions", data=too_much) as answer:
            assert answer.status == 413
            assert (await answer.json())["error"]["code"] == "request_too_large"
    assert agent.front.in_flight == {}


async def test_tls_older_than_1_3_is_refused(site: Site) -> None:
    async with site.agent() as agent:
        context = ssl.create_default_context(cafile=str(agent.config.front_cert))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as http:
            with pytest.raises(aiohttp.ClientConnectorError):
                await http.get(f"{agent.opened.endpoint}/healthz")


async def test_a_drain_waits_for_a_stream_to_end_and_admits_nothing_new(site: Site) -> None:
    async with warmed(site, launch=site.launch(context=32_768)) as (agent, body), client(agent) as http:
        async with http.post("/v1/chat/completions", json=lasting() | {"max_tokens": 3_000}) as stream:
            await stream.content.readline()
            os.kill(pid_of(agent, body), signal.SIGSTOP)  # however slow we are, the stream does not end before us
            assert agent.front.in_flight[body] == 1
            drained = await command(agent, site, site.drain(body, grace_ms=60_000))
            await until(lambda: held_of(agent, body).state.value == "draining")
            async with http.post("/v1/chat/completions", json=asked()) as answer:
                assert answer.status == 503
                assert answer.headers["Retry-After"] == "2"
                assert (await answer.json())["error"]["code"] == "model_draining"
            async with http.get("/v1/models") as answer:
                assert (await answer.json())["data"] == []
            assert drained in agent.memory.host.commands, "the drain is not over while the stream runs"
            refused = await done(agent, site, site.warm("other", devices=("nowhere",)))
            assert refused.code == "over_ceiling", "other commands go on meanwhile"
            os.kill(pid_of(agent, body), signal.SIGCONT)
            lines = [line async for line in stream.content]
        assert lines[-2].strip() == b"data: [DONE]", "the stream ended whole"
        assert (await receipt(agent, drained)).outcome is Outcome.SUCCEEDED
        assert (await done(agent, site, site.unload(body))).outcome is Outcome.SUCCEEDED
        assert site.processes() == []


async def test_when_the_grace_ends_the_process_is_left_alive_and_only_force_cuts_it(site: Site) -> None:
    async with warmed(site, launch=site.launch(context=32_768)) as (agent, body), client(agent) as http:
        pid = pid_of(agent, body)
        async with http.post("/v1/chat/completions", json=lasting()) as stream:
            await stream.content.readline()
            late = await done(agent, site, site.drain(body, grace_ms=300))
            assert (late.outcome, late.code) == (Outcome.FAILED, "drain_timeout")
            assert late.detail is not None
            assert "1 requests are in flight" in late.detail
            early = await done(agent, site, site.unload(body))
            assert (early.outcome, early.code) == (Outcome.FAILED, "work_in_flight")
            assert site.processes() == [pid]
            assert held_of(agent, body).state.value == "draining"
            assert await stream.content.readline() is not None
            forced = await done(agent, site, site.unload(body, force=True))
            assert forced.outcome is Outcome.SUCCEEDED
            assert site.processes() == []


async def test_work_that_did_not_come_through_the_front_is_seen_in_the_engines_own_slots(site: Site) -> None:
    async with warmed(site, launch=site.launch(context=32_768)) as (agent, body):
        door = agent.doors.door(held_of(agent, body))
        assert door is not None
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{door.url}/v1/chat/completions", json=lasting(), headers=door.headers) as stream,
        ):
            await stream.content.readline()
            assert agent.front.in_flight[body] == 0
            late = await done(agent, site, site.drain(body, grace_ms=300))
            assert (late.code, late.detail) == (
                "drain_timeout",
                "1 generations are running by the engine's own count; nothing was cut",
            )


async def test_a_client_that_walks_away_is_counted_no_longer_and_frees_its_slot(site: Site) -> None:
    async with warmed(site, launch=site.launch(context=32_768)) as (agent, body):
        async with client(agent) as http:
            stream = await http.post("/v1/chat/completions", json=lasting())
            await stream.content.readline()
            assert agent.front.in_flight[body] == 1
            stream.close()
            await until(lambda: agent.front.in_flight[body] == 0, "the count to fall")
        assert (await done(agent, site, site.drain(body))).outcome is Outcome.SUCCEEDED


async def test_a_client_that_walks_away_before_the_first_byte_is_noticed_too(site: Site) -> None:
    """Whether the engine notices is its own affair (some builds do not): a drain asks its slots as well."""
    async with warmed(site, launch=site.launch(context=32_768)) as (agent, body), client(agent) as http:
        asking = asyncio.ensure_future(http.post("/v1/chat/completions", json=lasting(stream=False)))
        await until(lambda: agent.front.in_flight[body] == 1)
        asking.cancel()
        await until(lambda: agent.front.in_flight[body] == 0, "the count to fall")


async def test_a_stream_whose_engine_dies_is_cut_and_not_ended_as_if_it_were_whole(site: Site) -> None:
    async with warmed(site, launch=site.launch(context=32_768)) as (agent, body), client(agent) as http:
        async with http.post("/v1/chat/completions", json=lasting()) as stream:
            await stream.content.readline()
            os.kill(pid_of(agent, body), signal.SIGKILL)
            with pytest.raises(aiohttp.ClientPayloadError):
                while await stream.content.readline():
                    pass
        await until(lambda: agent.front.in_flight[body] == 0)
        async with http.post("/v1/chat/completions", json=asked()) as answer:
            assert answer.status == 502
            assert (await answer.json())["error"]["code"] == "engine_unreachable"


async def test_the_address_of_the_front_stays_when_the_agent_restarts(site: Site) -> None:
    async with site.agent() as agent:
        before = agent.opened.endpoint
    async with site.agent() as agent:
        assert agent.opened.endpoint == before


async def test_an_operate_command_changes_what_is_served_without_a_restart(site: Site) -> None:
    async with warmed(site) as (agent, body), client(agent) as http:
        pid = pid_of(agent, body)
        assert (await done(agent, site, site.operate(body, ("tiny", "renamed")))).outcome is Outcome.SUCCEEDED
        async with http.get("/v1/models") as answer:
            assert [m["id"] for m in (await answer.json())["data"]] == ["renamed", "tiny"]
        assert pid_of(agent, body) == pid


async def test_a_renamed_replica_goes_by_its_new_name_and_keeps_its_process(site: Site) -> None:
    async with warmed(site) as (agent, body), client(agent) as http:
        pid = pid_of(agent, body)
        renamed = replace(
            site.operate(body, ("little", "tiny")), replica=ReplicaId("little/1"), profile=ProfileName("little")
        )
        assert (await done(agent, site, renamed)).outcome is Outcome.SUCCEEDED
        (seen,) = inventory(agent.memory.host, Readings()).residencies
        assert (seen.replica, seen.profile, seen.incarnation) == ("little/1", "little", body)
        async with http.post("/v1/chat/completions", json=asked("little")) as answer:
            assert answer.status == 200
        assert pid_of(agent, body) == pid


# --- the front alone, before an engine that says what it was asked ---------------------------------------------------


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


# --- who has shown no key -------------------------------------------------------------------------------------------


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


def address(http: aiohttp.ClientSession) -> int:
    assert http._base_url is not None
    return int(http._base_url.port or 0)


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
