"""A takeover and a giving back that are killed anywhere: nothing is doubled, nobody is signalled, nothing is lost.

The agent dies in front of its n-th write, for each n, while it adopts an engine that a person handed over and while it
gives it back; the commands die around each thing that they write. What a person runs is looked at by its pid and birth.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from gridops.base.errors import Failed, Refusal
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent import takeover
from gridops_agent.keep import taken, unit_files
from gridops_agent.platform import here
from gridops_agent.shell import Agent
from tests.agent.site import Site, command, done, held_of, receipt, until
from tests.agent.test_crash import child
from tests.agent.test_takeover import Theirs, handed, theirs
from tests.agent.test_units import Machine, machine

assert machine is not None  # fixtures of theirs
assert theirs is not None


async def adopt_and_give_back(site: Site) -> None:
    async with site.agent() as agent:
        await receipt(agent, await command(agent, site, site.warm()))
        takeover.give_back(site.config, "tiny/1", 1)
        await agent._measure()


async def recovered(site: Site, pid: int) -> str:
    """Bring the agent back; what became of the engine by its word."""
    async with site.agent() as agent:
        watch = asyncio.ensure_future(agent.watch.run())
        fence = agent.memory.host.fence
        site.seq, site.head = fence.head.seq, fence.head.body
        await until(lambda: not agent.memory.host.commands, "every command to have its receipt")
        assert [r.seq for r in agent.memory.host.receipts.kept] == list(range(1, site.seq + 1))
        story = "given back"
        if not agent.hands.on_file().given:
            for body in tuple(agent.memory.host.held):
                await until(lambda body=body: held_of(agent, body).state is ResidencyState.READY, "it to be ready")
            story = "held" if agent.memory.host.held else "not held"
            if story == "not held":  # it is on file still, and the next plan gets it
                assert (await done(agent, site, site.warm())).outcome is Outcome.SUCCEEDED
            assert {h.handle.pid for h in agent.memory.host.held.values() if h.handle is not None} == {pid}
            takeover.give_back(site.config, "tiny/1", 1)
        await agent._measure()
        assert agent.memory.host.held == {}
        assert not [alarm for alarm in agent.alarms.now() if "stray" in alarm]
        watch.cancel()
    assert site.processes() == [], "nothing was started beside it"
    return story


def test_an_agent_killed_at_any_step_of_a_takeover_or_a_giving_back_leaves_the_engine_as_it_is(
    make_site: Callable[..., Site], theirs: Theirs
) -> None:
    before, seen = here().process(theirs.pid), []
    for at in range(1, 30):
        site = make_site(f"at-{at}")
        asyncio.run(handed(site, theirs))
        pid = os.fork()
        if pid == 0:
            child(site, at, adopt_and_give_back)
        _, status = os.waitpid(pid, 0)
        assert theirs.process.poll() is None
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        seen.append(asyncio.run(recovered(site, theirs.pid)))
        assert here().process(theirs.pid) == before
    assert {"held", "not held", "given back"} == set(seen), seen


# -- the commands -----------------------------------------------------------------------------------------------------


def killed(work: Callable[[], object], at: int, *steps: tuple[Any, str]) -> bool:
    """Do it in a process that dies in front of the n-th of these calls. True when it did die."""
    pid = os.fork()
    if pid == 0:
        count = 0
        for owner, name in steps:
            real = getattr(owner, name)

            def dying(*given: Any, real: Callable[..., Any] = real) -> Any:
                nonlocal count
                count += 1
                if count == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*given)

            setattr(owner, name, dying)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


STEPS = (
    (taken, "write"),
    (unit_files.DropIns, "write"),
    (unit_files.DropIns, "remove"),
    (takeover.systemctl, "reload"),
)


async def found_when_up(machine: Machine) -> taken.Taken:
    for _ in range(600):
        with suppress(Refusal):
            return await takeover.found(machine.site.config, takeover.Wish("llama.service"))
        await asyncio.sleep(0.1)
    raise AssertionError("it never came up")


@pytest.mark.parametrize("at", [1, 2, 3, 4])
async def test_a_unit_whose_takeover_was_killed_is_its_owners_or_ours_and_never_neither(
    machine: Machine, at: int
) -> None:
    machine.systemctl("start", "--", "llama.service")
    one, site, pid = await found_when_up(machine), machine.site, machine.pid()
    died = killed(lambda: takeover.keep(site.config, one, 1), at, *STEPS)
    ours = bool(taken.read(site.config.hands).taken)
    assert (died, ours) == (at < 4, at > 1)
    assert machine.drop_in.exists() is (at > 2), "its own file keeps it alive as long as nobody else does"
    async with site.agent() as agent:
        if not ours:
            await asyncio.to_thread(takeover.keep, site.config, one, 1)
        assert "Restart=no" in machine.drop_in.read_text()
        assert "daemon-reload" in "".join(machine.calls()), "systemd has read it"
        body = await command(agent, site, site.warm())
        assert (await receipt(agent, body)).outcome is Outcome.SUCCEEDED
        handle = held_of(agent, body).handle
        assert handle is not None
        assert (handle.pid, machine.pid()) == (pid, pid), "adopted as it runs"
    assert not [line for line in machine.calls() if " kill " in line or " stop " in line]


@pytest.mark.parametrize("at", [1, 2, 3, 4])
async def test_a_unit_whose_giving_back_was_killed_can_be_given_back_again(machine: Machine, at: int) -> None:
    machine.systemctl("start", "--", "llama.service")
    one, site, pid = await found_when_up(machine), machine.site, machine.pid()
    takeover.keep(site.config, one, 1)
    died = killed(lambda: takeover.give_back(site.config, "llama.service", 1), at, *STEPS)
    assert died is (at < 4)
    before = len(machine.calls())
    async with site.agent() as agent:
        await agent._measure()
        assert machine.pid() == pid
        assert machine.drop_in.exists() is died, "what was not given back is ours, and kept alive by us"
    if died:
        takeover.give_back(site.config, "llama.service", 1)
    assert taken.read(site.config.hands).taken == ()
    assert not machine.drop_in.exists(), "its own file keeps it alive again"
    assert not died or machine.calls()[before:][-1].endswith("daemon-reload"), "and systemd has read so"
    assert not [line for line in machine.calls() if " kill " in line or " stop " in line]


async def test_a_unit_that_its_owner_starts_anew_can_be_taken_over_again(machine: Machine) -> None:
    machine.systemctl("start", "--", "llama.service")
    site = machine.site
    takeover.keep(site.config, await found_when_up(machine), 1)
    old = machine.pid()
    machine.systemctl("stop", "--", "llama.service")
    await until(lambda: (p := here().process(old)) is None or p.zombie, "it to end")
    machine.systemctl("start", "--", "llama.service")
    one = await found_when_up(machine)
    assert one.handle.pid != old
    takeover.keep(site.config, one, 2)
    async with site.agent() as agent:
        assert not [alarm for alarm in agent.alarms.now() if "stray" in alarm]
        body = await command(agent, site, site.warm())
        made = await receipt(agent, body)
        assert made.outcome is Outcome.SUCCEEDED, made
        handle = held_of(agent, body).handle
        assert handle is not None
        assert handle.pid == machine.pid()


async def test_a_takeover_whose_drop_in_cannot_be_written_is_none(machine: Machine) -> None:
    machine.systemctl("start", "--", "llama.service")
    one = await found_when_up(machine)
    machine.drop_in.parent.mkdir()
    machine.drop_in.write_text("# somebody else's\n")
    with pytest.raises(Refusal, match="was not written by this agent"):
        takeover.keep(machine.site.config, one, 1)
    assert taken.read(machine.site.config.hands).taken == ()
    machine.drop_in.unlink()
    (machine.bin / "no-bus").write_text("")
    with pytest.raises(Failed):
        takeover.keep(machine.site.config, one, 1)
    assert taken.read(machine.site.config.hands).taken == ()


# -- a word that comes while something is being done ------------------------------------------------------------------


async def alive(site: Site, agent: Agent, pid: int) -> None:
    assert agent.memory.host.held == {}
    assert site.processes() == [pid]
    process = here().process(pid)
    assert process is not None
    assert not process.zombie


async def test_an_engine_given_back_a_moment_ago_is_not_ended_by_an_unload(site: Site) -> None:
    async with site.agent() as agent:
        body = await command(agent, site, site.warm())
        await receipt(agent, body)
        (pid,) = site.processes()
        await done(agent, site, site.drain(body))
        takeover.give_back(site.config, "tiny/1", 1)  # and the unload is faster than the agent's next look
        made = await done(agent, site, site.unload(body))
        assert (made.outcome, made.code) == (Outcome.FAILED, "given_back")
        await alive(site, agent, pid)


async def test_an_engine_given_back_while_it_comes_up_is_not_ended_when_its_patience_ends(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridops_agent.starts.WARM_FLOOR_MS", 3_000)
    async with site.agent() as agent:

        async def never(*_: object) -> bool:
            return False

        monkeypatch.setattr(agent._engines["llama.cpp"], "listed", never)  # type: ignore[index]
        body = await command(agent, site, site.warm(warm_ms=1))
        await until(lambda: body in agent.memory.host.held and held_of(agent, body).handle is not None, "a process")
        (pid,) = site.processes()
        takeover.give_back(site.config, body, 1)
        made = await receipt(agent, body)
        assert (made.outcome, made.code) == (Outcome.FAILED, "given_back")
        await alive(site, agent, pid)


async def test_an_engine_given_back_under_its_owners_hands_is_not_ended_for_its_memory(site: Site) -> None:
    from tests.agent.test_yielding import HERE, running, warm

    async with running(site) as agent:
        await warm(agent, site)
        (pid,) = site.processes()
        takeover.give_back(site.config, "tiny/1", 1)
        site.readings = dict(HERE)
        await until(lambda: not agent.memory.host.held, "it to be forgotten")
        await alive(site, agent, pid)
