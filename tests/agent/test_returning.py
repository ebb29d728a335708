"""Doubt, and the agent's return: what is kept, adopted, started again or answered, by what is proved of it."""

from __future__ import annotations

from typing import Any

import pytest

from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core.events import (
    Act,
    AwaitListed,
    Died,
    Ended,
    Enqueue,
    Found,
    Listed,
    Placed,
    Proved,
    Spawned,
    StartAgain,
    Stuck,
)
from tests.agent.story import HANDLE, Story
from tests.protocol import build as b


def test_a_process_that_cannot_be_proved_is_kept_as_failed_until_it_is_proved_or_dead(story: Story) -> None:
    body = story.ready()
    story.tell(Stuck(body, "not_ours", "pid 7 is alive and cannot be proved"))
    assert (story.state(body), story.host.held[body].code) == (ResidencyState.FAILED, "not_ours")
    assert AwaitListed(body) in story.tell(Proved(body))
    story.tell(Listed(body, HANDLE))
    assert story.state(body) is ResidencyState.READY
    story.tell(Stuck(body, "not_ours", "again"))
    story.tell(Died(body, "ended"))
    assert story.host.held[body].retry_at_ms is not None, "what was applied is kept alive once it is proved dead"


def test_a_start_that_cannot_be_ended_keeps_its_memory_until_it_is_gone_and_is_never_kept_alive(story: Story) -> None:
    body = story.begun(b.warm())
    story.tell(Spawned(body, HANDLE))
    story.tell(Stuck(body, "release_stuck", "pid 7"))
    assert story.said(body) == (Outcome.FAILED, "release_stuck")
    assert story.state(body) is ResidencyState.FAILED
    story.tell(Died(body, "ended at last"))
    assert body not in story.host.held


def test_a_draining_residency_in_doubt_goes_on_draining(story: Story) -> None:
    body = story.ready()
    story.tell(Ended(story.begun(story.drain_of(body)), Outcome.SUCCEEDED))
    story.tell(Stuck(body, "release_stuck", "pid 7"))
    assert story.state(body) is ResidencyState.DRAINING
    story.tell(Died(body, "ended at last"))
    assert (story.state(body), story.host.held[body].retry_at_ms) == (ResidencyState.DRAINING, None)


@pytest.mark.parametrize("late", [Died, Stuck, Proved])
def test_what_the_watch_saw_of_a_residency_that_was_unloaded_meanwhile_is_no_news(story: Story, late: Any) -> None:
    """The watch was still ending children of a dead leader when the unload ended: the agent goes on."""
    body = story.ready()
    story.tell(Ended(story.begun(story.drain_of(body)), Outcome.SUCCEEDED))
    story.tell(Ended(story.begun(story.unload_of(body)), Outcome.SUCCEEDED))
    before = story.host
    event = {Died: Died(body, "ended"), Stuck: Stuck(body, "release_stuck", "pid 8"), Proved: Proved(body)}[late]
    assert story.tell(event) == ()
    assert story.host is before


OURS = Found(gone=False, handle=HANDLE)


DOUBT = Found(gone=False, detail="cannot be proved")


GONE = Found(gone=True)


def test_on_its_return_the_agent_adopts_doubts_or_restarts_what_was_ready(story: Story) -> None:
    body = story.ready()
    assert story.restart(all=OURS) == ()
    assert story.state(body) is ResidencyState.READY
    story.restart(all=DOUBT)
    assert (story.state(body), story.host.held[body].code) == (ResidencyState.FAILED, "not_ours")
    assert AwaitListed(body) in story.restart(all=OURS)
    story.tell(Listed(body, HANDLE))
    story.restart(all=GONE)
    assert story.host.held[body].retry_at_ms is not None


def test_on_its_return_the_agent_judges_a_start_in_the_middle_by_its_process(story: Story) -> None:
    adopted = story.begun(b.warm(1))
    story.tell(Placed(adopted, 18_300))
    assert story.restart(all=OURS) == (AwaitListed(adopted),)
    story.tell(Listed(adopted, HANDLE))
    assert story.said(adopted) == (Outcome.SUCCEEDED, None)
    story.tell(Ended(story.begun(story.unload_of(adopted, force=True)), Outcome.SUCCEEDED))
    lost = story.begun(b.warm(2))
    story.tell(Placed(lost, 18_300))
    story.restart(all=GONE)
    assert story.said(lost) == (Outcome.FAILED, "interrupted")
    assert lost not in story.host.held


def test_on_its_return_the_agent_runs_no_open_command_again(story: Story) -> None:
    ready = story.ready()
    waiting, load = story.issue(b.warm(2)), story.begun(b.load(3))
    drain = story.begun(story.drain_of(ready))
    effects = story.restart(all=OURS)
    assert not any(isinstance(e, Enqueue | Act | StartAgain) for e in effects)
    for body in (waiting, load, drain):
        assert story.said(body) == (Outcome.FAILED, "interrupted")
    assert story.state(ready) is ResidencyState.DRAINING, "the fence at the front stays closed"


def test_on_its_return_the_agent_proves_an_unload_by_the_missing_group(story: Story) -> None:
    ready = story.ready()
    story.tell(Ended(story.begun(story.drain_of(ready)), Outcome.SUCCEEDED))
    unload = story.begun(story.unload_of(ready))
    story.restart(all=GONE)
    assert story.said(unload) == (Outcome.SUCCEEDED, None)
    assert story.host.held == {}


def test_a_restart_pause_survives_the_agent(story: Story) -> None:
    body = story.ready()
    story.tell(Died(body, "crash"))
    before = story.host.held[body]
    story.restart(all=GONE)
    assert story.host.held[body] == before
