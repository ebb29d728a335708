"""One request to a source over HTTP: redirects by hand, secrets only where they belong, every answer judged.

What a server says is a claim: the range, the length, the encoding. A claim that contradicts what was asked ends the
try (`Broken`, worth another) or the source (`Hopeless`). Nothing here looks at content, which its digest decides.
A secret goes to the origin it was given for and is dropped at the first redirect that leaves it. Called by `sources`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp import ClientResponse

from gridops.base import limits
from gridops.base.codes import Code
from gridops.base.codes import host as codes
from gridops.base.ids import Digest
from gridops_agent.artifacts.settings import Settings
from gridops_agent.hearsay import count
from gridops_agent.hearsay import words as plain_words

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
_LINKED = re.compile(r'"?([0-9a-f]{64})"?')
_CONTENT_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15}|\*)")


class Broken(Exception):
    """This try failed; another may not. `later_s`: how long the server asks to be left alone."""

    def __init__(self, words: str, later_s: float = 0.0) -> None:
        super().__init__(plain_words(words))
        self.later_s = later_s


class NoRange(Broken):
    """The server does not go on where it was asked to: the next try begins at the beginning."""


class Hopeless(Exception):
    """This source cannot give the file, however often it is asked."""

    def __init__(self, code: Code, words: str, hint: str | None = None) -> None:
        super().__init__(plain_words(words))
        self.code = code
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked for. `secret` is a whole Authorization value."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    secret: str | None = field(default=None, repr=False)
    offset: int = 0
    etag: str | None = None
    """Of the answer that the first `offset` bytes came from."""
    cert: bytes | None = None
    """SHA-256 of the one certificate that is accepted. None: what the system trusts."""
    login: Callable[[str], Awaitable[str]] | None = field(default=None, repr=False)
    """What to present after a 401, by its challenge; asked once."""
    linked: Digest | None = None
    """The digest that a hub must name if it names one (`X-Linked-ETag`): else nothing is transferred."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A body that begins at `offset`."""

    offset: int
    etag: str | None
    answer: ClientResponse

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises Broken when it ends too early or stalls."""
        try:
            async for chunk in self.answer.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Broken(f"{shown(self.answer.url.host)} broke off: {_why(error)}") from error


class Wire:
    """A client for the sources of one fetch."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Wire:
        stall = self._settings.stall_ms / 1_000
        self._session = aiohttp.ClientSession(
            auto_decompress=False,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=min(stall, 15.0), sock_read=stall),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    @asynccontextmanager
    async def bytes_of(self, ask: Ask, size: int) -> AsyncIterator[Reply]:
        """The file from `ask.offset` on, or from its beginning where the server gives only the whole."""
        headers = dict(ask.headers)
        if ask.offset:
            headers["Range"] = f"bytes={ask.offset}-"
            if ask.etag is not None:
                headers["If-Range"] = ask.etag
        answer = await self.open(replace(ask, headers=headers))
        try:
            yield _reply(answer, ask, size)
        finally:
            answer.close()  # what is left of a body is not waited for

    async def document(self, ask: Ask, most: int) -> bytes:
        """A small document, whole."""
        answer = await self.open(ask)
        try:
            _plain(answer)
            if answer.status != 200:
                raise refused(answer)
            raw = bytearray()
            async for chunk in Reply(0, None, answer).chunks():
                raw += chunk
                if len(raw) > most:
                    raise Hopeless(codes.FETCH_FAILED, f"{shown(answer.url.host)} sends a document over {most} bytes")
            return bytes(raw)
        finally:
            answer.close()

    async def open(self, ask: Ask) -> ClientResponse:
        """The first answer that is no redirect, whatever its status. Raises Broken or Hopeless."""
        for _ in range(limits.FETCH_REDIRECTS + 1):
            answer = await self._once(ask)
            _as_linked(answer, ask)
            if answer.status == 401 and ask.login is not None:
                answer.close()
                ask = replace(ask, login=None, secret=await ask.login(answer.headers.get("WWW-Authenticate", "")))
                continue
            where = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or where is None:
                return answer
            answer.close()
            try:
                ask = _followed(ask, urljoin(ask.url, where))
            except ValueError as error:  # half a bracket, or a port that is none
                raise Hopeless(codes.BAD_SOURCE, f"{shown(ask.url)} redirects to what is no address") from error
        raise Hopeless(codes.FETCH_FAILED, f"{shown(ask.url)} redirects more than {limits.FETCH_REDIRECTS} times")

    async def _once(self, ask: Ask) -> ClientResponse:
        assert self._session is not None
        if not self._settings.allows(ask.url):
            raise Hopeless(
                codes.BAD_SOURCE,
                f"{shown(ask.url)} is not https",
                "files come over https:// alone; the digest proves them, TLS keeps the credential",
            )
        headers = {"Accept-Encoding": "identity", "User-Agent": "gridops-agent", **ask.headers}
        if ask.secret is not None:
            headers["Authorization"] = ask.secret
        pinned: dict[str, object] = {} if ask.cert is None else {"ssl": aiohttp.Fingerprint(ask.cert)}
        try:
            return await self._session.get(ask.url, headers=headers, allow_redirects=False, **pinned)  # type: ignore[arg-type]
        except aiohttp.ServerFingerprintMismatch as error:
            raise Hopeless(codes.FETCH_FAILED, f"{shown(ask.url)} shows another certificate than expected") from error
        except aiohttp.ClientConnectorCertificateError as error:
            raise Hopeless(
                codes.FETCH_FAILED,
                f"{shown(ask.url)} shows a certificate that this machine does not trust",
                "a CA of your own belongs among those of the machine, or into SSL_CERT_FILE of the agent",
            ) from error
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            raise Broken(f"{shown(ask.url)} does not answer: {_why(error)}") from error
        except ValueError as error:  # an address that is none
            raise Hopeless(codes.BAD_SOURCE, f"{shown(ask.url)} is not an address") from error


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port: whom a secret is for."""
    parts = urlsplit(url)
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    return parts.scheme, parts.hostname, port


def shown(url: str | None) -> str:
    """An address for people: without what may be signed into it."""
    if url is None:
        return "the source"
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:300] if parts.scheme else url[:300]


def refused(answer: ClientResponse) -> Broken | Hopeless:
    """What an answer that is no file means."""
    status, where = answer.status, shown(str(answer.url))
    said = answer.headers.get("X-Error-Message", "")[:200]
    where = f"{where} ({said})" if said.isprintable() and said else where
    if status in _LATER:
        return Broken(f"{where} answers {status}", _later_s(answer))
    if status in (401, 403):
        return Hopeless(
            codes.NO_CREDENTIAL,
            f"{where} answers {status}: it wants a credential, or another one",
            "name one in the profile (credential: secret:NAME) and put its value into the host's secrets folder, 0600",
        )
    if status in (404, 410):
        return Hopeless(codes.NO_ARTIFACT, f"{where} answers {status}: it is not there")
    return Hopeless(codes.FETCH_FAILED, f"{where} answers {status}")


def _as_linked(answer: ClientResponse, ask: Ask) -> None:
    named = _LINKED.fullmatch(answer.headers.get("X-Linked-ETag", "")) if ask.linked is not None else None
    if named is not None and f"sha256:{named[1]}" != ask.linked:
        answer.close()
        raise Hopeless(
            codes.WRONG_DIGEST,
            f"{shown(ask.url)} has sha256:{named[1]}, expected {ask.linked}; nothing was transferred",
        )


def _followed(ask: Ask, url: str) -> Ask:
    if origin(url) == origin(ask.url):
        return replace(ask, url=url)
    # Another server: neither the secret nor the pin is meant for it, nor headers that name what we may see.
    kept = {k: v for k, v in ask.headers.items() if k in ("Range", "If-Range")}
    return replace(ask, url=url, secret=None, login=None, cert=None, headers=kept)


def _reply(answer: ClientResponse, ask: Ask, size: int) -> Reply:
    """The body as it was asked for, from where on it is. Raises Broken or Hopeless."""
    where = shown(str(answer.url))
    _plain(answer)
    etag = answer.headers.get("ETag")
    # What cannot be sent back as it came is no validator.
    strong = etag if etag is not None and not etag.startswith("W/") and len(etag) <= 200 and etag.isascii() else None
    if answer.status == 206:
        match = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != ask.offset:
            raise NoRange(f"{where} sends another range than bytes {ask.offset}-")
        if match[3] != "*" and int(match[3]) != size:
            raise Hopeless(codes.WRONG_DIGEST, f"{where} has {match[3]} bytes, expected {size}")
        if int(match[2]) >= size:
            raise Hopeless(codes.WRONG_DIGEST, f"{where} sends more than the {size} bytes expected")
        return Reply(ask.offset, strong, answer)
    if answer.status == 200:
        length = answer.content_length
        if length is not None and length != size:
            raise Hopeless(codes.WRONG_DIGEST, f"{where} has {length} bytes, expected {size}")
        return Reply(0, strong, answer)
    if answer.status == 416 and ask.offset:
        raise NoRange(f"{where} has no bytes from {ask.offset} on")
    raise refused(answer)


def _plain(answer: ClientResponse) -> None:
    coding = answer.headers.get("Content-Encoding", "identity").lower()
    if coding != "identity":
        raise Hopeless(codes.FETCH_FAILED, f"{shown(str(answer.url))} sends {coding[:40]} where plain bytes were asked")


def _later_s(answer: ClientResponse) -> float:
    return float(min(count(answer.headers.get("Retry-After", "")) or 0, limits.FETCH_LATER_MS // 1_000))


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "nothing came for too long"
    return (str(error) or type(error).__name__)[:200]
