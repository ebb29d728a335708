"""Engines on this machine that are not ours: found by their command lines, shown, and never touched.

A look at processes and listening sockets, and one question to each for the models it lists. What carries the mark of
any agent is some agent's own and no news. A router (llama-server with several models) brings models into memory and
evicts them as requests come, so it is marked, and what it lists is resident only where it says so. Called now and then
by `hands`, and by the command that takes one over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath

import aiohttp
import psutil

from gridops.base import limits
from gridops.base.ids import ProfileName
from gridops.model.snapshot import Ownership, Residency, ResidencyState
from gridops_agent.engines.asking import models
from gridops_agent.engines.llama_flags import ROUTER
from gridops_agent.keep.child import COOKIE
from gridops_agent.keep.unit_files import COOKIE as UNIT_COOKIE
from gridops_agent.keep.unit_files import TAKEN_OVER
from gridops_agent.platform.base import Platform

MODELS_SHOWN = 8
NAME_CHARS = 120


@dataclass(frozen=True, slots=True)
class External:
    """One engine of somebody else's, as it was seen."""

    engine: str
    pid: int
    birth: str
    executable: str | None
    words: tuple[str, ...]
    port: int
    lists: tuple[str, ...] = ()
    """Ids of the models it lists; none when it asks for a key, or lists nothing."""
    router: bool = False
    """It holds several models in turn, by its own choice."""
    loaded: frozenset[str] = frozenset()
    """Of a router, the models that it says are in memory now."""

    def residencies(self, note: str) -> tuple[Residency, ...]:
        """As a heartbeat shows it: external ones have no number, and their memory stands in the devices' external."""
        names = self.lists[:MODELS_SHOWN] or (self.engine,)
        what = f"{self.engine} router, loads and evicts by itself" if self.router else self.engine
        return tuple(
            Residency(
                profile=ProfileName(name[:NAME_CHARS]),
                state=self._state(name),
                ownership=Ownership.EXTERNAL,
                port=self.port,
                detail=f"{what}, pid {self.pid}{note}",
            )
            for name in sorted(names)
        )

    def _state(self, name: str) -> ResidencyState:
        if not self.lists:
            return ResidencyState.UNKNOWN
        return ResidencyState.CACHED if self.router and name not in self.loaded else ResidencyState.READY


def engine_of(words: tuple[str, ...]) -> str | None:
    """Which engine a command line is; None when it is none that is known."""
    names = [PurePath(word).name for word in words[:4]]
    if "llama-server" in names or "xll_server.py" in names:
        return "llama.cpp"
    if "vllm.entrypoints.openai.api_server" in words or ("vllm" in names and "serve" in words[:4]):
        return "vllm"
    if "sglang.launch_server" in words:
        return "sglang"
    if names[:1] == ["ollama"] and "serve" in words[:3]:
        return "ollama"
    if any("comfyui" in word.lower() and word.endswith("main.py") for word in words[:4]):
        return "comfyui"
    return None


def engines_here(platform: Platform, ours: frozenset[int], given: frozenset[str] = frozenset()) -> tuple[External, ...]:
    """Every engine that listens here and is not ours. `given` are bodies of engines that were given back."""
    ports = _ports()
    found = []
    for pid, words in _command_lines():
        engine = engine_of(words)
        process = platform.process(pid) if engine is not None and pid not in ours and pid in ports else None
        if engine is None or process is None or process.zombie:
            continue
        told = platform.environment(pid) or {}
        mark = told.get(COOKIE) or told.get(UNIT_COOKIE)
        if mark in (None, TAKEN_OVER) or mark in given:
            found.append(External(engine, pid, process.birth, platform.executable(pid), words, min(ports[pid])))
    return tuple(sorted(found, key=lambda e: (e.port, e.pid))[: limits.EXTERNAL_ENGINES])


async def asked(http: aiohttp.ClientSession, engine: External, key: str = "") -> External:
    """The same with the models that it lists."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    rows = await models(http, f"http://127.0.0.1:{engine.port}", headers)
    named = {str(row["id"]): row.get("status") for row in rows if isinstance(row.get("id"), str) and row["id"]}
    router = engine.engine == "llama.cpp" and (is_router(engine.words) or any(s is not None for s in named.values()))
    loaded = frozenset(name for name, said in named.items() if isinstance(said, dict) and said.get("value") == "loaded")
    return replace(
        engine, lists=tuple(sorted(named))[:MODELS_SHOWN], router=router, loaded=loaded if router else frozenset()
    )


def is_router(words: tuple[str, ...]) -> bool:
    """Whether a command line names a place of many models. One that names none at all is told by what it lists."""
    return any(word.partition("=")[0] in ROUTER for word in words)


async def look(
    platform: Platform, http: aiohttp.ClientSession, ours: frozenset[int], given: frozenset[str]
) -> tuple[External, ...]:
    """Every engine that is not ours, with what it lists."""
    found = await asyncio.to_thread(engines_here, platform, ours, given)
    return tuple([await asked(http, engine) for engine in found])


def _ports() -> dict[int, set[int]]:
    """Listening ports that loopback reaches, by process."""
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return {}
    found: dict[int, set[int]] = {}
    for one in connections:
        if one.pid and one.status == psutil.CONN_LISTEN and one.laddr:
            found.setdefault(one.pid, set()).add(one.laddr.port)
    return found


def _command_lines() -> Iterator[tuple[int, tuple[str, ...]]]:
    for process in psutil.process_iter():
        try:
            words = tuple(process.cmdline())
        except (psutil.Error, OSError):
            continue
        if words:
            yield process.pid, words
