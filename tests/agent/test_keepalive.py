"""Keep-alive and generations: when a dead engine comes back, when it is given up, and what counts as a change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.model.profile import Restart
from gridops.model.snapshot import HostState, ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core.events import (
    Died,
    Ended,
    Listed,
    Measured,
    RetryDue,
    Spawned,
    StartAgain,
    StartFailed,
    StateChanged,
)
from gridops_agent.core.protection import Verdict
from tests.agent.story import CPU, DEVICES, GPU, HANDLE, Story
from tests.protocol import build as b


def test_generations_rise_with_change_and_not_with_readings_or_keep_alive(story: Story) -> None:
    def counts() -> tuple[int, int, int]:
        return story.host.generation(), story.host.generation(GPU), story.host.generation(CPU)

    assert counts() == (1, 1, 1)
    story.tell(Measured(tuple(replace(d, external_bytes=5) for d in DEVICES)))
    assert counts() == (1, 1, 1), "a reading"
    ready = story.ready()
    assert counts() == (2, 2, 1), "a residency began; its becoming ready is the end of that change"
    story.tell(Died(ready, "killed"))
    story.tell(RetryDue(ready), after_ms=10_000)
    story.tell(Spawned(ready, HANDLE))
    story.tell(Listed(ready, HANDLE))
    assert counts() == (2, 2, 1), "keep-alive is not change"
    drained = story.begun(story.drain_of(ready))
    story.tell(Ended(drained, Outcome.SUCCEEDED))
    assert counts() == (3, 3, 1)
    again = story.begun(story.drain_of(ready))
    story.tell(Ended(again, Outcome.SUCCEEDED))
    assert counts() == (3, 3, 1), "it was draining already"
    gone = story.begun(story.unload_of(ready))
    story.tell(Ended(gone, Outcome.SUCCEEDED))
    assert counts() == (4, 4, 1)
    story.tell(Measured((replace(DEVICES[0], total_bytes=5), DEVICES[1])))
    assert counts() == (5, 4, 2), "a capacity"
    story.tell(Measured((DEVICES[1],)))
    assert counts() == (6, 4, 3), "a device went"
    story.tell(StateChanged(Verdict(HostState.THROTTLED)))
    assert counts() == (7, 4, 3)
    story.restart()
    assert counts()[1] == 4, "a restart of the agent with the same devices changes nothing on them"


def test_keep_alive_waits_twice_as_long_each_time_and_then_gives_up_visibly(story: Story) -> None:
    body = story.ready(restart=Restart(max=3, per_ms=600_000, backoff_ms=1_000))
    for pause in (1_000, 2_000, 4_000):
        story.tell(Died(body, "signal SIGKILL"))
        held = story.host.held[body]
        assert (held.state, held.retry_at_ms) == (ResidencyState.WARMING, story.now + pause)
        assert story.tell(RetryDue(body)) == (), "not yet"
        assert story.tell(RetryDue(body), after_ms=pause) == (StartAgain(body),)
        assert story.tell(RetryDue(body)) == (), "one start for one death"
        story.tell(Spawned(body, HANDLE))
        story.tell(Listed(body, HANDLE))
    story.tell(Died(body, "signal SIGKILL"))
    held = story.host.held[body]
    assert (held.state, held.code, held.restarts) == (ResidencyState.FAILED, "start_failed", 3)
    assert held.detail == "signal SIGKILL; restarted 3 times within 10 min, the most its policy allows"


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
def test_a_clock_that_jumps_by_an_hour_delays_no_restart_and_uses_none_up(story: Story, jump_ms: int) -> None:
    body = story.ready(restart=Restart(max=2, per_ms=60_000, backoff_ms=1_000))
    story.tell(Died(body, "crash"))
    assert story.tell(RetryDue(body), after_ms=jump_ms) == (StartAgain(body),)
    story.tell(Spawned(body, HANDLE))
    story.tell(Listed(body, HANDLE), after_ms=-jump_ms)
    story.tell(Died(body, "crash"), after_ms=61_000)
    assert story.tell(RetryDue(body), after_ms=2_000) == (StartAgain(body),)


def test_restarts_outside_the_window_are_forgotten(story: Story) -> None:
    body = story.ready(restart=Restart(max=1, per_ms=60_000, backoff_ms=1_000))
    for expected in (1, 2, 3):
        story.tell(Died(body, "crash"))
        assert StartAgain(body) in story.tell(RetryDue(body), after_ms=1_000)
        story.tell(Spawned(body, HANDLE))
        story.tell(Listed(body, HANDLE), after_ms=60_000)
        assert story.host.held[body].restarts == expected


def test_a_restart_that_fails_counts_like_a_death_and_a_first_start_that_fails_leaves_nothing(story: Story) -> None:
    body = story.ready(restart=Restart(max=1, per_ms=60_000, backoff_ms=1_000))
    story.tell(Died(body, "crash"))
    story.tell(RetryDue(body), after_ms=1_000)
    story.tell(StartFailed(body, "wrong_digest", "changed on disk"))
    assert story.state(body) is ResidencyState.FAILED
    first = story.begun(b.warm(2))
    story.tell(StartFailed(first, "start_failed", "exit code 1"))
    assert first not in story.host.held
    assert story.said(first) == (Outcome.FAILED, "start_failed")


def test_what_drains_is_not_kept_alive(story: Story) -> None:
    body = story.ready()
    story.tell(Died(body, "crash"))
    story.tell(Ended(story.begun(story.drain_of(body)), Outcome.SUCCEEDED))
    assert story.tell(RetryDue(body), after_ms=10_000) == ()
    assert story.state(body) is ResidencyState.DRAINING
    other = story.ready(replica=b.warm(2).replica)
    story.tell(Ended(story.begun(story.drain_of(other)), Outcome.SUCCEEDED))
    story.tell(Died(other, "crash"))
    assert (story.state(other), story.host.held[other].retry_at_ms) == (ResidencyState.DRAINING, None)
