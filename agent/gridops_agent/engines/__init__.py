"""Engines: one module each behind `base.Engine` or `base.Service`; none knows of another. Adding one is one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gridops.base.ids import EngineName
from gridops_agent.engines.base import Engine, Service
from gridops_agent.engines.comfyui import ComfyUi
from gridops_agent.engines.llama_cpp import LlamaCpp
from gridops_agent.engines.ollama import Ollama
from gridops_agent.engines.sglang import Sglang
from gridops_agent.engines.vllm import Vllm


def engines(commands: Mapping[str, tuple[str, ...]], runtime: Path | None = None) -> Mapping[EngineName, Engine]:
    """All engines this agent can start, by the name configs use. `commands` are overrides from agent.toml.

    `runtime` is the folder of the pinned runtime, where `join` may have installed it.
    """
    found: tuple[Engine, ...] = (
        LlamaCpp(commands.get("llama.cpp", ()), runtime),
        Sglang(commands.get("sglang", ())),
        Vllm(commands.get("vllm", ())),
    )
    return {engine.name: engine for engine in found}


def services(addresses: Mapping[str, str]) -> Mapping[EngineName, Service]:
    """The loopback services that agent.toml names (`[engines.ollama] service = "http://127.0.0.1:11434"`)."""
    known: Mapping[str, Callable[[str], Service]] = {"comfyui": ComfyUi, "ollama": Ollama}
    found = [known[name](address) for name, address in sorted(addresses.items()) if name in known]
    return {service.name: service for service in found}
