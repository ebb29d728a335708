"""The front: who may ask, where a request goes, what is counted, and what happens to it while a model drains."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from dataclasses import replace

import aiohttp
import pytest

from gridops.base import limits
from gridops.base.ids import ProfileName, ReplicaId
from gridops.protocol.messages import Outcome
from gridops_agent.core.report import Readings, inventory
from tests.agent.callers import asked, client, lasting, warmed
from tests.agent.site import CLIENT_KEY, Site, command, done, held_of, pid_of, receipt, until


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
            assert "1 request in flight" in late.detail
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
