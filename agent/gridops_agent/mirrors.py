"""Root documents from elsewhere: the root names mirrors, and the host looks there too, now and then.

Whoever stole the controller's key and holds its address could hide the document that ends that key until the root
expires. A mirror is any place that serves files (a raw view of the repository, a bucket); documents prove themselves,
so nothing else about it is believed. The shell runs this beside the talk. Must never take a document that does not
follow.
"""

from __future__ import annotations

import asyncio
import logging
import ssl

import httpx

from gridops.base import limits
from gridops.base.errors import Refusal
from gridops_agent.core.events import RootsCame
from gridops_agent.effects import Effects
from gridops_agent.memory import Memory

LOG = logging.getLogger("gridops_agent")
FIRST_S, EVERY_S = 30.0, 3_600.0
"""A stolen key is worth something for so long after people have published its end. Double: twice as long; half: a
thousand hosts ask a mirror every two seconds."""
_TIMEOUT = httpx.Timeout(10.0, connect=5.0)


class Mirrors:
    """The mirrors of one host's root document."""

    def __init__(self, memory: Memory, effects: Effects) -> None:
        self._memory = memory
        self._effects = effects

    async def run(self) -> None:
        """Look for ever."""
        await asyncio.sleep(FIRST_S)
        while True:
            await self.look()
            await asyncio.sleep(EVERY_S)

    async def look(self) -> int:
        """Ask each mirror for the documents after the newest one; how many counted."""
        before = self._memory.host.chain.root.version
        for base in self._memory.host.chain.root.mirrors or ():
            async with _client() as http:
                await self._walk(http, base)
        return self._memory.host.chain.root.version - before

    async def _walk(self, http: httpx.AsyncClient, base: str) -> None:
        for _ in range(limits.ROOTS_PER_DIRECTIVE):
            chain = self._memory.host.chain
            text = await _fetched(http, f"{base}{chain.root.version + 1}.json")
            if text is None:
                return
            try:
                chain.advance(text)
            except Refusal as refusal:
                LOG.warning("the mirror %s holds a root document that does not follow: %s", base, refusal)
                return
            await self._effects.tell_once(RootsCame((text,)))
            if self._memory.host.chain.root.version == chain.root.version:
                return


def _client() -> httpx.AsyncClient:
    """Certificates are not looked at: what a mirror says proves itself, and what it is asked is no secret."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return httpx.AsyncClient(verify=context, timeout=_TIMEOUT, trust_env=False, follow_redirects=False)


async def _fetched(http: httpx.AsyncClient, url: str) -> str | None:
    """One document; None where there is none, and for everything that goes wrong on the way."""
    try:
        async with asyncio.timeout(20.0), http.stream("GET", url) as answer:
            if answer.status_code != 200:
                return None
            raw = bytearray()
            async for chunk in answer.aiter_bytes():
                raw += chunk
                if len(raw) > limits.ENVELOPE_BYTES:
                    return None
            return raw.decode("utf-8").strip()
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeDecodeError, TimeoutError):
        return None
