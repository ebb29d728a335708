"""The heart by itself: every step is a value, so each rule is one small history."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from gridops.base.canon import digest_bytes
from gridops.base.ids import DeviceId, Digest
from gridops.base.record import digest_of
from gridops.model.action import Action, DeviceGeneration, DeviceShare, Drain, Unload, Warm
from gridops.model.fleet import DeviceKind
from gridops.model.profile import Restart
from gridops.model.snapshot import DeviceReport, HostState, ResidencyState
from gridops.protocol.fence import new_fence
from gridops.protocol.fresh import begin
from gridops.protocol.messages import GrantMode, Outcome, Receipt
from gridops.protocol.receipts import new_receipts, owed, stored
from gridops_agent.core.events import (
    Act,
    AwaitListed,
    BeatSoon,
    Began,
    CancelTransfer,
    Died,
    Effect,
    Ended,
    Enqueue,
    Event,
    Found,
    Heard,
    Listed,
    Measured,
    Placed,
    Proved,
    Resumed,
    RetryDue,
    Spawned,
    StartAgain,
    StartFailed,
    StateChanged,
    Stuck,
    Warn,
)
from gridops_agent.core.heart import step
from gridops_agent.core.protection import Verdict
from gridops_agent.core.report import Readings, heartbeat
from gridops_agent.core.state import Handle, Host
from tests.protocol import build as b

GPU, CPU = DeviceId("gpu0"), DeviceId("cpu0")
DEVICES = (
    DeviceReport(id=CPU, kind=DeviceKind.CPU, total_bytes=100_000, external_bytes=1_000, external_ms=1),
    DeviceReport(id=GPU, kind=DeviceKind.GPU, total_bytes=10_000, external_bytes=2_000, external_ms=1),
)
HANDLE = Handle(pid=7, birth="boot:1", port=18_300, key_file="k", executable="/bin/llama")


class Story:
    """A host, the controller's pen, and everything that came out."""

    def __init__(self) -> None:
        fence = new_fence(b.FLEET, b.HOST, b.HOST_KEY)
        receipts = new_receipts(b.FLEET, b.HOST, b.HOST_KEY)
        self.host = Host(boot="b1", chain=b.CHAIN, roots=(b.CHAIN.text,), fence=fence, receipts=receipts)
        self.now = b.NOW
        self.bodies: list[Any] = []
        self.tell(Measured(DEVICES))

    def tell(self, event: Event, after_ms: int = 0) -> tuple[Effect, ...]:
        self.now += after_ms
        done = step(self.host, event, self.now)
        self.host = done.host
        return done.effects

    def hear(self, *grants: str, **changes: object) -> tuple[Effect, ...]:
        directive = b.directive(grants=grants, **({"acked_rseq": self.host.receipts.acked} | changes))
        return self.tell(Heard(directive, floor_ms=self.now, epoch=1))

    def issue(self, action: Action, **changes: object) -> Digest:
        prev = digest_of(self.bodies[-1]) if self.bodies else b.START
        body = replace(b.body(len(self.bodies) + 1, prev, action), **changes)  # type: ignore[arg-type]
        self.bodies.append(body)
        effects = self.hear(b.sealed(b.grant(body)))
        assert effects == (Enqueue(digest_of(body)),)
        return digest_of(body)

    def begun(self, action: Action, **changes: object) -> Digest:
        body = self.issue(action, **changes)
        effects = self.tell(Began(body))
        assert Act(body) in effects, self.receipt(body)
        return body

    def ready(self, **changes: object) -> Digest:
        """A warm command carried to its success."""
        body = self.begun(replace(b.warm(), **changes))  # type: ignore[arg-type]
        self.tell(Placed(body, 18_300))
        self.tell(Spawned(body, HANDLE))
        self.tell(Listed(body, replace(HANDLE, settled=True)))
        return body

    def receipt(self, body: Digest) -> Receipt | None:
        return stored(self.host.receipts, body)

    def said(self, body: Digest) -> tuple[Outcome, str | None]:
        made = self.receipt(body)
        assert made is not None
        return made.outcome, made.code

    def state(self, body: Digest) -> ResidencyState:
        return self.host.held[body].state

    def restart(self, **found: Found) -> tuple[Effect, ...]:
        """The agent comes back with what its ledger says."""
        self.host = replace(self.host, boot="b2", measured=(), verdict=Verdict())
        self.tell(Measured(DEVICES))
        everything = {body: found.get("all", Found(gone=True)) for body in self.host.held}
        return self.tell(Resumed(MappingProxyType(everything)))

    def drain_of(self, body: Digest) -> Drain:
        return replace(b.drain(), incarnation=body)

    def unload_of(self, body: Digest, *, force: bool = False) -> Unload:
        return replace(b.unload(force=force), incarnation=body)


@pytest.fixture
def story() -> Story:
    return Story()


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


# --- generations ----------------------------------------------------------------------------------------------------


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


# --- keep-alive -----------------------------------------------------------------------------------------------------


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


# --- doubt and restarts of the agent ---------------------------------------------------------------------------------


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
