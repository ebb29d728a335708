"""The heart by itself: every step is a value, so each rule is one small history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridops.base.canon import digest_bytes
from gridops.base.ids import DeviceId
from gridops.base.record import digest_of
from gridops.model.action import DeviceGeneration, DeviceShare, Warm
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport, HostState, ResidencyState
from gridops.protocol.fresh import begin
from gridops.protocol.messages import GrantMode, Outcome
from gridops.protocol.receipts import owed
from gridops_agent.core.events import (
    Act,
    BeatSoon,
    Began,
    CancelTransfer,
    Died,
    Ended,
    Enqueue,
    Listed,
    Measured,
    Placed,
    Spawned,
    StateChanged,
    Stuck,
    Warn,
)
from gridops_agent.core.protection import Verdict
from gridops_agent.core.report import Readings, heartbeat
from tests.agent.story import CPU, GPU, HANDLE, Story
from tests.protocol import build as b

# --- commands -------------------------------------------------------------------------------------------------------


def test_a_warm_command_is_accepted_begun_spawned_listed_and_answered_once(story: Story) -> None:
    body = story.issue(b.warm())
    assert story.host.held == {}, "nothing is there before the effect may begin"
    effects = story.tell(Began(body))
    assert Act(body) in effects
    assert story.state(body) is ResidencyState.WARMING
    story.tell(Placed(body, 18_300))
    story.tell(Spawned(body, HANDLE))
    assert story.receipt(body) is None
    story.tell(Listed(body, replace(HANDLE, settled=True)))
    assert story.said(body) == (Outcome.SUCCEEDED, None)
    assert story.state(body) is ResidencyState.READY
    assert story.host.commands == {}
    assert story.host.fence.decided[0].rseq == 1


def test_a_body_granted_again_is_answered_with_its_receipt_and_not_run_again(story: Story) -> None:
    body = story.ready()
    again = b.sealed(b.grant(story.bodies[0], issued_ms=b.NOW))
    assert story.hear(again) == (BeatSoon(),), "its receipt goes out at once"
    story.hear(acked_rseq=1)
    assert owed(story.host.receipts) == ()
    assert story.hear(again) == (), "the controller has it"
    story.hear(again, acked_rseq=0)
    assert [r.body for r in owed(story.host.receipts)] == [body], "a controller that forgot is told again"
    assert len(story.host.receipts.kept) == 1


@pytest.mark.parametrize("fetched", [5_000_000, None])
def test_a_receipt_says_what_a_load_had_to_fetch(story: Story, fetched: int | None) -> None:
    body = story.begun(b.load())
    story.tell(Ended(body, Outcome.SUCCEEDED, fetched_bytes=fetched))
    (receipt,) = owed(story.host.receipts)
    assert (receipt.body, receipt.fetched_bytes) == (body, fetched)


def test_a_void_before_the_effect_begins_ends_the_command(story: Story) -> None:
    body = story.issue(b.warm())
    story.hear(b.sealed(b.grant(story.bodies[0], mode=GrantMode.VOID)))
    assert story.said(body) == (Outcome.VOIDED, None)
    assert story.tell(Began(body)) == (), "what waited for its lanes finds that it is over"
    assert story.host.held == {}


def test_a_void_stops_a_transfer_and_lets_anything_else_run_to_its_receipt(story: Story) -> None:
    load, warm = story.begun(b.load()), story.begun(b.warm())
    voids = [b.sealed(b.grant(body, mode=GrantMode.VOID)) for body in story.bodies]
    assert story.hear(*voids) == (CancelTransfer(load),)
    story.tell(Ended(load, Outcome.VOIDED))
    assert story.said(load) == (Outcome.VOIDED, None)
    assert story.receipt(warm) is None


def test_a_void_that_comes_first_uses_up_the_number(story: Story) -> None:
    body = b.body(1, b.START, b.warm())
    story.hear(b.sealed(b.grant(body, mode=GrantMode.VOID)))
    assert story.said(digest_of(body)) == (Outcome.VOIDED, None)
    assert not any(isinstance(e, Enqueue) for e in story.hear(b.sealed(b.grant(body))))


def test_a_refusal_that_is_not_final_changes_nothing_but_warns(story: Story) -> None:
    before = story.host
    late = b.grant(b.body(1, b.START, b.warm()), issued_ms=b.NOW - 500_000, not_after_ms=b.NOW - 1)
    effects = story.hear(b.sealed(late))
    assert [e.code for e in effects if isinstance(e, Warn)] == ["expired"]
    assert (story.host.fence.head, story.host.receipts) == (before.fence.head, before.receipts)


def test_a_command_of_a_second_fleet_is_refused_by_name(story: Story) -> None:
    body = replace(b.body(1, b.START, b.warm()), fleet=digest_bytes(b"staging"))
    effects = story.hear(b.sealed(b.grant(body)))
    assert [e.code for e in effects if isinstance(e, Warn)] == ["wrong_fleet"]
    assert story.host.commands == {}


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"device_bytes": 8_000}, None, ""),
        ({"device_bytes": 8_001}, "over_ceiling", "gpu0 has 9.7 KiB: 0 B are planned here, 1.9 KiB used by others"),
        ({"host_bytes": 99_001}, "over_ceiling", "cpu0 has"),
        ({"devices": (DeviceId("gpu7"),)}, "over_ceiling", "no device gpu7"),
        ({"devices": (CPU,), "device_bytes": 99_000, "host_bytes": 0}, None, ""),
        ({"shares": (DeviceShare(device=DeviceId("gpu0"), ppm=100_000),)}, None, ""),
        ({"shares": (DeviceShare(device=DeviceId("gpu0"), ppm=100_001),)}, "over_ceiling", "100001 millionths of gpu0"),
        ({"shares": (DeviceShare(device=DeviceId("gpu0"), ppm=0),)}, "over_ceiling", "0 millionths"),
        ({"shares": (DeviceShare(device=CPU, ppm=1),)}, "over_ceiling", "shares of other devices"),
    ],
)
def test_memory_is_granted_by_a_sum_and_never_beyond_the_device(
    story: Story, changes: dict[str, Any], code: str | None, says: str
) -> None:
    body = story.issue(replace(b.warm(), **changes))
    story.tell(Began(body))
    made = story.receipt(body)
    assert (made.code if made else None) == code
    assert says in ((made.detail if made else "") or "")


def test_what_is_planned_counts_until_it_is_proved_gone_even_when_it_failed(story: Story) -> None:
    first = story.ready(device_bytes=5_000)
    story.tell(Stuck(first, "not_ours", "alive"))
    second = story.issue(replace(b.warm(2), device_bytes=4_000))
    story.tell(Began(second))
    assert story.said(second) == (Outcome.REFUSED, "over_ceiling")


@pytest.mark.parametrize("state", [s for s in HostState if s not in (HostState.ACCEPTING, HostState.THROTTLED)])
def test_a_host_that_protects_itself_takes_nothing_new_and_still_lets_go(story: Story, state: HostState) -> None:
    ready = story.ready()
    story.tell(StateChanged(Verdict(state, ("hot",))))
    for action in (b.load(2), b.warm(2)):
        body = story.issue(action)
        story.tell(Began(body))
        assert story.said(body) == (Outcome.REFUSED, "host_state")
    assert Act(story.begun(story.drain_of(ready)))


def test_a_precondition_is_judged_when_the_effect_starts(story: Story) -> None:
    here = DeviceGeneration(device=GPU, generation=story.host.generation(GPU))
    first = story.issue(b.warm(1), precondition=(here,))
    second = story.issue(b.warm(2), precondition=(here,))
    assert Act(first) in story.tell(Began(first))
    story.tell(Began(second))
    assert story.said(second) == (Outcome.REFUSED, "precondition")


def test_an_objection_of_the_engine_is_a_final_refusal(story: Story) -> None:
    body = story.issue(b.warm())
    story.tell(Began(body, ("bad_argument", "no argument `warp`")))
    assert story.said(body) == (Outcome.REFUSED, "bad_argument")
    assert story.host.held == {}


def test_only_what_is_drained_or_failed_is_unloaded_without_force(story: Story) -> None:
    ready = story.ready()
    early = story.issue(story.unload_of(ready))
    story.tell(Began(early))
    assert story.said(early) == (Outcome.REFUSED, "not_drained")
    forced = story.begun(story.unload_of(ready, force=True))
    story.tell(Ended(forced, Outcome.FAILED, "release_stuck", "pid 7"))
    assert ready in story.host.held
    drained = story.begun(story.drain_of(ready))
    assert story.state(ready) is ResidencyState.DRAINING
    story.tell(Ended(drained, Outcome.SUCCEEDED))
    last = story.begun(story.unload_of(ready))
    story.tell(Ended(last, Outcome.SUCCEEDED))
    assert story.host.held == {}


def test_an_unload_of_what_is_not_there_may_prove_that_and_a_drain_is_refused(story: Story) -> None:
    nothing = digest_bytes(b"nothing")
    assert story.begun(story.unload_of(nothing))
    drain = story.issue(story.drain_of(nothing))
    story.tell(Began(drain))
    assert story.said(drain) == (Outcome.REFUSED, "no_residency")


def test_a_fault_inside_the_agent_is_an_unknown_outcome_that_keeps_the_memory(story: Story) -> None:
    body = story.begun(b.warm())
    story.tell(Ended(body, Outcome.UNKNOWN, "agent_fault", "KeyError"))
    assert story.said(body) == (Outcome.UNKNOWN, "agent_fault")
    assert story.state(body) is ResidencyState.FAILED


# --- trust ----------------------------------------------------------------------------------------------------------


def test_a_directive_of_a_replaced_controller_is_not_believed(story: Story) -> None:
    story.hear(term=replace(b.TERM, counter=9))
    keys = story.host.last_word
    effects = story.hear(b.sealed(b.grant(b.body(1, b.START, b.warm()))), term=b.TERM)
    assert [e.code for e in effects if isinstance(e, Warn)] == ["stale_term"]
    assert story.host.last_word is keys
    assert story.host.commands == {}


def test_a_host_says_what_it_holds_and_what_is_open(story: Story) -> None:
    ready = story.ready()
    story.tell(Died(ready, "signal SIGKILL"))
    waiting = story.issue(b.warm(2))
    session = begin(b.FLEET, b.HOST, "b1")
    beat = heartbeat(story.host, session, "n", story.now, "0.1.0", Readings(in_flight={ready: 3}))
    assert beat.heard_ms == story.host.last_word.floor_ms
    seen = beat.inventory.residencies[0]
    assert (seen.replica, seen.state, seen.incarnation, seen.in_flight) == (
        "coder/1",
        ResidencyState.WARMING,
        ready,
        3,
    )
    assert seen.identity == digest_of(b.warm().launch)
    assert seen.detail == "signal SIGKILL; starts again"
    assert [d.generation for d in beat.inventory.devices] == [1, 2]
    assert beat.head.seq == 2
    assert [h.body for h in beat.open] == [waiting]
    assert isinstance(story.host.commands[waiting].body.action, Warm)


def test_graphics_take_no_more_of_unified_memory_than_the_system_lets_them() -> None:
    """Beyond the limit an engine dies when it loads; an engine on the processor is not bound by it."""
    unified = DeviceReport(id=DeviceId("unified0"), kind=DeviceKind.UNIFIED, total_bytes=100_000, graphics_bytes=60_000)
    for backend, refused in (("metal", True), ("cpu", False)):
        story = Story()
        story.tell(Measured((unified,)))
        launch = replace(b.warm().launch, backend=backend)
        first = replace(b.warm(), launch=launch, devices=(unified.id,), device_bytes=40_000, host_bytes=0)
        story.begun(first)
        second = story.issue(replace(first, device_bytes=30_000))
        story.tell(Began(second))
        made = story.receipt(second)
        assert (made is not None) is refused, backend
        if made is not None:
            assert made.code == "over_ceiling"
            assert "iogpu.wired_limit_mb" in (made.detail or "")
