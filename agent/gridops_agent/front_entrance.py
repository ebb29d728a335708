"""The front's entrance: how many connections there may be, and how long one may be there without asking anything.

`Front` opens it. Whoever connects has shown no key yet, so each wait is bounded: the TLS handshake, the head of a
request however slowly it comes, and the pause between two requests. When it is full, whoever has asked nothing for
longest makes room, so that idle connections never keep a request out. It reads no request and answers none.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from gridops.base import limits

GOODBYE_S = 1.0
"""Closing TLS waits for the other side, which here may be one that does not speak."""


def patient(app: web.Application) -> web.AppRunner:
    """A runner of the front with its waits: the first begins with the connection, and bytes that are no whole head do
    not prolong it."""
    return web.AppRunner(
        app,
        # A client that walks away must end its request here at once, so that the count and the engine's slot are freed.
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=10,
        keepalive_timeout=limits.FRONT_IDLE_MS / 1_000,
        lingering_time=limits.FRONT_LINGER_MS / 1_000,
    )


class Entrance:
    """The listening socket of one front. `busy` says whether a connection works on a request."""

    def __init__(self, runner: web.AppRunner, busy: Callable[[asyncio.BaseProtocol], bool]) -> None:
        self._runner = runner
        self._busy = busy
        self._listening: asyncio.Server | None = None

    async def open(self, host: str, port: int, tls: ssl.SSLContext) -> int:
        """Listen; returns the port. Raises OSError."""
        self._listening = await asyncio.get_running_loop().create_server(
            self._come_in,
            host,
            port,
            ssl=tls,
            reuse_address=True,
            backlog=limits.FRONT_BACKLOG,
            ssl_handshake_timeout=limits.FRONT_HANDSHAKE_MS / 1_000,
            ssl_shutdown_timeout=GOODBYE_S,
        )
        return int(self._listening.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Let nobody in any more; who is inside stays."""
        if self._listening is not None:
            self._listening.close()

    def _come_in(self) -> RequestHandler:
        server = self._runner.server
        assert server is not None  # the runner is set up before it listens
        inside = server.connections  # oldest first
        if len(inside) >= limits.FRONT_CONNECTIONS:
            idle = next((one for one in inside if not self._busy(one)), None)
            if idle is not None:
                idle.force_close()
        return server()
