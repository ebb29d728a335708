"""The short way of a heartbeat: the same bytes come back as on the long one, whatever is sent and however it is cut."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from gridops.base.errors import Failed, Refusal
from gridops.controller import connection
from gridops.controller.connection import HEAD_BYTES, Prompt, read_head
from gridops.controller.endpoints import BEAT, DirectiveAnswer
from gridops.controller.http import application, desk
from gridops.controller.polls import Answered
from gridops.controller.together import Together
from gridops.protocol.messages import Beat

SAID = 'an answer: "é", \\ and \u2028'


class Api:
    """What the listener asks. Each heartbeat says by itself what is to become of it."""

    def __init__(self) -> None:
        self.long = self.short = 0
        self.codes: list[str] = []
        self.held: asyncio.Event | None = None
        self._together = Together(self._take, lambda: None, pytest.fail)

    async def beat(self, beat: Beat) -> DirectiveAnswer:
        self.long += 1
        if self.held is not None:
            await self.held.wait()
        return DirectiveAnswer(directive=await self._together.answer(beat))

    def poll(self, beat: Beat, done: Callable[[str | Exception], None]) -> None:
        self.short += 1
        if self.held is None:
            self._together.put(beat, done)
            return

        async def later(until: asyncio.Event) -> None:
            await until.wait()
            self._together.put(beat, done)

        self.waiting = asyncio.create_task(later(self.held))

    def refused(self, code: str) -> None:
        self.codes.append(code)

    @staticmethod
    def _take(beats: Any) -> list[Answered | Exception]:
        answers: dict[str, Exception] = {
            "no": Refusal("replayed", "an old one, \ud800", hints=("wait",)),
            "disk": Failed("full"),
            "fault": ZeroDivisionError(),
        }
        return [answers.get(b.heartbeat) or Answered(f"{SAID} to {b.heartbeat}", False) for b in beats]


def body_of(heartbeat: str) -> bytes:
    return json.dumps({"heartbeat": heartbeat, "receipts": []}).encode()


def request(body: bytes, *more: str, length: int | None = None) -> bytes:
    lines = ["POST /v1/beat HTTP/1.1", "host: x", f"content-length: {len(body) if length is None else length}", *more]
    return "\r\n".join([*lines, "\r\n"]).encode() + body


LONG = "x-long: 1"
"""Nothing that an agent says: with it the same request goes the long way."""


class Caller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def hear(self) -> bytes:
        """One answer, without its date."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        return re.sub(rb"date: [^\r]+\r\n", b"", head) + await self.reader.readexactly(int(length[1]))

    async def ended(self) -> bool:
        return await self.reader.read() == b""


