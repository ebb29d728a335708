"""Connections to the listener: how long each may take, and the short way of a heartbeat from its bytes to its answer.

The HTTP library reads every request. It does so in Python, and most of what a heartbeat cost was that, the routing and
the steps of the loop in between. So what the library made of a head is remembered by the head's own bytes: a request
that begins with exactly these, to be answered by `POST /v1/beat` and with nothing unusual said, is that request again.
Its body goes straight to the desk, with the bounds and the refusals of the long way. All else goes the long way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gridops.base import limits
from gridops.controller.endpoints import BEAT

log = logging.getLogger("gridops.http")

HEAD_TIMEOUT_S = 10.0
"""So long a caller may take to say what it wants, from the connection or from the first byte of a further request."""
BODY_TIMEOUT_S = 15.0
HEAD_BYTES = 2_048
"""A head that is longer goes the long way: agents say 200 bytes. Double: more is kept of who sends others; half: the
same, until somebody's address is a long one."""
_END = b"\r\n\r\n"
_ASKED = (b"POST", BEAT.path.encode(), b"1.1")
_USUAL = frozenset(
    {b"host", b"accept", b"accept-encoding", b"connection", b"user-agent", b"content-type", b"content-length"}
)


class Reply(NamedTuple):
    """An answer as it goes on the line."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


Desk: TypeAlias = Callable[[bytes | None, Callable[[Reply], None]], None]
"""Takes the body of a heartbeat, None if it did not come whole in time. Replies once, at once or later."""


class OneWrite:
    """A transport that sends what is written in one step of the loop as one: the server writes the head and the body of
    an answer apart, which were two TLS records and two calls of the system for each heartbeat."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not data:
            return
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)

    def close(self) -> None:
        self._send()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _send(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))


