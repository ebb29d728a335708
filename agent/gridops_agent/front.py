"""The front: the agent's door to its engines. TLS, who may ask, drain fence and the count of work in flight.

Clients present a key whose SHA-256 the last directive named; engines listen on loopback with a key of their own that
never leaves this host. The front routes by the model id in the request, streams without buffering, and counts what is
in flight per residency truthfully, also when a client walks away. A body has a bounded time to arrive, and until it is
whole no drain waits for it. It never logs bodies or keys, and decides nothing about which model should be here.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aiohttp import web

from gridops.base import limits
from gridops.base.errors import BadSetup
from gridops.base.ids import Digest, EngineName, ProfileName
from gridops.base.units import PPM, render_ms
from gridops.model.snapshot import HostState
from gridops.protocol.messages import GatewayKey
from gridops_agent import front_asked
from gridops_agent.clock import SystemClock
from gridops_agent.core.protection import Verdict
from gridops_agent.engines.base import Door
from gridops_agent.front_asked import Refused
from gridops_agent.front_entrance import Entrance, patient
from gridops_agent.front_flights import Flights
from gridops_agent.front_outcomes import Outcomes
from gridops_agent.front_prompts import Prompts
from gridops_agent.front_stream import Passing, open_upstream

OPENAI = "openai"
RETRY_AFTER_S = 2
_LATER: Mapping[str, str] = MappingProxyType({"Retry-After": str(RETRY_AFTER_S)})


@dataclass(frozen=True, slots=True)
class Route:
    """One residency as the front sees it."""

    body: Digest
    profile: ProfileName
    serves: tuple[str, ...]
    door: Door
    admitting: bool
    """False while it drains: what is in flight ends, nothing new begins."""
    lanes: int = 1
    """What its engine works on at once; a throttled host lets in a share of it."""
    patience_ms: int | None = None
    """How long an engine that says nothing at all is waited for. None: for ever."""


@dataclass(frozen=True, slots=True)
class Away:
    """A residency that stays here and cannot be asked now: its memory is given back, or it is coming up again."""

    profile: ProfileName
    serves: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Everything the front goes by; replaced as a whole, so that a request never sees half a change."""

    routes: tuple[Route, ...] = ()
    keys: tuple[GatewayKey, ...] = ()
    away: tuple[Away, ...] = ()


