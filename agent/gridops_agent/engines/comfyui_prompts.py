"""ComfyUI's queue of prompts, by its documented API: what a caller's prompt may hold, where it stands, what it made.

Called by the front (`front_prompts`). What was approved is the workflow that was brought, which the service's history
holds: a prompt may change texts, numbers, seeds and how nodes are joined; node classes and model files are those of the
workflow. The queue is looked at before the history, so that a run which ends in between is never taken for gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import aiohttp

from gridops_agent.engines.asking import good, question
from gridops_agent.engines.base import Door
from gridops_agent.engines.comfyui import graph_of, run_id

MARK = "gridops"
"""The field of a prompt's `extra_data` that says who sent it. The service keeps it with the run."""
BY_NAME = "0.3.60"
"""From here on `/interrupt` takes a `prompt_id`; before, it ended whatever ran."""
_MODEL_FILE = re.compile(r".*\.(safetensors|sft|ckpt|pt|pth|bin|gguf|onnx|engine)", re.IGNORECASE)
_NO_MEMORY = ("OutOfMemoryError", "OutOfMemory", "AcceleratorError")


class Stands(StrEnum):
    """Where a prompt is."""

    WAITS = "waits"
    RUNS = "runs"
    DONE = "done"
    GONE = "gone"
    """Neither queued nor in the history: somebody deleted it."""
    UNKNOWN = "unknown"
    """The service does not answer: it may run."""


@dataclass(frozen=True, slots=True)
class Place:
    """A prompt as the service tells it. `row` is [number, id, graph, extra_data, ...], `entry` its history."""

    stands: Stands
    row: tuple[Any, ...] = ()
    entry: Mapping[str, Any] | None = None

    @property
    def owner(self) -> Any:
        """Who sent it, by its mark."""
        extra = self.row[3] if len(self.row) > 3 else None
        return extra.get(MARK) if isinstance(extra, dict) else None

    @property
    def lacked_memory(self) -> bool:
        """It failed for want of memory: the host's fault, whatever was asked. Other errors may be the prompt's own."""
        status = (self.entry or {}).get("status")
        told = status.get("messages") if isinstance(status, dict) else None
        for event in told if isinstance(told, list) else ():
            said = event[1] if isinstance(event, list) and len(event) > 1 and event[0] == "execution_error" else None
            if isinstance(said, dict) and str(said.get("exception_type")).rpartition(".")[2] in _NO_MEMORY:
                return True
        return False

    def files(self) -> Iterator[tuple[str, str, str]]:
        """What it made: name, subfolder and kind of each file."""
        outputs = (self.entry or {}).get("outputs")
        for node in outputs.values() if isinstance(outputs, dict) else ():
            for rows in node.values() if isinstance(node, dict) else ():
                for row in rows if isinstance(rows, list) else ():
                    if isinstance(row, dict) and isinstance(row.get("filename"), str):
                        yield row["filename"], str(row.get("subfolder", "")), str(row.get("type", "output"))


async def queue(http: aiohttp.ClientSession, door: Door) -> Mapping[str, list[tuple[Any, ...]]] | None:
    """The rows that run and that wait; None when it does not say."""
    found = await good(http, f"{door.url}/queue")
    if not isinstance(found, dict):
        return None
    rows = {name: found.get(name) for name in ("queue_running", "queue_pending")}
    if not all(isinstance(value, list) for value in rows.values()):
        return None
    return {name: [tuple(row) for row in value or () if isinstance(row, list)] for name, value in rows.items()}


async def ends_by_name(http: aiohttp.ClientSession, door: Door) -> bool | None:
    """Whether an interrupt ends the prompt that it names and no other; None when the service does not answer."""
    said = await question(http, f"{door.url}/system_stats")
    system = said.json.get("system") if said is not None and isinstance(said.json, dict) else None
    if not isinstance(system, dict):
        return None
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})", str(system.get("comfyui_version")))
    least = tuple(int(part) for part in BY_NAME.split("."))
    return found is not None and tuple(int(part) for part in found.groups()) >= least


async def place(http: aiohttp.ClientSession, door: Door, name: str) -> Place:
    """Where a prompt is."""
    rows = await queue(http, door)
    if rows is None:
        return Place(Stands.UNKNOWN)
    for part, stands in (("queue_running", Stands.RUNS), ("queue_pending", Stands.WAITS)):
        row = next((row for row in rows[part] if len(row) > 1 and row[1] == name), None)
        if row is not None:
            return Place(stands, row)
    found = await good(http, f"{door.url}/history/{name}")
    if not isinstance(found, dict):
        return Place(Stands.UNKNOWN)
    entry = found.get(name)
    if not isinstance(entry, dict):
        return Place(Stands.GONE)
    row = entry.get("prompt")
    return Place(Stands.DONE, tuple(row) if isinstance(row, list) else (), entry)


async def approved(http: aiohttp.ClientSession, door: Door) -> Mapping[str, Any] | None:
    """The workflow that was brought for this residency, by the service's own history. None: it does not say."""
    if door.launch is None:
        return None
    found = await place(http, door, run_id(door.alias, door.launch))
    return graph_of(found.entry) if found.entry is not None else None


def strangers(workflow: Mapping[str, Any], graph: Mapping[str, Any]) -> str | None:
    """What in a prompt is not of the workflow, in words: a node class, or a model file."""
    classes = [node.get("class_type") for node in workflow.values() if isinstance(node, dict)]
    named = set(_texts(workflow))
    for key, node in sorted(graph.items()):
        name = node.get("class_type") if isinstance(node, dict) else None
        if name not in classes:
            return f"node {key} is of the class {name}, which the approved workflow does not use"
    foreign = sorted(text for text in _texts(graph) if _MODEL_FILE.fullmatch(text) and text not in named)
    return f"the model file {foreign[0][:120]} is not one of the approved workflow" if foreign else None


def _texts(graph: Mapping[str, Any]) -> Iterator[str]:
    for node in graph.values():
        inputs = node.get("inputs") if isinstance(node, dict) else None
        for value in inputs.values() if isinstance(inputs, dict) else ():
            if isinstance(value, str):
                yield value
