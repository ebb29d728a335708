"""Every adapter beside a server that says anything: a true answer bent in one place, or bytes of no meaning.

No question raises anything but what the contract names (a Refusal with its code, EngineSilent), and none answers with
a number that the server did not say: what works there is counted from what was told, or is unknown.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gridops.base.errors import Refusal
from gridops.base.record import to_bytes
from gridops_agent.engines import comfyui_prompts as prompts
from gridops_agent.engines.base import Adapter, Door, EngineSilent, Service, Start
from gridops_agent.engines.comfyui import ComfyUi, run_id
from gridops_agent.engines.llama_cpp import LlamaCpp
from gridops_agent.engines.ollama import Ollama
from gridops_agent.engines.sglang import Sglang
from gridops_agent.engines.vllm import Vllm
from gridops_agent.keep.external import External, asked
from tests.agent.engine_cases import folder_of_files, gguf
from tests.agent.engine_doubles import RECORDED, listening
from tests.agent.site import free_ports
from tests.agent.test_services import HELD, comfyui, ollama
from tests.attacks.test_wire_fuzz import bent, places

Pages = dict[str, Any]
MANY = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
RAW = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"", b"[]", b"{}", b"null", b"\xff", b'"x"', b"[" * 9_000, b"9" * 5_000, b'{"data":[{"id":[]}]}']),
)


@dataclass
class Liar:
    """A server that answers each path with its page. `bent` answers one of them otherwise."""

    port: int
    pages: Pages = field(default_factory=dict)
    lies: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{any:.*}", self.answer)
        return app

    async def answer(self, request: web.Request) -> web.Response:
        if request.path in self.lies:
            status, body = self.lies[request.path]
            return web.Response(status=status, body=body)
        page = self.pages.get(request.path)
        if page is None:
            return web.Response(status=404)
        if request.path == "/v1/models" and page.get("keyed") and "Authorization" not in request.headers:
            return web.Response(status=401)
        return web.Response(body=told(page))


def told(page: Any) -> bytes:
    return page.encode() if isinstance(page, str) else json.dumps(page).encode()


@dataclass
class Scene:
    """One adapter, what it was started with, and its server."""

    engine: Adapter
    start: Start
    liar: Liar
    runner: asyncio.Runner
    http: aiohttp.ClientSession

    @property
    def door(self) -> Door:
        return Door(port=self.liar.port, key="k", alias=self.start.alias, launch=self.start.launch)

    def says(self, question: Callable[[], Any]) -> Any:
        """An answer, or the kind of error that the contract allows."""
        try:
            return self.runner.run(question())
        except (Refusal, EngineSilent) as error:
            return error


def _served(folder: Path, engine: Adapter, start: Start, metrics: str) -> tuple[Adapter, Start, Pages]:
    models = {"keyed": 1, "data": [{"id": "tiny", "max_model_len": start.launch.context}]}
    return engine, start, {"/health": "", "/v1/models": models, "/metrics": metrics}


def _llama(folder: Path, port: int) -> tuple[Adapter, Start, Pages]:
    slots = [{"id": n, "n_ctx": 16_384, "is_processing": n == 0} for n in range(2)]
    pages = {
        "/health": {"status": "ok"},
        "/v1/models": {"data": [{"id": "tiny", "object": "model"}]},
        "/slots": slots,
        "/metrics": "# TYPE x gauge\nllamacpp:requests_deferred 3\nllamacpp:requests_processing 1\n",
    }
    return LlamaCpp(), gguf(folder), pages


def _ollama(folder: Path, port: int) -> tuple[Adapter, Start, Pages]:
    start = ollama(folder).start
    row = {"name": "llama3.2:3b", "model": "llama3.2:3b", "digest": HELD}
    ours = {**row, "name": f"{start.alias}:latest", "context_length": 4096}
    pages = {
        "/api/version": {"version": "0.11.0"},
        "/api/tags": {"models": [row, {**row, "name": f"{start.alias}:latest", "model": f"{start.alias}:latest"}]},
        "/api/ps": {"models": [ours]},
        "/v1/models": {"data": [{"id": f"{start.alias}:latest"}]},
        "/api/pull": {"status": "success"},
        "/api/copy": "",
        "/api/generate": {"done": True},
    }
    return Ollama(f"http://127.0.0.1:{port}"), start, pages


def _comfyui(folder: Path, port: int) -> tuple[Adapter, Start, Pages]:
    start = comfyui(folder).start
    graph = {"1": {"class_type": "UNETLoader", "inputs": {"unet_name": "tiny.safetensors"}}}
    name = run_id(start.alias, start.launch)
    entry = {"prompt": [1, name, graph, {}], "status": {"status_str": "success"}, "outputs": {"9": {"images": []}}}
    pages = {
        "/system_stats": {
            "system": {"comfyui_version": "0.3.60"},
            "devices": [{"type": "cuda", "torch_vram_total": 7 << 30, "torch_vram_free": 1 << 30}],
        },
        "/queue": {"queue_running": [[0, "a", graph, {}]], "queue_pending": [[1, "b", graph, {}]]},
        f"/history/{name}": {name: entry},
        "/object_info/UNETLoader": {
            "UNETLoader": {"input": {"required": {"unet_name": ["COMBO", {"options": ["tiny.safetensors"]}]}}}
        },
        "/object_info/CheckpointLoaderSimple": {
            "CheckpointLoaderSimple": {"input": {"required": {"ckpt_name": [["tiny.safetensors"], {}]}}}
        },
    }
    return ComfyUi(f"http://127.0.0.1:{port}"), start, pages


SGLANG = 'sglang:num_running_reqs{model_name="tiny"} 2.0\nsglang:num_queue_reqs{model_name="tiny"} 1.0\n'
MAKES: dict[str, Callable[[Path, int], tuple[Adapter, Start, Pages]]] = {
    "llama.cpp": _llama,
    "vllm": lambda f, _: _served(f, Vllm(), folder_of_files(f, "vllm"), RECORDED["busy"]["/metrics"]["body"]),
    "sglang": lambda f, _: _served(f, Sglang(), folder_of_files(f, "sglang"), SGLANG),
    "ollama": _ollama,
    "comfyui": _comfyui,
}


@pytest.fixture(scope="module", params=sorted(MAKES))
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    port = free_ports(1)[0]
    engine, start, pages = MAKES[request.param](tmp_path_factory.mktemp("engine"), port)
    liar = Liar(port, pages)
    with asyncio.Runner() as runner:
        server = listening(liar.app(), port)
        runner.run(server.__aenter__())
        http = runner.run(_session())
        yield Scene(engine, replace(start, port=port), liar, runner, http)
        runner.run(http.close())
        runner.run(server.__aexit__(None, None, None))


async def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()


@MANY
@given(st.data())
def test_whatever_a_server_says_no_question_breaks_and_no_number_is_made_up(scene: Scene, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(scene.liar.pages)))
    page = scene.liar.pages[path]
    if path == "/metrics":
        body = spoilt(page, data)
    elif isinstance(page, str) or data.draw(st.booleans()):
        body = data.draw(RAW)
    else:
        body = json.dumps(json.loads(bent({"page": page}, data)).get("page")).encode()
    scene.liar.lies = {path: (data.draw(st.sampled_from([200, 200, 200, 204, 500])), body)}
    _asks_everything(scene)


@pytest.mark.parametrize("odd", [[], {"a": 1}, -1, None, "\ud800", True], ids=repr)
def test_a_value_of_another_kind_anywhere_in_an_answer_breaks_nothing(scene: Scene, odd: Any) -> None:
    for path, page in sorted(scene.liar.pages.items()):
        whole = {"page": page}
        for way in [] if isinstance(page, str) else sorted(places(whole), key=repr):
            lie = json.loads(json.dumps(whole))
            inner = lie
            for key in way[:-1]:
                inner = inner[key]
            inner[way[-1]] = odd
            scene.liar.lies = {path: (200, json.dumps(lie["page"]).encode())}
            _asks_everything(scene)


def _asks_everything(scene: Scene) -> None:
    engine, http, door, liar = scene.engine, scene.http, scene.door, scene.liar
    assert scene.says(lambda: engine.listed(http, door)) in (True, False)
    busy = scene.says(lambda: engine.busy(http, door))
    assert busy is None or busy in counts(liar)
    if isinstance(engine, LlamaCpp | Vllm | Sglang):
        found = scene.says(lambda: engine.contradiction(http, door))
        assert found is None or isinstance(found, str | Refusal | EngineSilent)
    else:
        _asks_a_service(scene, engine)  # type: ignore[arg-type]
    seen = External(str(engine.name), 7, "boot:1", None, (), liar.port)
    for residency in scene.says(lambda: asked(http, seen)).residencies(""):
        to_bytes(residency)


def _asks_a_service(scene: Scene, engine: Service) -> None:
    http, door, start = scene.http, scene.door, scene.start
    alive = scene.says(lambda: engine.alive(http))
    assert alive is None or alive.encode("utf-8")
    assert all(len(digest) == 71 for digest in scene.says(lambda: engine.stored(http)))
    assert scene.says(lambda: engine.dropped(http, door)) in (True, False)
    for question in (lambda: engine.verify(http, start), lambda: engine.fetch(http, start.launch.artifact)):
        found = scene.says(question)
        assert found is None or isinstance(found, str | int | Refusal)
        if isinstance(found, Refusal):
            found.message.encode("utf-8")
    if isinstance(engine, Ollama):
        scene.says(lambda: engine.bring(http, start))
        return
    name = run_id(door.alias, door.launch) if door.launch is not None else ""
    place = scene.says(lambda: prompts.place(http, door, name))
    assert (place.owner, place.lacked_memory, tuple(place.files())) is not None
    scene.says(lambda: prompts.ends_by_name(http, door))
    graph = scene.says(lambda: prompts.approved(http, door))
    if graph is not None:
        prompts.strangers(graph, {"1": {"class_type": [], "inputs": {"a": "x.safetensors"}}, "2": 7})  # type: ignore[dict-item]


COUNTED = ("llamacpp:requests_deferred", "vllm:num_requests_running", "vllm:num_requests_waiting",
           "sglang:num_running_reqs", "sglang:num_queue_reqs")  # fmt: skip


def counts(liar: Liar) -> set[int]:
    """Every sum that the numbers of the pages as they are told now can be a count of."""
    said = {path: told(page) for path, page in liar.pages.items()} | {p: b for p, (_, b) in liar.lies.items()}
    if "/queue" in said:
        rows = _json(said["/queue"])
        return {len(rows["queue_running"]) + len(rows["queue_pending"])} if isinstance(rows, dict) else set()
    lines = [line.split() for line in said.get("/metrics", b"").decode("utf-8", "replace").splitlines()]
    words = [word for line in lines if line and line[0].partition("{")[0] in COUNTED for word in line[1:]]
    values = [round(float(word)) for word in words if word.replace(".", "", 1).isdecimal()]
    sums = {0}
    for value in values:
        sums |= {s + value for s in sums}
    slots = _json(said.get("/slots", b""))
    working = (
        sum(s.get("is_processing") is True for s in slots if isinstance(s, dict)) if isinstance(slots, list) else 0
    )
    return {s + working for s in sums}


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def spoilt(page: str, data: st.DataObject) -> bytes:
    """A page of metrics with a few lines changed at their end, which is where the number is."""
    lines = page.splitlines()
    for at in data.draw(st.lists(st.integers(0, len(lines) - 1), max_size=3)):
        end = data.draw(
            st.sampled_from(["", " NaN", " -1", " 12abc", " 4", " 0.5.1", " 1e400", " ²", "{", " 7 1796000000000"])
        )
        lines[at] = lines[at].rpartition(" ")[0] + end
    return "\n".join(lines).encode()


def test_slots_that_do_not_say_whether_they_work_are_not_idle(tmp_path: Path) -> None:
    """An engine of another build, without the field: counted as idle it would have been stopped over its work."""
    _, start, pages = _llama(tmp_path, 0)
    port = free_ports(1)[0]
    pages["/slots"] = [{"id": 0, "n_ctx": 16_384, "state": 1}, {"id": 1, "n_ctx": 16_384, "state": 0}]

    async def busy() -> int | None:
        async with listening(Liar(port, pages).app(), port), aiohttp.ClientSession() as http:
            return await LlamaCpp().busy(http, Door(port=port, key="k", alias="tiny", launch=start.launch))

    assert asyncio.run(busy()) is None
