"""The HTTPS listener: routes, bounded bodies, errors as JSON. Reading is open; every mutation is signed inside.

TLS gives privacy and a cheap refusal, never authority: heartbeats are signed by hosts, requests by people. Nothing
here decides anything: each route hands a checked value to the controller and renders what comes back. A fault of ours
is answered with 500 and a report number, never with a stack trace.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
import ssl
from asyncio import sslproto
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from gridops.base.codes.control import BAD_REQUEST, TOO_LARGE
from gridops.base.codes.trust import BAD_SIGNATURE, GO414, REQUEST_EXPIRED, REQUEST_NOT_YET
from gridops.base.errors import BadSetup, Busy, GridopsError, Refusal, Unreachable
from gridops.base.record import Malformed, from_bytes, from_data, to_data
from gridops.controller.endpoints import ROUTES, Api, Endpoint
from gridops.controller.openapi import document
from gridops.controller.statedir import StateDir

log = logging.getLogger("gridops.http")

HEAD_TIMEOUT_S = 10.0
"""So long a caller may take to say what it wants, from the connection or from the first byte of a further request."""
BODY_TIMEOUT_S = 15.0
CONNECTIONS = 4_096
"""Hosts keep theirs from one heartbeat to the next. Double: some 200 MiB more when all are in use; half: 2,000 hosts
and whoever else is connected are more."""
KEPT_S = 75
"""So long a connection may say nothing: longer than any pause of a host, so that none shakes hands each time."""
TLS_READ_BYTES = 32 << 10
"""Kept for each connection while it lasts, touched or not: two TLS records. Python keeps eight times that, which is
256 MiB for 1,000 hosts that say 2 KiB each. Half: a full heartbeat takes twice as many reads."""
OTHER_FILES = 256
"""Descriptors for everything that is no connection: the journal, git, what is watched."""
_STATUS = {
    BAD_SIGNATURE.code: 401,
    GO414.code: 401,
    REQUEST_EXPIRED.code: 401,
    REQUEST_NOT_YET.code: 401,
    "not_admitted": 403,
    TOO_LARGE.code: 413,
    BAD_REQUEST.code: 400,
    "not_found": 404,
    "not_ready": 503,
}


class Late(Refusal):
    """The rest of this body is not waited for: the connection ends with the answer."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Address and port; port 0 takes a free one."""

    host: str
    port: int


def application(api: Api) -> Starlette:
    """The routes of one controller."""
    routes = [Route(e.path, _handler(api, e), methods=[e.method]) for e in ROUTES]
    published = document(ROUTES)
    routes.append(Route("/openapi.json", lambda request: JSONResponse(published), methods=["GET"]))
    handlers: dict[Any, Any] = {HTTPException: _http_error, Exception: _fault}
    return Starlette(routes=routes, exception_handlers=handlers)


def listener(api: Api, listen: Listen, state: StateDir) -> Listener:
    """The listener of a running controller."""
    return opened(application(api), listen, state)


