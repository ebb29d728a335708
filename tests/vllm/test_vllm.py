"""The real vLLM on a CPU: the same contract as every engine, its key unseen, and its processes ended as a group."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import aiohttp
import psutil
import pytest

from gridops.model.profile import Artifact
from gridops.protocol.qualification import Found
from gridops_agent.qualify_setup import Wish, qualify
from tests.agent.engine_contract import (
    KEY,
    as_child,
    declares_honestly,
    door_of,
    lives_as_promised,
    status_of,
    until,
    writes_a_safe_command,
)
from tests.agent.site import Site
from tests.builders.tiny_gguf import Made
from tests.vllm.real import PYTHON, case, model, start_of


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model")


@pytest.fixture(scope="module")
def artifact(where: Path) -> Artifact:
    return model(where)


def test_it_declares_what_it_takes(artifact: Artifact, where: Path, tmp_path: Path) -> None:
    declares_honestly(case(artifact, where), tmp_path)
    writes_a_safe_command(case(artifact, where), tmp_path)
    assert [r.backend for r in case(artifact, where).engine.runtimes()] == ["cpu"]


async def test_it_lives_as_promised(artifact: Artifact, where: Path, tmp_path: Path) -> None:
    await lives_as_promised(case(artifact, where), tmp_path)


async def test_its_key_is_seen_nowhere_and_term_lets_work_end(artifact: Artifact, where: Path, tmp_path: Path) -> None:
    this = case(artifact, where)
    start = this.start(tmp_path)
    door = door_of(start)
    async with aiohttp.ClientSession() as http, as_child(this.engine, start, tmp_path):
        await until(lambda: this.engine.listed(http, door), "vLLM", tmp_path)
        group = _group(str(start.key_file))
        assert len(group) >= 2, "the API and its engine core are processes of their own"
        for process in group:
            for seen in ("cmdline", "environ"):
                assert KEY.encode() not in Path(f"/proc/{process.pid}/{seen}").read_bytes(), (process, seen)
        asked = asyncio.ensure_future(status_of(http, door, {"max_tokens": 60, "ignore_eos": True}))
        while not await this.engine.busy(http, door):
            await asyncio.sleep(0.05)
        group[0].terminate()
        assert await asked == 200, "a short request ends although TERM came"
    _, left = await asyncio.to_thread(psutil.wait_procs, group, 10)
    assert left == [], "what the API process left behind goes with its group"


def _group(word: str) -> list[psutil.Process]:
    """The process whose command names a file, and all that it started."""
    first = next(p for p in psutil.process_iter(["cmdline"]) if word in (p.info["cmdline"] or ()))
    return [first, *first.children(recursive=True)]


async def test_it_is_qualified_by_its_whole_life_and_measured_over_all_its_processes(
    artifact: Artifact, where: Path, tmp_path: Path
) -> None:
    site = Site(tmp_path / "state", Made(path=where / "model.safetensors", sha256="0" * 64, size=1)).join()
    site.config = replace(site.config, engine_command={"vllm": (PYTHON, "-P")})
    args = start_of(tmp_path, artifact, where).launch.args
    wish = Wish(engine="vllm", model=str(where), context=4_096, lanes=2, args=args, settle_ms=1_000)
    seen: list[Found] = []
    try:
        made = await qualify(site.config, wish, "0.1.0", seen.append)
    finally:
        site.end()
    assert all(found.passed for found in seen), seen
    assert made.outcome.passed
    (reading,) = made.outcome.readings
    assert reading.own_bytes > 1 << 30, "the weights and the cache lie in a process that the API process started"
