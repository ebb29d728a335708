"""Requests that wait in vain: who hangs and who only works, by what is known of both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from gridops_agent import front_flights
from gridops_agent.front import Route, Table
from gridops_agent.front_flights import UNANSWERED, Flights
from tests.agent.callers import BODY, asked, echo, front_alone, route
from tests.agent.site import KEYS, Site, until

ROUTE = route(1, patience_ms=300)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_flights, "LOOK_S", 0.05)


class Engine:
    """Lives, or does not; counts how often it was asked."""

    def __init__(self, lives: bool = False) -> None:
        self.lives, self.asked = lives, 0

    async def __call__(self, route: Route) -> bool:
        self.asked += 1
        return self.lives


async def looks(flights: Flights, engine: Engine, seconds: float) -> list[int]:
    """Looks for so long; what each ended."""
    loop = asyncio.get_running_loop()
    end, found = loop.time() + seconds, list[int]()
    while loop.time() < end:
        found += [count for _, count in await flights.look(engine)]
        await asyncio.sleep(0.05)
    return found


async def waits(flights: Flights, of: Route = ROUTE, every: Callable[[], float] = lambda: 60.0) -> str:
    """One request; what became of it."""
    try:
        async with flights.waiting(of) as flight:
            while True:
                await asyncio.sleep(every())
                flight.heard()
    except TimeoutError:
        return "ended"


@pytest.mark.parametrize(
    ("of", "lives", "every", "ended"),
    [
        (ROUTE, False, 60.0, [2]),
        (ROUTE, True, 60.0, []),
        (ROUTE, False, 0.02, []),
        (replace(ROUTE, patience_ms=None), False, 60.0, []),
    ],
    ids=["it hangs", "it works in silence", "bytes come", "nobody bounded it"],
)
async def test_what_waits_is_ended_only_when_nothing_is_heard_in_any_way(
    of: Route, lives: bool, every: float, ended: list[int]
) -> None:
    flights, engine = Flights(), Engine(lives)
    requests = [asyncio.ensure_future(waits(flights, of, lambda: every)) for _ in range(2)]
    await asyncio.sleep(0.1)
    assert await looks(flights, engine, 0.8) == ended
    assert [r.done() and r.result() for r in requests] == (["ended"] * 2 if ended else [False] * 2)
    for request in requests:
        request.cancel()


async def test_one_of_two_requests_that_brings_something_shows_that_the_engine_lives() -> None:
    flights, engine = Flights(), Engine()
    requests = [asyncio.ensure_future(waits(flights, ROUTE, lambda s=s: s)) for s in (60.0, 0.02)]
    await asyncio.sleep(0.1)
    assert await looks(flights, engine, 0.8) == []
    assert engine.asked == 0, "nobody is asked while bytes come"
    for request in requests:
        request.cancel()


async def test_an_answer_begins_its_patience_anew_and_a_stall_of_the_agent_is_no_silence_of_the_engine() -> None:
    flights, engine = Flights(), Engine()
    request = asyncio.ensure_future(waits(flights))
    await asyncio.sleep(0.5)  # longer than its patience, and nobody has asked
    for _ in range(UNANSWERED - 1):
        assert await flights.look(engine) == ()
    engine.lives = True
    assert await flights.look(engine) == ()
    engine.lives = False
    for _ in range(UNANSWERED):
        assert await flights.look(engine) == ()
    assert await looks(flights, engine, 0.6) == [1]
    assert await request == "ended"


async def test_an_answer_that_stops_in_its_middle_is_cut_and_its_caller_can_tell(site: Site) -> None:
    never = asyncio.Event()
    async with echo(never) as (port, _):
        async with front_alone(site, Table((route(port, patience_ms=300),), KEYS)) as (front, http):
            answer = await http.post("/v1/chat/completions", json=asked("tiny", stream=True))
            assert answer.status == 200
            reading = asyncio.ensure_future(answer.read())
            await until(lambda: front.in_flight[BODY] == 1)
            assert await looks(front.flights, Engine(), 1.5) == [1]
            with pytest.raises(aiohttp.ClientPayloadError):
                await reading
            assert front.in_flight[BODY] == 0
        never.set()


async def test_each_piece_of_an_answer_that_goes_on_is_a_sign_of_life(site: Site) -> None:
    """The engine says nothing of itself, and its answer takes longer than its patience."""

    async def slowly(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(10):
            await answer.write(b"data: 1\n\n")
            await asyncio.sleep(0.12)
        return answer

    app = web.Application()
    app.router.add_post("/v1/{path:.*}", slowly)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        to = route(runner.addresses[0][1], patience_ms=300)
        async with front_alone(site, Table((to,), KEYS)) as (front, http):
            answer = await http.post("/v1/chat/completions", json=asked("tiny", stream=True))
            reading = asyncio.ensure_future(answer.read())
            assert await looks(front.flights, Engine(), 1.5) == []
            assert len(await reading) == 90
    finally:
        await runner.cleanup()
