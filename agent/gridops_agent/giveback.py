"""Gives memory back while a host is paused: waits until an engine is idle, stops it gently, and says it is gone.

Called by the watch with every residency that the heart would have given back, in the residency's lanes. Nothing in
flight is ever cut: work that outlives the grace keeps its engine, and the memory waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gridops.base.codes import refusals as codes
from gridops.base.ids import Digest
from gridops_agent.core.events import Died, GiveBack, Stuck
from gridops_agent.core.state import Held
from gridops_agent.keep.base import Proof
from gridops_agent.ledger import Unwritable
from gridops_agent.memory import Memory
from gridops_agent.starts import Tell, Tools

POLL_S = 0.1

Work = Callable[[Held], Awaitable[str]]
"""What is still being worked on, in words; empty when it is known to be nothing."""


@dataclass(frozen=True, slots=True)
class Says:
    """`tell` waits for the ledger; `tell_once` raises when it cannot be written; `warn` shows people a coded text."""

    tell: Tell
    tell_once: Tell
    work: Work
    warn: Callable[[str, str], None]


class GivesBack:
    """Offloads residencies."""

    def __init__(self, memory: Memory, tools: Tools, says: Says) -> None:
        self._memory = memory
        self._tools = tools
        self._tell = says.tell
        self._tell_once = says.tell_once
        self._work = says.work
        self._warn = says.warn

    async def __call__(self, body: Digest) -> None:
        """Give one residency's memory back, if it is idle and the heart says so."""
        held = self._memory.host.held.get(body)
        if held is None or held.handle is None:
            return
        if work := await self._work(held):
            words = f"{held.replica}: {work}; nothing is cut, and its memory is given back when that ends"
            self._warn(codes.DRAIN_TIMEOUT.code, words)
            return
        try:
            if not await self._tell_once(GiveBack(body)):
                return
        except Unwritable:  # the watch says so; what is not on disk does not begin
            return
        # From here on the front lets nobody in; who came in before that moment still has his answer.
        while True:
            if not await self._work(held):
                break
            await asyncio.sleep(POLL_S)
        keepers, releases, handle = self._tools.keepers, self._tools.releases, held.handle
        await releases.before(held, self._tell)
        stopped = await keepers.stop(body, handle)
        if not stopped.gone:
            doubt = await keepers.prove(body, handle) is Proof.NOT_OURS
            code = codes.NOT_OURS.code if doubt else codes.RELEASE_STUCK.code
            await self._tell(Stuck(body, code, stopped.detail))
            return
        keepers.forget(handle)
        back, remark = await releases.after(body)
        if back:
            await self._tell(Died(body, "stopped to give memory back"))
        else:
            await self._tell(Stuck(body, codes.RELEASE_STUCK.code, remark))
