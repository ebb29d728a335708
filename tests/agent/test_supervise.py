"""Identity before any signal: what is ours is ended whole, what cannot be proved is never touched."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.canon import digest_bytes
from gridops.base.errors import Failed
from gridops.base.ids import HostId
from gridops_agent.config import Config
from gridops_agent.core.state import Handle
from gridops_agent.keep.base import Proof, Spawn
from gridops_agent.keep.child import COOKIE, ChildKeeper
from gridops_agent.platform import here
from gridops_agent.statefolder import only_one
from gridops_agent.supervise import tail, trim_log
from tests.agent.site import PATIENCE_S, until

BODY = digest_bytes(b"body" + os.urandom(8))
"""Of this run alone: a cookie is looked for among all processes, and other runs of these tests have theirs."""
OTHER = digest_bytes(b"other" + os.urandom(8))
QUICK = ((signal.SIGTERM, 0.5), (signal.SIGTERM, 0.3), (signal.SIGKILL, 5.0))
SLEEP = (sys.executable, "-Sc", "import time; time.sleep(60)")


@pytest.fixture
def supervisor(tmp_path: Path) -> ChildKeeper:
    return ChildKeeper(here(), tmp_path)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    for process in here().processes():
        environment = here().environment(process.pid) or {}
        if not process.zombie and environment.get(COOKIE) in (BODY, OTHER):
            here().send(process, signal.SIGKILL)


async def keep(handle: Handle) -> None:
    return None


async def start(supervisor: ChildKeeper, folder: Path, *argv: str, **environment: str) -> Handle:
    spawn = Spawn(BODY, argv or SLEEP, environment, folder, 18_300, folder / "engine.key")
    return await supervisor.start(spawn, keep)


def script(folder: Path, text: str) -> tuple[str, ...]:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(text))
    return (sys.executable, "-S", str(path))


def open_files(pid: int) -> set[str]:
    """What the process has open at this moment; a descriptor that closes while we look counts as closed."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(entry))
    return found


async def until_file(path: Path) -> str:
    end = time.monotonic() + PATIENCE_S
    while not path.exists() or not path.read_text():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
    return path.read_text()


async def test_a_process_is_proved_by_cookie_and_birth_and_ended_by_term(
    supervisor: ChildKeeper, tmp_path: Path
) -> None:
    handle = await start(supervisor, tmp_path)
    assert supervisor.look(BODY, handle) is Proof.OURS
    assert supervisor.look(OTHER, handle) is Proof.NOT_OURS, "another command's process"
    assert (await supervisor.stop(BODY, handle)).gone
    assert supervisor.look(BODY, handle) is Proof.GONE
    assert "SIGTERM" in supervisor.ending(handle)


async def test_a_reused_pid_is_a_dead_engine_and_a_stranger_who_is_left_alone(
    supervisor: ChildKeeper, tmp_path: Path
) -> None:
    stranger = subprocess.Popen(SLEEP)
    try:
        born = here().process(stranger.pid)
        assert born is not None
        reused = Handle(pid=stranger.pid, birth="boot:1", port=1, key_file="", executable=sys.executable, settled=True)
        assert supervisor.look(BODY, reused) is Proof.GONE
        assert (await supervisor.stop(BODY, reused, QUICK)).gone
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_living_process_without_the_cookie_is_never_signalled(supervisor: ChildKeeper, tmp_path: Path) -> None:
    stranger = subprocess.Popen(SLEEP, start_new_session=True)
    try:
        born = here().process(stranger.pid)
        assert born is not None
        handle = Handle(pid=stranger.pid, birth=born.birth, port=1, key_file="")
        assert supervisor.look(BODY, handle) is Proof.NOT_OURS
        stopped = await supervisor.stop(BODY, handle, QUICK)
        assert not stopped.gone
        assert "cannot be proved" in stopped.detail
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_another_executable_under_the_same_pid_is_doubted_once_it_was_ready(
    supervisor: ChildKeeper, tmp_path: Path
) -> None:
    handle = await start(supervisor, tmp_path)
    assert handle.executable == os.path.realpath(sys.executable)
    elsewhere = replace(handle, executable="/usr/bin/elsewhere")
    assert supervisor.look(BODY, elsewhere) is Proof.OURS, "before it is ready a start script may still be running"
    assert supervisor.look(BODY, replace(elsewhere, settled=True)) is Proof.NOT_OURS
    assert supervisor.settle(elsewhere) == replace(handle, settled=True)
    assert (await supervisor.stop(BODY, handle, QUICK)).gone


