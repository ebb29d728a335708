"""ComfyUI: a loopback service whose unit of deployment is a workflow. Models come into its memory when one runs.

A workflow is named by the digest of its manifest, a JSON file of ours that lists the workflow itself, the node classes
it needs and the model files it opens, each with its digest. Assets must be installed already: they are proved where
they lie and never fetched, moved or deleted. A workflow is brought by running it once under an id made from its digest,
which the service's history then holds; memory is given back by `/free`. What is in memory is not told apart, so a
service that holds anything is not empty. Called by the documented HTTP API alone, and remembered by the service alone.

    {"workflow": {...API format...}, "classes": ["KSampler", ...],
     "assets": [{"class": "CheckpointLoaderSimple", "input": "ckpt_name", "name": "a.safetensors",
                 "path": "/opt/ComfyUI/models/checkpoints/a.safetensors", "sha256": "sha256:...", "size": 123}]}
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from gridops.base import limits
from gridops.base.codes import host as codes
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, is_digest
from gridops.model.plan import Launch
from gridops.model.profile import Artifact
from gridops_agent.engines import flags
from gridops_agent.engines.asking import good, question
from gridops_agent.engines.base import Abilities, Door, Start
from gridops_agent.engines.loopback import Loopback

_RUN = aiohttp.ClientTimeout(total=30)
_RUN_S = 900
_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class Asset:
    """A model file that a workflow opens, and the input of a node class that must offer it."""

    node: str
    input: str
    name: str
    path: Path
    sha256: Digest
    size: int


@dataclass(frozen=True, slots=True)
class Workflow:
    """What a manifest says."""

    graph: Mapping[str, Any]
    classes: tuple[str, ...]
    assets: tuple[Asset, ...]


class ComfyUi(Loopback):
    """The ComfyUI adapter for one address."""

    abilities = Abilities(
        formats=frozenset({"workflow"}),
        modalities=frozenset({"image", "video"}),
        keyed=False,
        counts_work=True,
        takes_share=False,
        shards=False,
        drains_on_term=False,
        api="comfyui",
    )

    _NAME = "comfyui"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._proved: dict[Path, tuple[str, Digest]] = {}

    def objection(self, launch: Launch) -> str | None:
        if launch.artifact.format not in self.abilities.formats or len(launch.artifact.files) != 1:
            return f"comfyui runs one workflow manifest (format workflow), not {launch.artifact.format}"
        if launch.lanes != 1:
            return f"comfyui works on one prompt at a time: write lanes: 1, not {launch.lanes}"
        if launch.devices.count != 1:
            return f"comfyui is not cut over {launch.devices.count} devices: write count: 1"
        return flags.objection("comfyui", {}, launch)

    async def alive(self, http: aiohttp.ClientSession) -> str | None:
        said = await question(http, f"{self._address}/system_stats")
        system = said.json.get("system") if said is not None and isinstance(said.json, dict) else None
        if not isinstance(system, dict):
            return None
        return str(system.get("comfyui_version") or "unknown version")

    async def stored(self, http: aiohttp.ClientSession) -> tuple[Digest, ...]:
        return ()

    async def fetch(self, http: aiohttp.ClientSession, artifact: Artifact) -> int | None:
        raise Refusal(codes.NO_ARTIFACT.code, "comfyui fetches nothing: install a workflow's assets on the host")

    # --- identity -------------------------------------------------------------------------------------------------

    async def verify(self, http: aiohttp.ClientSession, start: Start) -> str:
        await self._proven(http, start)
        return start.launch.artifact.files[0].sha256

    async def _proven(self, http: aiohttp.ClientSession, start: Start) -> Workflow:
        """The manifest, with every class known to the service and every asset there with its digest."""
        workflow = await asyncio.to_thread(read_manifest, start.model, start.launch.artifact.files[0].sha256)
        lacking = await self._lacking(http, workflow.graph)
        if lacking is not None:
            raise Refusal(codes.NO_ARTIFACT.code, lacking)
        for asset in workflow.assets:
            await asyncio.to_thread(self._prove, asset)
        return workflow

    async def _lacking(self, http: aiohttp.ClientSession, graph: Mapping[str, Any]) -> str | None:
        """What the service does not offer of what a workflow needs, in words: node classes, and files by name."""
        for node in graph.values():
            name = str(node.get("class_type"))
            offered = await self._class(http, name)
            if offered is None:
                return f"comfyui has no node class {name}, which the workflow needs"
            for key, value in sorted(_inputs(node).items()):
                choices = _choices(offered, key)
                if choices is not None and isinstance(value, str) and value not in choices:
                    return f"comfyui does not list {value} for {name}.{key}: install it on the host"
        return None

    async def _class(self, http: aiohttp.ClientSession, name: str) -> Mapping[str, Any] | None:
        found = await good(http, f"{self._address}/object_info/{quote(name, safe='')}")
        one = found.get(name) if isinstance(found, dict) else None
        return one if isinstance(one, dict) else None

    def _prove(self, asset: Asset) -> None:
        """Hash an asset once, and again when its file looks different."""
        try:
            seen = asset.path.stat()
            look = f"{seen.st_size}:{seen.st_mtime_ns}:{seen.st_ctime_ns}:{seen.st_ino}"
            if self._proved.get(asset.path) == (look, asset.sha256):
                return
            with asset.path.open("rb") as source:
                found = "sha256:" + hashlib.file_digest(source, "sha256").hexdigest()
        except OSError as error:
            raise Refusal(codes.NO_ARTIFACT.code, f"{asset.path} cannot be read: {error.strerror}") from error
        if found != asset.sha256 or seen.st_size != asset.size:
            raise Refusal(
                codes.WRONG_DIGEST.code,
                f"{asset.path} has {found} and {seen.st_size} bytes, expected {asset.sha256} and {asset.size}",
            )
        self._proved[asset.path] = (look, asset.sha256)

    # --- memory ---------------------------------------------------------------------------------------------------

    async def bring(self, http: aiohttp.ClientSession, start: Start) -> None:
        workflow, name = await self._proven(http, start), run_id(start.alias, start.launch)
        if await self._run_of(http, name) is None:
            await self._run(http, workflow, name)

    async def _run(self, http: aiohttp.ClientSession, workflow: Workflow, name: str) -> None:
        """One run: that is what loads the models. Ends when the history holds it."""
        said = await question(
            http, f"{self._address}/prompt", send={"prompt": workflow.graph, "prompt_id": name}, patience=_RUN
        )
        found = said.json if said is not None and isinstance(said.json, dict) else {}
        if said is None or said.status != 200:
            raise Refusal(codes.START_FAILED.code, f"comfyui refuses the workflow: {_error(found)}")
        if found.get("prompt_id") != name:
            raise Refusal(codes.NO_RUNTIME.code, "this comfyui gives runs names of its own: it is too old for gridops")
        loop = asyncio.get_running_loop()
        end = loop.time() + _RUN_S
        while loop.time() < end:
            entry = await self._run_of(http, name)
            if entry is not None:
                if _succeeded(entry):
                    return
                await self._forget(http, name)
                raise Refusal(codes.START_FAILED.code, "comfyui could not run the workflow; see its own log")
            await asyncio.sleep(_POLL_S)
        raise Refusal(codes.START_FAILED.code, f"comfyui did not finish the workflow within {_RUN_S} s")

    async def _run_of(self, http: aiohttp.ClientSession, name: str) -> Mapping[str, Any] | None:
        """What the history holds of a run."""
        rows = await good(http, f"{self._address}/history/{name}")
        entry = rows.get(name) if isinstance(rows, dict) else None
        return entry if isinstance(entry, dict) else None

    async def _forget(self, http: aiohttp.ClientSession, name: str) -> None:
        await question(http, f"{self._address}/history", send={"delete": [name]})

    async def listed(self, http: aiohttp.ClientSession, door: Door) -> bool:
        if door.launch is None or await self.alive(http) is None:
            return False
        entry = await self._run_of(http, run_id(door.alias, door.launch))
        graph = graph_of(entry) if entry is not None and _succeeded(entry) else None
        return graph is not None and await self._lacking(http, graph) is None

    async def busy(self, http: aiohttp.ClientSession, door: Door) -> int | None:
        found = await good(http, f"{self._address}/queue")
        if not isinstance(found, dict):
            return None
        rows = [found.get("queue_running"), found.get("queue_pending")]
        return sum(len(r) for r in rows if isinstance(r, list)) if all(isinstance(r, list) for r in rows) else None

    async def drop(self, http: aiohttp.ClientSession, door: Door) -> None:
        if door.launch is not None:
            await self._forget(http, run_id(door.alias, door.launch))
        await question(http, f"{self._address}/free", send={"unload_models": True, "free_memory": True})

    async def dropped(self, http: aiohttp.ClientSession, door: Door) -> bool:
        """Memory is given back when its queue comes to the request: nothing of torch's is left on any device."""
        found = await good(http, f"{self._address}/system_stats")
        devices = found.get("devices") if isinstance(found, dict) else None
        if door.launch is None or not isinstance(devices, list):
            return False
        if await self._run_of(http, run_id(door.alias, door.launch)) is not None:
            return False
        if await self.busy(http, door) != 0:
            return False
        cards = [d for d in devices if isinstance(d, dict) and d.get("type") != "cpu"]
        return all(_left(card) < limits.SERVICE_LEFTOVER_BYTES for card in cards)


