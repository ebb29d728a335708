"""ComfyUI through the front: the same keys, admission, drain fence and count as for every engine, by its own API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gridops.base import limits
from gridops.base.ids import EngineName, ProfileName
from gridops.model.snapshot import HostState
from gridops.protocol.messages import GatewayKey, Outcome
from gridops_agent.core.protection import Verdict
from gridops_agent.front import Front, Route, Table
from gridops_agent.keep.ways import Ways
from tests.agent.callers import BODY, MINE, client, front_alone
from tests.agent.engine_doubles import ComfyUi, listening
from tests.agent.site import KEYS, Site, command, done, free_ports, held_of, receipt, until
from tests.agent.test_services import comfy_start, comfyui, manifest

APIS = {EngineName("comfyui"): "comfyui"}
OTHER_KEY = "another-gateway"
THEIRS = {"Authorization": f"Bearer {OTHER_KEY}"}
GRAPH = {
    "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "tiny.safetensors"}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "mine"}},
}
PICTURE = {"2": {"images": [{"filename": "a.png", "subfolder": "", "type": "output"}]}}


@dataclass
class Office:
    """A front before a ComfyUI that holds the approved workflow of `chat`, served as `pictures` too."""

    front: Front
    http: aiohttp.ClientSession
    double: ComfyUi
    route: Route

    async def send(self, headers: dict[str, str] = MINE, model: str = "pictures", **more: Any) -> tuple[int, Any]:
        asked = {"prompt": GRAPH, "client_id": "me"} | more
        async with self.http.post(f"/comfyui/{model}/prompt", json=asked, headers=headers) as answer:
            return answer.status, await answer.json()

    async def get(self, path: str, headers: dict[str, str] = MINE) -> tuple[int, Any]:
        async with self.http.get(f"/comfyui/pictures/{path}", headers=headers) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def office(site: Site, folder: Path) -> AsyncIterator[Office]:
    scene = comfyui(folder)
    assert isinstance(scene.double, ComfyUi)
    served = Route(BODY, ProfileName("chat"), ("chat", "pictures"), scene.door, admitting=True)
    other = GatewayKey(name="other", sha256=f"sha256:{sha256(OTHER_KEY.encode()).hexdigest()}")  # type: ignore[arg-type]
    async with scene.up() as direct, front_alone(site, Table((served,), (*KEYS, other)), APIS) as (front, http):
        await scene.service.bring(direct, scene.start)
        scene.double.sent.clear()
        scene.double.hold = True
        yield Office(front, http, scene.double, served)


async def test_a_prompt_is_in_flight_until_it_has_left_the_queue_and_its_picture_is_fetched(
    site: Site, tmp_path: Path
) -> None:
    async with office(site, tmp_path) as at:
        status, said = await at.send()
        name = said["prompt_id"]
        assert (status, said["node_errors"]) == (200, {})
        assert at.front.in_flight[BODY] == 1, "its answer is no end of it"
        assert await at.get(f"history/{name}") == (200, {}), "as the service says of one that has not ended"
        _, rows = await at.get("api/queue")
        assert [row[1] for row in rows["queue_running"]] == [name]
        await asyncio.sleep(0.7)
        assert at.front.in_flight[BODY] == 1
        await at.double.finish(name, outputs=PICTURE)
        await until(lambda: at.front.in_flight == {}, "the prompt to be over")
        _, past = await at.get(f"history/{name}")
        assert past[name]["outputs"] == PICTURE
        async with at.http.get("/comfyui/pictures/view?filename=a.png&type=output") as answer:
            assert (answer.status, await answer.read()) == (200, b"\x89PNG")
            assert answer.headers["Content-Type"] == "image/png"
        assert at.front.outcomes.counts()[BODY] == (1, 0)


async def test_nothing_but_the_graph_goes_on_and_every_prompt_carries_its_callers_mark(
    site: Site, tmp_path: Path
) -> None:
    async with office(site, tmp_path) as at:
        forged = {"gridops": {"caller": "other"}, "extra_pnginfo": {"x": 1}}
        await at.send(front=True, number=-5, prompt_id="mine", extra_data=forged)
        (sent,) = at.double.sent
        assert set(sent) == {"prompt", "prompt_id", "extra_data", "client_id"}
        assert sent["prompt_id"] != "mine"
        assert sent["client_id"] != "me", "another caller's `me` is another one"
        assert sent["extra_data"] == {"extra_pnginfo": {"x": 1}, "gridops": {"caller": KEYS[0].name}}


async def test_a_caller_sees_nothing_of_anothers_prompts(site: Site, tmp_path: Path) -> None:
    async with office(site, tmp_path) as at:
        _, said = await at.send()
        name = said["prompt_id"]
        _, rows = await at.get("queue", THEIRS)
        assert rows == {"queue_running": [], "queue_pending": []}
        await at.double.finish(name, outputs=PICTURE)
        await until(lambda: at.front.in_flight == {})
        assert await at.get(f"history/{name}", THEIRS) == (200, {})
        status, said = await at.get("view?filename=a.png&type=output", THEIRS)
        assert (status, said["error"]["code"]) == (404, "not_found")
        ours = next(iter(at.double.history))
        assert await at.get(f"history/{ours}") == (200, {}), "the run that brought the workflow is nobody's"
        assert (await at.get("queue", {"Authorization": ""}))[0] == 401


async def test_what_is_not_of_the_approved_workflow_is_refused(site: Site, tmp_path: Path) -> None:
    async with office(site, tmp_path) as at:
        foreign = GRAPH | {"1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "big.safetensors"}}}
        other = GRAPH | {"9": {"class_type": "UNETLoader", "inputs": {}}}
        for graph, words in ((foreign, "big.safetensors"), (other, "UNETLoader")):
            status, said = await at.send(prompt=graph)
            assert (status, said["error"]["code"]) == (400, "not_approved")
            assert words in said["error"]["message"]
        for graph in ({}, [], None):
            assert (await at.send(prompt=graph))[0] == 400
        assert at.double.sent == []
        assert at.front.in_flight == {}
        assert at.front.outcomes.admits(BODY), "what a client did wrong withdraws nothing"


async def test_a_drain_admits_nothing_new_and_what_is_in_flight_is_still_fetched(site: Site, tmp_path: Path) -> None:
    async with office(site, tmp_path) as at:
        _, said = await at.send()
        at.front.table = replace(at.front.table, routes=(replace(at.route, admitting=False),))
        status, refused = await at.send()
        assert (status, refused["error"]["code"]) == (503, "model_draining")
        assert at.front.in_flight[BODY] == 1, "the drain waits for it"
        await at.double.finish(said["prompt_id"], outputs=PICTURE)
        await until(lambda: at.front.in_flight == {})
        assert (await at.get(f"history/{said['prompt_id']}"))[1] != {}
        at.front.table = replace(at.front.table, routes=(at.route,))
        at.front.verdict = Verdict(state=HostState.PAUSED)
        assert (await at.send())[1]["error"]["code"] == "host_paused"


async def test_a_service_that_falls_silent_keeps_its_prompts_in_flight_until_it_is_gone(
    site: Site, tmp_path: Path
) -> None:
    async with office(site, tmp_path) as at:
        await at.send()
        at.double.mute = True
        await asyncio.sleep(1.2)
        assert at.front.in_flight[BODY] == 1, "unknown is busy"
        at.front.table = replace(at.front.table, routes=())
        await until(lambda: at.front.in_flight == {}, "nobody to count for a residency that is gone")


async def test_what_waits_is_taken_back_by_its_owner_alone_and_what_runs_is_not_cut(site: Site, tmp_path: Path) -> None:
    async with office(site, tmp_path) as at:
        first, second = [(await at.send())[1]["prompt_id"] for _ in range(2)]
        for headers in (THEIRS, MINE):
            async with at.http.post("/comfyui/chat/queue", json={"delete": [first, second]}, headers=headers) as answer:
                assert answer.status == 200
            if headers is THEIRS:
                assert at.double.pending == [second]
        await until(lambda: at.front.in_flight[BODY] == 1, "the one that waited to be gone")
        assert (at.double.running, at.double.pending) == ([first], [])


async def test_so_many_prompts_wait_and_no_more(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FRONT_PROMPTS", 2)
    async with office(site, tmp_path) as at:
        assert [(await at.send())[0] for _ in range(3)] == [200, 200, 503]
        assert at.front.in_flight[BODY] == 2


async def test_want_of_memory_is_the_hosts_fault_and_other_errors_may_be_the_prompts(
    site: Site, tmp_path: Path
) -> None:
    async with office(site, tmp_path) as at:
        for kind, faults in (("ValueError", 0), ("torch.cuda.OutOfMemoryError", 1), ("torch.OutOfMemoryError", 2)):
            _, said = await at.send()
            error = ["execution_error", {"node_id": "1", "exception_type": kind}]
            status = {"status_str": "error", "completed": False, "messages": [error]}
            await at.double.finish(said["prompt_id"], status=status)
            await until(lambda: at.front.in_flight == {})
            assert at.front.outcomes.counts()[BODY][1] == faults
        assert (await at.send())[1]["error"]["code"] == "model_failing"


async def test_messages_reach_the_client_they_are_for_and_nobody_else(site: Site, tmp_path: Path) -> None:
    async with office(site, tmp_path) as at:
        path = "/comfyui/pictures/ws?clientId=me"
        async with at.http.ws_connect(path) as mine, at.http.ws_connect(path, headers=THEIRS) as theirs:
            assert (await mine.receive_json())["data"]["sid"] == "me"
            assert (await theirs.receive_json())["type"] == "status"
            _, said = await at.send()
            await at.double.finish(said["prompt_id"])
            told = await mine.receive_json(timeout=5)
            assert told == {"type": "executing", "data": {"node": None, "prompt_id": said["prompt_id"]}}
            with pytest.raises(TimeoutError):
                await theirs.receive(timeout=0.3)
            await at.front.close()
            assert (await mine.receive(timeout=5)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)


async def test_each_api_is_asked_in_its_own_way(site: Site, tmp_path: Path) -> None:
    async with office(site, tmp_path) as at:
        async with at.http.post("/v1/chat/completions", json={"model": "pictures"}) as answer:
            said = (await answer.json())["error"]
            assert (answer.status, said["code"]) == (400, "wrong_api")
            assert "/comfyui/pictures" in said["message"]
        assert (await at.send(model="nobody"))[0] == 404
        assert at.front.outcomes.admits(BODY)
        chat = replace(at.route, door=replace(at.route.door, launch=None))
        at.front.table = replace(at.front.table, routes=(chat,))
        status, refused = await at.send()
        assert (status, refused["error"]["code"]) == (400, "wrong_api")


async def test_old_runs_of_callers_leave_the_history_and_the_one_that_brought_the_workflow_stays(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FRONT_PROMPTS_KEPT", 2)
    async with office(site, tmp_path) as at:
        brought, at.double.hold = next(iter(at.double.history)), False
        names = [(await at.send())[1]["prompt_id"] for _ in range(4)]
        await until(lambda: at.front.in_flight == {})
        assert list(at.double.history) == [brought, *names[-2:]]


async def test_a_drain_of_a_real_agent_waits_for_the_queue_and_its_unload_gives_the_memory_back(
    site: Site, tmp_path: Path
) -> None:
    double, port = ComfyUi(), free_ports(1)[0]
    artifact, ways = (
        comfy_start(manifest(tmp_path)).launch.artifact,
        Ways(services={"comfyui": f"http://127.0.0.1:{port}"}),
    )
    site.config = replace(site.config, ways=ways, artifact_folders=(tmp_path,))
    launch = replace(
        site.launch(), engine=EngineName("comfyui"), artifact=artifact, context=1, lanes=1, args=(), backend="cpu"
    )
    async with listening(double.app(), port), site.agent() as agent, client(agent) as http:
        body = await command(agent, site, site.warm(launch=launch))
        made = await receipt(agent, body)
        assert made.outcome is Outcome.SUCCEEDED, made
        double.hold = True
        async with http.post("/comfyui/tiny/prompt", json={"prompt": GRAPH}) as answer:
            assert answer.status == 200, await answer.text()
            name = (await answer.json())["prompt_id"]
        drained = await command(agent, site, site.drain(body, grace_ms=60_000))
        await until(lambda: held_of(agent, body).state.value == "draining")
        async with http.post("/comfyui/tiny/prompt", json={"prompt": GRAPH}) as answer:
            assert (await answer.json())["error"]["code"] == "model_draining"
        await asyncio.sleep(1)
        assert drained in agent.memory.host.commands, "the drain is not over while the prompt runs"
        await double.finish(name, outputs=PICTURE)
        assert (await receipt(agent, drained)).outcome is Outcome.SUCCEEDED
        assert (await done(agent, site, site.unload(body))).outcome is Outcome.SUCCEEDED
        assert double.used == 0