async def test_what_ignores_term_is_killed_and_so_is_its_whole_group(supervisor: ChildKeeper, tmp_path: Path) -> None:
    argv = script(
        tmp_path,
        """
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
        child = subprocess.Popen([sys.executable, "-Sc", deaf])
        away = subprocess.Popen([sys.executable, "-Sc", "import time; time.sleep(60)"], start_new_session=True)
        bare = subprocess.Popen([sys.executable, "-Sc", "import time; time.sleep(60)"], env={})
        open("pids", "w").write(f"{child.pid} {away.pid} {bare.pid}")
        time.sleep(60)
        """,
    )
    handle = await start(supervisor, tmp_path, *argv)
    pids = [int(pid) for pid in (await until_file(tmp_path / "pids")).split()]
    assert {p.pid for p in supervisor.members(BODY, handle)} >= {handle.pid, *pids}
    assert (await supervisor.stop(BODY, handle, QUICK)).gone
    for pid in (handle.pid, *pids):
        now = here().process(pid)
        assert now is None or now.zombie, f"{pid} lives"


async def test_orphans_of_a_killed_leader_are_found_by_their_cookie(supervisor: ChildKeeper, tmp_path: Path) -> None:
    argv = script(
        tmp_path,
        """
        import subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-Sc", "import time; time.sleep(60)"])
        open("pids", "w").write(str(child.pid))
        time.sleep(60)
        """,
    )
    handle = await start(supervisor, tmp_path, *argv)
    orphan = int(await until_file(tmp_path / "pids"))
    os.kill(handle.pid, signal.SIGKILL)
    await until(lambda: supervisor.look(BODY, handle) is Proof.GONE, "the end of the leader")
    assert [p.pid for p in supervisor.members(BODY, handle)] == [orphan]
    assert (await supervisor.stop(BODY, handle, QUICK)).gone
    now = here().process(orphan)
    assert now is None or now.zombie


async def test_a_zombie_that_nobody_reaps_counts_as_gone(tmp_path: Path) -> None:
    """PID 1 of a container may reap nothing, and an adopted engine is not our child."""
    started = ChildKeeper(here(), tmp_path)
    handle = await start(started, tmp_path)
    adopted = ChildKeeper(here(), tmp_path)
    os.kill(handle.pid, signal.SIGKILL)

    def dead() -> bool:
        seen = here().process(handle.pid)
        return seen is not None and seen.zombie

    await until(dead, "a zombie")
    assert adopted.look(BODY, handle) is Proof.GONE
    assert (await adopted.stop(BODY, handle, QUICK)).gone
    assert started.look(BODY, handle) is Proof.GONE
    assert here().process(handle.pid) is None, "its parent reaps it"


async def test_a_child_that_cannot_be_recorded_is_ended_at_once(supervisor: ChildKeeper, tmp_path: Path) -> None:
    seen: list[Handle] = []

    async def refuse(handle: Handle) -> None:
        seen.append(handle)
        raise Failed("the ledger cannot be written")

    with pytest.raises(Failed, match="ledger"):
        await supervisor.start(Spawn(BODY, SLEEP, {}, tmp_path, 1, tmp_path / "k"), refuse)
    assert seen[0].birth, "the handle was complete when it was offered"
    assert here().process(seen[0].pid) is None


