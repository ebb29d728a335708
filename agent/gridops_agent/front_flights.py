"""Requests in flight at the front, and those that wait in vain: an engine that hangs is waited for, and not for ever.

A request that brings nothing may be at work: a long prompt is read for minutes before the first word comes. So silence
alone ends nothing. But an engine that works answers when it is asked how it is. One that does not, again and again, for
as long as its profile grants work to end (`timing.drain`), and of which no byte has come in that time, hangs: what
waits for it is ended and its callers are told (`engine_hung`). The engine itself is not touched here; with nothing in
flight an owner who wants his memory need not wait for it. Called by the front for each request, and by the shell.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gridops.base.ids import Digest

if TYPE_CHECKING:
    from gridops_agent.front import Route

LOOK_S = 5.0
"""Nobody is asked while bytes come: an answer of which something came so lately is no silence."""
UNANSWERED = 3
"""So many questions in a row at least: an agent that stood still itself has asked none meanwhile."""

Alive = Callable[["Route"], Awaitable[bool]]


@dataclass(slots=True, eq=False)
class Flight:
    """One request that an engine works on, or should."""

    route: Route
    patience: asyncio.Timeout
    heard_s: float

    def heard(self) -> None:
        """Something of its answer has come."""
        self.heard_s = asyncio.get_running_loop().time()


@dataclass(slots=True)
class _Silence:
    """An engine that was asked and did not answer."""

    since_s: float
    asked: int = 0


@dataclass(slots=True)
class Flights:
    """What is in flight at one front."""

    count: Counter[Digest] = field(default_factory=Counter)
    """Of each residency, requests of every kind."""
    _open: set[Flight] = field(default_factory=set)
    _silent: dict[Digest, _Silence] = field(default_factory=dict)

    def began(self, body: Digest) -> None:
        """One more."""
        self.count[body] += 1

    def left(self, body: Digest) -> None:
        """One less; a residency without any is not listed."""
        self.count[body] -= 1
        if not self.count[body]:
            del self.count[body]

    @asynccontextmanager
    async def waiting(self, route: Route) -> AsyncIterator[Flight]:
        """While an engine is waited for. Raises TimeoutError inside when it hangs."""
        async with asyncio.timeout(None) as patience:
            flight = Flight(route, patience, asyncio.get_running_loop().time())
            self._open.add(flight)
            try:
                yield flight
            finally:
                self._open.discard(flight)

    async def look(self, alive: Alive) -> tuple[tuple[Route, int], ...]:
        """Ask every engine that is waited for in silence. What waits for one that hangs ends; how many did, of each."""
        now = asyncio.get_running_loop().time()
        waited: dict[Digest, list[Flight]] = {}
        for flight in self._open:
            if flight.route.patience_ms is not None:
                waited.setdefault(flight.route.body, []).append(flight)
        quiet = {body: fs for body, fs in waited.items() if now - max(f.heard_s for f in fs) >= LOOK_S}
        for body in self._silent.keys() - quiet.keys():
            del self._silent[body]
        routes = [quiet[body][0].route for body in sorted(quiet)]
        answers = await asyncio.gather(*(alive(route) for route in routes))
        return tuple(
            (route, self._end(route.body))
            for route, answered in zip(routes, answers, strict=True)
            if self._hangs(route, answered, max(f.heard_s for f in quiet[route.body]))
        )

    def _hangs(self, route: Route, answered: bool, heard_s: float) -> bool:
        now = asyncio.get_running_loop().time()
        if answered:
            self._silent[route.body] = _Silence(now)
            return False
        silence = self._silent.setdefault(route.body, _Silence(heard_s))
        silence.asked += 1
        silence.since_s = max(silence.since_s, heard_s)
        assert route.patience_ms is not None
        return silence.asked >= UNANSWERED and now - silence.since_s >= route.patience_ms / 1_000

    def _end(self, body: Digest) -> int:
        ended = [flight for flight in self._open if flight.route.body == body and not flight.patience.expired()]
        for flight in ended:
            flight.patience.reschedule(asyncio.get_running_loop().time())
        return len(ended)
