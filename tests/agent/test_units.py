"""Engines as systemd user units: a real agent and real processes; `systemctl` on PATH keeps its state on disk."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gridops.base.canon import digest_bytes
from gridops.base.errors import Refusal
from gridops.base.ids import Digest
from gridops.disk.keyring import create_secret
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.keep import systemctl, unit
from gridops_agent.keep.unit_files import FILE, DropIns, text
from gridops_agent.keep.ways import Unit, Ways
from gridops_agent.shell import Agent
from tests.agent.site import Site, command, done, free_ports, held_of, receipt, until

HERE = Path(__file__).parent
XLL = HERE.parents[1] / "agent/gridops_agent/engines/xll_server.py"
OTHER = digest_bytes(b"somebody else's command")


@dataclass
class Machine:
    """A person's systemd with two units on one device."""

    site: Site
    bin: Path
    units: Path
    ours: Unit
    rival: Unit

    def calls(self) -> list[str]:
        return (self.bin / "calls").read_text().splitlines()

    def pid(self, name: str = "llama.service") -> int:
        return int(json.loads((self.bin / "state.json").read_text())[name]["pid"])

    def systemctl(self, *words: str) -> None:
        subprocess.run(["systemctl", "--user", "--no-pager", *words], check=True)

    @property
    def drop_in(self) -> Path:
        return self.units / f"{self.ours.name}.d" / FILE


