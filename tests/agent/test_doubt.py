"""Foreign processes, stolen ports, doubts: nothing that is not proved is touched, and nothing is started twice."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gridops.base.errors import BadSetup
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core.events import Woke
from gridops_agent.core.state import Handle, put
from gridops_agent.ledger import Ledger
from gridops_agent.platform import here
from gridops_agent.platform.linux import Linux
from gridops_agent.shell import Agent
from gridops_agent.stopping import stop_engines
from tests.agent.site import Site, command, done, hear, held_of, pid_of, receipt, until


@contextmanager
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-Sc", "import time; time.sleep(60)"], start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def holding(port: int) -> Iterator[None]:
    with socket.socket() as foreign:
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        foreign.bind(("127.0.0.1", port))
        foreign.listen()
        yield


def pretend(agent: Agent, site: Site, body: str, handle: Handle) -> None:
    """Write another handle into the ledger, as a reused pid or a damaged memory would show it."""
    old = agent.memory.host
    new = replace(old, held=put(old.held, body, replace(old.held[body], handle=handle)))
    agent._ledger.write(old, new)
    agent.memory.host = new


async def test_a_foreign_process_on_a_port_makes_the_engine_take_another(site: Site) -> None:
    first, _ = site.config.ports
    with holding(first):
        async with site.agent() as agent:
            warmed = await command(agent, site, site.warm())
            assert (await receipt(agent, warmed)).outcome is Outcome.SUCCEEDED
            assert held_of(agent, warmed).port == first + 1
            seen = agent._readings()
            assert seen.endpoint is not None


async def test_when_every_port_is_taken_the_refusal_names_the_range(site: Site) -> None:
    first, _ = site.config.ports
    site.config = replace(site.config, ports=(first, first))
    with holding(first):
        async with site.agent() as agent:
            answer = await done(agent, site, site.warm())
            assert (answer.outcome, answer.code) == (Outcome.FAILED, "port_taken")
            assert f"between {first} and {first}" in (answer.detail or "")
            assert agent.memory.host.held == {}


async def test_a_port_stolen_between_the_look_and_the_start_is_left_to_its_thief(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The foreign process answers like an engine would, but it is not the process we started."""
    first, _ = site.config.ports
    thief: list[socket.socket] = []
    from gridops_agent import starts

    free = starts._free

    def steal(port: int) -> bool:
        answer = free(port)
        if port == first and answer and not thief:
            sock = socket.socket()
            sock.bind(("127.0.0.1", port))
            sock.listen()
            thief.append(sock)
        return answer

    monkeypatch.setattr(starts, "_free", steal)
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        assert (await receipt(agent, warmed)).outcome is Outcome.SUCCEEDED
        assert held_of(agent, warmed).port == first + 1
        assert len(site.processes()) == 1
    thief[0].close()


async def test_a_reused_pid_is_never_signalled_and_the_engine_counts_as_dead(site: Site) -> None:
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        handle = held_of(agent, warmed).handle
        assert handle is not None
        os.kill(handle.pid, signal.SIGKILL)
        with stranger() as other:
            pretend(agent, site, warmed, replace(handle, pid=other.pid))
            watch = asyncio.ensure_future(agent.watch.run())
            await until(lambda: held_of(agent, warmed).restarts == 1, "keep-alive")
            await until(lambda: held_of(agent, warmed).state is ResidencyState.READY)
            assert other.poll() is None
            watch.cancel()


async def test_a_living_process_without_proof_is_kept_as_failed_and_never_signalled(site: Site) -> None:
    with stranger() as other:
        born = here().process(other.pid)
        assert born is not None
        async with site.agent() as agent:
            warmed = await command(agent, site, site.warm())
            await receipt(agent, warmed)
            real = held_of(agent, warmed).handle
            assert real is not None
            pretend(agent, site, warmed, replace(real, pid=other.pid, birth=born.birth))
        async with site.agent() as agent:
            held = held_of(agent, warmed)
            assert (held.state, held.code) == (ResidencyState.FAILED, "not_ours")
            for _ in range(3):
                await agent.watch.look()
            assert held_of(agent, warmed).restarts == 0, "no second process beside one that may be ours"
            answer = await done(agent, site, site.unload(warmed, force=True))
            assert (answer.outcome, answer.code) == (Outcome.FAILED, "not_ours")
            assert other.poll() is None
            assert warmed in agent.memory.host.held, "its memory stays counted"
            other.kill()
            other.wait()
            answer = await done(agent, site, site.unload(warmed))
            assert answer.outcome is Outcome.SUCCEEDED
            assert site.processes() == [], "the engine that its cookie proves went with it"


