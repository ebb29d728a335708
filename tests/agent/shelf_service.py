"""A loopback service that holds models in memory, for tests: `python -m tests.agent.shelf_service`.

It knows what every such service knows (version, what is in memory, bring, drop) and nothing of one product.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp

from gridops.base.codes import host as codes
from gridops.base.errors import Refusal
from gridops.base.ids import EngineName
from gridops.model.fleet import Runtime
from gridops.model.plan import Launch
from gridops_agent.engines.base import Abilities, Door, Start

MEMORY: dict[str, int] = {}
SETTINGS = {"stubborn": False, "refuses": False}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
        pass

    def _say(self, status: int, answer: Any) -> None:
        raw = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def do_GET(self) -> None:
        self._say(200, {"version": "1.0", "memory": sorted(MEMORY)})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        verb, name = self.path.strip("/"), asked.get("name", "")
        if verb == "set":
            SETTINGS.update(asked)
        elif verb == "bring":
            MEMORY[name] = 1
            if SETTINGS["refuses"]:
                self._say(500, {"error": "no memory"})
                return
        elif verb == "drop" and not SETTINGS["stubborn"]:
            MEMORY.pop(name, None)
        self._say(200, {})


class Shelf:
    """The adapter."""

    abilities = Abilities(
        formats=frozenset({"gguf"}),
        modalities=frozenset({"text"}),
        keyed=False,
        counts_work=False,
        takes_share=False,
        shards=False,
        drains_on_term=False,
    )
    name = EngineName("shelf")

    def __init__(self, address: str) -> None:
        self.address = address

    def runtimes(self) -> tuple[Runtime, ...]:
        return (Runtime(engine=self.name, backend="cpu"),)

    def problem(self) -> str | None:
        return None

    def objection(self, launch: Launch) -> str | None:
        return None

    async def alive(self, http: aiohttp.ClientSession) -> str | None:
        seen = await self._ask(http)
        return str(seen["version"]) if seen is not None else None

    async def verify(self, http: aiohttp.ClientSession, start: Start) -> str:
        if start.launch.context == 1:
            raise Refusal(codes.WRONG_DIGEST.code, "the store has something else under this name")
        return start.launch.artifact.files[0].sha256

    async def bring(self, http: aiohttp.ClientSession, start: Start) -> None:
        if not await self.say(http, "bring", name=start.alias):
            raise Refusal(codes.START_FAILED.code, "the service could not bring it")

    async def drop(self, http: aiohttp.ClientSession, door: Door) -> None:
        await self.say(http, "drop", name=door.alias)

    async def dropped(self, http: aiohttp.ClientSession, door: Door) -> bool:
        seen = await self._ask(http)
        return seen is not None and door.alias not in seen["memory"]

    async def listed(self, http: aiohttp.ClientSession, door: Door) -> bool:
        seen = await self._ask(http)
        return seen is not None and door.alias in seen["memory"]

    async def busy(self, http: aiohttp.ClientSession, door: Door) -> int | None:
        return None

    async def say(self, http: aiohttp.ClientSession, verb: str, **words: object) -> bool:
        async with http.post(f"{self.address}/{verb}", json=words) as answer:
            return answer.status == 200

    async def _ask(self, http: aiohttp.ClientSession) -> dict[str, Any] | None:
        try:
            async with http.get(self.address, timeout=aiohttp.ClientTimeout(total=2)) as answer:
                return dict(await answer.json(content_type=None))
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
