"""Listing a model is no proof of service: outcomes of real requests take a route out of routing, and bring it back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.ids import Digest
from gridops_agent.front import Table
from gridops_agent.front_outcomes import UNREACHABLE, Outcomes, is_fault
from tests.agent.callers import BODY, asked, front_alone, route
from tests.agent.site import KEYS, Site, free_ports

OTHER = Digest(digest_bytes(b"other"))


class Clock:
    now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.mark.parametrize(
    ("status", "whose"),
    [
        *((s, True) for s in (500, 502, 503, 504, 401, 403, 404, 408, UNREACHABLE)),
        *((s, None) for s in (400, 413, 415, 422, 429)),
        *((s, False) for s in (200, 201, 204)),
    ],
)
def test_whose_fault_an_answer_is(status: int, whose: bool | None) -> None:
    assert is_fault(status) is whose


def test_one_failure_is_a_hiccup_and_two_in_a_row_withdraw() -> None:
    outcomes = Outcomes(Clock())
    for status in (500, 200, 500, 400, 429):
        outcomes.ended(BODY, status)
        assert outcomes.admits(BODY), status
    outcomes.ended(BODY, 404)
    assert not outcomes.admits(BODY), "what a client did wrong in between makes nothing good"
    assert outcomes.admits(OTHER)
    assert "2 requests in a row (last: HTTP 404)" in outcomes.withdrawn()[BODY]
    assert outcomes.counts()[BODY] == (6, 3)


def test_a_withdrawn_route_is_tried_by_one_request_at_a_time_after_a_pause_that_doubles() -> None:
    clock = Clock()
    outcomes = Outcomes(clock)
    for _ in range(limits.FAULTS_IN_A_ROW):
        outcomes.ended(BODY, UNREACHABLE)
    pause = limits.WITHDRAWN_MS
    for _ in range(10):
        clock.now += pause - 1
        assert not outcomes.admits(BODY)
        clock.now += 1
        assert outcomes.admits(BODY)
        trial = outcomes.began(BODY)
        assert trial
        assert not outcomes.admits(BODY), "one at a time"
        outcomes.ended(BODY, 500)
        outcomes.left(BODY, trial)
        pause = min(limits.WITHDRAWN_MOST_MS, pause * 2)
    clock.now += pause
    trial = outcomes.began(BODY)
    outcomes.ended(BODY, 200)
    outcomes.left(BODY, trial)
    assert outcomes.admits(BODY)
    assert outcomes.withdrawn() == {}
    outcomes.ended(BODY, 500)
    assert outcomes.admits(BODY), "what was good again may fail once"


def test_a_trial_whose_client_leaves_lets_the_next_one_try() -> None:
    clock = Clock()
    outcomes = Outcomes(clock)
    for _ in range(limits.FAULTS_IN_A_ROW):
        outcomes.ended(BODY, 500)
    clock.now += limits.WITHDRAWN_MS
    outcomes.left(BODY, outcomes.began(BODY))
    assert outcomes.admits(BODY)


def test_another_process_has_other_outcomes() -> None:
    outcomes = Outcomes(Clock())
    for _ in range(limits.FAULTS_IN_A_ROW):
        outcomes.ended(BODY, 500)
    outcomes.keep(frozenset({OTHER}))
    assert outcomes.admits(BODY)


@contextlib.asynccontextmanager
async def failing(port: int, statuses: list[int], seen: list[str]) -> AsyncIterator[None]:
    async def answer(request: web.Request) -> web.Response:
        seen.append((await request.json())["model"])
        return web.json_response({}, status=statuses.pop(0) if statuses else 200)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield
    finally:
        await runner.cleanup()


async def test_the_front_withdraws_what_fails_its_callers_and_asks_the_other_copy(site: Site) -> None:
    bad, good = free_ports(2)
    seen: list[str] = []
    routes = (route(bad), replace(route(good), body=OTHER))
    async with (
        failing(bad, [500] * 9, seen),
        failing(good, [], []),
        front_alone(site, Table(routes=routes, keys=KEYS)) as (f, http),
    ):
        f.outcomes._mono_ms = Clock()
        first = min(BODY, OTHER)
        statuses = []
        for _ in range(8):
            async with http.post("/v1/chat/completions", json=asked()) as answer:
                statuses.append(answer.status)
        assert statuses.count(500) == (limits.FAULTS_IN_A_ROW if first == BODY else 0)
        assert statuses[-1] == 200
        f.table = Table(routes=(route(bad),), keys=KEYS)
        while f.outcomes.admits(BODY):
            async with http.post("/v1/chat/completions", json=asked()) as answer:
                assert answer.status == 500
        async with http.post("/v1/chat/completions", json=asked()) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (503, "model_failing")
            assert "Retry-After" in answer.headers


async def test_an_engine_that_is_not_there_is_withdrawn_too(site: Site) -> None:
    port = free_ports(1)[0]
    async with front_alone(site, Table(routes=(route(port),), keys=KEYS)) as (_, http):
        codes = []
        for _ in range(limits.FAULTS_IN_A_ROW + 1):
            async with http.post("/v1/chat/completions", json=asked()) as answer:
                codes.append((await answer.json())["error"]["code"])
        assert codes == ["engine_unreachable"] * limits.FAULTS_IN_A_ROW + ["model_failing"]


async def test_every_served_name_reaches_the_engine_as_the_one_it_lists(site: Site) -> None:
    port = free_ports(1)[0]
    seen: list[str] = []
    routes = (replace(route(port), serves=("tiny", "gpt-nothing")),)
    async with failing(port, [], seen), front_alone(site, Table(routes=routes, keys=KEYS)) as (_, http):
        for model in ("tiny", "gpt-nothing"):
            async with http.post("/v1/chat/completions", data=json.dumps(asked(model))) as answer:
                assert answer.status == 200
    assert seen == ["tiny", "tiny"]