@contextlib.asynccontextmanager
async def listening(api: Api) -> AsyncIterator[tuple[Callable[[], Awaitable[Caller]], list[Prompt]]]:
    config = uvicorn.Config(application(api), lifespan="off", log_config=None, proxy_headers=False, ws="none")  # type: ignore[arg-type]
    config.load()
    state, made = ServerState(), list[Prompt]()

    def one() -> Prompt:
        made.append(Prompt(desk(api), config=config, server_state=state, app_state={}))  # type: ignore[arg-type]
        return made[-1]

    server = await asyncio.get_running_loop().create_server(one, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    callers: list[Caller] = []

    async def call() -> Caller:
        callers.append(Caller(*await asyncio.open_connection("127.0.0.1", port)))
        return callers[-1]

    try:
        yield call, made
    finally:
        for caller in callers:
            caller.writer.close()
        server.close()


async def until(said: Callable[[], object]) -> None:
    """Wait for what the server has done with what was sent; `run` bounds it."""
    while not said():
        await asyncio.sleep(0.001)


def run(story: Callable[[Api, Callable[[], Awaitable[Caller]], list[Prompt]], Awaitable[None]]) -> Api:
    api = Api()

    async def told() -> None:
        async with listening(api) as (call, made), asyncio.timeout(20):
            await story(api, call, made)

    asyncio.run(told())
    return api


@pytest.mark.parametrize(
    "body",
    [body_of("a"), body_of("é\u2028"), body_of("no"), body_of("disk"), body_of("fault"), b"{}", b"[]", b"{", b"",
     b"\xff", b'{"heartbeat": 1}', b'{"heartbeat": "a", "more": 1}', b'{"heartbeat": "a", "heartbeat": "b"}',
     b"[" * 5_000],
)  # fmt: skip
def test_the_short_way_says_byte_for_byte_what_the_long_way_says(body: bytes) -> None:
    async def story(api: Api, call: Any, made: Any) -> None:
        short, long = await call(), await call()
        await short.say(request(body))
        await long.say(request(body, LONG))
        assert await short.hear() == await long.hear()
        assert api.codes[::2] == api.codes[1::2]
        assert len(api.codes) % 2 == 0

    api = run(story)
    assert api.short == api.long, "one went each way, or was refused before"


def test_a_heartbeat_may_come_in_any_pieces_and_others_follow_on_the_same_connection() -> None:
    whole = request(body_of("a"))

    async def story(api: Api, call: Any, made: Any) -> None:
        caller = await call()
        await caller.say(whole)
        wanted = await caller.hear()
        head = whole.index(b"\r\n\r\n") + 4
        for cut in (1, 30, head - 1, head, head + 1, len(whole) - 1):
            before = api.short
            await caller.say(whole[:cut])
            await until(lambda: made[0]._body is not None or made[0].conn.trailing_data[0])
            await caller.say(whole[cut:])
            assert await caller.hear() == wanted
            assert api.short - before == (cut >= head), "a head that comes in pieces goes the long way"

    run(story)


def test_requests_that_come_at_once_are_answered_in_their_order_whichever_way_each_goes() -> None:
    async def story(api: Api, call: Any, made: Any) -> None:
        caller = await call()
        api.held = asyncio.Event()
        await caller.say(request(body_of("0")))
        await until(lambda: api.short)
        rest = (request(body_of("1")), request(body_of("2"), LONG), request(body_of("3")))
        await caller.say(*rest)
        await until(lambda: made[0]._behind)
        assert api.short == 1, "nobody is answered before the one in front"
        api.held.set()
        for n in range(4):
            assert f"to {n}".encode() in await caller.hear()
        await caller.say(request(body_of("4")) + request(body_of("5")) + request(body_of("6"))[:40])
        assert b"to 4" in await caller.hear()
        assert b"to 5" in await caller.hear()
        await caller.say(request(body_of("6"))[40:])
        assert b"to 6" in await caller.hear()

    run(story)


def test_a_heartbeat_behind_a_request_in_hand_waits_for_it() -> None:
    async def story(api: Api, call: Any, made: Any) -> None:
        caller, other = await call(), await call()
        api.held = asyncio.Event()
        await caller.say(request(body_of("0"), LONG))
        await other.say(b"GET /healthz?")
        await until(lambda: api.long and made[1].conn.trailing_data[0])
        await caller.say(request(body_of("1")))
        await other.say(request(body_of("0")))
        await until(lambda: made[0].flow.read_paused)
        api.held.set()
        assert b"to 0" in await caller.hear()
        assert b"to 1" in await caller.hear()
        assert b" 400 " in await other.reader.readline(), "it was the rest of another request"
        assert api.short == 0

    run(story)


def test_many_at_once_are_answered_one_after_the_other() -> None:
    async def story(api: Api, call: Any, made: Any) -> None:
        caller = await call()
        await caller.say(request(b"{") * 400)
        for _ in range(400):
            assert b" 400 " in await caller.hear()

    run(story)


UNUSUAL = (
    request(body_of("a"), "transfer-encoding: chunked"),
    request(body_of("a"), "expect: 100-continue"),
    request(body_of("a"), "connection: close"),
    request(body_of("a"), "connection: upgrade", "upgrade: websocket"),
    request(body_of("a"), "content-length: 33"),
    request(body_of("a"), "host: y"),
    request(body_of("a"), "accept: a", "accept: b"),
    request(body_of("a"), " folded"),
    request(body_of("a")).replace(b"HTTP/1.1", b"HTTP/1.0"),
    request(body_of("a")).replace(b"host: x\r\n", b""),
    request(body_of("a")).replace(b"host: x", b"host : x"),
    request(body_of("a")).replace(b"POST", b"PUT"),
    request(body_of("a")).replace(b"/v1/beat", b"/v1/beat?a=1"),
    request(body_of("a")).replace(b"/v1/beat", b"/v1/join"),
    request(body_of("a"), length=-1),
    request(body_of("a"), length=BEAT.limit + 1),
    request(body_of("a"), "accept: " + "a" * HEAD_BYTES),
)


@pytest.mark.parametrize("said", UNUSUAL)
def test_whatever_is_unusual_goes_the_long_way(said: bytes) -> None:
    assert read_head(said[: said.index(b"\r\n\r\n") + 4]) is None or len(said) > HEAD_BYTES

    async def story(api: Api, call: Any, made: Any) -> None:
        caller = await call()
        await caller.say(said)
        await asyncio.sleep(0.02)

    assert run(story).short == 0


def test_what_agents_and_browsers_send_goes_the_short_way() -> None:
    usual = ("Accept: */*", "Accept-Encoding: gzip", "Connection: keep-alive", "User-Agent: a/1", "Content-Type: b")

    async def story(api: Api, call: Any, made: Any) -> None:
        caller = await call()
        await caller.say(request(body_of("a"), *usual))
        assert b"HTTP/1.1 200 OK" in await caller.hear()

    assert run(story).short == 1


def test_a_body_that_does_not_come_is_not_waited_for_on_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BODY_TIMEOUT_S", 0.05)
    monkeypatch.setattr("gridops.controller.http.BODY_TIMEOUT_S", 0.05)

    async def story(api: Api, call: Any, made: Any) -> None:
        short, long = await call(), await call()
        await short.say(request(b"{", length=5))
        await long.say(request(b"{", LONG, length=5))
        answer = await short.hear()
        assert answer == await long.hear()
        assert answer.startswith(b"HTTP/1.1 400")
        assert await short.ended()
        assert await long.ended()
        made[0].data_received(request(body_of("a")))  # what arrives while the connection is being closed
        assert (api.short, api.long) == (0, 0)
        monkeypatch.setattr(connection, "BODY_TIMEOUT_S", 60.0)
        gone = await call()
        await gone.say(request(b"{", length=5))
        gone.writer.close()
        while len(api.codes) < 3:
            await asyncio.sleep(0.01)
        assert api.codes == ["bad_request"] * 3

    run(story)


def test_a_server_that_ends_answers_who_waits_and_then_hangs_up() -> None:
    async def story(api: Api, call: Any, made: list[Prompt]) -> None:
        caller, idle, begun = await call(), await call(), await call()
        await idle.say(request(body_of("no")))
        assert b" 409 " in await idle.hear()
        api.held = asyncio.Event()
        await caller.say(request(body_of("a")))
        await begun.say(request(body_of("b"))[:-1])
        await until(lambda: api.short == 2 and made[2]._body)
        for one in made:
            one.shutdown()
        api.held.set()
        await begun.say(b"}")
        assert b"to a" in await caller.hear()
        assert await caller.ended()
        assert b"to b" in await begun.hear()
        assert await begun.ended()
        assert await idle.ended()

    run(story)


def test_who_does_not_take_answers_gets_no_more_of_them_and_is_read_no_further() -> None:
    async def story(api: Api, call: Any, made: list[Prompt]) -> None:
        caller = await call()
        await caller.say(request(body_of("0")))
        await caller.hear()
        made[0].pause_writing()  # as the transport says when too much waits to be taken
        await caller.say(request(body_of("a")))
        await until(made[0]._answering)
        await asyncio.sleep(0.01)
        assert (api.short, made[0]._answering()) == (1, True)
        made[0].resume_writing()
        assert b"to a" in await caller.hear()

    run(story)


def test_a_connection_is_kept_from_its_newest_heartbeat_on_and_no_longer() -> None:
    async def story(api: Api, call: Any, made: list[Prompt]) -> None:
        short, long = await call(), await call()
        for caller, more in ((short, ()), (short, ()), (long, (LONG,))):
            await caller.say(request(body_of("a"), *more))
            await caller.hear()
        one = made[0]
        first = one.timeout_keep_alive_task
        one.timeout_keep_alive_handler()
        again = one.timeout_keep_alive_task
        assert first is not None
        assert again is not None
        assert again.when() > first.when(), "it was heard since"
        made[1].timeout_keep_alive_handler()
        assert await long.ended(), "there the clock was set anew each time"
        api.held = asyncio.Event()
        await short.say(request(body_of("late")))
        await until(lambda: one._owed)
        one._answered_s -= 2 * one.timeout_keep_alive
        one.timeout_keep_alive_handler()
        api.held.set()
        assert b"to late" in await short.hear(), "nobody is cut off who waits for an answer"
        one._answered_s -= 2 * one.timeout_keep_alive
        one.timeout_keep_alive_handler()
        assert await short.ended()

    run(story)


def test_a_server_that_is_full_says_so_on_the_long_way() -> None:
    async def story(api: Api, call: Any, made: list[Prompt]) -> None:
        caller = await call()
        await caller.say(request(body_of("0")))
        await caller.hear()
        made[0].limit_concurrency = 1
        await caller.say(request(body_of("a")))
        assert b" 503 " in await caller.hear()

    assert run(story).short == 1
