"""The listener of a real process, asked whatever its own OpenAPI document allows, and whatever it does not.

Schemathesis makes the requests from the document that the process serves and holds each answer against it: status,
headers, content type and schema. What people and hosts sign is bent and signed again by the true keys, so that it is
heard; and bytes that are no HTTP go down a TLS connection. No answer may be a fault of the controller, and its log must
name none.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, get_args

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from starlette.routing import Route

from gridops.base.errors import Refusal
from gridops.base.ids import HostId
from gridops.base.record import to_bytes
from gridops.controller.endpoints import ROUTES
from gridops.controller.http import application
from gridops.controller.openapi import document
from gridops.controller.statedir import TLS_CERT
from gridops.protocol.messages import Facts, JoinRequest
from gridops.trust.envelope import seal
from gridops.trust.join import join_key, parse_token, request_mac
from gridops.trust.keys import MachineSigner
from gridops.trust.operator import Verb
from tests.attacks.place import payload_of, signed_by_hand
from tests.attacks.test_wire_fuzz import bent
from tests.controller.fleet import DEFAULT, Fleet
from tests.controller.watching import Watch, now_ms

PATHS = sorted(document(ROUTES)["paths"])
CHANGING = sorted(route.path for route in ROUTES if route.request is not None)
TAKING = sorted(route.path for route in ROUTES if route.request is not None or route.query)
VERBS = get_args(Verb)
NEWCOMER = MachineSigner.from_seed(b"gamma".ljust(32, b"."))
PIECES = [
    *(
        f"{method} {path} HTTP/1.1\r\n".encode()
        for method in ("GET", "POST", "HEAD")
        for path in ("/v1/status", "/v1/beat")
    ),
    *(b"GET //%2e%2e/etc/passwd HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.0\r\n"),
    *(b"host: x\r\n", b"content-length: 2\r\n", b"transfer-encoding: chunked\r\n", b"expect: 100-continue\r\n"),
    *(b"upgrade: websocket\r\nconnection: upgrade\r\n", b"\r\n", b"{}", b'5\r\n{"a":\r\n', b"0\r\n\r\n", b"x" * 70_000),
]
"""Of requests, whole and broken."""
FEW = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


class Door:
    """A controller with two hosts and a plan in force, and what a stranger at its address can do."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.session = requests.Session()
        self.session.trust_env = False
        self.certificate = str(watch.fleet.state / TLS_CERT)
        self.published = watch.get("/openapi.json")["paths"]
        self.schema = schemathesis.openapi.from_dict(watch.get("/openapi.json"))
        self.said: dict[str, Callable[[st.DataObject], dict[str, Any]]] = {
            "/v1/beat": self._beat,
            "/v1/join": self._join,
            "/v1/operator": self._request,
        }
        """By path: something that the true key signed, bent in one place."""
        self.early = requests.get(f"{watch.url}/readyz", verify=self.certificate, timeout=20)
        """What it answered before any host had spoken."""

    def beat(self) -> None:
        """Both hosts are there."""
        for agent in self.watch.fleet.agents.values():
            with contextlib.suppress(Refusal):
                agent.talk(self.watch.post, now_ms())

    def holds(self, case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=self.watch.url, session=self.session, verify=self.certificate)

    def raw(self, sent: bytes) -> list[int]:
        """Bytes on a connection that ends there; the status of each answer."""
        context = ssl.create_default_context(cafile=self.certificate)
        address = ("127.0.0.1", int(self.watch.url.rpartition(":")[2]))
        heard = b""
        with context.wrap_socket(socket.create_connection(address, 5), server_hostname="127.0.0.1") as line:
            line.settimeout(0.15)
            # What it thinks of the bytes it may say before it has taken them all.
            with contextlib.suppress(OSError):
                line.sendall(sent)
            with contextlib.suppress(OSError):
                while part := line.recv(65_536):
                    heard += part
        return [int(status) for status in re.findall(rb"^HTTP/1\.1 (\d{3}) ", heard, re.MULTILINE)]

    def _beat(self, data: st.DataObject) -> dict[str, Any]:
        alpha = self.watch.fleet.agents["alpha"]
        alpha.now_ms = now_ms()
        beat = alpha.beat()
        receipts = [bent_by(data, "receipt", seal("receipt", to_bytes(r), alpha.signer), alpha.signer)
                    for r in alpha.receipts.kept[-1:] if data.draw(st.booleans())]  # fmt: skip
        heartbeat = beat.heartbeat if receipts else bent_by(data, "heartbeat", beat.heartbeat, alpha.signer)
        return {"heartbeat": heartbeat, "receipts": receipts}

    def _join(self, data: st.DataObject) -> dict[str, Any]:
        key, token = NEWCOMER.public.text, parse_token(self._token)
        made = JoinRequest(
            fleet=token.fleet,
            host=token.host,
            host_key=key,
            nonce="n" * 24,
            facts=Facts(devices=(), runtimes=(), agent_version="0.1.0", platform="linux"),
            mac=request_mac(join_key(token.secret), token.fleet, key, "n" * 24),
        )
        return {"request": bent_by(data, "join", seal("join", to_bytes(made), NEWCOMER), NEWCOMER)}

    @cached_property
    def _token(self) -> str:
        return str(self.watch.operator(self.watch.fleet.request("invite", now_ms(), host=HostId("gamma")))["token"])

    def _request(self, data: st.DataObject) -> dict[str, Any]:
        fleet = self.watch.fleet
        made = fleet.request(data.draw(st.sampled_from(VERBS)), now_ms(), scope=DEFAULT, host=HostId("alpha"))
        return {"request": bent_by(data, "operator", made, fleet.person)}