@pytest.fixture
def machine(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    home, tools = tmp_path / "config", tmp_path / "bin"
    units = home / "systemd" / "user"
    units.mkdir(parents=True)
    tools.mkdir()
    script = (HERE / "fake_systemctl.py").read_text()
    (tools / "systemctl").write_text(f"#!{sys.executable}\n{script}")
    (tools / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setattr(unit, "DOUBT_S", 0.02)
    key = tmp_path / "keys" / "engine.key"
    create_secret(key, b"f" * 64)
    port, other = free_ports(2)
    argv = f"{sys.executable} -P {XLL} --model {site.model.path} --alias tiny --port {port} --ctx-size 512 --parallel 2"
    argv += f" --threads 1 --api-key-file {key} --slots --metrics"
    (units / "llama.service").write_text(f"[Service]\nExecStart={argv}\nRestart=always\nKillMode=process\n")
    (units / "rival.service").write_text("[Service]\nExecStart=/bin/sleep 300\n")
    ours = Unit("llama.service", "llama.cpp", "tiny", "cpu", port, ("cpu0",), str(key))
    rival = Unit("rival.service", "llama.cpp", "other", "cpu", other, ("cpu0",))
    site.config = replace(site.config, ways=Ways(units=(ours, rival)))
    made = Machine(site, tools, units, ours, rival)
    yield made
    state = json.loads((tools / "state.json").read_text()) if (tools / "state.json").exists() else {}
    for row in state.values():
        if row.get("pid"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(row["pid"], signal.SIGKILL)


async def warmed(agent: Agent, site: Site) -> Digest:
    body = await command(agent, site, site.warm())
    made = await receipt(agent, body)
    assert made.outcome is Outcome.SUCCEEDED, made
    return body


async def test_a_unit_is_started_and_stopped_through_systemd_alone(machine: Machine) -> None:
    site = machine.site
    async with site.agent() as agent:
        body = await warmed(agent, site)
        handle = held_of(agent, body).handle
        assert handle is not None
        assert (handle.keeper, handle.name, handle.pid) == ("unit", "llama.service", machine.pid())
        assert handle.port == machine.ours.port
        assert await agent.keepers.processes_of({body: handle}) == (handle.pid,)
        said = machine.drop_in.read_text()
        assert "Conflicts=rival.service" in said
        assert "Restart=no" in said, "keep-alive is the agent's"
        assert "KillMode=control-group" in said, "the unit's own would leave processes behind"
        assert (await done(agent, site, site.drain(body))).outcome is Outcome.SUCCEEDED
        made = await done(agent, site, site.unload(body))
        assert made.outcome is Outcome.SUCCEEDED, made
    assert systemctl.show("llama.service").said["ActiveState"] == "inactive"
    verbs = {line.split()[2] for line in machine.calls()}
    assert verbs == {"show", "daemon-reload", "start", "stop"}, "no signal of ours"
    assert machine.units.joinpath("llama.service").read_text().endswith("KillMode=process\n"), "its file is its owner's"


async def test_an_agent_that_comes_back_adopts_the_invocation_it_started(machine: Machine) -> None:
    async with machine.site.agent() as agent:
        body = await warmed(agent, machine.site)
        before = held_of(agent, body).handle
    async with machine.site.agent() as agent:
        assert held_of(agent, body).handle == before
        assert held_of(agent, body).state is ResidencyState.READY
        found = await agent.keepers.recover(replace(held_of(agent, body), handle=None), Path("/k"))
        assert found is not None
        assert before is not None
        assert (found.name, found.birth, found.pid) == (before.name, before.birth, before.pid)
        assert (await agent.keepers.strangers(frozenset()))[0] == ("the unit llama.service", body)
        assert await agent.keepers.strangers(frozenset({body})) == ()


async def test_a_unit_that_runs_and_was_not_started_by_us_is_left_alone(machine: Machine) -> None:
    machine.systemctl("start", "--", "llama.service")
    async with machine.site.agent() as agent:
        made = await done(agent, machine.site, machine.site.warm())
        assert (made.outcome, made.code) == (Outcome.FAILED, "not_ours")
        assert "runs already and was not started by this agent" in (made.detail or "")
        assert not machine.drop_in.exists(), "nothing was written for it"
    assert systemctl.show("llama.service").lives


async def test_a_unit_of_ours_restarted_by_hand_is_another_life_and_is_begun_anew(machine: Machine) -> None:
    """It still says for which command it runs, so it is ended; but what it was before is over."""
    async with machine.site.agent() as agent:
        body = await warmed(agent, machine.site)
        await agent.effects.settled()
        os.killpg(machine.pid(), signal.SIGKILL)
        await until(lambda: not systemctl.show("llama.service").lives)
        machine.systemctl("start", "--", "llama.service")
        await agent.watch.look()
        assert "the unit llama.service ended" in (held_of(agent, body).detail or "")
        assert not systemctl.show("llama.service").lives


async def test_a_crashed_unit_is_kept_alive_by_the_agent(machine: Machine) -> None:
    async with machine.site.agent() as agent:
        body = await warmed(agent, machine.site)
        await agent.effects.settled()
        os.killpg(machine.pid(), signal.SIGKILL)
        watch = asyncio.ensure_future(agent.watch.run())
        await until(lambda: held_of(agent, body).restarts == 1, "keep-alive")
        await until(lambda: held_of(agent, body).state is ResidencyState.READY, "the new engine")
        watch.cancel()


async def test_a_rival_on_the_device_is_named_and_not_ended(machine: Machine) -> None:
    machine.systemctl("start", "--", "rival.service")
    async with machine.site.agent() as agent:
        made = await done(agent, machine.site, machine.site.warm())
        assert (made.outcome, made.code) == (Outcome.FAILED, "device_taken")
    assert systemctl.show("rival.service").lives


async def test_a_unit_that_serves_another_file_is_refused(machine: Machine) -> None:
    path = machine.units / "llama.service"
    path.write_text(path.read_text().replace(str(machine.site.model.path), "/srv/other.gguf"))
    async with machine.site.agent() as agent:
        made = await done(agent, machine.site, machine.site.warm())
        assert (made.outcome, made.code) == (Outcome.FAILED, "no_artifact")
    assert not systemctl.show("llama.service").lives


async def test_a_systemd_that_cannot_be_asked_proves_nothing(machine: Machine) -> None:
    async with machine.site.agent() as agent:
        body = await warmed(agent, machine.site)
        await agent.effects.settled()
        for told_to_end in (False, True):
            (machine.bin / "no-bus").touch()
            await agent.watch.look()
            assert (held_of(agent, body).state, held_of(agent, body).code) == (ResidencyState.FAILED, "not_ours")
            if told_to_end:
                made = await done(agent, machine.site, machine.site.unload(body, force=True))
                assert made.outcome is Outcome.FAILED
            (machine.bin / "no-bus").unlink()
            await agent.watch.look()
            back = ResidencyState.DRAINING if told_to_end else ResidencyState.READY
            await until(lambda state=back: held_of(agent, body).state is state)
        made = await done(agent, machine.site, machine.site.unload(body))
        assert made.outcome is Outcome.SUCCEEDED, "what was told to end serves no more, and ends when it can be proved"


async def test_what_does_not_stop_is_killed_by_systemd(machine: Machine) -> None:
    async with machine.site.agent() as agent:
        body = await warmed(agent, machine.site)
        await done(agent, machine.site, machine.site.drain(body))
        os.kill(machine.pid(), signal.SIGSTOP)
        made = await done(agent, machine.site, machine.site.unload(body, force=True))
        assert made.outcome is Outcome.SUCCEEDED, made
    assert any("kill --kill-who=all --signal=SIGKILL -- llama.service" in line for line in machine.calls())


def test_drop_ins_are_renewed_and_only_our_own_are_removed(machine: Machine) -> None:
    owner, units = str(machine.site.config.state), machine.site.config.ways.units
    files = DropIns(machine.units, owner, units)
    files.write(machine.ours, OTHER)
    first = machine.drop_in.read_text()
    files.write(machine.ours, digest_bytes(b"next"))
    assert machine.drop_in.read_text() != first
    foreign = machine.units / "theirs.service.d" / FILE
    foreign.parent.mkdir()
    foreign.write_text("[Service]\n")
    another = machine.units / "another.service.d" / FILE
    another.parent.mkdir()
    another.write_text(text(machine.ours, units, "/other/agent", OTHER))
    beside = machine.drop_in.with_name("10-person.conf")
    beside.write_text("[Service]\n")
    later = DropIns(machine.units, owner, (machine.rival,))
    assert later.tidy()
    assert not machine.drop_in.exists()
    assert beside.exists()
    assert foreign.exists()
    assert another.exists()
    assert not later.tidy()


def test_a_file_of_somebody_else_at_the_place_of_a_drop_in_is_never_written_over(machine: Machine) -> None:
    machine.drop_in.parent.mkdir()
    machine.drop_in.write_text("[Service]\nNice=5\n")
    files = DropIns(machine.units, str(machine.site.config.state), machine.site.config.ways.units)
    with pytest.raises(Refusal, match="not written by this agent"):
        files.write(machine.ours, OTHER)
    assert machine.drop_in.read_text() == "[Service]\nNice=5\n"
    machine.drop_in.unlink()
    victim = machine.units / "victim"
    victim.write_text("x")
    machine.drop_in.symlink_to(victim)
    with pytest.raises(Refusal):
        files.write(machine.ours, OTHER)
    assert victim.read_text() == "x"


@pytest.mark.parametrize("call", [systemctl.show, systemctl.start, systemctl.stop, systemctl.kill])
def test_a_poisoned_name_reaches_no_program(call: object, machine: Machine) -> None:
    for name in ("../x.service", "/x.service", "a\n.service", "--now.service"):
        with pytest.raises(ValueError, match="not the name of a unit"):
            call(name)  # type: ignore[operator]
    assert not (machine.bin / "calls").exists()


def verified(machine: Machine) -> str:
    """What the real systemd says of the unit with its drop-in."""
    env = {**os.environ, "SYSTEMD_UNIT_PATH": f"{machine.units}:", "XDG_RUNTIME_DIR": str(machine.bin)}
    words = ["systemd-analyze", "--user", "--man=no", "--recursive-errors=no", "verify", machine.ours.name]
    answer = subprocess.run(words, capture_output=True, text=True, env=env, cwd=machine.units, check=False)
    return answer.stdout + answer.stderr


if shutil.which("systemd-analyze"):

    def test_the_real_systemd_finds_nothing_wrong_with_a_drop_in(machine: Machine) -> None:
        files = DropIns(machine.units, str(machine.site.config.state), machine.site.config.ways.units)
        files.write(machine.ours, OTHER)
        assert FILE not in verified(machine)
        machine.drop_in.write_text(machine.drop_in.read_text() + "Nonsense=1\nKillMode=never\n")
        assert FILE in verified(machine), "it reads the drop-in"
