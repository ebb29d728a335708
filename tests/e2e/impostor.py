"""Somebody at the controller's address: a TLS listener of the test that answers whatever the test wants.

With the controller's own certificate it is the thief who has the TLS key, or one who records and plays back; with
another certificate it is anybody. One connection per request, so that nothing is left when it goes.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from gridops.base.record import to_bytes
from gridops.protocol.messages import Directive
from gridops.protocol.open import open_directive
from gridops.trust.envelope import seal
from gridops.trust.keys import MachineSigner

Answer = Callable[[str, str, bytes], tuple[int, bytes]]
"""From method, path and body to status and JSON."""
VALID_MS = 60_000


class Impostor:
    """Listens while its `with` lasts. `answer` may be changed at any time."""

    def __init__(self, port: int, certificate: Path, key: Path, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, bytes]] = []
        """Method, path and body of what reached it."""
        self._server = _Server(("127.0.0.1", port), _handler(self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        # The handshake belongs to the thread of its connection: one caller never blocks the others.
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that refuses the certificate is what some tests are about."""


def _handler(impostor: Impostor) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            impostor.asked.append((self.command, self.path, body))
            status, answer = impostor.answer(self.command, self.path, body)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = _any  # noqa: N815 - the names are the library's

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the library names it
            pass

    return Handler


@dataclass
class Recorder:
    """Passes everything on to the true controller, and keeps what it tells the hosts."""

    url: str
    certificate: Path
    signer: MachineSigner
    directives: list[tuple[str, Directive]] = field(default_factory=list)
    """Each as it was sealed and as it reads."""

    def __call__(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        trusted = ssl.create_default_context(cafile=str(self.certificate))
        trusted.check_hostname = False
        try:
            with httpx.Client(verify=trusted, trust_env=False, timeout=20) as client:
                answer = client.request(method, self.url + path, content=body)
        except httpx.HTTPError:
            return 502, b"{}"
        if path == "/v1/beat" and answer.status_code == 200:
            sealed = answer.json()["directive"]
            self.directives.append((sealed, open_directive(sealed, (self.signer.public,))))
        return answer.status_code, answer.content

    def last(self, host: str) -> tuple[str, Directive]:
        return next(d for d in reversed(self.directives) if d[1].host == host)

    def grants(self, host: str) -> tuple[str, ...]:
        """Every grant that this host was given since, in order."""
        return tuple(g for _, d in self.directives if d.host == host for g in d.grants)


@dataclass
class Player:
    """Answers heartbeats in time. One host hears what is played; the others hear that there is nothing to do."""

    recorder: Recorder
    host: str
    roots: tuple[str, ...]
    """What it shows as the fleet's root documents."""
    grants: tuple[str, ...] = ()
    signer: MachineSigner | None = None
    """Who signs what the one host hears; None: the controller."""
    record: str | None = None
    """Played as it is, instead of anything new."""
    catalog: str | None = None
    """What it shows as the fleet's catalog."""
    heard: int = 0
    """Heartbeats of the one host that were answered with what is played now."""
    receipts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What that host has stated, by the command it is about."""

    def play(self, **what: Any) -> None:
        fresh = {"grants": (), "signer": None, "record": None, "catalog": None, "heard": 0} | what
        for name, value in fresh.items():
            setattr(self, name, value)

    def __call__(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if path == "/v1/roots":
            return 200, json.dumps({"roots": self.roots}).encode()
        if path != "/v1/beat":
            return 404, b"{}"
        beat = json.loads(body)
        heartbeat = _payload(beat["heartbeat"])
        ours = heartbeat["host"] == self.host
        if ours:
            said = [_payload(text) for text in beat.get("receipts", ())]
            self.receipts |= {receipt["body"]: receipt for receipt in said}
        self.heard += ours
        if ours and self.record is not None:
            return 200, json.dumps({"directive": self.record}).encode()
        now_ms = time.time_ns() // 1_000_000
        made = replace(
            self.recorder.last(heartbeat["host"])[1],
            nonce=heartbeat["nonce"],
            now_ms=now_ms,
            expires_ms=now_ms + VALID_MS,
            next_poll_ms=200,
            grants=self.grants if ours else (),
            catalog=self.catalog if ours else None,
        )
        signer = (self.signer if ours else None) or self.recorder.signer
        return 200, json.dumps({"directive": seal("directive", to_bytes(made), signer)}).encode()


def _payload(envelope: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
    return found


class Caller:
    """A client of the controller that holds on to its connection: it says something, then drips a byte at a time."""

    def __init__(self, port: int, first: bytes = b"", drip: bytes = b"") -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._line = context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=10))
        self._line.sendall(first)
        self._line.settimeout(0)
        self._drip = drip
        self._heard = b""
        self.ended = False
        """The other side closed the connection."""

    def go_on(self) -> None:
        """Hear what there is, and say one byte more."""
        try:
            while not self.ended:
                part = self._line.recv(4096)
                self._heard += part
                self.ended = not part
        except ssl.SSLWantReadError:
            self._line.send(self._drip)
        except OSError:
            self.ended = True

    @property
    def answer(self) -> str:
        """Status and words of the answer, if there was one."""
        head, _, body = self._heard.decode().partition("\r\n\r\n")
        words = json.loads(body)["error"]["message"] if body.startswith("{") else body.strip()
        return f"{head.split()[1]} {words}" if head else ""

    def close(self) -> None:
        self._line.close()
