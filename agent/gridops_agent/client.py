"""The way to the controller: HTTPS with TLS 1.3, its certificate pinned from the root document. Pulls; never listens.

TLS gives privacy and a cheap refusal only. What authorises is inside: signed heartbeats going, signed directives
coming. Before a host has joined there is nothing to pin; then both sides prove the join token to each other instead.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import httpx

from gridops.base import limits
from gridops.base.codes.control import NOT_READY
from gridops.base.errors import BadSetup, Refusal, Unreachable
from gridops.base.record import Malformed, from_data, to_data
from gridops.base.units import render_ms
from gridops.protocol.messages import Beat, JoinReply
from gridops.trust.tls import pinned_client_context
from gridops_agent.hearsay import document

_TIMEOUT = httpx.Timeout(20.0, connect=5.0)
_ANSWER_BYTES = limits.DIRECTIVE_BYTES * 2
_KEPT_S = 70.0
"""So long the connection is kept for the next heartbeat: longer than the longest pause between two, and a little less
than the controller keeps it. The library's own five seconds would shake hands anew for every heartbeat."""


class Foreign(Unreachable):
    """Somebody answered, with another certificate than those that are pinned."""


class Controller:
    """One controller. Every failure of the network is an Unreachable that names the URL."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self.url = url
        self._http = httpx.AsyncClient(
            base_url=url,
            verify=context,
            timeout=_TIMEOUT,
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=8, keepalive_expiry=_KEPT_S),
        )

    @classmethod
    def pinned(cls, url: str, certificates: tuple[str, ...]) -> Controller:
        """A controller that must show one of these certificates."""
        try:
            return cls(url, pinned_client_context(certificates))
        except ValueError as error:
            raise BadSetup(f"the root document names no usable certificate of the controller: {error}") from error

    @classmethod
    def unproved(cls, url: str) -> Controller:
        """For what proves itself: a join, by its token, and root documents, by their signatures. For nothing else."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return cls(url, context)

    async def close(self) -> None:
        await self._http.aclose()

    async def beat(self, beat: Beat) -> str:
        """Send a heartbeat with the receipts not yet acknowledged; the signed directive."""
        answer = await self._ask("POST", "/v1/beat", to_data(beat))
        directive = answer.get("directive")
        if not isinstance(directive, str):
            raise Unreachable(f"{self.url} answered a heartbeat without a directive: is it a gridops controller?")
        return directive

    async def roots(self) -> tuple[str, ...]:
        """Every root document, as text. They prove themselves."""
        roots = (await self._ask("GET", "/v1/roots", None)).get("roots")
        if not isinstance(roots, list) or not all(isinstance(text, str) for text in roots):
            raise Unreachable(f"{self.url} answered without root documents: is it a gridops controller?")
        return tuple(roots)

    async def join(self, request: str) -> JoinReply:
        """Send a signed join request."""
        reply = (await self._ask("POST", "/v1/join", {"request": request})).get("reply")
        try:
            return from_data(JoinReply, document(reply) if isinstance(reply, str) else reply)
        except (Malformed, ValueError) as error:
            raise Unreachable(f"{self.url} did not answer as a controller does: {error}") from error

    async def status(self) -> dict[str, Any]:
        """What the controller tells everybody who asks (`GET /v1/status`)."""
        return await self._ask("GET", "/v1/status", None, limits.STATUS_BYTES)

    async def _ask(self, method: str, path: str, body: Any, most: int = _ANSWER_BYTES) -> dict[str, Any]:
        try:
            async with asyncio.timeout(limits.ANSWER_MS / 1_000), self._http.stream(method, path, json=body) as answer:
                raw = bytearray()
                async for chunk in answer.aiter_bytes():
                    raw += chunk
                    if len(raw) > most:
                        raise Unreachable(f"{self.url} sends more than {most} bytes")
                status = answer.status_code
        except TimeoutError as error:
            raise Unreachable(
                f"the controller at {self.url} does not answer: no whole answer within {render_ms(limits.ANSWER_MS)}"
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            kind = Foreign if _foreign(error) else Unreachable
            why = "another certificate than the pinned one" if kind is Foreign else str(error) or type(error).__name__
            raise kind(f"the controller at {self.url} does not answer: {why}") from error
        said = document(bytes(raw))
        if status != 200:
            raise _refused(self.url, status, said)
        if not isinstance(said, dict):
            raise Unreachable(f"{self.url} did not answer with JSON: is it a gridops controller?")
        return said


def _foreign(error: BaseException | None) -> bool:
    """Did somebody answer, and was it the certificate that was not believed?"""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def _refused(url: str, status: int, document: Any) -> Refusal | Unreachable:
    error = document.get("error") if isinstance(document, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    # A controller without a valid commit says 503 as a proxy would that cannot reach it; the code tells them apart.
    if not isinstance(error, dict) or not isinstance(code, str) or (status >= 500 and code != NOT_READY.code):
        return Unreachable(f"the controller at {url} answered with status {status}")
    return Refusal(
        code,
        str(error.get("message", "refused by the controller")),
        evidence=_lines(error.get("evidence")),
        hints=_lines(error.get("hints")),
    )


def _lines(value: object) -> tuple[str, ...]:
    return tuple(str(line)[:500] for line in value[:20]) if isinstance(value, list) else ()
