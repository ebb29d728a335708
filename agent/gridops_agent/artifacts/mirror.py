"""Serves this host's verified files to other agents of its network, by digest: `mirror` in agent.toml switches it on.

It has a listener of its own with the front's certificate. Who asks presents the key that hosts with mirrors share;
without it nothing is said about what is here. Only files that are proved and look unchanged are served, a bounded
number at a time, within this host's bandwidth limit. It lists nothing, takes nothing in, and never serves a path.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import ssl
from pathlib import Path
from typing import BinaryIO

from aiohttp import web

from gridops.base import limits
from gridops.base.errors import BadSetup
from gridops.base.ids import Digest
from gridops.trust.secret import Secret
from gridops_agent.artifacts.find import Finder
from gridops_agent.artifacts.pace import Pace
from gridops_agent.front_entrance import Entrance, patient

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_RANGE = re.compile(r"bytes=(\d{1,15})-(\d{1,15})?")
_CHUNK = 1 << 20


class Mirror:
    """One listener. `served` counts bytes, for status."""

    def __init__(self, finder: Finder, key: Secret, pace: Pace) -> None:
        self._finder = finder
        self._key = key
        self._pace = pace
        self._runner: web.AppRunner | None = None
        self._entrance: Entrance | None = None
        self._busy: set[asyncio.BaseProtocol] = set()
        self.served = 0

    async def open(self, address: str, tls: ssl.SSLContext) -> int:
        """Listen on HOST:PORT; returns the port. Raises BadSetup."""
        host, _, port = address.rpartition(":")
        app = web.Application(client_max_size=1_024)
        app.router.add_get("/v1/blobs/{digest}", self._blob)
        self._runner = patient(app)
        await self._runner.setup()
        self._entrance = Entrance(self._runner, self._busy.__contains__)
        try:
            return await self._entrance.open(host.strip("[]"), int(port), tls)
        except OSError as error:
            await self._runner.cleanup()
            raise BadSetup(
                f"the mirror cannot listen on {address}: {error.strerror}",
                hints=("stop what uses the port, or change `mirror` under [artifacts] in agent.toml",),
            ) from error

    async def close(self) -> None:
        if self._entrance is not None:
            self._entrance.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _blob(self, request: web.Request) -> web.StreamResponse:
        offered = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(offered, b"Bearer " + self._key.reveal()):
            return web.Response(status=401, text="no valid key\n")
        digest = request.match_info["digest"]
        if _DIGEST.fullmatch(digest) is None:
            return web.Response(status=404, text="no such file here\n")
        if len(self._busy) >= limits.MIRROR_STREAMS:
            return web.Response(status=503, text="busy\n", headers={"Retry-After": "5"})
        self._busy.add(request.protocol)
        try:
            return await self._serve(request, Digest(digest))
        finally:
            self._busy.discard(request.protocol)

    async def _serve(self, request: web.Request, digest: Digest) -> web.StreamResponse:
        path = await asyncio.to_thread(self._finder.path_of, digest)
        try:
            source = await asyncio.to_thread(_opened, path) if path is not None else None
        except OSError:
            source = None
        if source is None:
            return web.Response(status=404, text="no such file here\n")
        with source:
            size = os.fstat(source.fileno()).st_size
            asked = request.headers.get("Range")
            span = _span(asked, size) if asked is not None else (0, size)
            if span is None:
                return web.Response(status=416, headers={"Content-Range": f"bytes */{size}"})
            headers = {"ETag": f'"{digest}"', "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
            if asked is not None:
                headers["Content-Range"] = f"bytes {span[0]}-{span[1] - 1}/{size}"
            answer = web.StreamResponse(status=206 if asked is not None else 200, headers=headers)
            answer.content_length = span[1] - span[0]
            await answer.prepare(request)
            await self._copy(source, span, answer)
            return answer

    async def _copy(self, source: BinaryIO, span: tuple[int, int], answer: web.StreamResponse) -> None:
        source.seek(span[0])
        left = span[1] - span[0]
        while left and (chunk := await asyncio.to_thread(source.read, min(_CHUNK, left))):
            await asyncio.wait_for(answer.write(chunk), limits.MIRROR_WRITE_MS / 1_000)
            left -= len(chunk)
            self.served += len(chunk)
            await asyncio.sleep(self._pace.owed(len(chunk)))


def _opened(path: Path) -> BinaryIO:
    return path.open("rb")


def _span(asked: str, size: int) -> tuple[int, int] | None:
    """First byte and the one after the last; None for a range that cannot be had."""
    match = _RANGE.fullmatch(asked)
    if match is None:
        return None
    begin, end = int(match[1]), min(size, int(match[2]) + 1) if match[2] else size
    return (begin, end) if begin < end else None
