"""Somebody between a real controller and a real host: two processes that only ever speak through what stands here.

`Line` passes bytes on, as the owner of the network would: it delays them, loses them, changes one and cuts. `Middle`
holds the controller's TLS key, so it sees whole messages: it loses requests and answers, says a request twice or long
after newer ones, answers with what was true before, and cuts a body in the middle. Both are harmless while `calm`.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import ssl
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

CHUNK = 16 << 10
HONEST = "passed"
TO_MESSAGES = ("lost", "lost", "unanswered", "unanswered", "twice", "twice", "later", "later", "slow", "old", "old",
               "answer cut", "answer cut", "request cut")  # fmt: skip
TO_BYTES = ("held", "held", "dropped", "changed", "ended")
HELD_S = (0.2, 3.0)
"""How long a message or its bytes are kept back: up to several polls, so that newer ones overtake it."""


@dataclass
class Weather:
    """What happens next, from one seed; and how often each thing did."""

    seed: int
    calm: bool = False
    done: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)

    def next(self, deeds: tuple[str, ...], one_in: int) -> str:
        with self._lock:
            deed = HONEST if self.calm or self._dice.randrange(one_in) else self._dice.choice(deeds)
            self.done[deed] += 1
            return deed

    def moment(self) -> float:
        with self._lock:
            return self._dice.uniform(*HELD_S)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever is cut off is what this is about."""


class Middle:
    """Ends TLS with the controller's own certificate, and asks the controller itself. Use as a context manager."""

    def __init__(self, port: int, controller: int, keys: tuple[Path, Path], weather: Weather) -> None:
        self._controller = controller
        self._weather = weather
        self._answers: list[tuple[int, bytes]] = []
        self._trusted = ssl.create_default_context(cafile=str(keys[0]))
        self._trusted.check_hostname = False
        self._server = _Server(("127.0.0.1", port), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*keys)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    def said(self, method: str, path: str, body: bytes) -> tuple[bytes, float]:
        """What goes back, whole or as far as it comes, and after how long."""
        weather = self._weather
        deed = weather.next(TO_MESSAGES, 2) if path == "/v1/beat" else HONEST
        match deed:
            case "lost":
                return b"", 0.0
            case "later":
                threading.Timer(weather.moment(), self._ask, (method, path, body)).start()
                return b"", 0.0
            case "request cut":
                self._half(method, path, body)
                return b"", 0.0
            case "twice":
                self._ask(method, path, body)
        found = self._ask(method, path, body)
        if found is None or deed == "unanswered":
            return b"", 0.0
        if deed == "old" and self._answers:
            found = self._answers[-min(3, len(self._answers))]
        elif path == "/v1/beat":
            self._answers.append(found)
        status, text = found
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n"
        whole = head.encode() + b"connection: close\r\n\r\n" + text
        return whole[: -len(text) // 2] if deed == "answer cut" else whole, weather.moment() if deed == "slow" else 0.0

    def _ask(self, method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        line = http.client.HTTPSConnection("127.0.0.1", self._controller, timeout=20, context=self._trusted)
        try:
            line.request(method, path, body, {"content-type": "application/json"})
            answer = line.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            line.close()

    def _half(self, method: str, path: str, body: bytes) -> None:
        """Half of a request, and the connection is gone."""
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        with (
            contextlib.suppress(OSError),
            self._trusted.wrap_socket(socket.create_connection(("127.0.0.1", self._controller), 5)) as line,
        ):
            line.sendall(head + body[: len(body) // 2])

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        middle = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                answer, after_s = middle.said(self.command, self.path, body)
                time.sleep(after_s)
                self.wfile.write(answer)
                self.close_connection = True

            do_GET = do_POST = _any  # noqa: N815 - the names are the library's

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the library names it
                pass

        return Handler


class Line:
    """Passes bytes between whoever connects and a port, without a key to any of it. Use as a context manager."""

    def __init__(self, port: int, beyond: int, weather: Weather) -> None:
        self._beyond = beyond
        self._weather = weather
        self._door = socket.create_server(("127.0.0.1", port), backlog=64)
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._door.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._door.accept()
                far = socket.create_connection(("127.0.0.1", self._beyond), 5)
            except OSError:
                if self._door.fileno() < 0:
                    return
                continue
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := one.recv(CHUNK):
                deed = self._weather.next(TO_BYTES, 60)
                if deed == "ended":
                    other.sendall(part[: len(part) // 2])
                    break
                if deed == "held":
                    time.sleep(self._weather.moment())
                if deed == "changed":
                    part = part[:-1] + bytes([part[-1] ^ 1])
                if deed != "dropped":
                    other.sendall(part)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
