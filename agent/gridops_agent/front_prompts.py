"""The front's side of ComfyUI: prompts in, results out, under the same keys, admission, drain fence and count.

    POST /comfyui/MODEL/prompt           {"prompt": {...}, "client_id": "..."}
    GET  /comfyui/MODEL/history/ID       GET /comfyui/MODEL/view?filename=...&subfolder=...&type=...
    GET  /comfyui/MODEL/queue            POST /comfyui/MODEL/queue {"delete": ["ID"]}
    POST /comfyui/MODEL/interrupt {"prompt_id": "ID"}            POST /comfyui/MODEL/upload/image (a form)
    GET  /comfyui/MODEL/ws?clientId=...  (each also with /api, as the service has it)

MODEL is any id that the residency serves; the rest is the service's own API. A prompt is in flight until it has left
the service's queue, not until its request is answered. A caller sees its own prompts and what they made, by a mark that
the service keeps with each run, and nothing of others'. Nothing is remembered over a restart: the service is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import aiohttp
from aiohttp import web

from gridops.base import limits
from gridops.base.ids import Digest
from gridops.protocol.messages import GatewayKey
from gridops_agent import front_asked, front_uploads
from gridops_agent.engines import comfyui_prompts as comfy
from gridops_agent.engines.asking import question
from gridops_agent.engines.comfyui_prompts import MARK, Place, Stands
from gridops_agent.front_asked import Refused
from gridops_agent.front_outcomes import UNREACHABLE

if TYPE_CHECKING:
    from gridops_agent.front import Front, Route

API = "comfyui"
POLL_S = 0.5
_SUBMIT = aiohttp.ClientTimeout(total=30)
_VIEW = aiohttp.ClientTimeout(total=None, connect=10, sock_read=60)
_ID = "{id:[A-Za-z0-9-]{1,64}}"
_LATER = {"Retry-After": "2"}


@dataclass(frozen=True, slots=True)
class _Sent:
    """A prompt on its way in."""

    route: Route
    name: str
    body: dict[str, Any]
    trial: bool


class Prompts:
    """One front's prompts."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._http: aiohttp.ClientSession | None = None
        self._works: set[asyncio.Task[None]] = set()
        self._waiting: Counter[Digest] = Counter()
        self._listening: set[web.WebSocketResponse] = set()
        self._made: OrderedDict[tuple[str, str, str, str], None] = OrderedDict()
        """Files that a caller's prompts made or that it sent, by the caller's name; the newest last."""
        self._done: OrderedDict[str, str] = OrderedDict()
        """Runs of ours in services' histories, oldest first, with their address."""

    def add(self, app: web.Application) -> None:
        """The paths. A model's id may hold what a path segment can."""
        for prefix in ("/comfyui/{model}", "/comfyui/{model}/api"):
            app.router.add_post(f"{prefix}/prompt", self._prompt)
            app.router.add_get(f"{prefix}/history/{_ID}", self._history)
            app.router.add_get(f"{prefix}/view", self._view)
            app.router.add_get(f"{prefix}/queue", self._queue)
            app.router.add_post(f"{prefix}/queue", self._delete)
            app.router.add_post(f"{prefix}/interrupt", self._interrupt)
            app.router.add_post(f"{prefix}/upload/image", self._upload)
            app.router.add_get(f"{prefix}/ws", self._ws)

    def open(self) -> None:
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False)

    async def hang_up(self) -> None:
        """Whoever listens is told that this host leaves, so that nobody waits for them."""
        for socket in tuple(self._listening):
            with contextlib.suppress(ConnectionError, RuntimeError):
                await socket.close(code=aiohttp.WSCloseCode.GOING_AWAY)

    async def close(self) -> None:
        """Watch no more. What is queued goes on; whoever asks next counts the service's own queue."""
        for work in self._works:
            work.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

    # --- a prompt -------------------------------------------------------------------------------------------------

    async def _prompt(self, request: web.Request) -> web.Response:
        front, http = self._front, self._session()
        key = front.caller(request)
        asked = front_asked.parsed(await front.body(request))
        graph = asked.get("prompt")
        if not isinstance(graph, dict) or not graph:
            raise Refused(400, "prompt_missing", "the request holds no `prompt`: a workflow in the API's form")
        route = front.choose(key, request.match_info["model"], API)
        if self._waiting[route.body] >= limits.FRONT_PROMPTS:
            raise Refused(503, "overloaded", "too many prompts wait there already", _LATER)
        # No await between the choice and the count: a drain that begins in between would not see this prompt.
        front.flights.began(route.body)
        self._waiting[route.body] += 1
        sent = _Sent(route, str(uuid4()), {}, front.outcomes.began(route.body))
        try:
            workflow = await comfy.approved(http, route.door)
            if workflow is None:
                front.outcomes.ended(route.body, UNREACHABLE)
                raise Refused(502, "engine_unreachable", "the service does not say which workflow it holds", _LATER)
            foreign = comfy.strangers(workflow, graph)
            if foreign is not None:
                raise Refused(400, "not_approved", foreign)
        except BaseException:
            self._left(sent)
            raise
        sent.body.update(_signed(asked, sent.name, key))
        answered: asyncio.Future[web.Response] = asyncio.get_running_loop().create_future()
        work = asyncio.ensure_future(self._work(sent, key.name, answered))
        self._works.add(work)
        work.add_done_callback(self._works.discard)
        return await asyncio.shield(answered)

    async def _work(self, sent: _Sent, caller: str, answered: asyncio.Future[web.Response]) -> None:
        """From the submission until the prompt has left the queue. The count is given back whatever happens."""
        try:
            try:
                said = await question(
                    self._session(), f"{sent.route.door.url}/prompt", send=sent.body, patience=_SUBMIT
                )
                if said is None:
                    self._front.outcomes.ended(sent.route.body, UNREACHABLE)
                    answered.set_exception(Refused(502, "engine_unreachable", "the service does not answer"))
                else:
                    answered.set_result(
                        web.Response(status=said.status, text=said.text, content_type="application/json")
                    )
                if said is not None and said.status != 200:
                    self._front.outcomes.ended(sent.route.body, said.status)
                    return
            finally:
                if not answered.done():
                    answered.set_exception(Refused(503, "leaving", "this host is leaving", _LATER))
            await self._until_done(sent, caller)
        finally:
            if answered.done() and not answered.cancelled():
                answered.exception()  # the client may have gone: nobody else looks at it
            self._left(sent)

    async def _until_done(self, sent: _Sent, caller: str) -> None:
        """Whoever did not answer may still have queued it, and one that is silent may run it: both are looked at."""
        while any(route.body == sent.route.body for route in self._front.table.routes):
            found = await comfy.place(self._session(), sent.route.door, sent.name)
            if found.stands is Stands.GONE:
                return
            if found.stands is Stands.DONE:
                self._front.outcomes.ended(sent.route.body, 507 if found.lacked_memory else 200)
                self._learn(caller, found)
                await self._tidy(sent)
                return
            await asyncio.sleep(POLL_S)

    def _left(self, sent: _Sent) -> None:
        body, front = sent.route.body, self._front
        front.outcomes.left(body, sent.trial)
        front.flights.left(body)
        self._waiting[body] -= 1
        if not self._waiting[body]:
            del self._waiting[body]

    async def _tidy(self, sent: _Sent) -> None:
        """Old runs leave the service's history: it forgets the oldest, which is the run that brought the workflow."""
        self._done[sent.name] = sent.route.door.url
        while len(self._done) > limits.FRONT_PROMPTS_KEPT:
            name, url = self._done.popitem(last=False)
            await question(self._session(), f"{url}/history", send={"delete": [name]})

    # --- questions about one's own prompts -------------------------------------------------------------------------

    async def _history(self, request: web.Request) -> web.Response:
        key, route, name = *self._asked(request), request.match_info["id"]
        found = await comfy.place(self._session(), route.door, name)
        if found.stands is Stands.UNKNOWN:
            raise Refused(502, "engine_unreachable", "the service does not answer", _LATER)
        if found.stands is not Stands.DONE or not _is_own(found.owner, key):
            return web.json_response({})  # as the service answers for one that has not ended, or is none
        self._learn(key.name, found)
        return web.json_response({name: found.entry})

    async def _view(self, request: web.Request) -> web.StreamResponse:
        key, route = self._asked(request)
        asked = request.query
        file = (asked.get("filename", ""), asked.get("subfolder", ""), asked.get("type", "output"))
        if (key.name, *file) not in self._made:
            raise Refused(404, "not_found", "no prompt of yours made that file here; ask for its history first")
        params = dict(zip(("filename", "subfolder", "type"), file, strict=True))
        try:
            upstream = await self._session().get(f"{route.door.url}/view", params=params, timeout=_VIEW)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Refused(502, "engine_unreachable", "the service does not answer", _LATER) from error
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

    async def _queue(self, request: web.Request) -> web.Response:
        key, route = self._asked(request)
        rows = await comfy.queue(self._session(), route.door)
        if rows is None:
            raise Refused(502, "engine_unreachable", "the service does not answer", _LATER)
        own = {
            part: [row for row in found if _is_own(Place(Stands.RUNS, row).owner, key)] for part, found in rows.items()
        }
        return web.json_response(own)

    async def _delete(self, request: web.Request) -> web.Response:
        """Takes back what waits; what runs is ended by an interrupt."""
        key, route = self._asked(request)
        names = front_asked.parsed(await self._front.body(request)).get("delete")
        wanted = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        for name in wanted[: limits.FRONT_PROMPTS]:
            found = await comfy.place(self._session(), route.door, name)
            if found.stands is Stands.WAITS and _is_own(found.owner, key):
                await question(self._session(), f"{route.door.url}/queue", send={"delete": [name]})
        return web.json_response({})

    async def _interrupt(self, request: web.Request) -> web.Response:
        """Ends the caller's own prompt that runs, by its id or whichever it is; the service answers 200 in any case.

        Only a service that ends a prompt by its name is asked: an older one would end whoever runs by then.
        """
        key, route = self._asked(request)
        body = await self._front.body(request)
        wanted = front_asked.parsed(body).get("prompt_id") if body.strip() else None
        rows = await comfy.queue(self._session(), route.door)
        exact = await comfy.ends_by_name(self._session(), route.door)
        if rows is None or exact is None:
            raise Refused(502, "engine_unreachable", "the service does not answer", _LATER)
        if not exact:
            raise Refused(
                501, "not_supported", f"this ComfyUI is older than {comfy.BY_NAME}: it might end another's prompt"
            )
        own = [row for row in rows["queue_running"] if _is_own(Place(Stands.RUNS, row).owner, key)]
        for row in own:
            if wanted in (None, row[1]):
                await question(self._session(), f"{route.door.url}/interrupt", send={"prompt_id": row[1]})
        return web.json_response({})

    async def _upload(self, request: web.Request) -> web.Response:
        """A picture for the caller's own prompts, named by its content and in a folder of the caller's."""
        front, key = self._front, self._front.caller(request)
        body = await front.body(request)
        route = front.choose(key, request.match_info["model"], API)
        picture = front_uploads.read(body, request.headers.get("Content-Type", ""))
        file = await front_uploads.send(self._session(), route.door.url, front_uploads.folder_of(key), picture)
        self._know(key.name, file)
        return web.json_response(dict(zip(("name", "subfolder", "type"), file, strict=True)))

    # --- as it goes -----------------------------------------------------------------------------------------------

    async def _ws(self, request: web.Request) -> web.StreamResponse:
        """The service's messages for one client id. Ids are a caller's own, so that nobody hears another's."""
        key, route = self._asked(request)
        client = request.query.get("clientId", "")
        if not client or len(client) > 128 or not client.isascii():
            raise Refused(400, "client_missing", "the request names no `clientId`")
        if len(self._listening) >= limits.FRONT_SOCKETS:
            raise Refused(503, "overloaded", "too many listen here already", _LATER)
        down = web.WebSocketResponse(heartbeat=30)
        self._listening.add(down)
        try:
            url, ours = f"{route.door.url}/ws", _client_of(key, client)
            async with self._session().ws_connect(url, params={"clientId": ours}, max_msg_size=0) as up:
                await down.prepare(request)
                await _pump(up, down, (ours, client))
                return down
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Refused(502, "engine_unreachable", "the service does not answer", _LATER) from error
        finally:
            self._listening.discard(down)

    # --- small things ---------------------------------------------------------------------------------------------

    def _asked(self, request: web.Request) -> tuple[GatewayKey, Route]:
        """Who asks, and where: also of a model that drains, since what is in flight there is fetched from there."""
        key = self._front.caller(request)
        return key, self._front.standing(key, request.match_info["model"], API)

    def _learn(self, caller: str, found: Place) -> None:
        for file in found.files():
            self._know(caller, file)

    def _know(self, caller: str, file: tuple[str, str, str]) -> None:
        self._made[(caller, *file)] = None
        self._made.move_to_end((caller, *file))
        while len(self._made) > limits.FRONT_FILES_KNOWN:
            self._made.popitem(last=False)

    def _session(self) -> aiohttp.ClientSession:
        assert self._http is not None  # the front opens it before it listens
        return self._http


def _signed(asked: dict[str, Any], name: str, key: GatewayKey) -> dict[str, Any]:
    """What goes to the service: nothing but the graph, under our name and the caller's mark; no place in the queue."""
    extra = asked.get("extra_data")
    client = asked.get("client_id")
    said = {"prompt": asked["prompt"], "prompt_id": name, "extra_data": {}}
    said["extra_data"] = {**(extra if isinstance(extra, dict) else {}), MARK: {"caller": key.name}}
    return said | ({"client_id": _client_of(key, client)} if isinstance(client, str) and client else {})


def _client_of(key: GatewayKey, client: str) -> str:
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