async def test_a_process_spawned_but_not_recorded_is_found_again_by_its_cookie(tmp_path: Path) -> None:
    started = ChildKeeper(here(), tmp_path)
    handle = await start(started, tmp_path)
    again = await ChildKeeper(here(), tmp_path).recover(BODY, 18_300, tmp_path / "engine.key")
    assert again == handle
    assert await ChildKeeper(here(), tmp_path).strangers(frozenset()) == ((f"pid {handle.pid}", BODY),)
    assert await ChildKeeper(here(), tmp_path).strangers(frozenset({BODY})) == ()
    assert await ChildKeeper(here(), tmp_path / "other").strangers(frozenset()) == (), (
        "another agent's process is not ours"
    )
    assert (await started.stop(BODY, handle, QUICK)).gone


async def test_a_copied_state_folder_has_no_say_over_engines_whose_agent_lives(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    home.mkdir()
    copy.mkdir()
    first, second = ChildKeeper(here(), home), ChildKeeper(here(), copy)
    handle = await start(first, tmp_path)
    lives = Config(state=home, controller="https://127.0.0.1:1", host=HostId("forge"), fleet=BODY)
    with only_one(lives):
        assert first.look(BODY, handle) is Proof.OURS
        assert second.look(BODY, handle) is Proof.NOT_OURS
        assert await second.recover(BODY, 18_300, tmp_path / "engine.key") is None
        assert not (await second.stop(BODY, handle, QUICK)).gone
        assert (await second.stop(BODY, None, QUICK)).gone, "nothing of its own is left"
        assert here().process(handle.pid) is not None
    # A folder that was moved, or whose agent is gone, is the same host in another place.
    assert second.look(BODY, handle) is Proof.OURS
    assert (await second.stop(BODY, handle, QUICK)).gone


async def test_an_engine_gets_a_small_environment_and_no_open_file_of_ours(
    supervisor: ChildKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/cuda/lib")
    monkeypatch.setenv("A_SECRET", "x")
    handle = await start(supervisor, tmp_path, "/bin/sleep", "60", CUDA_VISIBLE_DEVICES="")
    seen = dict(here().environment(handle.pid) or {})
    assert seen["LD_LIBRARY_PATH"] == "/opt/cuda/lib"
    assert seen["OMP_WAIT_POLICY"] == "passive"
    assert seen[COOKIE] == BODY
    assert "A_SECRET" not in seen
    # A program that has just started still opens and closes its libraries; a descriptor of ours would stay for good.
    await until(lambda: open_files(handle.pid) == {"/dev/null", str(tmp_path / "log")}, "no file but its own")
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    assert (await supervisor.stop(BODY, handle, QUICK)).gone


async def test_a_program_that_is_not_there_is_an_ordinary_failure(supervisor: ChildKeeper, tmp_path: Path) -> None:
    with pytest.raises(Failed, match="cannot be started: No such file"):
        await start(supervisor, tmp_path, "/nowhere/llama-server")


def test_a_log_keeps_its_newer_half_and_the_engine_goes_on_writing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab", buffering=0) as engine:
        engine.write(b"old\n" * 1_000 + b"new\n" * 1_000)
        trim_log(log, limit=4_000)
        engine.write(b"last words\n")
    assert log.read_bytes() == b"last words\n"
    assert set((tmp_path / "log.1").read_bytes().split()) == {b"new"}
    assert tail(log) == ("last words",)
    trim_log(tmp_path / "nothing")


def test_a_signal_never_reaches_a_process_of_another_birth() -> None:
    stranger = subprocess.Popen(SLEEP)
    try:
        now = here().process(stranger.pid)
        assert now is not None
        assert here().send(replace(now, birth="boot:1"), signal.SIGKILL) is False
        assert stranger.poll() is None
        assert here().send(now, signal.SIGKILL) is True
        assert stranger.wait(5) == -signal.SIGKILL
        assert here().send(now, signal.SIGKILL) is False
    finally:
        stranger.kill()
        stranger.wait()
