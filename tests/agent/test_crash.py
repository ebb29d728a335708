"""Killed at every durable step: the agent comes back with one process or none, and one receipt for each command.

The agent runs in a forked child that kills itself just before its n-th write to the ledger, so that everything it did
up to then has happened and the next thing was not recorded. n grows until the whole story runs through.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import pytest

from gridops.base.canon import digest_bytes
from gridops.base.ids import Digest, ProfileName, nobody
from gridops.base.record import digest_of
from gridops.disk import failpoint
from gridops.model.action import Evict, Load
from gridops.model.snapshot import ResidencyState
from gridops.protocol.fence import open_heads
from gridops.protocol.messages import Outcome
from gridops_agent.core.report import inventory
from gridops_agent.ledger import Ledger
from gridops_agent.shell import Agent
from tests.agent.site import HOST, Site, command, done, pid_of, receipt, until

LATER = ProfileName("later")


async def story(site: Site) -> None:
    """Warm, drain, unload."""
    async with site.agent() as agent:
        warmed = await command(agent, site, site.warm())
        await receipt(agent, warmed)
        await done(agent, site, site.drain(warmed))
        await done(agent, site, site.unload(warmed))


def child(
    site: Site,
    at: int,
    tell: Callable[[Site], Coroutine[Any, Any, None]] = story,
    before: Callable[[], object] = lambda: None,
) -> NoReturn:
    """Tell the story, or die in front of write `at`, right after `before`."""
    count = 0
    write = Ledger._write

    def dying(self: Ledger, put: dict[tuple[str, str], object], gone: tuple[tuple[str, str], ...]) -> None:
        nonlocal count
        count += bool(put or gone)
        if count == at:
            before()
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, put, gone)

    Ledger._write = dying  # type: ignore[method-assign,assignment]
    code = 1
    try:
        asyncio.run(tell(site))
        code = 0
    finally:
        os._exit(code)


async def recovered(site: Site) -> str:
    """Bring the agent back and let it finish; the state the residency was found in."""
    before = set(site.processes())
    assert len(before) <= 1
    async with site.agent() as agent:
        watch = asyncio.ensure_future(agent.watch.run())
        site.seq, site.head = agent.memory.host.fence.head.seq, agent.memory.host.fence.head.body
        await until(lambda: not agent.memory.host.commands, "every command to have its receipt")
        host = agent.memory.host
        assert open_heads(host.fence) == ()
        assert [r.seq for r in host.receipts.kept] == list(range(1, site.seq + 1)), "one receipt for each command"
        assert len(host.held) <= 1
        found = "nothing"
        for body, held in host.held.items():
            found = held.state.value
            if held.state is ResidencyState.WARMING:
                await until(partial(is_ready, agent, body), "keep-alive")
            if before:
                assert pid_of(agent, body) in before, "a living engine is adopted, never doubled"
            assert len(site.processes()) <= 1
            assert (await done(agent, site, site.drain(body))).outcome is Outcome.SUCCEEDED
            assert (await done(agent, site, site.unload(body))).outcome is Outcome.SUCCEEDED
        assert site.processes() == [], "nothing is left that nobody remembers"
        watch.cancel()
    Ledger.open(site.config.ledger, site.identity, (), 0).close()
    return found


def is_ready(agent: Agent, body: Digest) -> bool:
    return agent.memory.host.held[body].state is ResidencyState.READY


def test_an_agent_killed_before_any_of_its_writes_comes_back_true(make_site: Callable[..., Site]) -> None:
    seen: list[str] = []
    for at in range(1, 40):
        site = make_site(f"at-{at}")
        pid = os.fork()
        if pid == 0:
            child(site, at)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        seen.append(asyncio.run(recovered(site)))
    assert len(seen) >= 10, f"the story has only {len(seen)} writes"
    assert {"nothing", "ready", "draining"} <= set(seen), seen


def test_a_command_whose_agent_died_is_not_run_again_by_itself(make_site: Callable[..., Site]) -> None:
    """The write before which it dies is the one that lets the effect begin: nothing may have happened."""
    site = make_site()
    body = site.body(site.warm())

    async def accept_only() -> None:
        async with site.agent() as agent:
            agent.effects._command = never  # type: ignore[method-assign,assignment]
            from tests.agent.site import hear

            await hear(agent, site, site.grant(body))

    async def never(_: object) -> None:
        await asyncio.sleep(0)

    asyncio.run(accept_only())

    async def back() -> None:
        async with site.agent() as agent:
            answer = await receipt(agent, digest_of(body))
            assert (answer.outcome, answer.code) == (Outcome.FAILED, "interrupted")
            assert agent.memory.host.held == {}
            assert site.processes() == []

    asyncio.run(back())


# -- files that came on a guess ---------------------------------------------------------------------------------------


async def disk_story(site: Site) -> None:
    """Fetch on a guess, and delete it again."""
    async with site.agent() as agent:
        await done(agent, site, guess_of(site))
        await done(agent, site, evict_of(site))


def guess_of(site: Site) -> Load:
    artifact = site.artifact(source=f"file://{site.model.path}")
    return Load(host=HOST, replica=nobody(LATER), profile=LATER, artifact=artifact, guess=True)


def evict_of(site: Site) -> Evict:
    return Evict(host=HOST, replica=nobody(LATER), profile=LATER, files=(Digest(site.model.digest),))


async def disk_recovered(site: Site) -> tuple[bool, bool]:
    """Whether the files are there, and whether the host calls them a guess."""
    async with site.agent() as agent:
        site.seq, site.head = agent.memory.host.fence.head.seq, agent.memory.host.fence.head.body
        await until(lambda: not agent.memory.host.commands, "every command to have its receipt")
        assert [r.seq for r in agent.memory.host.receipts.kept] == list(range(1, site.seq + 1))
        cache = site.config.cache  # what has a dot before it is on its way
        files = [p for p in cache.rglob("*") if p.is_file() and not p.relative_to(cache).parts[0].startswith(".")]
        assert all(digest_bytes(p.read_bytes()) == site.model.digest for p in files), "whole or not there"
        assert site.model.path.exists(), "what people put there is never deleted"
        shown = inventory(agent.memory.host, agent._readings()).prefetched or ()
        # Whatever was lost, it can be asked for again, and what is called a guess can be told to go.
        assert (await done(agent, site, guess_of(site))).outcome is Outcome.SUCCEEDED
        if shown:
            assert (await done(agent, site, evict_of(site))).outcome is Outcome.SUCCEEDED
        return bool(files), bool(shown)


def test_an_agent_killed_while_it_fetches_or_deletes_leaves_whole_files_and_no_false_guess(
    make_site: Callable[..., Site],
) -> None:
    seen: set[tuple[bool, bool]] = set()
    for at in range(1, 30):
        site = make_site(f"disk-{at}")
        site.config = replace(
            site.config, artifact_folders=(), artifacts=replace(site.config.artifacts, keep_free_bytes=0)
        )
        pid = os.fork()
        if pid == 0:
            child(site, at, disk_story)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        found = asyncio.run(disk_recovered(site))
        assert found in {(False, False), (True, True), (True, False)}, "a guess without its files is no guess"
        seen.add(found)
    else:
        raise AssertionError("the story never ran through")
    assert {(False, False), (True, True)} <= seen


SHELF = ["shelf.publish:1:kill", "shelf.publish:1:killed", "shelf.delete:1:kill", "shelf.delete:1:killed"]


@pytest.mark.parametrize("step", SHELF)
def test_an_agent_killed_at_the_rename_of_a_fetch_or_a_deletion_leaves_whole_files(
    step: str, make_site: Callable[..., Site]
) -> None:
    site = make_site()
    site.config = replace(site.config, artifact_folders=(), artifacts=replace(site.config.artifacts, keep_free_bytes=0))
    pid = os.fork()
    if pid == 0:
        failpoint.arm(step)
        child(site, 0, disk_story)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    files, _ = asyncio.run(disk_recovered(site))
    assert files == (step in SHELF[1:3]), "the rename is the moment"
