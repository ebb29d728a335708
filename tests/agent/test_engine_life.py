"""A real engine under a real agent: up, answering, kept alive, adopted, drained and gone."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from gridops.base.canon import digest_bytes
from gridops.model.profile import Artifact, ArtifactFile, Restart
from gridops.model.snapshot import ResidencyState
from gridops.planner.learned import is_failing
from gridops.protocol.messages import Outcome
from gridops_agent.shell import Agent
from tests.agent.site import Site, command, done, held_of, pid_of, receipt, until
from tests.builders.gguf_bytes import made as sound_gguf

READY = ResidencyState.READY


async def chat(agent: Agent, body: str, **more: object) -> dict[str, object]:
    """Ask the engine itself, with its own key."""
    door = agent.doors.door(held_of(agent, body))
    assert door is not None
    asked = {"model": door.alias, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, **more}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{door.url}/v1/chat/completions", json=asked, headers=door.headers) as answer,
    ):
        assert answer.status == 200
        found: dict[str, object] = await answer.json()
        return found


async def test_a_warm_command_ends_with_a_model_that_answers_and_an_unload_with_nothing_left(site: Site) -> None:
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        assert (await receipt(agent, warmed)).outcome is Outcome.SUCCEEDED
        assert held_of(agent, warmed).state is READY
        assert (await chat(agent, warmed))["choices"]
        pid = pid_of(agent, warmed)
        assert os.getsid(pid) == pid, "an engine has a session of its own"
        assert (await done(agent, site, site.drain(warmed))).outcome is Outcome.SUCCEEDED
        assert (await done(agent, site, site.unload(warmed))).outcome is Outcome.SUCCEEDED
        assert warmed not in agent.memory.host.held
        assert site.processes() == []
        key = agent.doors.folder(warmed) / "engine.key"
        await until(lambda: not key.exists(), what="the key to go, which it does after the receipt")


async def test_the_engine_key_is_a_private_file_and_stands_nowhere_else(site: Site) -> None:
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        await chat(agent, warmed)
        path = agent.doors.folder(warmed) / "engine.key"
        key = path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert key == key.strip()
        assert len(key) == 64
        pid = pid_of(agent, warmed)
        agent._write_status()
        for seen in (f"/proc/{pid}/cmdline", f"/proc/{pid}/environ"):
            assert key.encode() not in Path(seen).read_bytes()
        for file in site.state.rglob("*"):
            if file.is_file() and file != path:
                assert key.encode() not in file.read_bytes(), file
        held = held_of(agent, warmed)
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{held.port}/slots") as answer:
            assert answer.status == 401, "the engine answers nobody without its key"


async def test_an_engine_that_is_killed_is_started_again_by_its_own_host(site: Site) -> None:
    async with site.agent() as agent:
        watch = asyncio.ensure_future(agent.watch.run())
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        generation = agent.memory.host.generation()
        first = pid_of(agent, warmed)
        os.kill(first, signal.SIGKILL)
        await until(lambda: held_of(agent, warmed).state is not READY, "the death to be seen")
        await until(lambda: held_of(agent, warmed).state is READY, "the restart")
        held = held_of(agent, warmed)
        assert pid_of(agent, warmed) != first
        assert held.restarts == 1
        assert agent.memory.host.generation() == generation, "keep-alive is not change"
        assert len(site.processes()) == 1
        watch.cancel()


async def test_a_fault_of_ours_while_keeping_alive_is_one_failed_start_and_not_the_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm(restart=Restart(max=3, per_ms=600_000, backoff_ms=100)))
        await receipt(agent, warmed)
        first = pid_of(agent, warmed)
        faults = iter([ZeroDivisionError("a fault of ours")])
        whole = agent._artifacts.locate

        def locate(*args: object) -> Path:
            for fault in faults:
                raise fault
            return whole(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(agent._artifacts, "locate", locate)
        watch = asyncio.ensure_future(agent.watch.run())
        os.kill(first, signal.SIGKILL)
        await until(lambda: held_of(agent, warmed).state is not READY, "the death to be seen")
        await until(lambda: held_of(agent, warmed).state is READY, "the restart")
        assert held_of(agent, warmed).restarts == 2
        watch.cancel()


async def test_restarts_end_when_the_policy_is_used_up_and_the_residency_says_so(site: Site) -> None:
    async with site.agent() as agent:
        watch = asyncio.ensure_future(agent.watch.run())
        warmed = await command(agent, site, site.warm(restart=Restart(max=1, per_ms=600_000, backoff_ms=50)))
        await receipt(agent, warmed)
        for _ in range(2):
            await until(lambda: held_of(agent, warmed).state is READY, "ready")
            os.kill(pid_of(agent, warmed), signal.SIGKILL)
            await until(lambda: held_of(agent, warmed).state is not READY, "the death to be seen")
        await until(lambda: held_of(agent, warmed).state is ResidencyState.FAILED, "giving up")
        held = held_of(agent, warmed)
        assert held.code == "start_failed"
        assert held.detail is not None
        assert "SIGKILL" in held.detail
        assert "restarted 1 times within 10 min" in held.detail
        assert (await done(agent, site, site.unload(warmed))).outcome is Outcome.SUCCEEDED
        watch.cancel()


async def test_a_restarted_agent_adopts_the_living_engine_and_starts_no_second_one(site: Site) -> None:
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        pid = pid_of(agent, warmed)
    assert site.processes() == [pid], "leaving stops nothing"
    async with site.agent() as agent:
        held = held_of(agent, warmed)
        assert (held.state, pid_of(agent, warmed), held.restarts) == (READY, pid, 0)
        assert site.processes() == [pid]
        assert (await chat(agent, warmed))["choices"]


async def test_what_died_while_the_agent_was_away_is_kept_alive_when_it_is_back(site: Site) -> None:
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        pid = pid_of(agent, warmed)
    os.kill(pid, signal.SIGKILL)
    async with site.agent() as agent:
        watch = asyncio.ensure_future(agent.watch.run())
        await until(lambda: held_of(agent, warmed).state is READY, "the restart")
        assert pid_of(agent, warmed) != pid
        assert held_of(agent, warmed).restarts == 1
        watch.cancel()


async def test_a_model_with_one_wrong_byte_is_never_started(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "tampered"
    folder.mkdir()
    raw = bytearray(site.model.path.read_bytes())
    raw[len(raw) // 2] ^= 1
    (folder / site.model.path.name).write_bytes(raw)
    site.config = replace(site.config, artifact_folders=(folder,))
    async with site.agent() as agent:
        for action in (site.load(), site.warm()):
            answer = await done(agent, site, action)
            assert (answer.outcome, answer.code) == (Outcome.FAILED, "wrong_digest")
        assert agent.memory.host.held == {}
        assert site.processes() == []


async def test_a_model_that_is_nowhere_is_named_with_the_folders_looked_at(site: Site, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    site.config = replace(site.config, artifact_folders=(tmp_path / "empty",))
    async with site.agent() as agent:
        answer = await done(agent, site, site.warm())
        assert (answer.outcome, answer.code) == (Outcome.FAILED, "no_artifact")
        assert answer.detail is not None
        assert str(tmp_path / "empty") in answer.detail
        assert site.model.sha256 in answer.detail


async def test_a_disk_that_filled_up_since_the_plan_refuses_the_load_in_words_that_a_plan_goes_by(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The room is looked at when the load begins; the receipt says so, and the planner leaves such a host at once."""
    (tmp_path / "empty").mkdir()
    site.config = replace(site.config, artifact_folders=(tmp_path / "empty",))
    wanted = site.artifact(source=f"file://{site.model.path}")
    full = shutil._ntuple_diskusage(site.model.size, site.model.size, 0)  # type: ignore[attr-defined]
    async with site.agent() as agent:
        with monkeypatch.context() as disk:
            disk.setattr(shutil, "disk_usage", lambda path: full)
            answer = await done(agent, site, site.load(artifact=wanted))
        assert (answer.outcome, answer.code) == (Outcome.FAILED, "no_space")
        assert is_failing(1, answer.code)
        assert agent._readings().cached == ()