def read_manifest(path: Path, wanted: Digest) -> Workflow:
    """A manifest, proved by its digest. Raises Refusal that names what is wrong with it."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise Refusal(codes.NO_ARTIFACT.code, f"{path} cannot be read: {error.strerror}") from error
    if "sha256:" + hashlib.sha256(raw).hexdigest() != wanted:
        raise Refusal(codes.WRONG_DIGEST.code, f"{path} is not the manifest that was approved")
    try:
        said = json.loads(raw)
        graph, classes = said["workflow"], said["classes"]
        assets = tuple(_asset(row) for row in said["assets"])
        used = {node["class_type"] for node in graph.values()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refusal(
            codes.BAD_ARGUMENT.code, f"{path} is no workflow manifest: {type(error).__name__} {error}"
        ) from error
    if not isinstance(classes, list) or not all(isinstance(c, str) and c for c in classes):
        raise Refusal(codes.BAD_ARGUMENT.code, f"{path}: `classes` must be the node classes of the workflow")
    missing = sorted((used | {a.node for a in assets}) - set(classes))
    if missing:
        raise Refusal(codes.BAD_ARGUMENT.code, f"{path}: the workflow uses {missing[0]}, which `classes` does not name")
    return Workflow(graph=graph, classes=tuple(sorted(set(classes))), assets=assets)


def _asset(row: Mapping[str, Any]) -> Asset:
    path, digest, size = Path(row["path"]), row["sha256"], row["size"]
    if not path.is_absolute() or not is_digest(digest) or type(size) is not int:
        raise ValueError("an asset needs an absolute path, a sha256 digest and its size in bytes")
    return Asset(str(row["class"]), str(row["input"]), str(row["name"]), path, Digest(digest), size)


def _choices(offered: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """What a class offers for an input: `[[...], {...}]`, or `["COMBO", {"options": [...]}]`. None: anything goes."""
    inputs = offered.get("input")
    for kind in ("required", "optional"):
        asked = inputs.get(kind) if isinstance(inputs, dict) else None
        said = asked.get(name) if isinstance(asked, dict) else None
        if isinstance(said, list) and said:
            if isinstance(said[0], list):
                return tuple(str(v) for v in said[0])
            if len(said) > 1 and isinstance(said[1], dict) and isinstance(said[1].get("options"), list):
                return tuple(str(v) for v in said[1]["options"])
    return None


def _inputs(node: Mapping[str, Any]) -> Mapping[str, Any]:
    found = node.get("inputs")
    return found if isinstance(found, dict) else {}


def run_id(alias: str, launch: Launch) -> str:
    """One name for the run of a workflow under an alias, in the form that the service gives its own."""
    seen = hashlib.sha256(f"{alias}@{launch.artifact.files[0].sha256}".encode()).hexdigest()
    return "-".join((seen[:8], seen[8:12], f"8{seen[13:16]}", f"8{seen[17:20]}", seen[20:32]))


def _succeeded(entry: Mapping[str, Any]) -> bool:
    status = entry.get("status")
    return isinstance(status, dict) and status.get("status_str") == "success"


def graph_of(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The workflow that a run was made of: `prompt` is [number, id, workflow, ...]."""
    prompt = entry.get("prompt")
    graph = prompt[2] if isinstance(prompt, list) and len(prompt) > 2 else None
    whole = isinstance(graph, dict) and all(isinstance(node, dict) for node in graph.values())
    return graph if whole else None


def _left(card: Mapping[str, Any]) -> int:
    """What torch holds on a device. A number that is missing is a great deal: it proves nothing."""
    total, free = card.get("torch_vram_total"), card.get("torch_vram_free")
    if type(total) is not int or type(free) is not int or not 0 <= free <= total:
        return limits.SERVICE_LEFTOVER_BYTES
    return total - free


def _error(found: Mapping[str, Any]) -> str:
    error = found.get("error")
    words = error.get("message") if isinstance(error, dict) else error
    return str(words or "no answer")[:200]
