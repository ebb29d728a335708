"""What is true of engine processes over a long time: nothing leaks, nobody else is taken for ours, none dies with us.

The other clauses stand where their mechanism is tested: `test_supervise` (cookie, birth, groups, orphans, unrecorded
children), `test_reuse` (a pid given away), `test_doubt` (no proof, stolen ports, no second start).
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from gridops.base.canon import digest_bytes
from gridops.protocol.messages import Outcome
from gridops_agent.core.state import Handle
from gridops_agent.doors import OLD_FOLDERS
from gridops_agent.engines.llama_cpp import LlamaCpp
from gridops_agent.keep.base import Proof, Spawn
from gridops_agent.keep.child import ChildKeeper
from gridops_agent.platform import here
from tests.agent.site import Site, done, free_ports, held_of, until

CYCLES = 50
WARM_UP = 5
BODY = digest_bytes(b"a command")
LISTEN = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(300)"


async def keep(handle: Handle) -> None:
    pass


async def begun(keeper: ChildKeeper, folder: Path, port: int, *argv: str) -> Handle:
    spawn = Spawn(BODY, argv or (sys.executable, "-c", LISTEN, str(port)), {}, folder, port, folder / "k")
    return await keeper.start(spawn, keep)


async def test_fifty_starts_and_stops_leave_no_process_no_descriptor_and_no_memory(site: Site) -> None:
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}  # other tests' git, which this process never reaped
    async with site.agent() as agent:
        counted: list[tuple[int, int]] = []
        for cycle in range(CYCLES):
            made = await done(agent, site, site.warm())
            assert made.outcome is Outcome.SUCCEEDED, (cycle, made)
            (body,) = agent.memory.host.held
            for action in (site.drain(body), site.unload(body)):
                answer = await done(agent, site, action)
                assert answer.outcome is Outcome.SUCCEEDED, (cycle, answer)
            await agent.effects.settled()
            assert site.processes() == [], cycle
            gc.collect()
            counted.append((me.num_fds(), me.memory_info().rss))
        assert agent.keepers.child._children == {}, "no child is kept in mind"
        left = [child for child in me.children(recursive=True) if child.pid not in before]
        assert not [child for child in left if child.status() == psutil.STATUS_ZOMBIE]
        fds, memory = zip(*counted[WARM_UP:], strict=True)
        assert max(fds[-5:]) <= max(fds[:5]), f"descriptors grow: {fds}"
        assert memory[-1] - memory[0] < 24 << 20, f"the agent grew by {(memory[-1] - memory[0]) >> 20} MiB in {CYCLES}"
        await agent._measure()
        assert len(list(site.config.engines.iterdir())) == OLD_FOLDERS, "logs are kept for a while, in any agent"


async def test_fifty_starts_that_fail_leave_no_process_no_descriptor_and_no_folder_either(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    monkeypatch.setattr(LlamaCpp, "command", lambda *_: ("/bin/false",))
    async with site.agent() as agent:
        counted: list[tuple[int, int]] = []
        for cycle in range(CYCLES):
            made = await done(agent, site, site.warm())
            assert (made.outcome, made.code) == (Outcome.FAILED, "start_failed"), (cycle, made)
            await agent.effects.settled()
            assert agent.memory.host.held == {}
            counted.append((me.num_fds(), me.num_threads()))
        assert agent.keepers.child._children == {}
        assert {child.pid for child in me.children(recursive=True)} <= before, "none is left unreaped"
        fds, threads = zip(*counted[WARM_UP:], strict=True)
        assert max(fds[-5:]) <= max(fds[:5]), f"descriptors grow: {fds}"
        assert max(threads) <= threads[0] + 8, f"threads grow: {threads}"
        await agent._measure()
        assert len(list(site.config.engines.iterdir())) == OLD_FOLDERS


async def test_an_engine_leads_a_session_of_its_own_and_is_no_childs_child_of_a_terminal(tmp_path: Path) -> None:
    keeper = ChildKeeper(here(), tmp_path)
    handle = await begun(keeper, tmp_path, free_ports(1)[0])
    process = here().process(handle.pid)
    assert process is not None
    assert (process.session, process.group) == (handle.pid, handle.pid)
    assert os.getsid(0) != process.session
    status = Path(f"/proc/{handle.pid}/status")
    if status.exists():
        assert "SigIgn" in status.read_text()
    assert (await keeper.stop(BODY, handle)).gone


async def test_an_engine_outlives_the_death_of_the_agent_that_started_it(tmp_path: Path) -> None:
    """Never a parent-death signal: the agent comes back and adopts."""
    import asyncio

    port = free_ports(1)[0]
    script = (
        "import asyncio, sys; from pathlib import Path; sys.path[:0] = sys.argv[3:]\n"
        "from tests.agent.test_process_truth import begun; from gridops_agent.keep.child import ChildKeeper\n"
        "from gridops_agent.platform import here\n"
        "folder = Path(sys.argv[1])\n"
        "handle = asyncio.run(begun(ChildKeeper(here(), folder), folder, int(sys.argv[2])))\n"
        "print(handle.pid, flush=True); import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    words = (sys.executable, "-c", script, str(tmp_path), str(port), *sys.path)
    dying = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    out, _ = await dying.communicate()
    pid = int(out)
    assert dying.returncode == -signal.SIGKILL
    adopted = await ChildKeeper(here(), tmp_path).recover(BODY, port, tmp_path / "k")
    assert adopted is not None
    assert adopted.pid == pid
    assert (await ChildKeeper(here(), tmp_path).stop(BODY, adopted)).gone


async def test_what_answers_at_the_port_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    keeper, port = ChildKeeper(here(), tmp_path), free_ports(1)[0]
    with socket.create_server(("127.0.0.1", port)):
        thief = await begun(keeper, tmp_path, port, "/bin/sleep", "60")
        assert keeper.look(BODY, thief) is Proof.OURS
        assert not keeper.answers(BODY, thief), "this test has the port"
        assert (await keeper.stop(BODY, thief)).gone
    handle = await begun(keeper, tmp_path, port)
    await until(lambda: any(c.laddr.port == port for c in psutil.Process(handle.pid).net_connections("tcp")))
    assert keeper.answers(BODY, handle)
    assert not keeper.answers(digest_bytes(b"other"), replace(handle, birth="another"))
    assert (await keeper.stop(BODY, handle)).gone


async def test_an_engine_at_whose_port_somebody_else_answers_never_becomes_ready(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    accused: list[int] = []

    def answers(self: ChildKeeper, body: str, handle: Handle) -> bool:
        accused.append(handle.port)
        return len(accused) > 1

    monkeypatch.setattr(ChildKeeper, "answers", answers)
    async with site.agent() as agent:
        made = await done(agent, site, site.warm())
        assert made.outcome is Outcome.FAILED
        assert "another process answers at port" in (made.detail or "")
        assert site.processes() == []
        assert (await done(agent, site, site.warm())).outcome is Outcome.SUCCEEDED
        (body,) = agent.memory.host.held
        assert held_of(agent, body).port is not None


DEAD_LEADER = (
    "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(300,)).start();"
    "ctypes.CDLL(None).pthread_exit(None)"
)

if sys.platform.startswith("linux"):

    async def test_a_dead_leader_whose_threads_still_hold_memory_is_not_gone(tmp_path: Path) -> None:
        keeper = ChildKeeper(here(), tmp_path)
        handle = await begun(keeper, tmp_path, 1, sys.executable, "-c", DEAD_LEADER)
        stat = Path(f"/proc/{handle.pid}/stat")
        await until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "the death of the leader")
        try:
            assert keeper.look(BODY, handle) is Proof.NOT_OURS, "it holds its memory, and cannot be proved any more"
            answer = await keeper.stop(BODY, handle, ((signal.SIGTERM, 0.2), (signal.SIGKILL, 0.2)))
            assert not answer.gone
            assert f"pid {handle.pid} is alive" in answer.detail
        finally:
            os.killpg(handle.pid, signal.SIGKILL)
        await until(lambda: keeper.look(BODY, handle) is Proof.GONE)
        assert (await keeper.stop(BODY, handle)).gone
