"""Lanes: what must not happen at the same time on one host. Waiting is in order of acceptance.

Starts and stops on one device follow one another, so that memory is never counted on before it is there. What concerns
one residency follows in order. Transfers have one lane of their own, so that a long copy never delays an unload.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import assert_never
from weakref import WeakValueDictionary

from gridops.base.ids import DeviceId, Digest
from gridops.model.action import Action, Drain, Evict, Load, Operate, Unload, Warm
from gridops_agent.core.state import Host


class Lanes:
    """Named locks, taken in one global order: the residency, then its devices by name."""

    def __init__(self) -> None:
        # A lock lives as long as somebody holds it or waits for it.
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def of(self, host: Host, body: Digest, action: Action) -> AbstractAsyncContextManager[None]:
        """The lanes of a command."""
        match action:
            case Load() | Evict():
                return self._all((("transfer", ""),))
            case Warm():
                return self.residency(body, action.devices)
            case Drain() | Operate():
                return self.residency(action.incarnation)
            case Unload():
                held = host.held.get(action.incarnation)
                return self.residency(action.incarnation, held.warm.devices if held is not None else ())
            case _:
                assert_never(action)

    def residency(self, body: Digest, devices: Iterable[DeviceId] = ()) -> AbstractAsyncContextManager[None]:
        """One residency, and the devices whose memory is about to change."""
        return self._all((("residency", body), *(("device", device) for device in sorted(set(devices)))))

    @asynccontextmanager
    async def _all(self, names: tuple[tuple[str, str], ...]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for name in names:
                lock = self._locks.get(name) or asyncio.Lock()
                self._locks[name] = lock
                await stack.enter_async_context(lock)
            yield
