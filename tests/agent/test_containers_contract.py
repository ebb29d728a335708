"""One story of a container that every runtime must tell alike: the stand-in of the other tests, and real ones.

A real Docker or Podman takes part where `GRIDOPS_TEST_CONTAINERS` names its socket and an image that is there by
digest, holding `tiny_server.c` as /app/llama-server: `unix:///run/podman/podman.sock localhost/tiny@sha256:...`.
What such a runtime answered is kept in `recorded/containers` (`GRIDOPS_TEST_RECORD` names the folder to write to),
and the stand-in is held against it on every run.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gridops.base.canon import digest_bytes
from gridops.base.errors import Failed, Refusal
from gridops.base.ids import HostId
from gridops.disk.keyring import create_secret
from gridops_agent.core.state import Handle
from gridops_agent.engines.base import Start
from gridops_agent.engines.llama_cpp import LlamaCpp
from gridops_agent.keep.base import PortLost, Proof, Spawn
from gridops_agent.keep.container import ContainerKeeper, Setup
from gridops_agent.keep.container_api import Containers
from gridops_agent.keep.container_spec import Owner
from gridops_agent.keep.ways import Image
from tests.agent.box_runtime import Runtime, Server
from tests.agent.site import Site, free_ports
from tests.builders.tiny_gguf import Made

HERE = Path(__file__).parent
RECORDED = sorted((HERE / "recorded/containers").glob("*.json"))
REAL = os.environ.get("GRIDOPS_TEST_CONTAINERS")
RECORD = os.environ.get("GRIDOPS_TEST_RECORD")
READ = ("State.Status", "State.Running", "State.Paused", "State.Restarting", "State.Pid", "State.ExitCode")
READ += ("State.OOMKilled", "State.Error", "State.StartedAt", "Id", "Image", "Config.Labels", "ApiVersion", "Warnings")
READ += ("0.Id", "0.Created", "0.State", "0.Labels", "RepoDigests")
"""What the keeper, or the library for it, reads of any answer."""


@dataclass
class Tape:
    """What a runtime answered: by call, each status with the types of what is read from it."""

    heard: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)

    def listen(self, api: Containers) -> Containers:
        client = api._connected()
        send = client.send

        def sent(request: Any, **options: Any) -> Any:
            answer = send(request, **options)
            path = re.sub(r"^.*?/v[0-9.]+|\?.*$", "", request.url)
            path = re.sub(r"/(containers)/(?!create|json)[^/]+", r"/\1/ID", path)
            path = re.sub(r"/images/.*/json", "/images/ID/json", path)
            call = self.heard.setdefault(f"{request.method} {path}", {})
            # Docker says 409 to a kill of what does not run, Podman 500: to us both are a no.
            status = "no" if answer.status_code in (409, 500) else str(answer.status_code)
            call.setdefault(status, {}).update(shape(answer))
            return answer

        client.send = sent
        return api


def shape(answer: Any) -> dict[str, str]:
    try:
        said = answer.json()
    except ValueError:
        return {}
    found = {}
    for path in READ:
        value: Any = said
        for word in path.split("."):
            if isinstance(value, list):
                value = value[0] if value and word == "0" else None
            else:
                value = value.get(word) if isinstance(value, dict) else None
        if value is not None:
            found[path] = type(value).__name__
    return found


@dataclass
class World:
    keeper: ContainerKeeper
    folder: Path
    model: Made
    port: int
    tape: Tape

    def spawn(self, word: str, **launch: object) -> Spawn:
        body = digest_bytes(word.encode())
        folder = self.folder / word
        if not folder.exists():
            create_secret(folder / "engine.key", b"f" * 64)
        site = Site(self.folder / "unused", self.model)
        start = Start(replace(site.launch(), **launch), self.model.path, self.port, folder / "engine.key")  # type: ignore[arg-type]
        inside, engine = self.keeper.inside(start), LlamaCpp()
        argv, told = engine.command(inside), engine.environment(inside)
        return Spawn(body, argv, told, folder, self.port, folder / "engine.key", start)


def runtimes() -> list[str]:
    return ["stand-in", *(["real"] if REAL else [])]


@pytest.fixture(params=runtimes())
def world(request: pytest.FixtureRequest, tmp_path: Path, model: Made) -> Iterator[World]:
    if request.param == "real":
        socket, reference = str(REAL).split()
        yield made_world(tmp_path, model, socket, reference)
        return
    reference = "localhost/tiny@sha256:" + "ab" * 32
    runtime = Runtime(tmp_path, images={reference: "sha256:" + "cd" * 32})
    with tempfile.TemporaryDirectory() as short, Server(Path(short) / "s", runtime) as server:
        yield made_world(tmp_path, model, server.url, reference)


def made_world(folder: Path, model: Made, socket: str, reference: str) -> World:
    tape = Tape()
    owner = Owner(digest_bytes(str(folder).encode()), HostId("forge"))
    setup = Setup(owner, {"llama.cpp": Image(reference, "cpu", port=8_080)}, lambda body: folder)
    api = tape.listen(Containers(socket))
    return World(ContainerKeeper(api, setup), folder, model, free_ports(3)[0], tape)


async def keep(handle: Handle) -> None:
    pass


async def lists(port: int, key: str = "f" * 64) -> bool:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as http:
        for _ in range(200):
            try:
                async with http.get(f"http://127.0.0.1:{port}/v1/models") as answer:
                    if answer.status == 200:
                        return "tiny" in await answer.text()
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
    return False


async def test_the_story_of_a_container(world: World) -> None:
    keeper, spawn = world.keeper, world.spawn("one")
    await keeper.refresh()
    assert [r.engine for r in keeper.runtimes()] == ["llama.cpp"]
    assert await keeper.recover(spawn.body, 1, spawn.key_file) is None
    handle = await keeper.start(spawn, keep)
    try:
        assert await lists(world.port), "it answers on loopback"
        assert await keeper.judge(spawn.body, handle) is Proof.OURS
        assert await keeper.judge(digest_bytes(b"other"), handle) is Proof.NOT_OURS
        assert await keeper.judge(spawn.body, replace(handle, birth="2020-01-01T00:00:00Z")) is Proof.GONE
        assert handle.pid in await keeper.pids(spawn.body, handle)
        assert await keeper.recover(spawn.body, handle.port, spawn.key_file) == handle
        assert [body for _, body in await keeper.strangers(frozenset())] == [spawn.body]
        assert await keeper.strangers(frozenset({spawn.body})) == ()
        second = world.spawn("two")
        with pytest.raises(Refusal, match="is served already by the container"):
            await keeper.start(second, keep)
        with pytest.raises(PortLost):
            await keeper.start(replace(second, known=frozenset({spawn.body})), keep)
    finally:
        answer = await keeper.stop(spawn.body, keeper.settle(handle))
    assert answer.gone, answer
    assert await keeper.prove(spawn.body, handle) is Proof.GONE
    assert keeper.look(spawn.body, handle) is Proof.GONE
    assert (await keeper.stop(spawn.body, handle)).gone, "stopping what is gone is no fault"
    assert await keeper.pids(spawn.body, handle) == ()


async def test_the_story_of_one_that_fails(world: World) -> None:
    keeper, spawn = world.keeper, world.spawn("bad", context=1)
    spawn = replace(spawn, argv=tuple("nowhere" if word.endswith(".gguf") else word for word in spawn.argv))
    handle = await keeper.start(spawn, keep)
    for _ in range(300):
        if await keeper.judge(spawn.body, handle) is Proof.GONE:
            break
        await asyncio.sleep(0.05)
    words = keeper.ending(handle)
    assert re.search(r"the container [0-9a-f]{12} ended with exit code [13]", words), words
    assert "the model" in (world.folder / "log").read_text(), "its log is kept where logs lie"
    assert (await keeper.stop(spawn.body, handle)).gone
    kept = keeper._api.listed(keeper._setup.owner.labels(), stopped=True)
    assert [row["Id"] for row in kept] == [handle.name], "a failed one is kept for its log"
    keeper._api.remove(str(handle.name))

    async def refuse(_: Handle) -> None:
        raise Failed("the ledger cannot be written")

    with pytest.raises(Failed, match="ledger"):
        await keeper.start(world.spawn("lost"), refuse)
    assert keeper._api.listed(keeper._setup.owner.labels(), stopped=True) == ()
    with pytest.raises(Refusal, match="not on this host"):
        images = {"llama.cpp": Image("localhost/other@sha256:" + "0" * 64, "cpu")}
        await ContainerKeeper(keeper._api, replace(keeper._setup, images=images)).start(world.spawn("x"), keep)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
async def test_the_stand_in_answers_as_a_real_runtime_did(recorded: Path, tmp_path: Path, model: Made) -> None:
    """Every call that was made of the real one: the same statuses, and of the same types whatever is read of them."""
    reference = "localhost/tiny@sha256:" + "ab" * 32
    runtime = Runtime(tmp_path, images={reference: "sha256:" + "cd" * 32})
    with tempfile.TemporaryDirectory() as short, Server(Path(short) / "s", runtime) as server:
        one = made_world(tmp_path, model, server.url, reference)
        await test_the_story_of_a_container(one)
        await test_the_story_of_one_that_fails(one)
    real = json.loads(recorded.read_text())
    assert sorted(one.tape.heard) == sorted(real)
    for call, statuses in sorted(real.items()):
        assert sorted(one.tape.heard[call]) == sorted(statuses), call
        for status, types in sorted(statuses.items()):
            assert one.tape.heard[call][status] == types, (call, status)


if REAL:

    async def test_record_what_the_real_runtime_answers(tmp_path: Path, model: Made) -> None:
        socket, reference = str(REAL).split()
        one = made_world(tmp_path, model, socket, reference)
        await test_the_story_of_a_container(one)
        await test_the_story_of_one_that_fails(one)
        text = json.dumps(one.tape.heard, indent=1, sort_keys=True)
        (Path(RECORD or tmp_path) / "runtime.json").write_text(text + "\n")
