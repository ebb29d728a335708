"""What a command told to end is not kept alive, does not come back and lets nobody in, whatever became of the command.

One that failed is unloaded without a drain: until its process is gone it stays failed, then it is as one that drained.
"""

from __future__ import annotations

import pytest

from gridops.base.ids import Digest
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core.events import (
    Act,
    Began,
    Died,
    Ended,
    Event,
    Found,
    Listed,
    Proved,
    Recall,
    Released,
    RetryDue,
    StateChanged,
    Stopping,
    Stuck,
)
from gridops_agent.core.protection import Verdict
from tests.agent.story import GPU, HANDLE, Story
from tests.agent.test_giving_back import given_back, itself, paused
from tests.agent.test_release import OWED
from tests.protocol import build as b

DRAINING, FAILED = ResidencyState.DRAINING, ResidencyState.FAILED
LATER_MS = 20_000
"""Longer than any pause of keep-alive here, and shorter than grants are good for."""


def failed(story: Story, code: str = "release_stuck") -> Digest:
    """It was applied, and its process neither serves nor ends."""
    body = story.ready()
    story.tell(Stuck(body, code, "pid 7"))
    return body


def unloaded_in_vain(story: Story, body: Digest, *, force: bool = False) -> None:
    unload = story.begun(story.unload_of(body, force=force))
    story.tell(Stuck(body, "release_stuck", "pid 7 does not end"))
    story.tell(Ended(unload, Outcome.FAILED, "release_stuck", "pid 7 does not end"))
    assert story.said(unload) == (Outcome.FAILED, "release_stuck")


def at_rest(story: Story, body: Digest) -> None:
    """No process, and nothing that starts one: not keep-alive, not the return of its host or of its agent."""
    held = story.host.held[body]
    assert (held.state, held.handle, held.retry_at_ms) == (DRAINING, None, None)
    paused(story)
    itself(story)
    for event in (RetryDue(body), Recall(body)):
        assert story.tell(event, after_ms=LATER_MS) == ()
    assert story.restart() == ()
    assert story.host.held[body] == held


def taken_back(story: Story, body: Digest) -> None:
    """As one that was drained and is wanted again: unloaded, and made anew by a new command."""
    story.tell(Ended(story.begun(story.unload_of(body)), Outcome.SUCCEEDED))
    assert body not in story.host.held
    assert story.state(story.ready(device_bytes=1)) is ResidencyState.READY


def test_what_failed_and_was_told_to_end_is_not_kept_alive_when_it_dies_after_its_unload_failed(story: Story) -> None:
    body = failed(story)
    unloaded_in_vain(story, body)
    held = story.host.held[body]
    assert (held.state, held.code) == (FAILED, "release_stuck"), "the evidence stays as long as the process does"
    generation = story.host.generation(GPU)
    story.tell(Died(body, "ended at last"))
    assert story.host.generation(GPU) == generation + 1
    assert "it was told to end" in (story.host.held[body].detail or "")
    at_rest(story, body)
    taken_back(story, body)


def test_what_failed_and_was_not_told_to_end_is_kept_alive(story: Story) -> None:
    body = failed(story)
    refused = story.issue(story.unload_of(body))
    story.tell(Began(refused, ("host_state", "not now")))
    assert story.said(refused)[0] is Outcome.REFUSED, "a refused command told nobody anything"
    story.tell(Died(body, "ended at last"))
    assert story.host.held[body].retry_at_ms is not None


@pytest.mark.parametrize("gone", [True, False])
def test_an_unload_that_the_agent_did_not_survive_told_it_to_end_too(story: Story, gone: bool) -> None:
    body = failed(story)
    unload = story.begun(story.unload_of(body))
    story.restart(all=Found(gone=gone, handle=None if gone else HANDLE))
    if gone:
        assert story.said(unload) == (Outcome.SUCCEEDED, None)
        assert body not in story.host.held
        return
    assert story.said(unload) == (Outcome.FAILED, "interrupted")
    story.tell(Died(body, "ended at last"))
    at_rest(story, body)
    taken_back(story, body)