def bent_by(data: st.DataObject, kind: str, sealed: str, signer: Any) -> str:
    """The message with one value changed, signed again."""
    return signed_by_hand(kind, bent(payload_of(sealed), data), signer)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    fleet = Fleet(tmp_path_factory.mktemp("http"), now_ms=now_ms() - 60_000)
    fleet.begin()
    watch = Watch(fleet)
    watch.start()
    made = Door(watch)

    def ready() -> bool:
        made.beat()
        return bool(watch.http.get("/readyz").status_code == 200 and watch.get("/v1/plans")["plans"])

    watch.until(ready)
    yield made
    made.session.close()
    assert watch.end() == 143
    log = watch.log.read_text()
    assert "fault while answering" not in log
    assert "Traceback" not in log


def test_every_route_that_is_served_is_published_and_the_other_way_round(door: Door) -> None:
    served = {
        (method.lower(), route.path)
        for route in application(None).routes  # type: ignore[arg-type]
        if isinstance(route, Route)
        for method in (route.methods or ())
        if method != "HEAD"
    }
    published = door.watch.get("/openapi.json")["paths"]
    assert served == {(method, path) for path, item in published.items() for method in item}
    assert published == document(ROUTES)["paths"]


def test_not_yet_is_an_answer_and_is_published_as_one(door: Door) -> None:
    assert door.early.status_code == 503
    case = door.schema["/readyz"]["GET"].Case()
    case.validate_response(door.early, excluded_checks=[schemathesis.checks.not_a_server_error])
    assert set(door.early.json()) == {"status", "reasons"}


@pytest.mark.parametrize("path", PATHS)
def test_whatever_the_document_allows_is_answered_as_it_says(door: Door, path: str) -> None:
    _ask(door, path, GenerationMode.POSITIVE)


@pytest.mark.parametrize("path", TAKING)
def test_whatever_the_document_does_not_allow_is_refused_as_it_says(door: Door, path: str) -> None:
    _ask(door, path, GenerationMode.NEGATIVE)


def _ask(door: Door, path: str, mode: GenerationMode) -> None:
    door.beat()
    for operation in door.schema[path].values():

        @FEW
        @given(operation.as_strategy(mode))
        def asked(case: schemathesis.Case) -> None:
            door.holds(case)

        asked()


@pytest.mark.parametrize("path", PATHS)
def test_a_method_that_is_not_published_is_refused_and_the_answer_names_those_that_are(door: Door, path: str) -> None:
    published = {method.upper() for method in door.published[path]}
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"):
        if method in published:
            continue
        answer = door.watch.http.request(method, path.replace("{id}", "0"), content=b"{}")
        assert answer.status_code == 405, method
        assert set(answer.headers["allow"].split(", ")) - {"HEAD"} == published
        assert answer.json()["error"]["code"] == "bad_request"


@pytest.mark.parametrize("path", CHANGING)
@FEW
@given(st.data())
def test_whatever_the_true_keys_sign_is_answered_as_the_document_says(
    door: Door, path: str, data: st.DataObject
) -> None:
    """One value of a true message is bent, and the key that may say such things signs it."""
    (operation,) = door.schema[path].values()
    door.holds(operation.Case(body=door.said[path](data), media_type="application/json"))


@FEW
@given(st.lists(st.one_of(st.binary(max_size=60), st.sampled_from(PIECES)), min_size=1, max_size=8))
@example([b"GET /v1/status HTTP/1.1\r\nhost: x\r\n", b"content-length: -1\r\n\r\n"])
@example(
    [b"POST /v1/beat HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n", b"0\r\n\r\n"]
)
@example([b"GET /v1/plans/%ff%fe%00 HTTP/1.1\r\nhost: x\r\n\r\n"])
def test_bytes_that_are_no_request_are_refused_or_left_unanswered(door: Door, parts: list[bytes]) -> None:
    assert all(status < 500 for status in door.raw(b"".join(parts)))
