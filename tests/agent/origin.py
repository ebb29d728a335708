"""A real HTTP server for tests of fetching, that can do everything a source must not: over sockets, in threads.

`Origin` serves files by path with ranges, validators and `If-Range` as RFC 9110 has them. A test queues tricks; each
request takes the next one. What was asked is kept, headers and all, so that a test can say who was shown a secret.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gridops.trust.tls import self_signed


@dataclass
class Asked:
    path: str
    headers: dict[str, str]


@dataclass
class Trick:
    """How one request is answered wrongly. What is None is as it should be."""

    status: int | None = None
    cut_after: int | None = None
    """Close the connection after so many bytes of the body."""
    stall_after: int | None = None
    """Send so many bytes and then nothing, without closing."""
    trickle: bool = False
    """A byte now and then, for ever."""
    length: int | None = None
    """What Content-Length says. -1: it says nothing, and the end of the connection is the end."""
    content_range: str | None = None
    ignore_range: bool = False
    ignore_if_range: bool = False
    more: bytes = b""
    """Sent after the body."""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    then: Callable[[], None] | None = None
    """Called when the answer is over."""


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that walks away is what is tested here."""


class Origin:
    """One server on loopback. Use it inside `with`."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[Asked] = []
        self.tricks: list[Trick] = []
        self.answer: Callable[[Asked], Trick | None] | None = None
        """Asked for each request when no trick is queued."""
        self.validators = True
        self.gone = threading.Event()
        self._server = _Quiet(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._scheme = "http"

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def speak_tls(self, folder: Path) -> Path:
        """From now on with a certificate that only they trust who are given the file that this returns."""
        own = self_signed(("localhost",), int(time.time() - 60) * 1000, 2)
        cert, key = folder / "origin.pem", folder / "origin.key"
        cert.write_text(own.cert_pem)
        key.write_bytes(own.key_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "https"
        return cert

    @property
    def other_url(self) -> str:
        """The same server under another name: another origin to a client."""
        return f"http://localhost:{self._server.server_address[1]}"

    def __enter__(self) -> Origin:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gone.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def ranges(self) -> list[str]:
        """The Range of each request, in order; empty where there was none."""
        return [asked.headers.get("range", "") for asked in self.asked]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        origin = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
                pass

            def do_GET(self) -> None:
                asked = Asked(self.path, {k.lower(): v for k, v in self.headers.items()})
                origin.asked.append(asked)
                trick = origin.tricks.pop(0) if origin.tricks else origin.answer(asked) if origin.answer else None
                with contextlib.suppress(OSError):
                    origin.serve(self, asked, trick or Trick())

        return Handler

    def serve(self, to: BaseHTTPRequestHandler, asked: Asked, trick: Trick) -> None:
        content = self.files.get(asked.path.partition("?")[0])
        if trick.body is not None or content is None or (trick.status or 200) >= 300:
            self._send(to, trick, trick.status or (404 if trick.body is None else 200), trick.body or b"", {})
            return
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        headers = {"ETag": etag, "Accept-Ranges": "bytes"} if self.validators else {}
        match = re.fullmatch(r"bytes=(\d+)-", asked.headers.get("range", ""))
        held = asked.headers.get("if-range")
        if match is None or trick.ignore_range or (held not in (None, etag) and not trick.ignore_if_range):
            self._send(to, trick, trick.status or 200, content, headers)
            return
        begin = int(match[1])
        if begin >= len(content):
            self._send(to, trick, 416, b"", {"Content-Range": f"bytes */{len(content)}"})
            return
        headers["Content-Range"] = trick.content_range or f"bytes {begin}-{len(content) - 1}/{len(content)}"
        self._send(to, trick, 206, content[begin:], headers)

    def _send(
        self, to: BaseHTTPRequestHandler, trick: Trick, status: int, body: bytes, headers: dict[str, str]
    ) -> None:
        to.send_response(status)
        length = trick.length if trick.length is not None else len(body)
        told = headers | ({"Content-Length": str(length)} if length >= 0 else {"Connection": "close"}) | trick.headers
        for name, value in told.items():
            to.send_header(name, value)
        to.end_headers()
        to.close_connection = length != len(body) or bool(trick.more)
        try:
            self._body(to, trick, body + trick.more)
        finally:
            if trick.then is not None:
                trick.then()

    def _body(self, to: BaseHTTPRequestHandler, trick: Trick, body: bytes) -> None:
        stop = trick.cut_after if trick.cut_after is not None else trick.stall_after
        sent = body if stop is None else body[:stop]
        if trick.trickle:
            for byte in sent:
                to.wfile.write(bytes((byte,)))
                to.wfile.flush()
                if self.gone.wait(0.05):
                    return
            return
        to.wfile.write(sent)
        to.wfile.flush()
        if trick.stall_after is not None:
            self.gone.wait(60)
        if stop is not None:
            to.close_connection = True


@contextlib.contextmanager
def serving(**files: bytes) -> Iterator[Origin]:
    with Origin() as origin:
        origin.files = {f"/{name}": content for name, content in files.items()}
        yield origin


def until(what: Callable[[], bool], words: str, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"waited in vain for {words}"
        time.sleep(0.01)