def test_an_unload_whose_memory_was_not_seen_to_come_back_before_the_agent_stopped_has_not_succeeded(
    story: Story,
) -> None:
    """Its process is gone. What it held stays counted and keeps its device closed for starts until it is seen free."""
    body = story.ready()
    story.tell(Ended(story.begun(story.drain_of(body)), Outcome.SUCCEEDED))
    unload = story.begun(story.unload_of(body))
    story.tell(Stopping(body, OWED))
    story.restart(all=Found(gone=True))
    assert story.said(unload) == (Outcome.FAILED, "interrupted")
    held = story.host.held[body]
    assert (held.state, held.handle, held.owed) == (DRAINING, None, OWED)
    story.tell(Released(body))
    at_rest(story, body)
    taken_back(story, body)


def test_memory_that_comes_back_late_brings_nobody_back_who_was_told_to_end(story: Story) -> None:
    body = failed(story)
    story.tell(Stopping(body, OWED))
    unloaded_in_vain(story, body)
    story.tell(Died(body, "ended at last"))
    assert story.state(body) is FAILED
    story.tell(Released(body))
    at_rest(story, body)


@pytest.mark.parametrize("late", [Proved, Listed])
def test_who_was_told_to_end_lets_nobody_in_when_it_is_proved_or_listed_later(story: Story, late: type) -> None:
    body = failed(story, "not_ours")
    unload = story.begun(story.unload_of(body))
    story.tell(Ended(unload, Outcome.FAILED, "not_ours", "pid 7"))
    event: Event = Proved(body) if late is Proved else Listed(body, HANDLE)
    story.tell(event)
    assert (story.state(body), story.host.held[body].code) == (DRAINING, None)
    story.tell(Died(body, "ended at last"))
    at_rest(story, body)


def test_a_forced_unload_closes_the_front_when_it_begins_and_leaves_it_closed(story: Story) -> None:
    body = story.ready()
    story.begun(story.unload_of(body, force=True))
    assert story.state(body) is DRAINING, "nobody comes in who would be cut off"


def test_a_forced_unload_in_vain_is_no_death_to_repair(story: Story) -> None:
    body = story.ready()
    unloaded_in_vain(story, body, force=True)
    story.tell(Died(body, "ended at last"))
    at_rest(story, body)
    taken_back(story, body)


def test_what_was_given_back_and_is_told_to_end_does_not_return_with_its_host(story: Story) -> None:
    body = given_back(story)
    unload = story.begun(story.unload_of(body))
    assert story.state(body) is DRAINING
    story.tell(StateChanged(Verdict()))
    assert story.tell(Recall(body)) == ()
    story.tell(Ended(unload, Outcome.FAILED, "release_stuck", "what carries its mark does not end"))
    at_rest(story, body)


def test_an_unload_whose_residency_is_in_doubt_after_a_return_has_not_succeeded(story: Story) -> None:
    """No handle names the process, and something carries its mark that cannot be proved: its memory stays counted."""
    body = given_back(story)
    unload = story.begun(story.unload_of(body))
    story.restart(all=Found(gone=False, detail="cannot be proved"))
    assert story.said(unload) == (Outcome.FAILED, "interrupted")
    assert (story.state(body), story.host.held[body].code) == (DRAINING, "not_ours")


def test_a_first_start_that_failed_and_was_told_to_end_is_forgotten_when_it_is_gone(story: Story) -> None:
    body = story.begun(b.warm())
    story.tell(Stuck(body, "release_stuck", "pid 7"))
    unload = story.begun(story.unload_of(body))
    assert Act(unload) not in story.tell(Ended(unload, Outcome.FAILED, "release_stuck", "pid 7"))
    story.tell(Died(body, "ended at last"))
    assert body not in story.host.held
