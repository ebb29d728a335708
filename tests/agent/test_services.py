"""Loopback services under contract: exactly the named model in memory, nothing of anybody else touched."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import ConfigName, Digest, EngineName, ProfileName
from gridops.model.plan import Launch
from gridops.model.profile import Artifact, ArtifactFile, EngineArg
from gridops_agent.engines.base import Door, Service, Start
from gridops_agent.engines.comfyui import ComfyUi
from gridops_agent.engines.ollama import Ollama
from tests.agent import engine_doubles as doubles
from tests.agent.site import free_ports

HELD, OTHER = "ab" * 32, "cd" * 32


@dataclass
class Scene:
    """A service, the double behind it, and what would be brought."""

    service: Service
    double: doubles.Ollama | doubles.ComfyUi
    start: Start
    port: int

    @property
    def door(self) -> Door:
        return Door(port=self.port, key="", alias=self.start.alias, launch=self.start.launch)

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[aiohttp.ClientSession]:
        async with doubles.listening(self.double.app(), self.port), aiohttp.ClientSession() as http:
            yield http


def start_of(engine: str, artifact: Artifact, model: Path, **changes: object) -> Start:
    launch = Launch(
        profile=ProfileName("chat"),
        config=ConfigName("one"),
        engine=EngineName(engine),
        backend="cuda",
        artifact=artifact,
        context=4096,
        lanes=1,
    )
    launch = replace(launch, **changes)  # type: ignore[arg-type]
    return Start(launch=launch, model=model, port=0, key_file=Path("/nothing"))


def ollama(folder: Path) -> Scene:
    double, port = doubles.Ollama(), free_ports(1)[0]
    double.tags = {"llama3.2:3b": HELD, "mine:latest": OTHER}
    file = ArtifactFile(path="manifest", sha256=Digest(f"sha256:{HELD}"), size_bytes=1234)
    artifact = Artifact(format="ollama", files=(file,), source="ollama://llama3.2:3b")
    return Scene(Ollama(f"http://127.0.0.1:{port}"), double, start_of("ollama", artifact, folder / "none"), port)


def manifest(folder: Path, **changes: object) -> Path:
    asset = folder / "tiny.safetensors"
    asset.write_bytes(b"weights")
    said = {
        "workflow": {
            "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "tiny.safetensors"}},
            "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0]}},
        },
        "classes": ["CheckpointLoaderSimple", "SaveImage"],
        "assets": [
            {
                "class": "CheckpointLoaderSimple",
                "input": "ckpt_name",
                "name": "tiny.safetensors",
                "path": str(asset),
                "sha256": "sha256:" + hashlib.sha256(b"weights").hexdigest(),
                "size": 7,
            }
        ],
    }
    file = folder / "pictures.json"
    file.write_text(json.dumps(said | changes))
    return file


def comfy_start(file: Path) -> Start:
    digest = Digest("sha256:" + hashlib.sha256(file.read_bytes()).hexdigest())
    made = ArtifactFile(path=file.name, sha256=digest, size_bytes=file.stat().st_size)
    return start_of("comfyui", Artifact(format="workflow", files=(made,)), file)


def comfyui(folder: Path) -> Scene:
    double, port = doubles.ComfyUi(), free_ports(1)[0]
    return Scene(ComfyUi(f"http://127.0.0.1:{port}"), double, comfy_start(manifest(folder)), port)


SCENES = [pytest.param(ollama, id="ollama"), pytest.param(comfyui, id="comfyui")]
Make = Callable[[Path], Scene]


@pytest.mark.parametrize("make", SCENES)
def test_a_service_declares_what_it_takes(make: Make, tmp_path: Path) -> None:
    scene = make(tmp_path)
    service, launch = scene.service, scene.start.launch
    assert service.objection(launch) is None
    assert launch.artifact.format in service.abilities.formats
    assert not service.abilities.takes_share
    assert service.address == f"http://127.0.0.1:{scene.port}"
    for wrong in (
        replace(launch, artifact=replace(launch.artifact, format="gguf")),
        replace(launch, lanes=2),
        replace(launch, args=(EngineArg(name="threads", value="1"),)),
    ):
        assert service.objection(wrong) is not None


@pytest.mark.parametrize("make", SCENES)
async def test_a_service_that_is_down_proves_nothing(make: Make, tmp_path: Path) -> None:
    scene = make(tmp_path)
    async with aiohttp.ClientSession() as http:
        assert await scene.service.alive(http) is None
        assert await scene.service.listed(http, scene.door) is False
        assert await scene.service.busy(http, scene.door) is None
        assert await scene.service.dropped(http, scene.door) is False
        assert await scene.service.stored(http) == ()
        with pytest.raises(Refusal):
            await scene.service.bring(http, scene.start)


@pytest.mark.parametrize("make", SCENES)
async def test_a_model_comes_into_memory_once_and_goes_again(make: Make, tmp_path: Path) -> None:
    scene = make(tmp_path)
    service = scene.service
    async with scene.up() as http:
        assert await service.alive(http)
        assert await service.listed(http, scene.door) is False
        assert await service.verify(http, scene.start) == scene.start.launch.artifact.files[0].sha256
        await service.bring(http, scene.start)
        assert await service.listed(http, scene.door) is True
        assert await service.dropped(http, scene.door) is False
        await service.bring(http, scene.start)
        if isinstance(scene.double, doubles.ComfyUi):
            assert scene.double.runs == 1, "what is in memory is not brought again"
        assert await service.listed(http, replace(scene.door, alias="other", launch=None)) is False
        await service.drop(http, scene.door)
        assert await service.dropped(http, scene.door) is True
        assert await service.listed(http, scene.door) is False


# --- ollama -----------------------------------------------------------------------------------------------------------


async def test_ollama_refuses_a_tag_that_stands_for_another_digest(tmp_path: Path) -> None:
    scene = ollama(tmp_path)
    assert isinstance(scene.double, doubles.Ollama)
    scene.double.tags["llama3.2:3b"] = scene.double.registry["llama3.2:3b"] = OTHER
    artifact = scene.start.launch.artifact
    async with scene.up() as http:
        for asked in (
            scene.service.verify(http, scene.start),
            scene.service.bring(http, scene.start),
            scene.service.fetch(http, artifact),
        ):
            with pytest.raises(Refusal) as caught:
                await asked
            assert caught.value.code == "wrong_digest"
        assert (scene.double.pulls, scene.double.memory) == (0, {}), "a tag is never pulled over"


async def test_ollama_pulls_exactly_what_was_named_and_says_when_its_registry_moved(tmp_path: Path) -> None:
    scene = ollama(tmp_path)
    assert isinstance(scene.double, doubles.Ollama)
    artifact = scene.start.launch.artifact
    del scene.double.tags["llama3.2:3b"]
    async with scene.up() as http:
        with pytest.raises(Refusal, match="could not pull"):
            await scene.service.fetch(http, artifact)
        scene.double.registry["llama3.2:3b"] = HELD
        assert await scene.service.fetch(http, artifact) == 1234
        assert await scene.service.fetch(http, artifact) is None
        assert artifact.files[0].sha256 in await scene.service.stored(http)
        del scene.double.tags["llama3.2:3b"]
        scene.double.registry["llama3.2:3b"] = OTHER
        with pytest.raises(Refusal, match="stays there unused"):
            await scene.service.fetch(http, artifact)
        assert scene.double.deleted == 0


async def test_ollama_never_takes_a_name_that_is_somebody_elses(tmp_path: Path) -> None:
    scene = ollama(tmp_path)
    assert isinstance(scene.double, doubles.Ollama)
    scene.double.tags["chat:latest"] = OTHER
    async with scene.up() as http:
        with pytest.raises(Refusal, match="not replaced"):
            await scene.service.bring(http, scene.start)
        assert scene.double.tags["chat:latest"] == OTHER
        assert scene.double.memory == {}


async def test_ollama_leaves_what_others_hold_in_memory(tmp_path: Path) -> None:
    scene = ollama(tmp_path)
    assert isinstance(scene.double, doubles.Ollama)
    scene.double.memory[OTHER] = "mine:latest"
    async with scene.up() as http:
        await scene.service.bring(http, scene.start)
        await scene.service.drop(http, scene.door)
        assert scene.double.memory == {OTHER: "mine:latest"}
        assert scene.double.tags["mine:latest"] == OTHER
        assert scene.double.deleted == 0


async def test_ollama_with_another_context_is_refused_and_gives_the_memory_back(tmp_path: Path) -> None:
    scene = ollama(tmp_path)
    assert isinstance(scene.double, doubles.Ollama)
    scene.double.context = 2048
    async with scene.up() as http:
        with pytest.raises(Refusal, match="2048 tokens of context instead of 4096"):
            await scene.service.bring(http, scene.start)
        assert scene.double.memory == {}


@pytest.mark.parametrize("source", [None, "ollama://llama3.2", "ollama://../x:1", "hf://a/b@c", "ollama://a b:1"])
def test_ollama_wants_a_name_that_cannot_move(source: str | None, tmp_path: Path) -> None:
    scene = ollama(tmp_path)
    artifact = replace(scene.start.launch.artifact, source=source)
    assert "source with a tag" in (scene.service.objection(replace(scene.start.launch, artifact=artifact)) or "")


# --- comfyui ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"classes": ["CheckpointLoaderSimple"]}, "`classes` does not name"),
        ({"classes": "all"}, "`classes` must be"),
        ({"assets": [{"class": "x"}]}, "no workflow manifest"),
        ({"workflow": []}, "no workflow manifest"),
    ],
)
async def test_comfyui_refuses_a_manifest_that_does_not_say_everything(
    changes: dict[str, object], says: str, tmp_path: Path
) -> None:
    scene = comfyui(tmp_path)
    start = comfy_start(manifest(tmp_path, **changes))
    async with scene.up() as http:
        with pytest.raises(Refusal, match=says):
            await scene.service.bring(http, start)


async def test_comfyui_proves_the_manifest_and_every_asset_before_a_run(tmp_path: Path) -> None:
    scene = comfyui(tmp_path)
    assert isinstance(scene.double, doubles.ComfyUi)
    async with scene.up() as http:
        (tmp_path / "tiny.safetensors").write_bytes(b"Weights")
        with pytest.raises(Refusal, match="expected sha256"):
            await scene.service.bring(http, scene.start)
        (tmp_path / "tiny.safetensors").unlink()
        with pytest.raises(Refusal, match="cannot be read"):
            await scene.service.bring(http, scene.start)
        manifest(tmp_path)
        scene.start.model.write_text(scene.start.model.read_text() + " ")
        with pytest.raises(Refusal, match="not the manifest that was approved"):
            await scene.service.bring(http, scene.start)
        manifest(tmp_path)
        scene.double.names = ()
        with pytest.raises(Refusal, match=r"does not list tiny\.safetensors"):
            await scene.service.bring(http, scene.start)
        assert scene.double.runs == 0


async def test_comfyui_that_loses_an_asset_is_no_longer_listed(tmp_path: Path) -> None:
    scene = comfyui(tmp_path)
    assert isinstance(scene.double, doubles.ComfyUi)
    async with scene.up() as http:
        await scene.service.bring(http, scene.start)
        scene.double.names = ("other.safetensors",)
        assert await scene.service.listed(http, scene.door) is False


async def test_comfyui_counts_its_queue_and_is_not_empty_while_it_runs(tmp_path: Path) -> None:
    scene = comfyui(tmp_path)
    assert isinstance(scene.double, doubles.ComfyUi)
    async with scene.up() as http:
        await scene.service.bring(http, scene.start)
        scene.double.running, scene.double.pending = ["a"], ["b", "c"]
        assert await scene.service.busy(http, scene.door) == 3
        await scene.service.drop(http, scene.door)
        assert await scene.service.dropped(http, scene.door) is False, "what runs still holds its models"
        scene.double.used = 0
        assert await scene.service.dropped(http, scene.door) is False, "what runs may load its models in a moment"
        scene.double.running = scene.double.pending = []
        await scene.service.drop(http, scene.door)
        assert await scene.service.dropped(http, scene.door) is True


async def test_comfyui_that_holds_anything_is_not_empty_since_it_does_not_tell_workflows_apart(tmp_path: Path) -> None:
    scene = comfyui(tmp_path)
    assert isinstance(scene.double, doubles.ComfyUi)
    async with scene.up() as http:
        assert await scene.service.dropped(http, scene.door) is True
        scene.double.used = 6 << 30
        assert await scene.service.dropped(http, scene.door) is False
        assert await scene.service.listed(http, scene.door) is False


async def test_comfyui_knows_what_was_brought_though_the_agent_forgot(tmp_path: Path) -> None:
    scene = comfyui(tmp_path)
    async with scene.up() as http:
        await scene.service.bring(http, scene.start)
        anew = ComfyUi(scene.service.address)
        assert await anew.listed(http, scene.door) is True
        other = replace(scene.door, alias="video")
        assert await anew.listed(http, other) is False
        await anew.drop(http, scene.door)
        assert await scene.service.dropped(http, scene.door) is True


async def test_comfyui_that_names_runs_by_itself_is_too_old(tmp_path: Path) -> None:
    scene = comfyui(tmp_path)
    assert isinstance(scene.double, doubles.ComfyUi)
    scene.double.old = True
    async with scene.up() as http:
        with pytest.raises(Refusal, match="too old"):
            await scene.service.bring(http, scene.start)


async def test_comfyui_says_when_a_workflow_fails(tmp_path: Path) -> None:
    scene = comfyui(tmp_path)
    assert isinstance(scene.double, doubles.ComfyUi)
    scene.double.broken = True
    async with scene.up() as http:
        with pytest.raises(Refusal, match="could not run the workflow"):
            await scene.service.bring(http, scene.start)
        assert await scene.service.listed(http, scene.door) is False
