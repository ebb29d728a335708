"""The heart of a host that gives memory back: from each state, through each interruption, with nothing lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.canon import digest_bytes
from gridops.base.ids import DeviceId, Digest
from gridops.base.units import PPM
from gridops.model.snapshot import HostState, ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core.events import (
    Act,
    BeatSoon,
    Began,
    Died,
    Found,
    GiveBack,
    Listed,
    Measured,
    Placed,
    Proved,
    Recall,
    Released,
    RetryDue,
    Spawned,
    StartAgain,
    StartFailed,
    StateChanged,
    Stuck,
)
from gridops_agent.core.pressure import pressed
from gridops_agent.core.protection import Verdict
from gridops_agent.core.report import Readings, inventory
from tests.agent.lookout import WELL
from tests.agent.story import DEVICES, GPU, HANDLE, Story
from tests.protocol import build as b

PAUSED = Verdict(HostState.PAUSED, ("owner_active: somebody",), lanes_ppm=0, retry_after_ms=30_000, yields=True)
READY, WARMING, OFFLOADED, FAILED = (
    ResidencyState.READY,
    ResidencyState.WARMING,
    ResidencyState.OFFLOADED,
    ResidencyState.FAILED,
)


@pytest.fixture
def story() -> Story:
    return Story()


def paused(story: Story) -> None:
    story.tell(StateChanged(PAUSED))


def itself(story: Story) -> None:
    story.tell(StateChanged(Verdict()))


def given_back(story: Story, **changes: object) -> Digest:
    body = story.ready(**changes)
    paused(story)
    assert Act(body) in story.tell(GiveBack(body), after_ms=10)
    story.tell(Died(body, "stopped"), after_ms=10)
    assert story.state(body) is OFFLOADED
    return body


def test_the_way_there_and_back_changes_nothing_but_the_process(story: Story) -> None:
    body = story.ready()
    before, generations = story.host.held[body], story.host.counts
    paused(story)
    assert story.tell(GiveBack(body), after_ms=1_000) == (Act(body), BeatSoon())
    assert story.state(body) is READY, "its memory is in use until its process is gone"
    assert story.tell(Died(body, "stopped"), after_ms=1_000) == (BeatSoon(),)
    held = story.host.held[body]
    assert (held.state, held.handle, held.restarts, held.recent_ms, held.retry_at_ms) == (OFFLOADED, None, 0, (), None)
    assert story.tell(Recall(body)) == (), "not while the owner is there"
    itself(story)
    assert story.tell(Recall(body), after_ms=1_000) == (StartAgain(body), BeatSoon())
    assert story.tell(Recall(body)) == (), "once"
    story.tell(Placed(body, 18_300))
    story.tell(Spawned(body, HANDLE))
    story.tell(Listed(body, replace(HANDLE, settled=True)))
    assert story.host.held[body] == before, "as old as it was, with no restart on its account"
    assert story.host.counts[GPU] == generations[GPU], "nothing changed that a plan was made for"


def test_only_a_host_that_yields_gives_back_and_only_what_is_ready(story: Story) -> None:
    body = story.ready()
    for state in (HostState.ACCEPTING, HostState.DRAINING, HostState.QUARANTINED, HostState.UNHEALTHY):
        story.tell(StateChanged(Verdict(state)))
        assert story.tell(GiveBack(body)) == ()
    paused(story)
    story.tell(Stuck(body, "not_ours", "alive"))
    assert story.tell(GiveBack(body)) == (), "what cannot be proved is never signalled"
    assert story.tell(GiveBack(digest_bytes(b"nobody"))) == ()


def test_what_was_begun_is_ended_even_if_the_owner_goes_meanwhile(story: Story) -> None:
    body = story.ready()
    paused(story)
    story.tell(GiveBack(body))
    itself(story)
    assert story.tell(GiveBack(body)) == (Act(body),)
    story.tell(Died(body, "stopped"))
    assert story.tell(Recall(body))[0] == StartAgain(body)


@pytest.mark.parametrize("gone", [True, False])
def test_an_agent_that_was_away_in_its_middle_goes_on(story: Story, gone: bool) -> None:
    body = story.ready()
    paused(story)
    story.tell(GiveBack(body))
    story.restart(all=Found(gone=gone, handle=None if gone else HANDLE))
    held = story.host.held[body]
    assert (held.state, held.restarts) == ((OFFLOADED, 0) if gone else (READY, 0))
    if not gone:
        assert story.tell(GiveBack(body)) == (Act(body),)
        story.tell(Died(body, "stopped"))
        assert story.state(body) is OFFLOADED


def test_an_agent_that_comes_back_leaves_what_is_offloaded_alone(story: Story) -> None:
    body = given_back(story)
    assert story.restart() == ()
    assert story.state(body) is OFFLOADED


def test_memory_that_does_not_come_back_is_stuck_and_then_offloaded_uncounted(story: Story) -> None:
    body = story.ready()
    paused(story)
    story.tell(GiveBack(body))
    story.tell(Stuck(body, "release_stuck", "pid 7 holds it"))
    assert story.state(body) is FAILED
    story.tell(Died(body, "gone at last"))
    story.tell(Released(body))
    assert (story.state(body), story.host.held[body].restarts) == (OFFLOADED, 0)


def test_a_doubt_that_is_resolved_in_its_middle_ends_offloaded(story: Story) -> None:
    body = story.ready()
    paused(story)
    story.tell(GiveBack(body))
    story.tell(Stuck(body, "not_ours", "who is it"))
    story.tell(Proved(body))
    story.tell(Listed(body, HANDLE))
    assert story.tell(GiveBack(body)) == (Act(body),)


def test_a_death_while_paused_waits_for_the_owner_to_go(story: Story) -> None:
    body = story.ready()
    paused(story)
    story.tell(Died(body, "crashed"))
    due = story.host.held[body].retry_at_ms
    assert due is not None
    assert story.tell(RetryDue(body), after_ms=10_000_000) == ()
    itself(story)
    assert story.tell(RetryDue(body)) == (StartAgain(body),)
    assert story.host.held[body].restarts == 1


def test_a_restart_that_the_host_takes_back_is_offloaded_and_no_failure(story: Story) -> None:
    body = story.ready()
    story.tell(Died(body, "crashed"))
    story.tell(RetryDue(body), after_ms=10_000_000)
    paused(story)
    story.tell(StartFailed(body, "host_state", "taken back"))
    assert (story.state(body), story.host.held[body].restarts) == (OFFLOADED, 1)


def test_a_comeback_that_fails_is_a_failure_like_any_other(story: Story) -> None:
    body = given_back(story)
    itself(story)
    story.tell(Recall(body))
    story.tell(StartFailed(body, "start_failed", "no"))
    held = story.host.held[body]
    assert held.state is WARMING
    assert held.retry_at_ms is not None


def test_its_room_stays_planned_and_it_comes_back_only_where_it_fits(story: Story) -> None:
    body = given_back(story, device_bytes=6_000)
    itself(story)
    second = story.issue(replace(b.warm(2), device_bytes=6_000))
    story.tell(Began(second))
    assert story.said(second) == (Outcome.REFUSED, "over_ceiling")
    seen = inventory(story.host, Readings()).residencies[0]
    assert (seen.state, seen.device_bytes) == (OFFLOADED, 6_000)
    crowded = tuple(replace(d, external_bytes=d.total_bytes // 2) for d in DEVICES)
    story.tell(Measured(crowded))
    assert story.tell(Recall(body)) == (BeatSoon(),)
    held = story.host.held[body]
    assert (held.state, held.code) == (OFFLOADED, "over_ceiling")
    story.tell(Measured(tuple(replace(d, external_bytes=d.total_bytes // 2 + 1) for d in DEVICES)))
    before = story.host
    assert story.tell(Recall(body)) == ()
    assert story.host is before, "said once: every word is a write"
    story.tell(Measured(DEVICES))
    assert story.tell(Recall(body))[0] == StartAgain(body)


def test_before_its_devices_are_measured_nothing_comes_back(story: Story) -> None:
    body = given_back(story)
    itself(story)
    story.host = replace(story.host, measured=())
    assert story.tell(Recall(body)) == ()


def test_it_is_drained_and_unloaded_like_any_other(story: Story) -> None:
    body = given_back(story)
    drain = story.begun(story.drain_of(body))
    assert drain in story.host.commands
    assert (story.state(body), story.host.held[body].offload) == (ResidencyState.DRAINING, False)
    itself(story)
    assert story.tell(Recall(body)) == ()


def test_an_unload_of_it_needs_no_drain_since_there_is_nothing_to_cut(story: Story) -> None:
    body = given_back(story)
    story.begun(story.unload_of(body))


def test_a_drain_in_the_middle_of_giving_back_ends_drained(story: Story) -> None:
    body = story.ready()
    paused(story)
    story.tell(GiveBack(body))
    story.begun(story.drain_of(body))
    story.tell(Died(body, "stopped"))
    assert story.state(body) is ResidencyState.DRAINING


# --- pressure ---------------------------------------------------------------------------------------------------------


def of(story: Story, ram_ppm: int = 0) -> tuple[int | None, int | None]:
    found = pressed(story.host, replace(WELL, ram_ppm=ram_ppm))
    return found.ram_ppm, found.gpu_memory_ppm


def test_pressure_is_what_others_use_of_what_the_plan_leaves_them(story: Story) -> None:
    gpu = next(d for d in DEVICES if d.id == GPU)
    bare = tuple(replace(d, external_bytes=0) for d in DEVICES)
    story.tell(Measured(bare))
    assert of(story)[1] == 0
    story.ready(device_bytes=gpu.total_bytes // 2)
    assert of(story)[1] == 0, "a plan alone presses nobody"
    story.tell(Measured(tuple(replace(d, external_bytes=d.total_bytes // 4) for d in DEVICES)))
    assert of(story)[1] == pytest.approx(PPM // 2, abs=1_000), "a quarter of all is half of what is left"


def test_a_card_whose_use_was_never_read_is_unknown_and_neither_full_nor_hidden(story: Story) -> None:
    gpu = next(d for d in DEVICES if d.id == GPU)
    never = replace(gpu, id=DeviceId("gpu9"), external_bytes=gpu.total_bytes, external_ms=None)
    quarter = tuple(replace(d, external_bytes=d.total_bytes // 4) for d in DEVICES)
    story.tell(Measured((*quarter, never)))
    seen = pressed(story.host, replace(WELL, gpu_memory_untold=("gpu7",)))
    assert (seen.gpu_memory_ppm, seen.gpu_memory_untold) == (PPM // 4, ("gpu7", "gpu9"))
    story.tell(Measured((*(d for d in quarter if d.id != GPU), never)))
    assert of(story)[1] is None, "of no card is anything known"


def test_pressure_is_the_same_whether_a_model_is_loaded_or_given_back(story: Story) -> None:
    body = story.ready(device_bytes=5_000)
    loaded = of(story)
    paused(story)
    story.tell(GiveBack(body))
    story.tell(Died(body, "stopped"))
    assert of(story) == loaded


def test_a_leak_of_ours_presses_too_and_a_full_plan_leaves_a_twentieth(story: Story) -> None:
    ram = next(d for d in DEVICES if d.id != GPU)
    story.tell(Measured(tuple(replace(d, external_bytes=0) for d in DEVICES)))
    story.ready(host_bytes=ram.total_bytes // 2, device_bytes=1)
    assert of(story, ram_ppm=PPM // 2)[0] == 0
    assert of(story, ram_ppm=PPM * 3 // 4)[0] == pytest.approx(PPM // 2, abs=1_000)
    assert of(story, ram_ppm=PPM)[0] == PPM
    gpu = next(d for d in DEVICES if d.id == GPU)
    story.ready(device_bytes=gpu.total_bytes - 1)
    assert of(story)[1] == 0
    story.tell(Measured(tuple(replace(d, external_bytes=d.total_bytes // 100) for d in DEVICES)))
    assert of(story)[1] == PPM // 5


def test_before_devices_are_measured_pressure_is_unknown(story: Story) -> None:
    story.host = replace(story.host, measured=())
    assert of(story, ram_ppm=PPM) == (None, None)