def opened(app: Starlette, listen: Listen, state: StateDir) -> Listener:
    """A server with TLS 1.3 only, ready to be served by the caller's loop, which keeps its own signal handlers."""
    state.check_tls()
    sslproto.SSLProtocol.max_size = TLS_READ_BYTES
    config = uvicorn.Config(
        app,
        ssl_certfile=str(state.tls_cert),
        ssl_keyfile=str(state.tls_key),
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        limit_concurrency=_connections(),
        timeout_keep_alive=KEPT_S,
        timeout_graceful_shutdown=3,
        ws="none",
        loop="none",
        http=Impatient,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise BadSetup(f"{state.tls_cert}: cannot be used for TLS: {error}") from error
    assert config.ssl is not None
    config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
    return Listener(config, _bind(listen))


def _connections() -> int:
    """How many connections there may be: a service starts with 1,024 files and may have more for the asking."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return CONNECTIONS
    few = max(soft - OTHER_FILES, OTHER_FILES)
    log.warning("this process may open %d files, so %d connections at one time; raise LimitNOFILE", soft, few)
    return few


def _bind(listen: Listen) -> socket.socket:
    """The door itself, so that a taken port is our error with our words."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        return socket.create_server((listen.host, listen.port), family=family, backlog=CONNECTIONS)
    except OSError as error:
        raise BadSetup(
            f"cannot listen on {listen.host}:{listen.port}: {error.strerror or error}",
            hints=("is another controller running there?", "choose: --listen HOST:PORT"),
        ) from error


class Listener(uvicorn.Server):
    """Leaves signals to the shell: a listener must not decide when the controller ends. `ready` once it answers."""

    def __init__(self, config: uvicorn.Config, door: socket.socket) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.door = door

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    def renew(self) -> None:
        """Show the certificate that lies there now. Connections that are open keep theirs; no request is lost."""
        assert self.config.ssl is not None
        assert self.config.ssl_certfile is not None
        self.config.ssl.load_cert_chain(self.config.ssl_certfile, self.config.ssl_keyfile)

    async def run_until_stopped(self) -> None:
        """Answer until `should_exit`."""
        try:
            await self.serve([self.door])
        finally:
            self.door.close()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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


def _handler(api: Api, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        try:
            body = None
            if endpoint.request is not None:
                body = _record(endpoint.request, await _raw(request, endpoint.limit))
            answer = endpoint.act(api, body, {**request.path_params, **request.query_params})
            if isinstance(answer, Awaitable):
                answer = await answer
        except Malformed as error:
            return _refused(api, Refusal(BAD_REQUEST.code, str(error), hints=("see /openapi.json",)))
        except GridopsError as error:
            return _refused(api, error)
        if isinstance(answer, str):
            return PlainTextResponse(answer, media_type="text/plain; version=0.0.4; charset=utf-8")
        status, data = answer if isinstance(answer, tuple) else (200, answer)
        return JSONResponse(data if isinstance(data, dict) else to_data(data), status_code=status)

    return handle


def _record(kind: type[Any], raw: bytes) -> Any:
    """The body as a record, at once from its bytes; only a body that is none is looked at further, to say why."""
    try:
        return from_bytes(kind, raw)
    except Malformed:
        return from_data(kind, _json(raw))


async def _raw(request: Request, most: int) -> bytes:
    """The body, read up to its bound and not a byte further."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdecimal() and int(length[:15]) > most:
        raise Refusal(TOO_LARGE.code, f"the body has {length} bytes, at most {most} are read here")
    raw = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                raw += part
                if len(raw) > most:
                    raise Refusal(TOO_LARGE.code, f"the body has more than {most} bytes")
    except TimeoutError:
        raise Late(BAD_REQUEST.code, f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from None
    except ClientDisconnect:
        raise Refusal(BAD_REQUEST.code, "the caller went away before the body was complete") from None
    return bytes(raw)


def _json(raw: bytes) -> Any:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Refusal(BAD_REQUEST.code, f"the body is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise Refusal(BAD_REQUEST.code, "the body is not a JSON object")
    return data


def _refused(api: Api, error: GridopsError) -> Response:
    code = getattr(error, "code", None) or ("busy" if isinstance(error, Busy) else "failed")
    api.refused(code)
    status = _STATUS.get(
        code, 409 if isinstance(error, Refusal | Busy) else 502 if isinstance(error, Unreachable) else 500
    )
    body = {
        "error": {
            "code": code,
            "message": error.message,
            "subject": getattr(error, "subject", ""),
            "evidence": list(getattr(error, "evidence", ())),
            "hints": list(error.hints),
            "exit_code": error.exit_code,
        }
    }
    return Answer(body, status_code=status, headers={"connection": "close"} if isinstance(error, Late) else None)


class Answer(JSONResponse):
    """An error whose words may quote the caller: pure ASCII, so that whatever was sent can be answered."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    missing = error.status_code == 404
    message = f"there is no {request.method} {request.url.path} here" if missing else str(error.detail)
    body: dict[str, Any] = {
        "code": "not_found" if missing else "bad_request",
        "message": message,
        "evidence": [],
        "exit_code": 1,
    }
    told = {"error": {**body, "hints": ["see /openapi.json"]}}
    return Answer(told, status_code=error.status_code, headers=error.headers)


async def _fault(request: Request, error: Exception) -> Response:
    log.error("fault while answering %s %s", request.method, request.url.path, exc_info=error)
    body: dict[str, Any] = {
        "code": "bug",
        "message": "a fault of the controller; its log has more",
        "evidence": [],
        "hints": [],
    }
    return JSONResponse({"error": {**body, "exit_code": 70}}, status_code=500)
