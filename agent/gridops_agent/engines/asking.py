"""Questions to engines over loopback HTTP: one answer or None, never an exception, always in bounded time and size.

Used by every adapter. What an engine says is somebody else's text: it is read up to a bound, and a wrong shape is the
same as no answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from gridops.base import limits
from gridops_agent.hearsay import document, measure

PATIENCE = aiohttp.ClientTimeout(total=2)


@dataclass(frozen=True, slots=True)
class Said:
    """One answer: its status, and its text as far as it was read."""

    status: int
    text: str

    @property
    def json(self) -> Any:
        """The text as JSON; None when it is none."""
        return document(self.text)


async def question(
    http: aiohttp.ClientSession,
    url: str,
    headers: Mapping[str, str] | None = None,
    send: Any = None,
    patience: aiohttp.ClientTimeout | None = None,
) -> Said | None:
    """GET, or POST when there is something to send. None: nobody answered in time."""
    patience = patience or PATIENCE
    method = "GET" if send is None else "POST"
    try:
        async with http.request(
            method, url, headers=headers, json=send, timeout=patience, allow_redirects=False
        ) as answer:
            raw = bytearray()
            async for chunk in answer.content.iter_chunked(1 << 16):
                raw += chunk
                if len(raw) > limits.ENGINE_ANSWER_BYTES:
                    return None
            return Said(answer.status, raw.decode("utf-8", "replace"))
    except (aiohttp.ClientError, TimeoutError, ValueError, OSError):
        return None


async def good(http: aiohttp.ClientSession, url: str, headers: Mapping[str, str] | None = None) -> Any:
    """What a GET is answered with, as JSON; None when the answer is not good (200), no JSON, or none at all."""
    said = await question(http, url, headers)
    return said.json if said is not None and said.status == 200 else None


async def models(http: aiohttp.ClientSession, url: str, headers: Mapping[str, str]) -> tuple[Mapping[str, Any], ...]:
    """The rows of an OpenAI model list; none when it cannot be had."""
    found = await good(http, f"{url}/v1/models", headers)
    rows = found.get("data") if isinstance(found, dict) else None
    return tuple(row for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()


def gauge(text: str, name: str) -> int | None:
    """The sum of one metric over its labels, from a Prometheus page; None when the page does not hold it whole."""
    values = re.findall(rf"^{re.escape(name)}(?:\{{[^\n]*\}})?[ \t]+(\S*)", text, re.MULTILINE)
    counts = [measure(value) for value in values]
    total = sum(c for c in counts if c is not None)
    return round(total) if counts and None not in counts and total < 1e9 else None