class Impatient(H11Protocol):
    """One connection, ended when no request comes out of it within HEAD_TIMEOUT_S.

    The server by itself bounds the pause between two requests only: who sends nothing, or a byte each second, would
    hold its connection for ever, and with enough of them the hosts are turned away.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = OneWrite(transport, self.loop)  # type: ignore[assignment]
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """A request that is being answered has bounds of its own; more bytes never prolong the wait for one."""
        if self._answering():
            self._unwatch()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self._end)

    def _answering(self) -> bool:
        # Before the first request there is no cycle, whatever the declared type says.
        return not getattr(self.cycle, "response_complete", True)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self) -> None:
        self._deadline = None
        if self._answering():
            return
        log.info("a connection from %s ended: no request within %g s", self.client, HEAD_TIMEOUT_S)
        if getattr(self, "cycle", None) is None and not self.transport.is_closing():
            words = f"no request arrived within {HEAD_TIMEOUT_S:g} s\n".encode()
            head = "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: text/plain\r\n"
            self.transport.write(f"{head}content-length: {len(words)}\r\n\r\n".encode() + words)
        self.transport.close()
        # Closing TLS waits for the other side, which here is the one that does not speak.
        self.loop.call_later(1.0, self.transport.abort)


class Prompt(Impatient):
    """One connection, on which heartbeats go the short way."""

    def __init__(self, desk: Desk, **given: Any) -> None:
        super().__init__(**given)
        self._desk = desk
        self._line: asyncio.Transport | None = None
        """The connection while it lasts, without `OneWrite`: what is said on the short way is one write already."""
        self._body: bytearray | None = None
        """Of the heartbeat that is being received, so far."""
        self._length = 0
        self._late: asyncio.TimerHandle | None = None
        self._owed = False
        """A heartbeat waits for its answer."""
        self._behind = b""
        """What came after that heartbeat, to be read when it is answered."""
        self._answered_s = 0.0
        """When the newest heartbeat was, in the loop's time."""
        self._last = False
        """No request is read any more: the connection ends, or does with the answer that is owed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._line = transport

    def data_received(self, data: bytes) -> None:
        if self._owed:
            self._behind += data
            self.flow.pause_reading()
        elif self._body is not None:
            self._more(data)
        elif self._last:
            return
        elif (head := self._announced(data)) is not None:
            self._unwatch()
            self._length, self._body = head.length, bytearray()
            self._more(data[head.size :])
        else:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._line = None
        if self._body is not None:
            self._hand_in(None)
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        """The short way does not set the clock anew for each heartbeat; it says when the last one was answered."""
        kept_s = float(self.timeout_keep_alive)
        rest_s = kept_s if self._answering() else self._answered_s + kept_s - self.loop.time()
        if rest_s > 0 and self._line is not None:
            self._keep(rest_s)
        elif self._line is not None:
            super().timeout_keep_alive_handler()

    def _keep(self, for_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(for_s, self.timeout_keep_alive_handler)

    def shutdown(self) -> None:
        """The server ends: whoever waits for an answer still gets it."""
        if self._owed or self._body is not None:
            self._last = True
        else:
            super().shutdown()

    def _answering(self) -> bool:
        return self._owed or self._body is not None or super()._answering()

    def _announced(self, data: bytes) -> Head | None:
        """The head of the one heartbeat that these bytes are, or begin. None: they go the long way. Several at once do,
        because the library reads one after the other, in no deeper a call."""
        end = data.find(_END, 0, HEAD_BYTES)
        head = read_head(data[: end + len(_END)]) if end > 0 else None
        if head is None or len(data) > head.size + head.length or not self._free():
            return None
        return head

    def _free(self) -> bool:
        """The library has no other request in hand, who asks takes what it is told, and the server has room."""
        conn, most = self.conn, self.limit_concurrency
        return (
            conn.our_state is h11.IDLE
            and conn.their_state is h11.IDLE
            and not conn.trailing_data[0]
            and not self.flow.write_paused
            and (most is None or max(len(self.connections), len(self.tasks)) < most)
        )

    def _more(self, part: bytes) -> None:
        assert self._body is not None
        self._body += part
        if len(self._body) < self._length:
            if self._late is None:
                self._late = self.loop.call_later(BODY_TIMEOUT_S, self._hand_in, None)
            return
        body, self._behind = bytes(self._body[: self._length]), bytes(self._body[self._length :])
        self._hand_in(body)

    def _hand_in(self, body: bytes | None) -> None:
        self._body, self._owed = None, True
        if self._late is not None:
            self._late.cancel()
            self._late = None
        self._desk(body, self._reply)

    def _reply(self, said: Reply) -> None:
        self._owed = False
        if self._line is None or self._line.is_closing():
            return
        self._last = self._last or (b"connection", b"close") in said.headers
        self._line.write(_written(said, self.server_state.default_headers))
        self._answered_s = self.loop.time()
        if self._last:
            self._line.close()
            return
        if self.timeout_keep_alive_task is None:
            self._keep(self.timeout_keep_alive)
        self.flow.resume_reading()
        behind, self._behind = self._behind, b""
        if behind and not self._last:
            self.data_received(behind)


class Head(NamedTuple):
    """Of a heartbeat: so many bytes of head, so many of body."""

    size: int
    length: int


@lru_cache(maxsize=limits.HEADS_KEPT)
def read_head(raw: bytes) -> Head | None:
    """What the library makes of a whole head, if it is that of a heartbeat and says nothing unusual."""
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(raw)
    try:
        read = reader.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(read, h11.Request) or (read.method, read.target, read.http_version) != _ASKED:
        return None
    said = dict(read.headers)
    length = said.get(b"content-length", b"")
    plain = len(said) == len(read.headers) and said.keys() <= _USUAL
    kept = said.get(b"connection", b"keep-alive").lower() == b"keep-alive"
    if not (plain and kept and length.isdigit() and int(length) <= BEAT.limit):
        return None
    return Head(len(raw), int(length))


def _written(said: Reply, defaults: Sequence[tuple[bytes, bytes]]) -> bytes:
    lines = [b"%s: %s\r\n" % header for header in (*defaults, *said.headers)]
    first = b"HTTP/1.1 %d %s\r\n" % (said.status, HTTPStatus(said.status).phrase.encode())
    return b"".join((first, *lines, b"\r\n", said.body))
