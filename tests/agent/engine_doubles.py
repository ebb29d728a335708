"""Servers that stand for engines and services we cannot install here: real HTTP, with state, by what is documented.

vLLM replays what a real one said (`recorded/vllm.json`, made by `tests.vllm.record`). SGLang, Ollama and ComfyUI follow
their published API references. Each refuses what the real one refuses; a question that the reference does not name is
404, so that an adapter which asks for something undocumented fails its contract.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

RECORDED = json.loads((Path(__file__).parent / "recorded" / "vllm.json").read_text())


@contextlib.asynccontextmanager
async def listening(app: web.Application, port: int) -> AsyncIterator[None]:
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield
    finally:
        await runner.cleanup()


class Vllm:
    """Replays the recording; busy while a long request is open."""

    def __init__(self, key: str, alias: str = "tiny", context: int = 1024) -> None:
        self.key, self.alias, self.context = key, alias, context
        self.open = 0
        self.pages = {"idle": RECORDED["idle"], "busy": RECORDED["busy"]}

    def app(self) -> web.Application:
        app = web.Application()
        for path in RECORDED["idle"]:
            app.router.add_get(path, self.page)
        app.router.add_post("/v1/chat/completions", self.chat)
        return app

    def _allowed(self, request: web.Request) -> bool:
        return request.headers.get("Authorization") == f"Bearer {self.key}"

    async def page(self, request: web.Request) -> web.Response:
        said = self.pages["busy" if self.open else "idle"][request.path]
        if not self._allowed(request):
            said = RECORDED["wrong_key"][request.path]
        body = said["body"]
        if request.path == "/v1/models" and said["status"] == 200:
            rows = json.loads(body)
            rows["data"][0] |= {"id": self.alias, "max_model_len": self.context}
            body = json.dumps(rows)
        return web.Response(status=said["status"], text=body, content_type=said["type"] or "text/plain")

    async def chat(self, request: web.Request) -> web.Response:
        asked = await request.json()
        said = RECORDED["chat"] if self._allowed(request) else RECORDED["chat_keyless"]
        if self._allowed(request) and asked.get("model") != self.alias:
            said = RECORDED["wrong_model"]
        elif self._allowed(request) and asked.get("max_tokens", 0) > 100:
            self.open += 1
            try:
                await _until_left(request)
            finally:
                self.open -= 1
        return web.Response(status=said["status"], text=said["body"], content_type=said["type"])


class Sglang:
    """By the reference of SGLang: /health, OpenAI routes behind the key, Prometheus names with `sglang:`."""

    def __init__(self, key: str, alias: str, context: int) -> None:
        self.key, self.alias, self.context, self.open = key, alias, context, 0

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._key])
        app.router.add_get("/health", self.health)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_post("/v1/chat/completions", self.chat)
        return app

    @web.middleware
    async def _key(self, request: web.Request, handler: Any) -> web.StreamResponse:
        allowed = request.headers.get("Authorization") == f"Bearer {self.key}"
        if not allowed and not request.path.startswith(("/health", "/metrics")):
            return web.json_response({"error": "Unauthorized"}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def models(self, request: web.Request) -> web.Response:
        row = {"id": self.alias, "object": "model", "owned_by": "sglang", "max_model_len": self.context}
        return web.json_response({"object": "list", "data": [row]})

    async def metrics(self, request: web.Request) -> web.Response:
        lines = [
            "# TYPE sglang:num_running_reqs gauge",
            f'sglang:num_running_reqs{{model_name="{self.alias}"}} {float(self.open)}',
            f'sglang:num_queue_reqs{{model_name="{self.alias}"}} 0.0',
        ]
        return web.Response(text="\n".join(lines) + "\n")

    async def chat(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if asked.get("max_tokens", 0) > 100:
            self.open += 1
            try:
                await _until_left(request)
            finally:
                self.open -= 1
        return web.json_response({"choices": [{"message": {"content": "hi"}}]})


async def _until_left(request: web.Request) -> None:
    """A generation lasts as long as its client waits for it."""
    while request.transport is not None and not request.transport.is_closing():
        await asyncio.sleep(0.02)


class Ollama:
    """By docs/api.md of Ollama: a store of tags with manifest digests, and what is in memory."""

    def __init__(self, context: int = 4096) -> None:
        self.context = context
        self.tags: dict[str, str] = {}
        self.memory: dict[str, str] = {}
        """Digest to the name by which it was brought: one manifest is in memory once."""
        self.registry: dict[str, str] = {}
        self.deleted = self.pulls = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api/version", self.version)
        app.router.add_get("/api/tags", self.list_tags)
        app.router.add_get("/api/ps", self.ps)
        app.router.add_post("/api/copy", self.copy)
        app.router.add_post("/api/pull", self.pull)
        app.router.add_post("/api/generate", self.generate)
        app.router.add_delete("/api/delete", self.delete)
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/chat/completions", self.chat)
        return app

    def full(self, name: str) -> str:
        return name if ":" in name else f"{name}:latest"

    async def version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "0.12.3"})

    async def list_tags(self, request: web.Request) -> web.Response:
        rows = [{"name": n, "model": n, "size": 1234, "digest": d, "details": {}} for n, d in self.tags.items()]
        return web.json_response({"models": rows})

    async def ps(self, request: web.Request) -> web.Response:
        rows = [
            {"name": n, "model": n, "size": 1234, "size_vram": 1234, "digest": d, "context_length": self.context,
             "expires_at": "2318-01-01T00:00:00Z"}
            for d, n in self.memory.items()
        ]  # fmt: skip
        return web.json_response({"models": rows})

    async def copy(self, request: web.Request) -> web.Response:
        asked = await request.json()
        source = self.tags.get(self.full(asked["source"]))
        if source is None:
            return web.json_response({"error": f'model "{asked["source"]}" not found'}, status=404)
        self.tags[self.full(asked["destination"])] = source
        return web.Response()

    async def pull(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.pulls += 1
        digest = self.registry.get(self.full(asked["model"]))
        if digest is None:
            return web.json_response({"error": "pull model manifest: file does not exist"}, status=500)
        self.tags[self.full(asked["model"])] = digest
        return web.json_response({"status": "success"})

    async def generate(self, request: web.Request) -> web.Response:
        asked = await request.json()
        name = self.full(asked["model"])
        digest = self.tags.get(name)
        if digest is None:
            return web.json_response({"error": f"model '{asked['model']}' not found"}, status=404)
        keep, prompt = asked.get("keep_alive"), asked.get("prompt", "")
        assert prompt == "", "the adapter never asks for text"
        if keep == 0:
            self.memory.pop(digest, None)
        else:
            self.memory.setdefault(digest, name)
        why = "unload" if keep == 0 else "load"
        return web.json_response({"model": name, "response": "", "done": True, "done_reason": why})

    async def delete(self, request: web.Request) -> web.Response:
        self.deleted += 1
        return web.Response()

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": n, "object": "model"} for n in self.tags]})

    async def chat(self, request: web.Request) -> web.Response:
        asked = await request.json()
        digest = self.tags.get(self.full(asked["model"]))
        if digest is None:
            return web.json_response({"error": {"message": "model not found"}}, status=404)
        self.memory.setdefault(digest, self.full(asked["model"]))
        return web.json_response({"choices": [{"message": {"content": "hi"}}]})


class ComfyUi:
    """By server.py and execution.py of ComfyUI: queue, prompt, history, object_info, view, messages, and memory that a
    run fills. A prompt is done at once, or with `hold` when `finish` says so."""

    def __init__(self, names: tuple[str, ...] = ("tiny.safetensors",)) -> None:
        self.names = names
        self.running: list[str] = []
        self.pending: list[str] = []
        self.rows: dict[str, list[Any]] = {}
        self.history: dict[str, dict[str, Any]] = {}
        self.sent: list[dict[str, Any]] = []
        self.sockets: dict[str, web.WebSocketResponse] = {}
        self.files = {("a.png", "", "output"): b"\x89PNG"}
        self.used = 0
        self.runs = 0
        self.broken = self.old = self.hold = self.mute = False
        self.version = "0.3.60"

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._muted])
        app.router.add_get("/system_stats", self.stats)
        app.router.add_get("/queue", self.queue)
        app.router.add_post("/queue", self.take_back)
        app.router.add_post("/interrupt", self.interrupt)
        app.router.add_post("/upload/image", self.upload)
        app.router.add_get("/object_info/{name}", self.info)
        app.router.add_post("/prompt", self.prompt)
        app.router.add_get("/history/{name}", self.past)
        app.router.add_post("/history", self.forget)
        app.router.add_get("/view", self.view)
        app.router.add_get("/ws", self.ws)
        app.router.add_post("/free", self.free)
        return app

    @web.middleware
    async def _muted(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.mute:
            return web.Response(status=500)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def take_back(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.pending = [name for name in self.pending if name not in asked.get("delete", ())]
        return web.Response()

    async def interrupt(self, request: web.Request) -> web.Response:
        """By name, or whoever runs; one older than 0.3.60 does not look at the name."""
        name = (json.loads(await request.text() or "{}")).get("prompt_id") if self.version >= "0.3.60" else None
        for running in [n for n in self.running if name in (None, n)]:
            error = ["execution_interrupted", {"prompt_id": running}]
            await self.finish(running, status={"status_str": "error", "completed": False, "messages": [error]})
        return web.Response()

    async def upload(self, request: web.Request) -> web.Response:
        post = await request.post()
        image, folder, kind = post["image"], str(post.get("subfolder", "")), str(post.get("type", "input"))
        assert isinstance(image, web.FileField)
        name, content = image.filename, image.file.read()
        stem, _, suffix = name.rpartition(".")
        count = 1
        while self.files.get((name, folder, kind), content) != content:
            name, count = f"{stem} ({count}).{suffix}", count + 1
        self.files[name, folder, kind] = content
        return web.json_response({"name": name, "subfolder": folder, "type": kind})

    async def view(self, request: web.Request) -> web.Response:
        asked = request.query
        found = self.files.get((asked["filename"], asked.get("subfolder", ""), asked.get("type", "output")))
        return web.Response(status=404) if found is None else web.Response(body=found, content_type="image/png")

    async def ws(self, request: web.Request) -> web.WebSocketResponse:
        socket, sid = web.WebSocketResponse(), request.query.get("clientId", "new")
        await socket.prepare(request)
        self.sockets[sid] = socket
        await socket.send_json(
            {"type": "status", "data": {"status": {"exec_info": {"queue_remaining": 0}}, "sid": sid}}
        )
        async for _ in socket:
            pass
        self.sockets.pop(sid, None)
        return socket

    async def finish(self, name: str, **more: Any) -> None:
        """What it does when a prompt has run: it leaves the queue for the history, and its client is told."""
        self.running, row = [n for n in self.running if n != name], self.rows.pop(name)
        entry = {"prompt": row, "outputs": {}, "status": {"status_str": "success", "completed": True, "messages": []}}
        self.history[name] = entry | more
        if self.pending:
            self.running.append(self.pending.pop(0))
        socket = self.sockets.get(row[3].get("client_id", ""))
        if socket is not None:
            await socket.send_json({"type": "executing", "data": {"node": None, "prompt_id": name}})

    async def stats(self, request: web.Request) -> web.Response:
        card = {"name": "cuda:0 Card", "type": "cuda", "index": 0, "vram_total": 24 << 30, "vram_free": 20 << 30,
                "torch_vram_total": self.used, "torch_vram_free": 0}  # fmt: skip
        return web.json_response({"system": {"os": "posix", "comfyui_version": self.version}, "devices": [card]})

    async def queue(self, request: web.Request) -> web.Response:
        rows = {
            "queue_running": [self.rows.get(n, [0, n]) for n in self.running],
            "queue_pending": [self.rows.get(n, [0, n]) for n in self.pending],
        }
        return web.json_response(rows)

    async def info(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        known: dict[str, dict[str, Any]] = {
            "CheckpointLoaderSimple": {"input": {"required": {"ckpt_name": [list(self.names), {}]}}},
            "UNETLoader": {"input": {"required": {"unet_name": ["COMBO", {"options": list(self.names)}]}}},
            "SaveImage": {"input": {"required": {"images": ["IMAGE", {}]}}},
        }
        return web.json_response({name: known[name]} if name in known else {})

    async def prompt(self, request: web.Request) -> web.Response:
        asked = await request.json()
        classes = {node["class_type"] for node in asked["prompt"].values()}
        if not classes <= {"CheckpointLoaderSimple", "UNETLoader", "SaveImage"}:
            error = {"type": "invalid_prompt", "message": "Cannot execute because a node is missing"}
            return web.json_response({"error": error, "node_errors": {}}, status=400)
        self.runs += 1
        name = str(asked.get("prompt_id", f"p{self.runs}")) if not self.old else f"p{self.runs}"
        self.used = 6 << 30
        self.sent.append(asked)
        extra = asked.get("extra_data", {}) | ({"client_id": asked["client_id"]} if "client_id" in asked else {})
        row = [self.runs, name, asked["prompt"], extra, []]
        if self.hold:
            self.rows[name] = row
            (self.pending if self.running else self.running).append(name)
            return web.json_response({"prompt_id": name, "number": self.runs, "node_errors": {}})
        self.history[name] = {
            "prompt": row,
            "status": {"status_str": "error" if self.broken else "success", "completed": True},
        }
        return web.json_response({"prompt_id": name, "number": self.runs, "node_errors": {}})

    async def past(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return web.json_response({name: self.history[name]} if name in self.history else {})

    async def forget(self, request: web.Request) -> web.Response:
        for name in (await request.json()).get("delete", ()):
            self.history.pop(name, None)
        return web.Response()

    async def free(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if asked.get("unload_models") and asked.get("free_memory") and not self.running:
            self.used = 0
        return web.Response()
