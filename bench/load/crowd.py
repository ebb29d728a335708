"""A crowd of agents on kept connections: the product's own protocol and signatures around make-believe machines.

Two ways to speak. `live` is what hosts do: each polls when it was told to, sooner when it has news, hears and obeys.
`drive` sends at a fixed rate whatever comes back, and counts from the moment a heartbeat was due, so a listener that
falls behind cannot hide it. For `drive` heartbeats are signed ahead, which is honest as long as nothing that a host
would say depends on the answer: hosts without work say the same but for their numbers. Their answers are verified by
sample; in `live` every one is.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bench.load.line import Line, connect, directive_of, request_of
from gridops.base.record import to_bytes
from gridops.protocol import receipts as owing
from gridops.protocol.messages import Beat
from gridops.protocol.open import open_directive
from gridops.trust.tls import pinned_client_context
from tests.controller.scripted_agent import ScriptedAgent

GREETING_AT_ONCE = 32
NEWS_S = 0.1
"""As agents do (`gridops_agent.talk`): so soon after an answer that gave them something to tell."""
SAMPLED = 50
"""One answer in so many is opened and verified in `drive`."""


@dataclass
class Seat:
    """One agent, its connection, and what it has signed ahead: nonce and request."""

    agent: ScriptedAgent
    line: Line
    ahead: list[tuple[str, bytes]] = field(default_factory=list)
    free: asyncio.Lock = field(default_factory=asyncio.Lock)
    polls: list[int] = field(default_factory=list)
    """How long it was told to wait, in milliseconds, each time."""

    async def talk(self) -> float:
        """One poll, obeyed; seconds until the next one is wanted."""
        agent = self.agent
        agent.now_ms = now_ms()
        async with self.free:
            directive = agent.hear(directive_of(await self.line.ask(request_of(to_bytes(agent.beat())))))
        self.polls.append(directive.next_poll_ms)
        return NEWS_S if owing.owed(agent.receipts) else directive.next_poll_ms / 1000

    def sign_ahead(self, count: int) -> None:
        for _ in range(count):
            self.agent.now_ms = now_ms()
            beat: Beat = self.agent.beat()
            self.ahead.append((self.agent.session.nonce or "", request_of(to_bytes(beat))))


@dataclass
class Driven:
    """What became of the heartbeats of one `drive`. Times in seconds."""

    answers: list[float] = field(default_factory=list)
    """From the moment that each was due to its whole answer."""
    lags: list[float] = field(default_factory=list)
    """By how much the generator itself was late."""
    lost: list[str] = field(default_factory=list)
    verified: int = 0


class Crowd:
    """All agents of a fleet and their connections."""

    def __init__(self, agents: Iterable[ScriptedAgent], cert_pem: str) -> None:
        self._agents = tuple(agents)
        self._context = pinned_client_context((cert_pem,))
        self.seats: list[Seat] = []

    @property
    def standing(self) -> tuple[ScriptedAgent, ...]:
        """Agents without a connection."""
        return self._agents[len(self.seats) :]

    async def sit(self, url: str, agent: ScriptedAgent) -> Seat:
        """One agent opens a connection."""
        seat = Seat(agent, await connect(url, self._context))
        self.seats.append(seat)
        return seat

    async def leave(self) -> None:
        """Everybody hangs up; a listener that ends then need not wait for anyone."""
        for seat in self.seats:
            seat.line.close()
        self.seats = []
        await asyncio.sleep(0.1)

    async def greet(self, seats: Sequence[Seat]) -> None:
        """They say two words: the first is heard, the one after the answer is believed."""
        gate = asyncio.Semaphore(GREETING_AT_ONCE)

        async def one(seat: Seat) -> None:
            async with gate:
                await seat.talk()
                await seat.talk()

        await asyncio.gather(*(one(seat) for seat in seats))

    async def live(self, until: Callable[[], bool], most_s: float) -> bool:
        """Everybody polls as it is told, until a question is answered with yes; whether it was in time."""
        over = asyncio.Event()
        tasks = [asyncio.create_task(self._lives(seat, over)) for seat in self.seats]
        end = time.monotonic() + most_s
        while not until() and time.monotonic() < end:
            await asyncio.wait(tasks, timeout=0.05, return_when=asyncio.FIRST_EXCEPTION)
            if any(task.done() for task in tasks):
                break
        # Nobody is cut off in the middle of a poll: its answer would meet the next one.
        over.set()
        await asyncio.gather(*tasks)
        return until()

    async def _lives(self, seat: Seat, over: asyncio.Event) -> None:
        while not over.is_set():
            wait_s = await seat.talk()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), wait_s)

    async def drive(self, rate: float, seconds: float) -> Driven:
        """So many heartbeats a second, one host after the other."""
        count = int(rate * seconds)
        for n, seat in enumerate(self.seats):
            seat.sign_ahead(len(range(n, count, len(self.seats))) - len(seat.ahead))
        found = Driven()
        tasks: set[asyncio.Task[None]] = set()
        start = time.monotonic() + 0.2
        for n in range(count):
            due = start + n / rate
            pause = due - time.monotonic()
            if pause > 0:
                await asyncio.sleep(pause)
            task = asyncio.create_task(self._due(self.seats[n % len(self.seats)], due, n, found))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30.0)
        return found

    async def _due(self, seat: Seat, due: float, n: int, found: Driven) -> None:
        async with seat.free:
            nonce, request = seat.ahead.pop(0)
            found.lags.append(time.monotonic() - due)
            try:
                directive = directive_of(await seat.line.ask(request))
            except (ValueError, OSError) as error:
                found.lost.append(f"{seat.agent.host}: {error}")
                return
            found.answers.append(seat.line.answered_s - due)
        if n % SAMPLED == 0:
            opened = open_directive(directive, seat.agent.chain.keys("controller"))
            if opened.nonce != nonce:
                found.lost.append(f"{seat.agent.host}: the answer to another heartbeat")
            found.verified += 1

    async def volley(self, requests: Sequence[tuple[Seat, bytes]]) -> list[tuple[Seat, float, str]]:
        """All of them at once; each with its answer and how long it took."""
        start = time.monotonic()

        async def one(seat: Seat, request: bytes) -> tuple[Seat, float, str]:
            directive = directive_of(await seat.line.ask(request))
            return seat, seat.line.answered_s - start, directive

        return list(await asyncio.gather(*(one(seat, request) for seat, request in requests)))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
