"""The contract of every engine, as plain functions: whoever adds an adapter runs these against it.

`Case` says how to get the real thing, or a double that answers as the real thing was recorded or documented, up on this
machine. `start` gives what the agent would give; the rest asks only what `engines.base` promises.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import pytest

from gridops.base.errors import Refusal
from gridops.model.profile import EngineArg, Modality
from gridops_agent.engines.base import Door, Engine, EngineSilent, Service, Start

KEY = "f00d" * 16
PATIENCE_S = 300
"""A machine with other work is slow, and vLLM takes minutes there; what never comes fails all the same."""
EVIL = ("--api-key x", "a b", "$(id)", "x;y", "../..", "-1e", "\n", "{}")


@dataclass(frozen=True)
class Case:
    """One engine under contract."""

    name: str
    engine: Engine
    start: Callable[[Path], Start]
    """What it is started with; may write files into the folder it is given."""
    serve: Callable[[Engine, Start, Path], AbstractAsyncContextManager[None]]
    """The started thing, for as long as the block lasts."""
    args: tuple[tuple[str, str], ...] = ()
    """Arguments that this adapter knows, with a value each."""
    busy_request: dict[str, object] = field(default_factory=dict)
    """What makes a request last, beside the usual fields."""


def door_of(start: Start, key: str = KEY) -> Door:
    return Door(port=start.port, key=key if start.key_file.is_file() else "", alias=start.alias, launch=start.launch)


def key_file(folder: Path) -> Path:
    file = folder / "engine.key"
    file.write_text(KEY)
    file.chmod(0o600)
    return file


@contextlib.asynccontextmanager
async def as_child(engine: Engine, start: Start, folder: Path) -> AsyncIterator[None]:
    """The command as the agent runs it: little environment, a session of its own, gone as a group at the end."""
    kept = {n: os.environ[n] for n in ("PATH", "HOME", "LD_LIBRARY_PATH") if n in os.environ}
    with (folder / "log").open("wb") as log:
        argv = await asyncio.to_thread(engine.command, start)
        child = subprocess.Popen(
            argv, env=kept | dict(engine.environment(start)), cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def declares_honestly(case: Case, folder: Path) -> None:
    """Formats, modalities and arguments: what is declared is taken, and nothing else is."""
    engine, start = case.engine, case.start(folder)
    able, launch = engine.abilities, start.launch
    assert able.formats
    assert able.modalities <= {m.value for m in Modality}
    assert able.modalities
    assert launch.artifact.format in able.formats
    assert launch.engine == engine.name
    assert engine.objection(launch) is None
    for other in {"gguf", "safetensors", "ollama", "workflow", "onnx"} - able.formats:
        wrong = replace(launch, artifact=replace(launch.artifact, format=other))
        assert engine.objection(wrong), f"{engine.name} would take {other}"
    unknown = replace(launch, args=(EngineArg(name="no_such_argument", value="1"),))
    assert "no_such_argument" in (engine.objection(unknown) or "")
    for name, value in case.args:
        assert engine.objection(replace(launch, args=(EngineArg(name=name, value=value),))) is None, name
        for evil in EVIL:
            assert engine.objection(replace(launch, args=(EngineArg(name=name, value=evil),))), (name, evil)


def writes_a_safe_command(case: Case, folder: Path) -> None:
    """Loopback, the alias, the port; no secret in any word; files of ours are named as companions."""
    engine, start = case.engine, case.start(folder)
    words, environment = engine.command(start), engine.environment(start)
    assert all(isinstance(w, str) and "\n" not in w for w in words)
    assert KEY not in " ".join(words)
    assert KEY not in " ".join(f"{n}={v}" for n, v in environment.items())
    assert start.alias in words
    assert str(start.port) in words
    assert start.host in words
    if engine.abilities.keyed:
        assert str(start.key_file) in words
    inside = engine.command(replace(start, image=True, host="0.0.0.0"))
    assert inside[0] != words[0], "in an image the program has the image's name"
    assert "127.0.0.1" not in inside
    ours = [w for w in inside if w.endswith(".py")]
    assert ours == [str(p) for p in engine.companions()]
    gpu = replace(start, launch=replace(start.launch, backend="cuda"), image=True)
    if engine.abilities.takes_share:
        with pytest.raises(Refusal):
            engine.command(replace(gpu, gpus=("GPU-1",)))


async def says_nothing_before_it_is_up(case: Case, folder: Path) -> None:
    """A port that nobody listens on is not ready, not idle, and no agreement."""
    door = door_of(case.start(folder))
    async with aiohttp.ClientSession() as http:
        assert await case.engine.listed(http, door) is False
        assert await case.engine.busy(http, door) is None
        with pytest.raises(EngineSilent):
            await case.engine.contradiction(http, door)


async def lives_as_promised(case: Case, folder: Path) -> None:
    """Ready by the alias alone, behind its key, as launched, idle, busy, and gone."""
    engine, start = case.engine, case.start(folder)
    door = door_of(start)
    async with aiohttp.ClientSession() as http:
        async with case.serve(engine, start, folder):
            await until(lambda: engine.listed(http, door), f"{case.name} to be listed", folder)
            assert await engine.contradiction(http, door) is None
            other = replace(door, launch=replace(start.launch, context=start.launch.context * 2))
            assert "context" in (await engine.contradiction(http, other) or "")
            assert await engine.listed(http, replace(door, alias="somebody-else")) is False
            if engine.abilities.keyed:
                assert await engine.listed(http, replace(door, key="wrong")) is False
                assert await status_of(http, replace(door, key="wrong"), {}) in (401, 403)
            assert await status_of(http, door, {}) == 200
            await until(lambda: is_idle(engine, http, door), "it to be idle", folder)
            await _works(case, http, door, folder)
            left = folder / "log"
            if left.is_file():
                assert KEY not in left.read_text("utf-8", "replace"), "the key stands in the engine's log"
        assert await engine.listed(http, door) is False
        assert await engine.busy(http, door) is None


async def _works(case: Case, http: aiohttp.ClientSession, door: Door, folder: Path) -> None:
    """While a request lasts the engine says so, and it is idle again after its client has gone."""
    asked = asyncio.ensure_future(status_of(http, door, case.busy_request))

    async def counted() -> bool:
        assert not asked.done(), "the request ended before anybody could count it"
        return (await case.engine.busy(http, door) or 0) >= 1

    if case.engine.abilities.counts_work:
        await until(counted, "the work to be counted", folder)
    else:
        assert await case.engine.busy(http, door) is None
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    await until(lambda: is_idle(case.engine, http, door), "it to be idle again", folder)


async def is_idle(engine: Engine | Service, http: aiohttp.ClientSession, door: Door) -> bool:
    return await engine.busy(http, door) == (0 if engine.abilities.counts_work else None)


async def status_of(http: aiohttp.ClientSession, door: Door, more: dict[str, object]) -> int:
    """One chat request."""
    asked = {"model": door.alias, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, **more}
    async with http.post(f"{door.url}/v1/chat/completions", json=asked, headers=door.headers) as answer:
        await answer.read()
        return answer.status


async def until(holds: Callable[[], object], what: str, folder: Path) -> None:
    end = asyncio.get_running_loop().time() + PATIENCE_S
    while not await holds():  # type: ignore[misc]
        log = folder / "log"
        said = log.read_text("utf-8", "replace")[-800:] if log.is_file() else ""
        assert asyncio.get_running_loop().time() < end, f"waited {PATIENCE_S} s for {what}; {said}"
        await asyncio.sleep(0.05)


ALL = (declares_honestly, writes_a_safe_command)
ALL_LIVING = (says_nothing_before_it_is_up, lives_as_promised)
