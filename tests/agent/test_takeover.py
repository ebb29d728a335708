"""Engines change hands: what runs without gridops is seen, taken over by consent without a restart, and given back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import pytest

from gridops.base.errors import BadSetup, Refusal
from gridops.disk.keyring import create_secret
from gridops.model.snapshot import Ownership, ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent import takeover
from gridops_agent.cli.main import run
from gridops_agent.core.report import inventory
from gridops_agent.keep import external, taken
from gridops_agent.keep.external import engine_of
from gridops_agent.platform import here
from gridops_agent.status import status
from gridops_agent.status_lines import render
from gridops_agent.stopping import stop_engines
from tests.agent.site import Site, command, done, free_ports, held_of, receipt, until, wall_ms
from tests.agent.test_units import Machine, machine

assert machine is not None  # a fixture of theirs
XLL = Path(__file__).parents[2] / "agent/gridops_agent/engines/xll_server.py"


@dataclass
class Theirs:
    """An engine that a person started by hand, with a key of their own."""

    process: subprocess.Popen[bytes]
    port: int
    key: Path

    @property
    def pid(self) -> int:
        return self.process.pid


@pytest.fixture
def theirs(site: Site, tmp_path: Path) -> Iterator[Theirs]:
    port, key = free_ports(1)[0], tmp_path / "keys" / "their.key"
    create_secret(key, b"f" * 64 + b"\n")  # as an editor or `echo` leaves it
    words = [sys.executable, "-P", str(XLL), "--model", str(site.model.path), "--alias", "tiny", "--port", str(port)]
    words += ["--ctx-size", "512", "--parallel", "2", "--threads", "1", "--api-key-file", str(key), "--slots"]
    process = subprocess.Popen(
        [*words, "--metrics"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    yield Theirs(process, port, key)
    process.kill()
    process.wait()


async def ready(engine: Theirs) -> None:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {'f' * 64}"}) as http:
        for _ in range(600):
            try:
                async with http.get(f"http://127.0.0.1:{engine.port}/v1/models") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
    raise AssertionError("it never came up")


async def handed(site: Site, engine: Theirs) -> None:
    await ready(engine)
    one = await takeover.found(site.config, takeover.Wish(str(engine.pid), str(engine.key)))
    takeover.keep(site.config, one, 1)


LINES = {
    "llama.cpp": ("/opt/llama/llama-server", "-m", "x.gguf"),
    "vllm": ("/usr/bin/python3", "/opt/vllm", "serve", "m"),
    "sglang": ("python3", "-m", "sglang.launch_server", "--port", "1"),
    "ollama": ("/usr/local/bin/ollama", "serve"),
    "comfyui": ("python", "/home/a/ComfyUI/main.py", "--port", "8188"),
}


@pytest.mark.parametrize(("engine", "words"), LINES.items(), ids=LINES)
def test_engines_are_known_by_their_command_lines(engine: str, words: tuple[str, ...]) -> None:
    assert engine_of(words) == engine


@pytest.mark.parametrize(
    "words", [("vim", "llama-server.md"), ("ollama", "list"), ("python", "main.py"), ("vllm",), ()]
)
def test_other_programs_are_none(words: tuple[str, ...]) -> None:
    assert engine_of(words) is None


async def test_an_external_engine_is_shown_without_a_number_and_never_touched(theirs: Theirs, site: Site) -> None:
    await ready(theirs)
    async with site.agent() as agent:
        await agent.hands.look(agent._http)
        seen = [r for r in inventory(agent.memory.host, agent._readings()).residencies if r.port == theirs.port]
        assert [(r.ownership, r.replica, r.incarnation) for r in seen] == [(Ownership.EXTERNAL, None, None)]
        assert seen[0].state is ResidencyState.UNKNOWN, "it lists nothing to a caller without its key"
        assert f"pid {theirs.pid}" in (seen[0].detail or "")
        agent._write_status()
        text = render(status(site.config, True), 0)
        assert f"external  port {theirs.port}" in text
    assert theirs.process.poll() is None


LISTS = (
    "import http.server, json, sys\n"
    "class H(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        raw = json.dumps({'data': [{'id': 'theirs'}, {'id': 'tiny'}]}).encode()\n"
    "        self.send_response(200); self.send_header('Content-Length', str(len(raw))); self.end_headers()\n"
    "        self.wfile.write(raw)\n"
    "http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), H).serve_forever()\n"
)


@pytest.mark.parametrize("agreed", [True, False])
async def test_the_front_reaches_an_external_engine_only_where_the_owner_agreed(
    site: Site, tmp_path: Path, agreed: bool
) -> None:
    program, port = tmp_path / "llama-server", free_ports(1)[0]
    program.write_text(LISTS)
    process = subprocess.Popen([sys.executable, str(program), str(port)], stderr=subprocess.DEVNULL)
    site.config = replace(site.config, route_external=agreed)
    try:
        await until(lambda: any(e.port == port for e in external.engines_here(here(), frozenset())), "the engine")
        async with site.agent() as agent:
            body = await command(agent, site, site.warm())
            await receipt(agent, body)
            assert await agent.hands.look(agent._http)
            agent._changed(agent.memory.host)
            routes = {name: r.door.port for r in agent.front.table.routes for name in r.serves if r.door.port == port}
            assert routes == ({"theirs": port} if agreed else {}), "an id that a replica of ours serves stays ours"
            assert held_of(agent, body).port != port
    finally:
        process.kill()
        process.wait()


async def test_what_an_agent_started_is_no_external_engine(site: Site) -> None:
    async with site.agent() as agent:
        await receipt(agent, await command(agent, site, site.warm()))
        found = external.engines_here(here(), frozenset())
        assert not [e for e in found if str(site.state) in " ".join(e.words)]


async def test_an_engine_taken_over_becomes_the_residency_that_a_plan_wants_without_a_restart(
    theirs: Theirs, site: Site
) -> None:
    await handed(site, theirs)
    async with site.agent() as agent:
        (row,) = status(site.config, True)["handed_over"]
        assert (row["called"], row["models"], row["state"]) == (f"pid {theirs.pid}", ["tiny"], "running")
        assert agent.memory.host.held == {}, "until a plan wants it it is inventory"
        body = await command(agent, site, site.warm())
        made = await receipt(agent, body)
        assert made.outcome is Outcome.SUCCEEDED, made
        handle = held_of(agent, body).handle
        assert handle is not None
        assert (handle.pid, handle.port, handle.taken) == (theirs.pid, theirs.port, True)
        assert theirs.process.poll() is None
        assert site.processes() == [], "nothing was started"
    async with site.agent() as agent:
        assert held_of(agent, body).state is ResidencyState.READY, "a restarted agent adopts it"
        await done(agent, site, site.drain(body))
        made = await done(agent, site, site.unload(body))
        assert made.outcome is Outcome.SUCCEEDED, made
    assert theirs.process.wait(10) is not None, "it was ours to end"


MISMATCHES: dict[str, tuple[dict[str, object], str]] = {
    "another model": ({"profile": "other"}, ""),
    "other lanes": ({"lanes": 1}, ", not what tiny/1 wants: it runs with 2 lanes instead of 1"),
    "another context": (
        {"context": 1_024},
        ", not what tiny/1 wants: its lanes hold 256 tokens of context instead of 512 each",
    ),
}


@pytest.mark.parametrize(("changes", "said"), MISMATCHES.values(), ids=MISMATCHES)
async def test_an_engine_that_is_not_what_a_plan_wants_stays_as_it_is(
    theirs: Theirs, site: Site, changes: dict[str, object], said: str
) -> None:
    await handed(site, theirs)
    async with site.agent() as agent:
        body = await command(agent, site, site.warm(launch=replace(site.launch(), **changes)))  # type: ignore[arg-type]
        await receipt(agent, body)
        held = agent.memory.host.held.get(body)
        assert held is None or held.handle is None or held.handle.pid != theirs.pid
        await agent.hands.look(agent._http)
        (seen,) = (r.detail or "" for r in agent.hands.external() if r.port == theirs.port)
        assert seen.endswith(f"taken over{said}"), "and a person can see why it was not used"
    assert theirs.process.poll() is None


async def test_a_residency_given_back_runs_on_and_is_external_from_then_on(site: Site) -> None:
    async with site.agent() as agent:
        body = await command(agent, site, site.warm())
        await receipt(agent, body)
        await agent.effects.settled()
        handle = held_of(agent, body).handle
        assert handle is not None
        assert "tiny/1" in takeover.give_back(site.config, "tiny/1", 1)
        await agent._measure()
        assert agent.memory.host.held == {}
        assert not any("stray" in alarm for alarm in agent.alarms.now()), "given back is not lost"
        await agent.watch.look()
        assert here().process(handle.pid) is not None
        await agent.hands.look(agent._http)
        assert [r.port for r in agent.hands.external() if f"pid {handle.pid}" in (r.detail or "")] == [handle.port]
    async with site.agent() as agent:
        assert agent.memory.host.held == {}
    assert site.processes() == [handle.pid]


async def test_what_was_given_back_while_no_agent_ran_is_forgotten_before_anything_else(site: Site) -> None:
    async with site.agent() as agent:
        body = await command(agent, site, site.warm())
        await receipt(agent, body)
        pid = site.processes()
    takeover.give_back(site.config, body, 1)
    async with site.agent() as agent:
        assert agent.memory.host.held == {}
    assert site.processes() == pid


async def test_a_unit_is_taken_over_as_it_runs(machine: Machine) -> None:
    machine.systemctl("start", "--", "llama.service")
    site = machine.site
    one = None
    for _ in range(600):
        try:
            one = await takeover.found(site.config, takeover.Wish("llama.service"))
            break
        except Refusal:
            await asyncio.sleep(0.1)
    assert one is not None
    pid = machine.pid()
    takeover.keep(site.config, one, 1)
    assert "Restart=no" in machine.drop_in.read_text()
    async with site.agent() as agent:
        body = await command(agent, site, site.warm())
        made = await receipt(agent, body)
        assert made.outcome is Outcome.SUCCEEDED, made
        handle = held_of(agent, body).handle
        assert handle is not None
        assert (handle.keeper, handle.name, handle.pid) == ("unit", "llama.service", pid)
        await done(agent, site, site.drain(body))
        assert (await done(agent, site, site.unload(body))).outcome is Outcome.SUCCEEDED
    assert not [line for line in machine.calls() if " kill " in line]


REFUSED = {
    "nothing": "999999",
    "this very process": str(os.getpid()),
    "a unit that nobody declared": "other.service",
    "a unit by its path": "../x.service",
    "a container where there are none": "vllm-a",
}


@pytest.mark.parametrize("target", REFUSED.values(), ids=REFUSED)
async def test_what_cannot_be_proved_is_not_taken_over(site: Site, target: str) -> None:
    with pytest.raises((Refusal, BadSetup)):
        await takeover.found(site.config, takeover.Wish(target))
    assert not site.config.hands.exists()


async def test_an_engine_of_an_agent_is_not_taken_over(site: Site) -> None:
    async with site.agent() as agent:
        await receipt(agent, await command(agent, site, site.warm()))
        (pid,) = site.processes()
        with pytest.raises(Refusal, match="an agent's own"):
            await takeover.found(site.config, takeover.Wish(str(pid)))


async def test_without_its_key_an_engine_is_not_taken_over(theirs: Theirs, site: Site) -> None:
    await ready(theirs)
    with pytest.raises(Refusal, match="lists no model"):
        await takeover.found(site.config, takeover.Wish(str(theirs.pid)))


async def test_a_pid_that_was_given_away_is_not_what_was_handed_over(theirs: Theirs, site: Site) -> None:
    await handed(site, theirs)
    hands = taken.read(site.config.hands)
    old = replace(hands.taken[0], handle=replace(hands.taken[0].handle, birth="another"))
    taken.write(site.config.hands, replace(hands, taken=(old,)))
    async with site.agent() as agent:
        assert status(site.config, True)["handed_over"][0]["state"] == "gone"
        body = await command(agent, site, site.warm())
        await receipt(agent, body)
        handle = held_of(agent, body).handle
        assert handle is not None
        assert handle.pid != theirs.pid, "one was started"
    assert theirs.process.poll() is None


def test_a_file_that_cannot_be_read_is_no_empty_one(site: Site) -> None:
    create_secret(site.config.hands, b"{}x")
    with pytest.raises(BadSetup, match="cannot be read"):
        taken.read(site.config.hands)


def test_the_commands_ask_and_say_what_they_do(theirs: Theirs, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(ready(theirs))
    state = ["--state", str(site.state)]
    assert run(["takeover", str(theirs.pid), "--key-file", str(theirs.key), "--yes", *state]) == 0
    assert f"pid {theirs.pid}: llama.cpp at port {theirs.port}, lists tiny" in capsys.readouterr().out
    assert run(["takeover", str(theirs.pid), "--key-file", str(theirs.key), "--yes", *state]) == 4
    assert run(["release", str(theirs.pid), *state]) == 64, "it says that nothing is stopped"
    assert run(["release", str(theirs.pid), "--keep-running", *state]) == 0
    assert taken.read(site.config.hands).taken == ()
    assert run(["release", str(theirs.pid), "--keep-running", *state]) == 4
    assert theirs.process.poll() is None


def test_nobody_is_asked_where_nobody_is_and_what_an_engine_hides_is_said_first(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It lists its models and has neither slots nor metrics, as a llama-server that was started without them."""
    program, port = tmp_path / "llama-server", free_ports(1)[0]
    program.write_text(LISTS)
    process = subprocess.Popen([sys.executable, str(program), str(port)], stderr=subprocess.DEVNULL)
    words = ["takeover", str(process.pid), "--state", str(site.state)]
    try:
        asyncio.run(until(lambda: any(e.port == port for e in external.engines_here(here(), frozenset())), "it"))
        assert run(words) == 64
        told = capsys.readouterr().err
        assert "--slots and --metrics" in told
        assert "say so: --yes" in told
        assert not site.config.hands.exists()
        assert run([*words, "--yes"]) == 0
        assert "--slots and --metrics" in capsys.readouterr().err
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("changed", ["another file", "another program"])
async def test_what_was_handed_over_and_is_not_what_it_was_is_neither_used_nor_ended(
    theirs: Theirs, site: Site, changed: str
) -> None:
    await handed(site, theirs)
    hands = taken.read(site.config.hands)
    (one,) = hands.taken
    if changed == "another file":
        one = replace(one, words=("llama-server", "--model", "/srv/other.gguf"))
    else:
        one = replace(one, handle=replace(one.handle, executable="/bin/something-else"))
    taken.write(site.config.hands, replace(hands, taken=(one,)))
    async with site.agent() as agent:
        body = await command(agent, site, site.warm())
        assert (await receipt(agent, body)).outcome is Outcome.SUCCEEDED
        handle = held_of(agent, body).handle
        assert handle is not None
        assert handle.pid != theirs.pid, "one was started"
        if changed == "another program":
            assert not (await agent.keepers.stop(body, one.handle)).gone
    assert theirs.process.poll() is None


async def test_what_was_given_back_is_not_stopped_either_while_no_agent_runs(site: Site) -> None:
    async with site.agent() as agent:
        await receipt(agent, await command(agent, site, site.warm()))
    takeover.give_back(site.config, "tiny/1", wall_ms())
    (pid,) = site.processes()
    for _ in range(2):
        assert await stop_engines(site.config, True) == (("tiny/1  left running: it was given back",), False)
        assert site.processes() == [pid]
