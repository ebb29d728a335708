"""A real agent and the documented Ollama and ComfyUI: fetched into their own store, brought, asked, and taken out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from gridops.base.ids import EngineName
from gridops.protocol.messages import Outcome
from gridops_agent.keep.ways import Ways
from tests.agent import engine_doubles as doubles
from tests.agent.site import CLIENT_KEY, Site, command, done, receipt
from tests.agent.test_services import HELD, Scene, comfyui, ollama


def ways(site: Site, scene: Scene) -> None:
    site.config = replace(site.config, ways=Ways(services={scene.service.name: scene.service.address}))


def launch(site: Site, scene: Scene) -> object:
    made = replace(scene.start.launch, profile=site.launch().profile, config=site.launch().config, backend="cpu")
    return site.warm(launch=made)


async def test_ollama_is_filled_by_its_own_registry_and_serves_under_the_profiles_name(
    site: Site, tmp_path: Path
) -> None:
    scene = ollama(tmp_path)
    assert isinstance(scene.double, doubles.Ollama)
    del scene.double.tags["llama3.2:3b"]
    scene.double.registry["llama3.2:3b"] = HELD
    ways(site, scene)
    artifact = scene.start.launch.artifact
    async with scene.up(), site.agent() as agent:
        assert EngineName("ollama") in {r.engine for r in agent._readings().runtimes}
        failed = await done(agent, site, launch(site, scene))  # type: ignore[arg-type]
        assert (failed.outcome, failed.code) == (Outcome.FAILED, "no_artifact"), "a start fetches nothing"
        loaded = await done(agent, site, site.load(artifact=artifact))
        assert (loaded.outcome, loaded.fetched_bytes) == (Outcome.SUCCEEDED, 1234)
        assert (await done(agent, site, site.load(artifact=artifact))).fetched_bytes is None
        await agent._measure()
        assert artifact.files[0].sha256 in agent._readings().cached
        body = await command(agent, site, launch(site, scene))  # type: ignore[arg-type]
        made = await receipt(agent, body)
        assert made.outcome is Outcome.SUCCEEDED, made
        assert scene.double.memory == {HELD: "tiny:latest"}
        context = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(connector=context) as http:
            asked = {"model": "tiny-alias", "messages": []}
            headers = {"Authorization": f"Bearer {CLIENT_KEY}"}
            async with http.post(f"{agent.opened.endpoint}/v1/chat/completions", json=asked, headers=headers) as answer:
                assert answer.status == 200, "every served name is one that Ollama knows"
        assert (await done(agent, site, site.drain(body))).outcome is Outcome.SUCCEEDED
        assert (await done(agent, site, site.unload(body))).outcome is Outcome.SUCCEEDED
        assert scene.double.memory == {}
        assert scene.double.deleted == 0


async def test_ollama_whose_registry_moved_fails_the_load_with_both_digests(site: Site, tmp_path: Path) -> None:
    scene = ollama(tmp_path)
    assert isinstance(scene.double, doubles.Ollama)
    scene.double.tags["llama3.2:3b"] = "ef" * 32
    ways(site, scene)
    async with scene.up(), site.agent() as agent:
        loaded = await done(agent, site, site.load(artifact=scene.start.launch.artifact))
        assert (loaded.outcome, loaded.code) == (Outcome.FAILED, "wrong_digest")
        assert loaded.detail is not None
        assert "ef" * 32 in loaded.detail
        assert HELD in loaded.detail


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "tampered"])
async def test_a_workflow_is_proved_by_its_manifest_before_it_runs(site: Site, tmp_path: Path, whole: bool) -> None:
    (tmp_path / "flows").mkdir()
    scene = comfyui(tmp_path / "flows")
    assert isinstance(scene.double, doubles.ComfyUi)
    if not whole:
        raw = scene.start.model.read_bytes()
        scene.start.model.write_bytes(raw.replace(b"SaveImage", b"saveImage"))
    ways(site, scene)
    site.config = replace(site.config, artifact_folders=(tmp_path / "flows",))
    async with scene.up(), site.agent() as agent:
        body = await command(agent, site, launch(site, scene))  # type: ignore[arg-type]
        made = await receipt(agent, body)
        if not whole:
            assert (made.outcome, made.code, scene.double.runs) == (Outcome.FAILED, "wrong_digest", 0)
            return
        assert made.outcome is Outcome.SUCCEEDED, made
        assert scene.double.used > 0
        assert (await done(agent, site, site.drain(body))).outcome is Outcome.SUCCEEDED
        assert (await done(agent, site, site.unload(body))).outcome is Outcome.SUCCEEDED
        assert scene.double.used == 0, "its memory was given back, and no file of it deleted"
        assert (tmp_path / "flows" / "tiny.safetensors").is_file()
