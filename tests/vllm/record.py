"""Records what a real vLLM says, for the double that stands for it where it is not installed.

    TEST_VLLM_PYTHON=... python -m tests.vllm.record

Writes tests/agent/recorded/vllm.json: each question of the adapter with status, headers that matter and body, idle and
busy. The key is replaced before anything is written.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

from gridops_agent.engines.base import Door
from tests.agent.engine_contract import KEY, door_of, status_of, until
from tests.vllm.real import PYTHON, case, model

TARGET = Path(__file__).parents[1] / "agent" / "recorded" / "vllm.json"
PATHS = ("/health", "/v1/models", "/metrics", "/version", "/load")
KEPT = ("vllm:num_requests", "vllm:cache_config_info", "vllm:kv_cache_usage_perc")


async def answer(
    http: aiohttp.ClientSession, door: Door, path: str, key: str | None, send: Any = None
) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
    async with http.request("GET" if send is None else "POST", door.url + path, headers=headers, json=send) as said:
        body = (await said.text()).replace(KEY, "<key>")
        if path == "/metrics":
            body = "".join(line + "\n" for line in body.splitlines() if line.startswith(KEPT))
        return {"status": said.status, "type": said.content_type, "body": body}


async def record() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        where, folder = Path(scratch) / "model", Path(scratch) / "run"
        folder.mkdir()
        this = case(model(where), where)
        start = this.start(folder)
        door = door_of(start)
        async with aiohttp.ClientSession() as http, this.serve(this.engine, start, folder):
            await until(lambda: this.engine.listed(http, door), "vLLM", folder)
            chat = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
            wrong = {**chat, "model": "other"}
            found: dict[str, Any] = {
                "about": this.engine.about(),  # type: ignore[attr-defined]
                "idle": {path: await answer(http, door, path, KEY) for path in PATHS},
                "keyless": {path: await answer(http, door, path, None) for path in PATHS},
                "wrong_key": {path: await answer(http, door, path, "wrong") for path in PATHS},
                "chat": await answer(http, door, "/v1/chat/completions", KEY, chat),
                "chat_keyless": await answer(http, door, "/v1/chat/completions", None, chat),
                "wrong_model": await answer(http, door, "/v1/chat/completions", KEY, wrong),
            }
            asked = asyncio.ensure_future(status_of(http, door, this.busy_request))
            while not await this.engine.busy(http, door):
                await asyncio.sleep(0.05)
            found["busy"] = {path: await answer(http, door, path, KEY) for path in PATHS}
            asked.cancel()
        return found


if __name__ == "__main__":
    assert PYTHON, "set TEST_VLLM_PYTHON"
    TARGET.write_text(json.dumps(asyncio.run(record()), indent=1, sort_keys=True) + "\n")
