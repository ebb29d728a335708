"""The front's side of ComfyUI: prompts in, results out, under the same keys, admission, drain fence and count.

    POST /comfyui/MODEL/prompt           {"prompt": {...}, "client_id": "..."}
    GET  /comfyui/MODEL/history/ID       GET /comfyui/MODEL/view?filename=...&subfolder=...&type=...
    GET  /comfyui/MODEL/queue            POST /comfyui/MODEL/queue {"delete": ["ID"]}
    POST /comfyui/MODEL/interrupt {"prompt_id": "ID"}            POST /comfyui/MODEL/upload/image (a form)
    GET  /comfyui/MODEL/ws?clientId=...  (each also with /api, as the service has it)

MODEL is any id that the residency serves; the rest is the service's own API. A prompt is in flight until it has left
the service's queue, not until its request is answered. What a caller asks of its own prompts is in `front_results`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import aiohttp
from aiohttp import web

from gridops.base import limits
from gridops.base.ids import Digest
from gridops.protocol.messages import GatewayKey
from gridops_agent import front_asked
from gridops_agent.engines import comfyui_prompts as comfy
from gridops_agent.engines.asking import question
from gridops_agent.engines.comfyui_prompts import MARK, Stands
from gridops_agent.front_asked import Refused
from gridops_agent.front_outcomes import UNREACHABLE
from gridops_agent.front_results import API, LATER, Results, client_of

if TYPE_CHECKING:
    from gridops_agent.front import Front, Route

POLL_S = 0.5
_SUBMIT = aiohttp.ClientTimeout(total=30)
_ID = "{id:[A-Za-z0-9-]{1,64}}"


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
        self._results = Results(front)
        self._works: set[asyncio.Task[None]] = set()
        self._waiting: Counter[Digest] = Counter()
        self._done: OrderedDict[str, str] = OrderedDict()
        """Runs of ours in services' histories, oldest first, with their address."""

    def add(self, app: web.Application) -> None:
        """The paths. A model's id may hold what a path segment can."""
        for prefix in ("/comfyui/{model}", "/comfyui/{model}/api"):
            app.router.add_post(f"{prefix}/prompt", self._prompt)
            app.router.add_get(f"{prefix}/history/{_ID}", self._results.history)
            app.router.add_get(f"{prefix}/view", self._results.view)
            app.router.add_get(f"{prefix}/queue", self._results.queue)
            app.router.add_post(f"{prefix}/queue", self._results.delete)
            app.router.add_post(f"{prefix}/interrupt", self._results.interrupt)
            app.router.add_post(f"{prefix}/upload/image", self._results.upload)
            app.router.add_get(f"{prefix}/ws", self._results.ws)

    def open(self) -> None:
        self._results.open()

    async def hang_up(self) -> None:
        """Whoever listens is told that this host leaves."""
        await self._results.hang_up()

    async def close(self) -> None:
        """Watch no more. What is queued goes on; whoever asks next counts the service's own queue."""
        for work in self._works:
            work.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)
        await self._results.close()

    # --- a prompt -------------------------------------------------------------------------------------------------

    async def _prompt(self, request: web.Request) -> web.Response:
        front, http = self._front, self._results.session()
        key = front.caller(request)
        asked = front_asked.parsed(await front.body(request))
        graph = asked.get("prompt")
        if not isinstance(graph, dict) or not graph:
            raise Refused(400, "prompt_missing", "the request holds no `prompt`: a workflow in the API's form")
        route = front.choose(key, request.match_info["model"], API)
        if self._waiting[route.body] >= limits.FRONT_PROMPTS:
            raise Refused(503, "overloaded", "too many prompts wait there already", LATER)
        # No await between the choice and the count: a drain that begins in between would not see this prompt.
        front.flights.began(route.body)
        self._waiting[route.body] += 1
        sent = _Sent(route, str(uuid4()), {}, front.outcomes.began(route.body))
        try:
            workflow = await comfy.approved(http, route.door)
            if workflow is None:
                front.outcomes.ended(route.body, UNREACHABLE)
                raise Refused(502, "engine_unreachable", "the service does not say which workflow it holds", LATER)
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
                    self._results.session(), f"{sent.route.door.url}/prompt", send=sent.body, patience=_SUBMIT
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
                    answered.set_exception(Refused(503, "leaving", "this host is leaving", LATER))
            await self._until_done(sent, caller)
        finally:
            if answered.done() and not answered.cancelled():
                answered.exception()  # the client may have gone: nobody else looks at it
            self._left(sent)

    async def _until_done(self, sent: _Sent, caller: str) -> None:
        """Whoever did not answer may still have queued it, and one that is silent may run it: both are looked at."""
        while any(route.body == sent.route.body for route in self._front.table.routes):
            found = await comfy.place(self._results.session(), sent.route.door, sent.name)
            if found.stands is Stands.GONE:
                return
            if found.stands is Stands.DONE:
                self._front.outcomes.ended(sent.route.body, 507 if found.lacked_memory else 200)
                self._results.learn(caller, found)
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
            await question(self._results.session(), f"{url}/history", send={"delete": [name]})


def _signed(asked: dict[str, Any], name: str, key: GatewayKey) -> dict[str, Any]:
    """What goes to the service: nothing but the graph, under our name and the caller's mark; no place in the queue."""
    extra = asked.get("extra_data")
    client = asked.get("client_id")
    said = {"prompt": asked["prompt"], "prompt_id": name, "extra_data": {}}
    said["extra_data"] = {**(extra if isinstance(extra, dict) else {}), MARK: {"caller": key.name}}
    return said | ({"client_id": client_of(key, client)} if isinstance(client, str) and client else {})
