"""Heartbeats and directives: asks the controller, proves the answer, and hands it to the heart.

A directive counts when a controller key of the root document signed it and it echoes the nonce of the newest
heartbeat. Root documents are walked before anything else of it is believed. While the controller is away nothing is
lost: receipts are sent again until they are acknowledged, and what runs goes on.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace

from gridops.base import limits
from gridops.base.codes import trust as codes
from gridops.base.errors import Refusal, Unreachable
from gridops.protocol import fresh, receipts
from gridops.protocol.binding import KIND, bind
from gridops.protocol.messages import Beat, Directive
from gridops.protocol.open import open_directive
from gridops.trust.envelope import seal_record
from gridops.trust.keys import MachineSigner, Signer
from gridops_agent.client import Controller, Foreign
from gridops_agent.clock import SystemClock
from gridops_agent.core.events import Heard, Rekeyed, RootsCame
from gridops_agent.core.report import Readings, heartbeat
from gridops_agent.core.state import Host
from gridops_agent.effects import Effects
from gridops_agent.memory import Memory


class SessionClock:
    """Controller time as this host knows it, from the session of this run."""

    def __init__(self, session: fresh.Session, clock: SystemClock) -> None:
        self.session = session
        self.clock = clock

    def now_ms(self) -> int:
        return fresh.controller_ms(self.session, wall_ms=self.clock.wall_ms(), mono_ms=self.clock.monotonic_ms())

    def fresh(self) -> bool:
        return fresh.is_fresh(self.session, self.clock.monotonic_ms())


class Beats:
    """The talk of one host with its controller."""

    def __init__(self, memory: Memory, hours: SessionClock, signer: Signer, effects: Effects, url: str) -> None:
        self._memory = memory
        self._hours = hours
        self._signer = signer
        self._effects = effects
        self._url = url
        self._certificates: tuple[str, ...] = ()
        self._controller: Controller | None = None
        self._asking: asyncio.Future[str] | None = None
        self.deaf = False
        """True with a damaged ledger: grants are not even looked at."""
        self.front: tuple[str, str] | None = None
        """Address and certificate (PEM) of this host's front; None while there is none."""
        self._asked_for_binding = False
        self.successor: Callable[[], MachineSigner | None] = lambda: None
        """The host's next key, while one waits for people's commit."""
        self.promote: Callable[[], None] = lambda: None
        """Puts it in the place of the present one, on the disk."""

    async def close(self) -> None:
        if self._controller is not None:
            await self._controller.close()

    async def beat(self, readings: Callable[[], Readings], version: str) -> Directive:
        """One heartbeat and its directive. Raises Refusal, Unreachable or Unwritable; then nothing was believed."""
        controller = await self._pinned()
        clock, host = self._hours.clock, self._memory.host
        nonce = secrets.token_hex(16)
        self._hours.session = fresh.ask(self._hours.session, nonce, clock.monotonic_ms())
        word = heartbeat(host, self._hours.session, nonce, self._hours.now_ms(), version, self._bound(readings()))
        said = Beat(
            heartbeat=seal_record("heartbeat", word, self._signer),
            receipts=tuple(seal_record("receipt", r, self._signer) for r in receipts.owed(host.receipts)),
        )
        try:
            answer = await self._asked(controller, said)
        except Refusal as refusal:
            if refusal.code == codes.BAD_SIGNATURE.code and await self._next_key():
                raise Unreachable("people have committed this host's next key: it speaks with that one now") from None
            raise
        except Foreign:
            if not await self._pins_renewed():
                raise
            answer = await self._asked(await self._pinned(), said)
        directive = await self._opened(controller, answer)
        await self._roots(directive.roots)
        self._hours.session = fresh.hear(
            self._hours.session,
            directive,
            epoch=self._memory.host.chain.root.controller_epoch,
            wall_ms=clock.wall_ms(),
            mono_ms=clock.monotonic_ms(),
        )
        if self.deaf:
            directive = replace(directive, grants=(), acked_rseq=host.receipts.acked)
        self._asked_for_binding = bool(directive.wants_binding)
        session = self._hours.session
        await self._effects.tell_once(Heard(directive, floor_ms=session.floor_ms, epoch=session.epoch))
        return directive

    async def _next_key(self) -> bool:
        """Speak with the next key from now on: the controller knows the present one no more, which is the commit.

        Commands that are open under the present one end first; until then this host is not heard.
        """
        coming = self.successor()
        if coming is None or self._memory.host.commands:
            return False
        await self._effects.tell_once(Rekeyed(coming.public.text))
        self.promote()
        self._signer = coming
        return True

    def _bound(self, readings: Readings) -> Readings:
        """With this host's signed word on its front, where the controller has just asked for it."""
        if self.front is None or not self._asked_for_binding:
            return readings
        fence = self._memory.host.fence
        said = bind(fence.fleet, fence.host, *self.front, self._hours.now_ms())
        return replace(readings, binding=seal_record(KIND, said, self._signer))

    async def _asked(self, controller: Controller, said: Beat) -> str:
        asking = self._asking = asyncio.ensure_future(controller.beat(said))
        try:
            return await asking
        except asyncio.CancelledError:
            if self._asking is asking:  # the one who asked is cancelled, not the question
                asking.cancel()
                raise
            raise Unreachable("this machine slept while it asked its controller; it asks again") from None

    async def renew(self) -> None:
        """The machine has slept: no answer to what was asked before counts, and no connection is taken to be open."""
        asking, self._asking = self._asking, None
        if asking is not None and not asking.done():
            asking.cancel()
        self._hours.session = replace(self._hours.session, nonce=None)
        self._certificates = ()

    async def _opened(self, controller: Controller, answer: str) -> Directive:
        try:
            return open_directive(answer, self._memory.host.chain.keys("controller"))
        except Refusal as refusal:
            if refusal.code != codes.BAD_SIGNATURE.code:
                raise
        # The controller's key may have been rotated by a root document that has not reached this host yet.
        await self._roots(await controller.roots())
        return open_directive(answer, self._memory.host.chain.keys("controller"))

    async def _pins_renewed(self) -> bool:
        """The controller may show a certificate of a root document that this host has slept through: ask for those.

        They are asked of whoever answers, since they prove themselves; nothing is said to them that is not public.
        """
        before, anybody = _pins(self._memory.host), Controller.unproved(self._url)
        try:
            await self._roots(await anybody.roots())
        except (Unreachable, Refusal):
            return False
        finally:
            await anybody.close()
        return _pins(self._memory.host) != before

    async def _roots(self, roots: tuple[str, ...]) -> None:
        new = tuple(text for text in roots if text not in self._memory.host.roots)
        for start in range(0, min(len(new), limits.ROOTS_IN_CHAIN), limits.ROOTS_PER_DIRECTIVE):
            await self._effects.tell_once(RootsCame(new[start : start + limits.ROOTS_PER_DIRECTIVE]))

    async def _pinned(self) -> Controller:
        certificates = _pins(self._memory.host)
        if self._controller is None or certificates != self._certificates:
            await self.close()
            self._controller = Controller.pinned(self._url, certificates)
            self._certificates = certificates
        return self._controller


def _pins(host: Host) -> tuple[str, ...]:
    return host.chain.root.controller_tls
