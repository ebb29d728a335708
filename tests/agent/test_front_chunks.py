"""A stream through the front is the engine's own, byte for byte, wherever the network cut it, and nothing is held back.

An event of a stream may come in two halves, two in one piece, or cut in the middle of a letter: the front reads none of
it. An engine that breaks off shows as a stream that broke off, never as one that ended.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from gridops_agent.front import Table
from tests.agent.callers import asked, front_alone, route
from tests.agent.site import KEYS, Site

EVENTS = "".join(f'data: {{"choices":[{{"delta":{{"content":"Grüße {n} \U0001f40b"}}}}]}}\n\n' for n in range(40))
WHOLE = (EVENTS + "data: [DONE]\n\n").encode()


def cut(seed: int) -> list[bytes]:
    """The stream in pieces: whole, single bytes, or anywhere."""
    if seed == 0:
        return [WHOLE]
    if seed == 1:
        return [WHOLE[at : at + 1] for at in range(400)] + [WHOLE[400:]]
    dice = random.Random(seed)
    ends = sorted(dice.sample(range(1, len(WHOLE)), dice.randint(1, 40)))
    return [WHOLE[a:b] for a, b in zip([0, *ends], [*ends, len(WHOLE)], strict=True)]


class Pieces:
    """An engine that sends each piece when it is let, and breaks off after so many."""

    def __init__(self, pieces: list[bytes], most: int | None = None) -> None:
        self._pieces = pieces
        self._most = most
        self.heard = asyncio.Event()
        """The caller has what was sent so far."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        for piece in self._pieces[: self._most]:
            self.heard.clear()
            await reply.write(piece)
            await asyncio.wait_for(self.heard.wait(), 10)
        if self._most is not None and request.transport is not None:
            request.transport.abort()
        return reply

    @asynccontextmanager
    async def up(self) -> AsyncIterator[int]:
        app = web.Application()
        app.router.add_post("/v1/{path:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()


async def streamed(site: Site, engine: Pieces, pieces: list[bytes]) -> bytes:
    """What a caller hears; each piece is waited for before the engine may send the next."""
    heard, owed = b"", list(pieces)
    async with (
        engine.up() as port,
        front_alone(site, Table((route(port),), KEYS)) as (_, http),
        http.post("/v1/chat/completions", json=asked(stream=True)) as answer,
    ):
        assert answer.status == 200, await answer.text()
        wanted = len(owed.pop(0))
        async for part in answer.content.iter_any():
            heard += part
            if len(heard) >= wanted:
                engine.heard.set()
                wanted += len(owed.pop(0)) if owed else 1 << 30
    return heard


@pytest.mark.parametrize("seed", range(6))
async def test_a_stream_is_the_same_bytes_and_no_piece_waits_for_the_next(site: Site, seed: int) -> None:
    pieces = cut(seed)
    assert await streamed(site, Pieces(pieces), pieces) == WHOLE


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_an_engine_that_breaks_off_is_heard_to_break_off(site: Site, seed: int) -> None:
    pieces = cut(seed)
    with pytest.raises(aiohttp.ClientError):
        await streamed(site, Pieces(pieces, len(pieces) // 2), pieces)
