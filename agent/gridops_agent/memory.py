"""The host's memory while the agent runs: one event at a time, durable before anything follows from it.

Everybody who learns something tells `take`; it lets the heart decide, writes the difference to the ledger, and only
then shows the new host and returns the effects. If the ledger cannot be written nothing has happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gridops_agent.core.events import Effect, Event
from gridops_agent.core.heart import step
from gridops_agent.core.state import Host
from gridops_agent.ledger import Ledger


class Memory:
    """The current host. `changed` is called with each new one before its effects are returned."""

    def __init__(self, ledger: Ledger, host: Host, now_ms: Callable[[], int], changed: Callable[[Host], None]) -> None:
        self.host = host
        self.now_ms = now_ms
        self._ledger = ledger
        self._changed = changed
        self._turn = asyncio.Lock()

    async def take(self, event: Event) -> tuple[Effect, ...]:
        """One event. Raises Unwritable; then the host is what it was."""
        # Shielded: a task that is cancelled here must not leave the ledger ahead of what this run believes.
        return await asyncio.shield(asyncio.ensure_future(self._take(event)))

    async def _take(self, event: Event) -> tuple[Effect, ...]:
        async with self._turn:
            done = step(self.host, event, self.now_ms())
            if done.host is not self.host:
                await asyncio.to_thread(self._ledger.write, self.host, done.host)
                self.host = done.host
                self._changed(done.host)
            return done.effects

    async def settled(self) -> None:
        """Wait until every step that has begun is durable or failed, also one whose asker was cancelled."""
        async with self._turn:
            return