async def test_a_doubt_that_passes_brings_the_residency_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        pid = pid_of(agent, warmed)
        await agent.effects.settled()  # until the start is over the watch leaves this one alone
        with monkeypatch.context() as blind:
            blind.setattr(Linux, "environment", lambda self, pid: None)
            blind.setattr("gridops_agent.keep.child.DOUBT_LOOKS", 1)
            await agent.watch.look()
            assert (held_of(agent, warmed).state, held_of(agent, warmed).code) == (ResidencyState.FAILED, "not_ours")
        await agent.watch.look()
        await until(lambda: held_of(agent, warmed).state is ResidencyState.READY)
        assert pid_of(agent, warmed) == pid


async def test_one_command_never_has_two_processes_however_often_it_is_granted(site: Site) -> None:
    async with site.agent() as agent:
        body = site.body(site.warm())
        for _ in range(3):
            await hear(agent, site, site.grant(body), site.grant(body))
        from gridops.base.record import digest_of

        await receipt(agent, digest_of(body))
        await hear(agent, site, site.grant(body))
        await agent.watch.look()
        assert len(site.processes()) == 1
        await agent.effects._starts.start(digest_of(body))
        assert len(site.processes()) == 1, "a start of what is ready does nothing"


async def test_starts_on_one_device_follow_each_other_and_a_drain_does_not_hold_them_up(site: Site) -> None:
    async with site.agent() as agent:
        first = await command(agent, site, site.warm("one"))
        second = await command(agent, site, site.warm("two", number=1))
        a, b = await receipt(agent, first), await receipt(agent, second)
        assert a.ended_ms <= b.began_ms, "the second began when the first was up"
        assert len(site.processes()) == 2


async def test_a_model_that_would_not_fit_is_refused_before_anything_starts(site: Site) -> None:
    async with site.agent() as agent:
        total = next(d.total_bytes for d in agent.memory.host.measured)
        answer = await done(agent, site, site.warm(device_bytes=total))
        assert (answer.outcome, answer.code) == (Outcome.REFUSED, "over_ceiling")
        assert site.processes() == []


def never_ready(site: Site) -> None:
    """An engine that knows every flag and never answers."""
    known = "--model --alias --host --port --ctx-size --parallel --api-key-file --slots --metrics --threads"
    script = f'case "$*" in *--help*) echo {known};; *) exec sleep 60;; esac'
    site.config = replace(site.config, engine_command={"llama.cpp": ("/bin/sh", "-c", script, "llama")})


async def test_a_process_is_in_the_ledger_before_anything_waits_for_it(site: Site) -> None:
    never_ready(site)
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await until(lambda: warmed in agent.memory.host.held and held_of(agent, warmed).handle is not None)
        ledger = Ledger.look(site.config.ledger)
        held = ledger.load("look").held[warmed]
        ledger.close()
        assert held.state is ResidencyState.WARMING
        assert held.handle is not None
        assert [held.handle.pid] == site.processes()
        assert held.handle.birth
        assert held.handle.port == held.port
        assert not held.handle.settled


