"""What callers ask of their own ComfyUI prompts at the front: what they made, what waits, and how it goes on.

`front_prompts` says which paths there are and takes the prompts in. A caller sees its own prompts and what they made,
by a mark that the service keeps with each run, and nothing of others'. Nothing is remembered over a restart: the
service is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from gridops.base import limits
from gridops.protocol.messages import GatewayKey
from gridops_agent import front_asked, front_uploads
from gridops_agent.engines import comfyui_prompts as comfy
from gridops_agent.engines.asking import question
from gridops_agent.engines.comfyui_prompts import Place, Stands
from gridops_agent.front_asked import Refused

if TYPE_CHECKING:
    from gridops_agent.front import Front, Route

API = "comfyui"
LATER = {"Retry-After": "2"}
_VIEW = aiohttp.ClientTimeout(total=None, connect=10, sock_read=60)


class Results:
    """What one front knows of its callers' prompts. `open` comes before the first question."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._http: aiohttp.ClientSession | None = None
        self._listening: set[web.WebSocketResponse] = set()
        self._made: OrderedDict[tuple[str, str, str, str], None] = OrderedDict()
        """Files that a caller's prompts made or that it sent, by the caller's name; the newest last."""

    def open(self) -> None:
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False)

    async def hang_up(self) -> None:
        """Whoever listens is told that this host leaves, so that nobody waits for them."""
        for socket in tuple(self._listening):
            with contextlib.suppress(ConnectionError, RuntimeError):
                await socket.close(code=aiohttp.WSCloseCode.GOING_AWAY)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def history(self, request: web.Request) -> web.Response:
        key, route, name = *self._asked(request), request.match_info["id"]
        found = await comfy.place(self.session(), route.door, name)
        if found.stands is Stands.UNKNOWN:
            raise Refused(502, "engine_unreachable", "the service does not answer", LATER)
        if found.stands is not Stands.DONE or not _is_own(found.owner, key):
            return web.json_response({})  # as the service answers for one that has not ended, or is none
        self.learn(key.name, found)
        return web.json_response({name: found.entry})

    async def view(self, request: web.Request) -> web.StreamResponse:
        key, route = self._asked(request)
        asked = request.query
        file = (asked.get("filename", ""), asked.get("subfolder", ""), asked.get("type", "output"))
        if (key.name, *file) not in self._made:
            raise Refused(404, "not_found", "no prompt of yours made that file here; ask for its history first")
        params = dict(zip(("filename", "subfolder", "type"), file, strict=True))
        try:
            upstream = await self.session().get(f"{route.door.url}/view", params=params, timeout=_VIEW)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Refused(502, "engine_unreachable", "the service does not answer", LATER) from error
        async with upstream:
            kind = upstream.headers.get("Content-Type", "application/octet-stream")
            answer = web.StreamResponse(status=upstream.status, headers={"Content-Type": kind})
            await answer.prepare(request)
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async for chunk in upstream.content.iter_any():
                    await answer.write(chunk)
                await answer.write_eof()
                return answer
            if request.transport is not None:
                request.transport.abort()  # cut: the client must not take it for the whole file
            return answer

    async def queue(self, request: web.Request) -> web.Response:
        key, route = self._asked(request)
        rows = await comfy.queue(self.session(), route.door)
        if rows is None:
            raise Refused(502, "engine_unreachable", "the service does not answer", LATER)
        own = {
            part: [row for row in found if _is_own(Place(Stands.RUNS, row).owner, key)] for part, found in rows.items()
        }
        return web.json_response(own)

    async def delete(self, request: web.Request) -> web.Response:
        """Takes back what waits; what runs is ended by an interrupt."""
        key, route = self._asked(request)
        names = front_asked.parsed(await self._front.body(request)).get("delete")
        wanted = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        for name in wanted[: limits.FRONT_PROMPTS]:
            found = await comfy.place(self.session(), route.door, name)
            if found.stands is Stands.WAITS and _is_own(found.owner, key):
                await question(self.session(), f"{route.door.url}/queue", send={"delete": [name]})
        return web.json_response({})

    async def interrupt(self, request: web.Request) -> web.Response:
        """Ends the caller's own prompt that runs, by its id or whichever it is; the service answers 200 in any case.

        Only a service that ends a prompt by its name is asked: an older one would end whoever runs by then.
        """
        key, route = self._asked(request)
        body = await self._front.body(request)
        wanted = front_asked.parsed(body).get("prompt_id") if body.strip() else None
        rows = await comfy.queue(self.session(), route.door)
        exact = await comfy.ends_by_name(self.session(), route.door)
        if rows is None or exact is None:
            raise Refused(502, "engine_unreachable", "the service does not answer", LATER)
        if not exact:
            raise Refused(
                501, "not_supported", f"this ComfyUI is older than {comfy.BY_NAME}: it might end another's prompt"
            )
        own = [row for row in rows["queue_running"] if _is_own(Place(Stands.RUNS, row).owner, key)]
        for row in own:
            if wanted in (None, row[1]):
                await question(self.session(), f"{route.door.url}/interrupt", send={"prompt_id": row[1]})
        return web.json_response({})

    async def upload(self, request: web.Request) -> web.Response:
        """A picture for the caller's own prompts, named by its content and in a folder of the caller's."""
        front, key = self._front, self._front.caller(request)
        body = await front.body(request)
        route = front.choose(key, request.match_info["model"], API)
        picture = front_uploads.read(body, request.headers.get("Content-Type", ""))
        file = await front_uploads.send(self.session(), route.door.url, front_uploads.folder_of(key), picture)
        self._know(key.name, file)
        return web.json_response(dict(zip(("name", "subfolder", "type"), file, strict=True)))

    # --- as it goes -----------------------------------------------------------------------------------------------

    async def ws(self, request: web.Request) -> web.StreamResponse:
        """The service's messages for one client id. Ids are a caller's own, so that nobody hears another's."""
        key, route = self._asked(request)
        client = request.query.get("clientId", "")
        if not client or len(client) > 128 or not client.isascii():
            raise Refused(400, "client_missing", "the request names no `clientId`")
        if len(self._listening) >= limits.FRONT_SOCKETS:
            raise Refused(503, "overloaded", "too many listen here already", LATER)
        down = web.WebSocketResponse(heartbeat=30)
        self._listening.add(down)
        try:
            url, ours = f"{route.door.url}/ws", client_of(key, client)
            async with self.session().ws_connect(url, params={"clientId": ours}, max_msg_size=0) as up:
                await down.prepare(request)
                await _pump(up, down, (ours, client))
                return down
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Refused(502, "engine_unreachable", "the service does not answer", LATER) from error
        finally:
            self._listening.discard(down)

    # --- small things ---------------------------------------------------------------------------------------------

    def _asked(self, request: web.Request) -> tuple[GatewayKey, Route]:
        """Who asks, and where: also of a model that drains, since what is in flight there is fetched from there."""
        key = self._front.caller(request)
        return key, self._front.standing(key, request.match_info["model"], API)

    def learn(self, caller: str, found: Place) -> None:
        for file in found.files():
            self._know(caller, file)

    def _know(self, caller: str, file: tuple[str, str, str]) -> None:
        self._made[(caller, *file)] = None
        self._made.move_to_end((caller, *file))
        while len(self._made) > limits.FRONT_FILES_KNOWN:
            self._made.popitem(last=False)

    def session(self) -> aiohttp.ClientSession:
        assert self._http is not None  # the front opens it before it listens
        return self._http


def client_of(key: GatewayKey, client: str) -> str:
    return sha256(f"{key.name}\0{client}".encode()).hexdigest()[:32]


def _is_own(owner: Any, key: GatewayKey) -> bool:
    return isinstance(owner, dict) and owner.get("caller") == key.name


async def _pump(up: aiohttp.ClientWebSocketResponse, down: web.WebSocketResponse, ids: tuple[str, str]) -> None:
    """Messages down until either side ends. What a client says is not passed on: it has nothing to say there."""

    async def listen() -> None:
        async for _ in down:
            pass

    listening = asyncio.ensure_future(listen())
    try:
        while not listening.done():
            coming = asyncio.ensure_future(up.receive())
            await asyncio.wait((coming, listening), return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                return
            message = coming.result()
            if message.type is aiohttp.WSMsgType.TEXT:
                await down.send_str(message.data.replace(*ids))
            elif message.type is aiohttp.WSMsgType.BINARY:
                await down.send_bytes(message.data)
            else:
                return
    except (ConnectionError, RuntimeError):
        return  # the client has gone
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        with contextlib.suppress(ConnectionError, RuntimeError):
            await down.close()
