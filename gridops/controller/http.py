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
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gridops.base.codes.control import BAD_REQUEST, TOO_LARGE
from gridops.base.codes.trust import BAD_SIGNATURE, GO414, REQUEST_EXPIRED, REQUEST_NOT_YET
from gridops.base.errors import BadSetup, Busy, GridopsError, Refusal, Unreachable
from gridops.base.record import Malformed, from_bytes, from_data, to_bytes, to_data
from gridops.controller.connection import BODY_TIMEOUT_S, Desk, Impatient, Prompt, Reply
from gridops.controller.endpoints import BEAT, ROUTES, Api, DirectiveAnswer, Endpoint
from gridops.controller.openapi import document
from gridops.controller.statedir import StateDir
from gridops.protocol.messages import Beat

log = logging.getLogger("gridops.http")

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
    return opened(application(api), listen, state, desk(api))


def opened(app: Starlette, listen: Listen, state: StateDir, heartbeats: Desk | None = None) -> Listener:
    """A server with TLS 1.3 only, ready to be served by the caller's loop, which keeps its own signal handlers.

    `heartbeats`: who takes them on the short way. None: `app` takes all.
    """
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
        proxy_headers=False,
        http=Impatient if heartbeats is None else partial(Prompt, heartbeats),  # type: ignore[arg-type]
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


def _handler(api: Api, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        try:
            body = None
            if endpoint.request is not None:
                body = _record(endpoint.request, await _raw(request, endpoint.limit))
            answer = endpoint.act(api, body, {**request.path_params, **request.query_params})
            if isinstance(answer, Awaitable):
                answer = await answer
        except (Malformed, GridopsError) as error:
            return _refused(api, error)
        if isinstance(answer, str):
            return PlainTextResponse(answer, media_type="text/plain; version=0.0.4; charset=utf-8")
        status, data = answer if isinstance(answer, tuple) else (200, answer)
        return JSONResponse(data if isinstance(data, dict) else to_data(data), status_code=status)

    return handle


def desk(api: Api) -> Desk:
    """What `BEAT` answers, for connections that hand its bodies in by themselves."""

    def take(body: bytes | None, reply: Callable[[Reply], None]) -> None:
        try:
            if body is None:
                raise _late()
            api.poll(_record(Beat, body), lambda answer: reply(_reply(api, answer)))
        except (Malformed, GridopsError) as error:
            reply(_reply(api, error))

    return take


def _reply(api: Api, answer: str | Exception) -> Reply:
    if isinstance(answer, str):
        body = to_bytes(DirectiveAnswer(directive=answer))
        return Reply(200, ((b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")), body)
    if isinstance(answer, Malformed | GridopsError):
        told = _refused(api, answer)
    else:
        told = _bug(f"{BEAT.method} {BEAT.path}", answer)
    return Reply(told.status_code, told.raw_headers, bytes(told.body))


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
        raise _late() from None
    except ClientDisconnect:
        raise Refusal(BAD_REQUEST.code, "the caller went away before the body was complete") from None
    return bytes(raw)


def _late() -> Late:
    return Late(BAD_REQUEST.code, f"the body did not arrive within {BODY_TIMEOUT_S:g} s")


def _json(raw: bytes) -> Any:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Refusal(BAD_REQUEST.code, f"the body is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise Refusal(BAD_REQUEST.code, "the body is not a JSON object")
    return data


def _refused(api: Api, error: Malformed | GridopsError) -> Response:
    if isinstance(error, Malformed):
        error = Refusal(BAD_REQUEST.code, str(error), hints=("see /openapi.json",))
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
    return _bug(f"{request.method} {request.url.path}", error)


def _bug(asked: str, error: Exception) -> Response:
    log.error("fault while answering %s", asked, exc_info=error)
    body: dict[str, Any] = {
        "code": "bug",
        "message": "a fault of the controller; its log has more",
        "evidence": [],
        "hints": [],
    }
    return JSONResponse({"error": {**body, "exit_code": 70}}, status_code=500)