async def test_a_first_start_that_never_becomes_ready_is_ended_and_reported(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridops_agent.starts.WARM_FLOOR_MS", 400)
    never_ready(site)
    async with site.agent() as agent:
        answer = await done(agent, site, site.warm(warm_ms=1))
        assert (answer.outcome, answer.code) == (Outcome.FAILED, "start_failed")
        assert "not ready within 400 ms" in (answer.detail or "")
        assert site.processes() == []
        assert agent.memory.host.held == {}


async def test_an_engine_that_is_too_old_for_us_is_named(site: Site) -> None:
    site.config = replace(site.config, engine_command={"llama.cpp": ("/bin/sh", "-c", "echo --model --port")})
    async with site.agent() as agent:
        answer = await done(agent, site, site.warm())
        assert (answer.outcome, answer.code) == (Outcome.FAILED, "no_runtime")
        assert "does not know --alias" in (answer.detail or "")


async def test_an_engine_that_does_not_answer_is_not_taken_for_idle(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridops_agent.engines.asking.PATIENCE", aiohttp.ClientTimeout(total=0.3))
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        os.kill(pid_of(agent, warmed), signal.SIGSTOP)
        late = await done(agent, site, site.drain(warmed, grace_ms=100))
        assert (late.code, late.detail) == (
            "drain_timeout",
            "the engine does not say whether it is idle; nothing was cut",
        )
        assert (await done(agent, site, site.unload(warmed))).code == "work_in_flight"
        assert len(site.processes()) == 1
        assert (await done(agent, site, site.unload(warmed, force=True))).outcome is Outcome.SUCCEEDED
        assert site.processes() == [], "KILL ends also what is stopped"


async def test_a_host_without_the_runtime_refuses(site: Site) -> None:
    async with site.agent() as agent:
        answer = await done(agent, site, site.warm(launch=site.launch(backend="cuda")))
        assert (answer.outcome, answer.code) == (Outcome.REFUSED, "no_runtime")


async def test_the_agent_does_not_start_without_a_library_its_engine_needs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> object:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", missing)
    with pytest.raises(BadSetup, match="libgomp1") as caught:
        async with site.agent():
            pass
    assert caught.value.exit_code == 78


async def test_stop_ends_idle_engines_only_and_only_without_an_agent(make_site: Callable[..., Site]) -> None:
    from gridops.base.errors import Busy

    site = make_site()
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        with pytest.raises(Busy):
            await stop_engines(site.config, False)
    lines, left = await stop_engines(site.config, False)
    assert (lines, left) == (("tiny/1  stopped",), False)
    assert site.processes() == []
    assert await stop_engines(site.config, False) == ((), False)


async def test_leaving_while_an_engine_starts_lets_it_finish_and_adopts_it(site: Site) -> None:
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await until(lambda: warmed in agent.memory.host.held and held_of(agent, warmed).handle is not None)
    pids = site.processes()
    time.sleep(0.05)
    async with site.agent() as agent:
        answer = await receipt(agent, warmed)
        assert answer.outcome is Outcome.SUCCEEDED
        assert [pid_of(agent, warmed)] == pids == site.processes()


def own_model(site: Site, folder: Path) -> Path:
    """The model in a folder of this test alone, where the agent looks for it: it may be changed."""
    model = folder / "mine" / "tiny.gguf"
    model.parent.mkdir()
    model.write_bytes(site.model.path.read_bytes())
    site.config = replace(site.config, artifact_folders=(model.parent,))
    return model


@pytest.mark.parametrize("swapped", [True, False])
async def test_a_model_file_swapped_while_the_agent_was_away_in_mid_start_never_becomes_ready(
    site: Site, tmp_path: Path, swapped: bool
) -> None:
    model = own_model(site, tmp_path)
    good = model.read_bytes()
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await until(lambda: warmed in agent.memory.host.held and held_of(agent, warmed).handle is not None)
        assert not held_of(agent, warmed).handle.settled  # type: ignore[union-attr]
    if swapped:
        seen = model.stat()
        other = model.with_suffix(".other")
        other.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        other.replace(model)
        os.utime(model, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    async with site.agent() as agent:
        answer = await receipt(agent, warmed)
        if not swapped:
            assert answer.outcome is Outcome.SUCCEEDED
            return
        assert (answer.outcome, answer.code) == (Outcome.FAILED, "start_failed")
        assert f"{model} was changed while the engine started" in (answer.detail or "")
        assert (agent.memory.host.held, site.processes()) == ({}, [])


async def test_a_file_that_is_replaced_after_its_model_was_ready_ends_nothing(site: Site, tmp_path: Path) -> None:
    model = own_model(site, tmp_path)
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        model.write_bytes(b"the next one")
        await agent.effects.tell(Woke(1_000))
        await until(lambda: held_of(agent, warmed).state is ResidencyState.READY)
        assert len(site.processes()) == 1


@pytest.mark.parametrize("how", ["in place", "by another file"])
async def test_a_model_file_swapped_between_its_proof_and_its_reading_never_becomes_ready(
    site: Site, tmp_path: Path, how: str
) -> None:
    """The same size, the same time, other bytes: what the engine has read is not what was approved."""
    model = own_model(site, tmp_path)
    good = model.read_bytes()
    async with site.agent() as agent:
        start, seen = agent.keepers.child.start, model.stat()

        async def swapping(*given: Any) -> Any:
            bad = good[:-1] + bytes([good[-1] ^ 1])
            if how == "in place":
                with model.open("r+b") as file:
                    file.write(bad)
            else:
                other = model.with_suffix(".other")
                other.write_bytes(bad)
                other.replace(model)
            os.utime(model, ns=(seen.st_atime_ns, seen.st_mtime_ns))
            return await start(*given)

        agent.keepers.child.start = swapping  # type: ignore[method-assign]
        made = await done(agent, site, site.warm())
        assert (made.outcome, made.code) == (Outcome.FAILED, "start_failed")
        assert f"{model} was changed while the engine started" in (made.detail or "")
        assert (agent.memory.host.held, site.processes()) == ({}, [])
        agent.keepers.child.start = start  # type: ignore[method-assign]
        assert (await done(agent, site, site.warm())).code == "wrong_digest"
        model.write_bytes(good)
        assert (await done(agent, site, site.warm())).outcome is Outcome.SUCCEEDED
