"""Engines: one module each behind `base.Engine`; nothing here knows of another. Registering one is one line."""

from __future__ import annotations

from collections.abc import Mapping

from gridops.base.ids import EngineName
from gridops_agent.engines.base import Engine
from gridops_agent.engines.llama_cpp import LlamaCpp


def engines(commands: Mapping[str, tuple[str, ...]]) -> Mapping[EngineName, Engine]:
    """All engines this agent can drive, by the name configs use. `commands` are overrides from agent.toml."""
    found: tuple[Engine, ...] = (LlamaCpp(commands.get("llama.cpp", ())),)
    return {engine.name: engine for engine in found}
