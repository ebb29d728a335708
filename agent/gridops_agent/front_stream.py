"""Passes a request on to an engine and its answer back, unbuffered: who ended it, if it did not end by itself.

Called by the front once a request is let in and counted. A caller that takes nothing of its answer is let go, an
engine that breaks off shows as a broken answer, and one that hangs (`front_flights`) ends what waits for it. It never
logs bodies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from gridops.base import limits
from gridops.base.codes.host import ENGINE_SILENT
from gridops_agent.front_asked import Refused
from gridops_agent.front_flights import Flight, Flights
from gridops_agent.front_outcomes import UNREACHABLE, Outcomes

if TYPE_CHECKING:
    from gridops_agent.front import Route

_PASSED_UP = frozenset({"accept", "content-type", "traceparent", "tracestate", "x-request-id", "user-agent"})
_PASSED_DOWN = frozenset({"content-type", "cache-control", "x-request-id", "retry-after"})
_UPSTREAM = aiohttp.ClientTimeout(total=None, connect=10, sock_read=None)
_HANGS = "the model's engine answers nothing any more, neither this request nor how it is"


def open_upstream() -> aiohttp.ClientSession:
    """Connections to engines of this host."""
    connector = aiohttp.TCPConnector(limit=0)
    return aiohttp.ClientSession(auto_decompress=False, connector=connector, timeout=_UPSTREAM, trust_env=False)


@dataclass(frozen=True, slots=True)
class Passing:
    """How one front passes requests on."""

    http: aiohttp.ClientSession
    outcomes: Outcomes
    flights: Flights

    async def passed(self, request: web.Request, route: Route, body: bytes) -> web.StreamResponse:
        """The engine's answer, as far as it came. Raises Refused while nothing of it did."""
        upstream = await self._asked(request, route, body)
        try:
            down = {n: v for n, v in upstream.headers.items() if n.lower() in _PASSED_DOWN}
            answer = web.StreamResponse(status=upstream.status, headers=down)
            await answer.prepare(request)
            try:
                async with self.flights.waiting(route) as flight:
                    await _copied(upstream, answer, flight)
                self.outcomes.ended(route.body, upstream.status)
                await _taken(answer.write_eof())
            except _Stalled:
                # Nobody reads any more, and so nobody can be told. The engine has done nothing wrong.
                if request.transport is not None:
                    request.transport.abort()
            except (aiohttp.ClientError, OSError):
                if request.transport is not None and not request.transport.is_closing():
                    self.outcomes.ended(route.body, UNREACHABLE)
                # The engine ended in the middle: closing without the last chunk tells the client that it was cut.
                if request.transport is not None:
                    request.transport.abort()
            return answer
        finally:
            upstream.close()

    async def _asked(self, request: web.Request, route: Route, body: bytes) -> aiohttp.ClientResponse:
        headers = {n: v for n, v in request.headers.items() if n.lower() in _PASSED_UP} | route.door.headers
        url = f"{route.door.url}/v1/{request.match_info['path']}"
        hangs = False
        try:
            async with self.flights.waiting(route) as flight:
                try:
                    return await self.http.post(url, data=body, headers=headers, allow_redirects=False)
                finally:
                    hangs = flight.patience.expired()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.outcomes.ended(route.body, UNREACHABLE)
            if hangs:
                raise Refused(504, ENGINE_SILENT.code, _HANGS) from error
            raise Refused(502, "engine_unreachable", "the model's engine does not answer") from error


async def _copied(upstream: aiohttp.ClientResponse, answer: web.StreamResponse, flight: Flight) -> None:
    async for chunk in upstream.content.iter_any():
        await _taken(answer.write(chunk))
        flight.heard()


class _Stalled(Exception):
    """A caller takes nothing of its answer any more."""


async def _taken(writing: Awaitable[None]) -> None:
    """Wait until a caller has made room for what comes next. Raises _Stalled after the patience of the front: a machine
    that was closed over its answer would otherwise keep an engine from the owner of this host for ever."""
    try:
        async with asyncio.timeout(limits.FRONT_STALL_MS / 1_000):
            await writing
    except TimeoutError as error:
        raise _Stalled from error