class Front:
    """The listener. `table` is set by the shell; `in_flight` is read by it."""

    def __init__(self, apis: Mapping[EngineName, str] = MappingProxyType({})) -> None:
        self.table = Table()
        self._apis = apis
        """What each engine is asked by; one that is not named speaks OpenAI's API."""
        self._prompts = Prompts(self)
        self.verdict = Verdict()
        """The host's word about itself, set by the protection loop: what it says here holds at once."""
        self.is_local = False
        """Only this machine can reach it."""
        self.flights = Flights()
        self.outcomes = Outcomes(SystemClock().monotonic_ms)
        self.arriving: set[asyncio.Timeout] = set()
        """The patience with each authorised request whose body is not whole yet; it belongs to no residency so far."""
        self._passing: Passing | None = None
        self._runner: web.AppRunner | None = None
        self._entrance: Entrance | None = None
        self._busy: set[asyncio.BaseProtocol] = set()
        """Connections that work on a request; each works on one at a time."""
        self._closing = False

    @property
    def in_flight(self) -> Counter[Digest]:
        """Requests by residency."""
        return self.flights.count

    async def open(self, host: str, port: int, tls: ssl.SSLContext) -> int:
        """Listen; returns the port (useful when 0 was asked for). Raises BadSetup when the address cannot be had."""
        self.is_local = _is_loopback(host)
        app = web.Application(
            client_max_size=limits.FRONT_BODY_BYTES, middlewares=[self._counted, front_asked.refusals]
        )
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/{path:[a-z0-9_/-]{1,64}}", self._forward)
        self._prompts.add(app)
        self._runner = patient(app)
        await self._runner.setup()
        self._entrance = Entrance(self._runner, self._busy.__contains__)
        try:
            opened = await self._entrance.open(host, port, tls)
        except OSError as error:
            await self._runner.cleanup()
            raise BadSetup(
                f"the front cannot listen on {host}:{port}: {error.strerror}",
                hints=("stop what uses the port, or change `front` in agent.toml",),
            ) from error
        self._passing = Passing(open_upstream(), self.outcomes, self.flights)
        self._prompts.open()
        return opened

    def fence(self) -> None:
        """Refuse everything new from now on (the agent is leaving), and wait for no body that has not arrived."""
        self._closing = True
        for patience in self.arriving:
            if not patience.expired():
                patience.reschedule(asyncio.get_running_loop().time())

    async def close(self) -> None:
        self.fence()
        if self._entrance is not None:
            self._entrance.close()
        await self._prompts.hang_up()
        if self._runner is not None:
            await self._runner.cleanup()
        await self._prompts.close()
        if self._passing is not None:
            await self._passing.http.close()

    @web.middleware
    async def _counted(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """While a connection works on a request it is not one that may be asked to go."""
        self._busy.add(request.protocol)
        try:
            answer: web.StreamResponse = await handler(request)
            return answer
        finally:
            self._busy.discard(request.protocol)

    async def _healthz(self, request: web.Request) -> web.Response:
        if self._closing:
            return web.json_response({"status": "leaving"})
        return web.json_response({"status": "ok" if self.verdict.admits else "closed"})

    async def _models(self, request: web.Request) -> web.Response:
        key = self.caller(request)
        ids = {name for route in self._open_to(key) for name in route.serves}
        rows = [{"id": name, "object": "model", "owned_by": "gridops"} for name in sorted(ids)]
        if self.verdict.admits:
            return web.json_response({"object": "list", "data": rows})
        # The list is what may be asked now: nothing. Why stands beside it, where clients of OpenAI do not look.
        said = {"object": "list", "data": [], "host": {"state": self.verdict.state.value}}
        return web.json_response(said, headers=self._later())

    def caller(self, request: web.Request) -> GatewayKey:
        """The key a request presents. Every key is compared, so that timing tells nothing about which ones exist."""
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        offered = "sha256:" + sha256(value.strip().encode("utf-8", "surrogateescape")).hexdigest()
        found: GatewayKey | None = None
        for key in self.table.keys:
            if hmac.compare_digest(key.sha256, offered):
                found = key
        if found is None or scheme.lower() != "bearer":
            raise Refused(401, "invalid_api_key", "no valid key: send `Authorization: Bearer <key>`")
        return found

    def _open_to(self, key: GatewayKey) -> tuple[Route, ...]:
        return tuple(r for r in self.table.routes if r.admitting and (not key.profiles or r.profile in key.profiles))

    def _later(self) -> Mapping[str, str]:
        """When to ask again, by the policy of the host's class."""
        return {"Retry-After": str(max(RETRY_AFTER_S, self.verdict.retry_after_ms // 1_000))}

    def _open_lanes(self, route: Route) -> int:
        """How many requests may be in flight there now; one is always let in while the host takes work at all."""
        if self.verdict.state is HostState.ACCEPTING:
            return limits.FRONT_IN_FLIGHT
        return max(1, route.lanes * self.verdict.lanes_ppm // PPM)

    def _serving(self, key: GatewayKey, model: str, api: str) -> list[Route]:
        """Who serves a model to this caller. Raises Refused when all of them are asked in another way."""
        serving = [r for r in self.table.routes if model in r.serves]
        allowed = [r for r in serving if not key.profiles or r.profile in key.profiles]
        spoken = [r for r in allowed if self._api(r) == api]
        if allowed and not spoken:
            way = "/v1" if self._api(allowed[0]) == OPENAI else f"/{self._api(allowed[0])}/{model[:80]}"
            raise Refused(400, "wrong_api", f"the model `{model[:80]}` is asked under {way}")
        return spoken

    def _api(self, route: Route) -> str:
        launch = route.door.launch
        return self._apis.get(launch.engine, OPENAI) if launch is not None else OPENAI

    def standing(self, key: GatewayKey, model: str, api: str) -> Route:
        """A residency that serves a model to this caller, whether or not it takes anything new."""
        found = self._serving(key, model, api)
        if not found:
            raise Refused(404, "model_not_found", f"the model `{model[:80]}` is not served here")
        return min(found, key=lambda r: r.body)

    def choose(self, key: GatewayKey, model: str, api: str) -> Route:
        """The least loaded residency that serves a model to this caller and is asked that way."""
        allowed = self._serving(key, model, api)
        away = [a for a in self.table.away if model in a.serves and (not key.profiles or a.profile in key.profiles)]
        if not allowed and not away:
            raise Refused(404, "model_not_found", f"the model `{model[:80]}` is not served here")
        if not self.verdict.admits and not self._closing:
            state = self.verdict.state.value
            raise Refused(503, f"host_{state}", f"this host is {state}; ask again later", self._later())
        if not allowed and not self._closing:
            raise Refused(503, "model_loading", f"the model `{model[:80]}` is coming back; ask again", _LATER)
        admitting = [r for r in allowed if r.admitting]
        if not admitting or self._closing:
            raise Refused(503, "model_draining", f"the model `{model[:80]}` takes no new requests here", _LATER)
        admitting = [r for r in admitting if self.outcomes.admits(r.body)]
        if not admitting:
            raise Refused(503, "model_failing", f"the model `{model[:80]}` failed its last requests here", _LATER)
        free = [r for r in admitting if self.in_flight[r.body] < self._open_lanes(r)]
        if not free:
            raise Refused(503, "host_throttled", "this host takes less work now; ask again later", self._later())
        return min(free, key=lambda r: (self.in_flight[r.body], r.body))

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        key = self.caller(request)
        body = await self.body(request)
        asked = front_asked.read(body, request.headers.get("Content-Type", ""))
        route = self.choose(key, asked.model, OPENAI)
        body = body if asked.model == route.door.alias else asked.renamed(route.door.alias)
        # No await between the choice and the count: a drain that begins in between would not see this request.
        self.flights.began(route.body)
        trial = self.outcomes.began(route.body)
        try:
            assert self._passing is not None
            return await self._passing.passed(request, route, body)
        finally:
            self.outcomes.left(route.body, trial)
            self.flights.left(route.body)

    async def body(self, request: web.Request) -> bytes:
        """The whole body, within its time and its place. Raises Refused; whatever happens its place is free again."""
        arriving = len(self.arriving)
        full = arriving >= limits.FRONT_ARRIVING or arriving + self.in_flight.total() >= limits.FRONT_IN_FLIGHT
        if self._closing or full:
            words = "this host is leaving" if self._closing else "too many requests are here already"
            raise Refused(503, "leaving" if self._closing else "overloaded", words, _LATER)
        patience = asyncio.timeout(limits.FRONT_BODY_MS / 1_000)
        self.arriving.add(patience)
        try:
            async with patience:
                return await request.read()
        except TimeoutError as error:
            if self._closing:
                raise Refused(
                    503, "leaving", "this host is leaving; the request had not arrived whole", _LATER
                ) from error
            words = f"the request did not arrive whole within {render_ms(limits.FRONT_BODY_MS)}"
            raise Refused(408, "request_timeout", words, {"Connection": "close"}) from error
        except web.HTTPRequestEntityTooLarge as error:
            raise Refused(413, "request_too_large", f"at most {limits.FRONT_BODY_BYTES} bytes") from error
        finally:
            self.arriving.discard(patience)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def tls_context(cert: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.3 and nothing older, with the certificate made when the host joined."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise BadSetup(f"{cert} and {key} are not a usable certificate: {error}") from error
    return context
