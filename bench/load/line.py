"""One kept connection to the listener: HTTP/1.1 over TLS, a request at a time, as little of its own cost as possible.

The generator shares the machine with what it measures, so it speaks no more HTTP than it needs: a status line, a
content length, a body. Anything else that the listener might say ends the run.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from typing import Any
from urllib.parse import urlsplit


def request_of(body: bytes, path: str = "/v1/beat") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: controller\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


class Line(asyncio.Protocol):
    """A connection. `ask` sends one request and gives its answer; `gone` when the other side has hung up."""

    def __init__(self) -> None:
        self.gone = False
        self.answered_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._raw = bytearray()
        self._waiting: asyncio.Future[tuple[int, bytes]] | None = None

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """The answer: its status and its body."""
        assert self._transport is not None
        assert self._waiting is None, "one request at a time"
        if self.gone:
            raise ConnectionError("the listener has hung up")
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._raw += data
        end = self._raw.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._raw[:end]).lower()
        at = head.index(b"content-length:") + len(b"content-length:")
        length = int(head[at:].split(b"\r\n", 1)[0])
        if len(self._raw) < end + 4 + length:
            return
        body, status = bytes(self._raw[end + 4 : end + 4 + length]), int(head.split(b" ", 2)[1])
        self._raw.clear()
        self.answered_s = time.monotonic()
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result((status, body))

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(ConnectionError(f"hung up: {exc}"))


async def connect(url: str, context: ssl.SSLContext) -> Line:
    """A new connection, TLS and all."""
    at = urlsplit(url)
    _, line = await asyncio.get_running_loop().create_connection(Line, at.hostname, at.port, ssl=context)
    return line


def directive_of(answer: tuple[int, bytes]) -> str:
    """The directive in an answer. Raises ValueError with what came instead."""
    status, body = answer
    document: Any = json.loads(body)
    if status != 200:
        raise ValueError(f"{status}: {document}")
    return str(document["directive"])
