"""The table of endpoints: path, what it takes, what it answers, in one place for the listener and for OpenAPI.

`Api` is what the listener may ask of a running controller; the shell implements it. Read-only endpoints are GET and
take nothing but a number or an id. The three that change something take a signed envelope and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from gridops.base import limits
from gridops.base.codes.control import BAD_REQUEST
from gridops.base.errors import Refusal
from gridops.base.record import record
from gridops.controller import documents as d
from gridops.protocol.messages import Beat, JoinReply
from gridops.protocol.open import sealed_bytes


@record
class JoinBody:
    """A join request, signed by the new host key."""

    request: str


@record
class JoinAnswer:
    reply: JoinReply


@record
class OperatorBody:
    """A person's request, signed."""

    request: str


@record
class DirectiveAnswer:
    """The signed directive."""

    directive: str


class Api(Protocol):
    """What the listener may ask. `poll` is `beat` for who waits in no task: it is told the directive, or the error."""

    async def beat(self, beat: Beat) -> DirectiveAnswer: ...
    def poll(self, beat: Beat, done: Callable[[str | Exception], None]) -> None: ...
    def join(self, body: JoinBody) -> JoinAnswer: ...
    def operator(self, body: OperatorBody) -> Any: ...
    def roots(self) -> d.RootsDoc: ...
    def status(self) -> d.StatusDoc: ...
    def fronts(self) -> d.FrontsDoc: ...
    def snapshot(self) -> d.SnapshotDoc: ...
    def plans(self) -> d.PlansDoc: ...
    def plan(self, wanted: str) -> Any: ...
    def events(self, after: int) -> d.EventsDoc: ...
    def pending(self) -> d.PendingListDoc: ...
    def metrics(self) -> str: ...
    def healthz(self) -> tuple[int, d.HealthDoc]: ...
    def readyz(self) -> tuple[int, d.HealthDoc]: ...
    def refused(self, code: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route. `act` gets the api, the checked body and the path and query values."""

    method: str
    path: str
    summary: str
    act: Callable[[Api, Any, dict[str, str]], Any]
    answer: type[Any] | None
    """None: plain text. `dict`: a JSON object that depends on the verb."""
    request: type[Any] | None = None
    limit: int = limits.REQUEST_BYTES
    query: tuple[str, ...] = ()
    """Numbers of 0 to NUMBER_MOST."""
    waiting: type[Any] | None = None
    """What it answers with status 503, where that is an answer and no error."""


NUMBER_MOST = 10**15 - 1
"""More rows than a journal ever has, and exact in whatever a caller counts with."""


def _number(values: dict[str, str], name: str) -> int:
    text = values.get(name, "0")
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(NUMBER_MOST)):
        raise Refusal(BAD_REQUEST.code, f"`{name}` is not a number of 0 to {NUMBER_MOST}: {text[:40]}")
    return int(text)


BEAT_BYTES = sealed_bytes(limits.HEARTBEAT_BYTES) + limits.RECEIPTS_PER_REQUEST * 16_384 + 1_024
"""A signed heartbeat and its receipts, which are small; a bigger request is none. The rest is for the JSON around."""
JOINING_BYTES = sealed_bytes(limits.JOIN_BYTES) + 1_024

BEAT = Endpoint("POST", "/v1/beat", "One poll of a host: a signed heartbeat and receipts; answers a signed directive.",
                lambda api, body, _: api.beat(body), DirectiveAnswer, Beat, BEAT_BYTES)  # fmt: skip
ROUTES: tuple[Endpoint, ...] = (
    BEAT,
    Endpoint("POST", "/v1/join", "A machine asks to become a host, with the MAC of its join token.",
             lambda api, body, _: api.join(body), JoinAnswer, JoinBody, JOINING_BYTES),
    Endpoint("POST", "/v1/operator", "A person's signed request: apply, freeze, thaw, invite, write off, reject...",
             lambda api, body, _: api.operator(body), dict, OperatorBody, limits.REQUEST_BYTES * 2),
    Endpoint("GET", "/v1/roots", "Every root document, oldest first; they prove themselves.",
             lambda api, *_: api.roots(), d.RootsDoc),
    Endpoint("GET", "/v1/status", "What is: intent, scopes, models, applies, hosts, alarms.",
             lambda api, *_: api.status(), d.StatusDoc),
    Endpoint("GET", "/v1/fronts", "Where engines are reached, each as its host signed it.",
             lambda api, *_: api.fronts(), d.FrontsDoc),
    Endpoint("GET", "/v1/snapshot", "The live snapshot and the plans in force.",
             lambda api, *_: api.snapshot(), d.SnapshotDoc),
    Endpoint("GET", "/v1/plans", "The newest plans.", lambda api, *_: api.plans(), d.PlansDoc),
    Endpoint("GET", "/v1/plans/{id}", "One plan by id or short digest: as signed, what an approval binds, its apply.",
             lambda api, _, values: api.plan(values["id"]), d.PlanDoc),
    Endpoint("GET", "/v1/events", "What happened, oldest first, behind a number.",
             lambda api, _, values: api.events(_number(values, "after")), d.EventsDoc, query=("after",)),
    Endpoint("GET", "/v1/pending", "Hosts that wait to be admitted.", lambda api, *_: api.pending(), d.PendingListDoc),
    Endpoint("GET", "/metrics", "Prometheus metrics.", lambda api, *_: api.metrics(), None),
    Endpoint("GET", "/healthz", "The process lives and its journal can be written.",
             lambda api, *_: api.healthz(), d.HealthDoc),
    Endpoint("GET", "/readyz", "It has an intent and knows its hosts; else 503 with the reasons.",
             lambda api, *_: api.readyz(), d.HealthDoc, waiting=d.HealthDoc),
)  # fmt: skip