async def test_a_model_file_changed_after_its_first_use_is_proved_again(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    copy = folder / site.model.path.name
    copy.write_bytes(site.model.path.read_bytes())
    site.config = replace(site.config, artifact_folders=(folder,))
    async with site.agent() as agent:
        assert (await done(agent, site, site.load())).outcome is Outcome.SUCCEEDED
        before = copy.stat()
        raw = bytearray(copy.read_bytes())
        raw[-1] ^= 1
        copy.write_bytes(raw)
        os.utime(copy, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (await done(agent, site, site.load())).code == "wrong_digest"


async def test_a_file_source_is_copied_into_the_cache_and_only_the_right_bytes_stay(site: Site, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    site.config = replace(site.config, artifact_folders=(tmp_path / "empty",))
    good = site.artifact(source=f"file://{site.model.path}")
    (tmp_path / "bad.gguf").write_bytes(b"\0" * site.model.size)
    bad = site.artifact(source=f"file://{tmp_path / 'bad.gguf'}")
    far = site.artifact(source="hf://owner/repo@1/m.gguf")
    async with site.agent() as agent:
        assert (await done(agent, site, site.load(artifact=far))).code == "bad_source"
        assert (await done(agent, site, site.load(artifact=bad))).code == "wrong_digest"
        assert [p for p in site.config.cache.rglob("*") if p.is_file()] == []
        assert (await done(agent, site, site.load(artifact=good))).outcome is Outcome.SUCCEEDED
        assert agent._readings().cached == (site.model.digest,)
        warmed = await command(agent, site, site.warm(launch=site.launch(artifact=good)))
        assert (await receipt(agent, warmed)).outcome is Outcome.SUCCEEDED


def holding(site: Site, folder: Path, content: bytes) -> Artifact:
    """A host that has this file, and the artifact that names it."""
    folder.mkdir()
    (folder / "broken.gguf").write_bytes(content)
    file = ArtifactFile(path="broken.gguf", sha256=digest_bytes(content), size_bytes=len(content))
    site.config = replace(site.config, artifact_folders=(folder,))
    return site.artifact(files=(file,))


async def test_a_hostile_model_file_is_refused_before_a_process_is_started(site: Site, tmp_path: Path) -> None:
    broken = holding(site, tmp_path / "broken", b"GGUF" + b"\x07" * 4096)
    async with site.agent() as agent:
        for action in (site.load(artifact=broken), site.warm(launch=site.launch(artifact=broken))):
            answer = await done(agent, site, action)
            assert (answer.outcome, answer.code) == (Outcome.FAILED, "bad_model_file")
        assert not (agent.doors.folder(answer.body) / "log").exists()
        assert agent.memory.host.held == {}


async def test_a_broken_model_fails_with_the_engines_own_words(site: Site, tmp_path: Path) -> None:
    broken = holding(site, tmp_path / "broken", sound_gguf())
    async with site.agent() as agent:
        answer = await done(agent, site, site.warm(launch=site.launch(artifact=broken)))
        assert (answer.outcome, answer.code) == (Outcome.FAILED, "start_failed")
        assert answer.detail is not None
        assert "exit code 1" in answer.detail
        assert agent.memory.host.held == {}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((("warp", "9"),), "no argument `warp`"),
        ((("threads", "1 --api-key x"),), "cannot use"),
        ((("threads", "0"),), "cannot use"),
        ((("chat_template", "--host"),), "cannot use"),
    ],
)
async def test_an_argument_that_the_engine_does_not_know_is_refused(
    site: Site, args: tuple[tuple[str, str], ...], says: str
) -> None:
    from gridops.model.profile import EngineArg

    given = tuple(EngineArg(name=name, value=value) for name, value in args)
    async with site.agent() as agent:
        answer = await done(agent, site, site.warm(launch=site.launch(args=given)))
        assert (answer.outcome, answer.code) == (Outcome.REFUSED, "bad_argument")
        assert answer.detail is not None
        assert says in answer.detail
