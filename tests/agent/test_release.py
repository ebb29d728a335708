"""Memory that a stop must give back: measured per device, waited for, named when it does not come, and opened again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from gridops.base.ids import DeviceId, Digest
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core import release
from gridops_agent.core.events import (
    Began,
    Died,
    Ended,
    Event,
    Holding,
    Placed,
    Released,
    RetryDue,
    Spawned,
    StartAgain,
    Stopping,
    Stuck,
)
from gridops_agent.core.release import Back, Owed, Reading, came_back, owe, verdict
from gridops_agent.core.state import Handle
from gridops_agent.releases import Releases, readings
from gridops_agent.sensors.cards import Card, Cards, Condition
from tests.agent.story import CPU, GPU, HANDLE, OTHER, Story, drained
from tests.protocol import build as b

GIB = 1 << 30


# --- the rule -------------------------------------------------------------------------------------------------------


def reading(used: int, **pids: int | None) -> Reading:
    """Gibibytes used, and by pid: `p7=3`."""
    by_pid = {int(name[1:]): None if held is None else held * GIB for name, held in pids.items()}
    return Reading(used * GIB, by_pid)


@pytest.mark.parametrize(
    ("now", "back"),
    [
        (reading(12, p7=10, p9=1), Back.NO),
        (reading(4, p7=2, p9=1), Back.NO),
        (reading(3, p7=1, p9=1), Back.YES),
        (reading(2, p9=1), Back.YES),
        (reading(12, p9=11), Back.YES),
        (reading(12, p9=1, p33=10), Back.YES),
        (reading(12, p9=1), Back.NO),
        (Reading(None, {}), Back.UNREAD),
        (Reading(12 * GIB, None), Back.UNREAD),
        (Reading(gone=True), Back.GONE),
    ],
    ids=[
        "all is still there",
        "eight tenths came back",
        "nine tenths came back",
        "everything came back",
        "another that was there took it meanwhile",
        "another that is new took it meanwhile",
        "held by no process at all",
        "use unknown",
        "processes unknown",
        "the card is lost",
    ],
)
def test_nine_tenths_of_what_the_group_held_must_come_back(now: Reading, back: Back) -> None:
    owed = owe(GPU, reading(12, p7=10, p9=1), (7, 8))
    assert (owed.held_bytes, owed.rest_bytes, owed.pids) == (10 * GIB, 11 * GIB, (7, 8))
    assert came_back(owed, now) is back


def test_without_a_baseline_none_of_the_group_may_be_listed() -> None:
    for before in (reading(12, p7=None), Reading(None, None)):
        owed = owe(GPU, before, (7,))
        assert owed.held_bytes is None
        assert came_back(owed, reading(12, p7=None)) is Back.NO
        assert came_back(owed, reading(12, p9=12)) is Back.YES


def test_some_devices_unread_pass_with_a_remark_and_all_unread_fail() -> None:
    owed = (owe(GPU, reading(9, p7=9), (7,)), owe(OTHER, reading(9, p7=9), (7,)))
    some = verdict(owed, {GPU: reading(0)})
    assert (some.back, some.unread, some.remark) == (
        True,
        (OTHER,),
        "gpu1 could not be read: that its memory came back was not seen",
    )
    none = verdict(owed, {})
    assert (none.back, none.unread) == (False, (GPU, OTHER))
    assert verdict(owed, {GPU: reading(9, p7=9)}).missing == owed[:1]
    assert verdict((), {}).back
    lost = verdict(owed, {GPU: Reading(gone=True)})
    assert lost.back
    assert "gpu0 is lost" in lost.remark


def test_a_card_that_the_driver_no_longer_lists_took_its_memory_along_and_a_silent_one_did_not() -> None:
    part = DeviceId("gpu1.0")
    owed = (Owed(device=GPU), Owed(device=part))
    assert readings(Cards(), owed) == {GPU: Reading(gone=True), part: Reading(gone=True)}
    assert readings(Cards(known=False), owed) == {}
    silent = Cards(cards=(Card(id=OTHER, condition=Condition.SILENT),))
    assert readings(silent, owed) == {OTHER: Reading(), GPU: Reading(gone=True)}


# --- what the host makes of it --------------------------------------------------------------------------------------

OWED = (Owed(device=GPU, pids=(7,), held_bytes=5_000, rest_bytes=6_000),)
DETAIL = "gpu0 did not give its memory back"


def test_what_must_come_back_is_remembered_before_the_first_signal_and_goes_with_the_residency(story: Story) -> None:
    body = drained(story)
    unload = story.begun(story.unload_of(body))
    story.tell(Stopping(body, OWED))
    assert story.host.held[body].owed == OWED
    story.tell(Ended(unload, Outcome.SUCCEEDED))
    assert body not in story.host.held


def test_a_device_with_stuck_memory_is_closed_for_starts_and_opens_again_by_itself(story: Story) -> None:
    body = drained(story)
    unload = story.begun(story.unload_of(body))
    story.tell(Stopping(body, OWED))
    generation = story.host.generation(GPU)
    story.tell(Stuck(body, "release_stuck", DETAIL))
    story.tell(Ended(unload, Outcome.FAILED, "release_stuck", DETAIL))
    assert story.said(unload) == (Outcome.FAILED, "release_stuck")
    assert story.host.generation(GPU) == generation + 1
    story.tell(Died(body, "pid 7 ended"))
    assert story.host.held[body].owed == OWED, "a death without a newer reading takes nothing away"

    other = story.issue(replace(b.warm(), device_bytes=1))
    story.tell(Began(other))
    assert story.said(other) == (Outcome.REFUSED, "release_stuck")
    assert DETAIL in (story.receipt(other).detail or "")  # type: ignore[union-attr]
    elsewhere = story.issue(replace(b.warm(), devices=(CPU,), device_bytes=1))
    story.tell(Began(elsewhere))
    assert story.receipt(elsewhere) is None, "other devices stay open"

    story.tell(Released(body))
    held = story.host.held[body]
    assert (held.state, held.code, held.owed) == (ResidencyState.DRAINING, None, ())
    again = story.issue(replace(b.warm(), device_bytes=2))
    story.tell(Began(again))
    assert story.receipt(again) is None
    last = story.begun(story.unload_of(body))
    story.tell(Ended(last, Outcome.SUCCEEDED))
    assert body not in story.host.held


def test_a_restart_waits_for_the_memory_of_the_process_before_it_without_being_counted(story: Story) -> None:
    body = story.ready()
    story.tell(Died(body, "killed", OWED))
    assert story.host.held[body].owed == OWED
    assert story.tell(RetryDue(body), after_ms=60_000) == (StartAgain(body),)
    story.tell(Stuck(body, "release_stuck", DETAIL))
    held = story.host.held[body]
    assert (held.state, held.code, held.restarts) == (ResidencyState.FAILED, "release_stuck", 1)
    story.tell(Released(body))
    held = story.host.held[body]
    assert (held.state, held.code, held.owed) == (ResidencyState.WARMING, None, ())
    assert story.tell(RetryDue(body), after_ms=600_000) == (StartAgain(body),)


def test_a_process_that_was_started_owes_nothing_of_the_one_before_it(story: Story) -> None:
    body = story.ready()
    story.tell(Died(body, "killed", OWED))
    story.tell(RetryDue(body), after_ms=60_000)
    story.tell(Placed(body, 18_300))
    assert story.host.held[body].owed == OWED
    story.tell(Spawned(body, HANDLE))
    assert story.host.held[body].owed == ()


def test_nobody_restarts_on_a_device_that_another_keeps_closed(story: Story) -> None:
    one, other = story.ready(device_bytes=1), story.ready(device_bytes=2)
    story.tell(Died(one, "killed", OWED))
    assert story.tell(RetryDue(one), after_ms=60_000) == (StartAgain(one),)
    story.tell(Stuck(one, "release_stuck", DETAIL))
    story.tell(Died(other, "killed too"))
    assert story.tell(RetryDue(other), after_ms=60_000) == ()
    assert story.host.held[other].restarts == 0
    story.tell(Released(one))
    assert story.tell(RetryDue(other)) == (StartAgain(other),)


def test_one_that_was_given_back_waits_for_its_host_and_not_for_memory(story: Story) -> None:
    body = story.ready()
    held = replace(story.host.held[body], state=ResidencyState.OFFLOADED, handle=None, code="release_stuck")
    story.host = replace(story.host, held=MappingProxyType({body: held}))
    story.tell(Released(body))
    assert (story.state(body), story.host.held[body].code) == (ResidencyState.OFFLOADED, None)


def test_memory_that_comes_back_of_somebody_who_was_never_stuck_changes_nothing_else(story: Story) -> None:
    body = story.ready()
    story.tell(Died(body, "killed", OWED))
    before = story.host.held[body]
    story.tell(Released(body))
    assert story.host.held[body] == replace(before, owed=())
    assert story.tell(Released(Digest("sha256:" + "0" * 64))) == ()


# --- who looks ------------------------------------------------------------------------------------------------------


class Watched:
    """One engine on one card, and who looks at it. The card says what the test says."""

    def __init__(self, story: Story) -> None:
        self.story, self.body = story, story.ready()
        self.releases = Releases(story, lambda: self.cards, None, self.pids_of)  # type: ignore[arg-type]
        self.told: list[Holding | Stopping] = []
        self.holds(8)

    def holds(self, gib: int) -> None:
        card = Card(id=GPU, total_bytes=24 * GIB, used_bytes=(gib + 1) * GIB, by_pid={7: gib * GIB})
        self.cards = Cards(cards=(card,))

    async def pids_of(self, handles: Mapping[Digest, Handle]) -> tuple[int, ...]:
        return (7,)

    async def tell(self, event: Event) -> bool:
        assert isinstance(event, Holding | Stopping)
        self.told.append(event)
        self.story.tell(event)
        return True

    async def note(self) -> list[int]:
        """One look; what is remembered after it, in gibibytes."""
        await self.releases.note(self.cards, self.tell)
        return [(owed.held_bytes or 0) // GIB for owed in self.story.host.held[self.body].owed]


async def test_what_a_living_engine_holds_is_remembered_when_it_changes_and_not_with_every_look(story: Story) -> None:
    seen = Watched(story)
    assert [await seen.note() for _ in range(3)] == [[8]] * 3
    assert len(seen.told) == 1
    seen.holds(12)
    assert await seen.note() == [12]
    story.tell(Died(seen.body, "killed"))
    assert story.host.held[seen.body].owed[0].held_bytes == 12 * GIB, "nobody saw it die, and it is known all the same"
    story.tell(Holding(seen.body, ()))
    assert story.host.held[seen.body].owed, "who is gone holds nothing new"


async def test_what_must_come_back_is_what_was_held_before_the_first_signal_however_often_it_is_looked_at(
    story: Story,
) -> None:
    seen = Watched(story)
    await seen.releases.before(story.host.held[seen.body], seen.tell)
    seen.holds(2)
    assert await seen.note() == [8], "half ended, it holds less: the rest is owed all the same"


@pytest.mark.parametrize(
    ("before", "now", "moved"),
    [
        (reading(12, p7=10), reading(12, p7=10), False),
        (reading(12, p7=10), reading(13, p7=11), False),
        (reading(12, p7=10), reading(14, p7=12), True),
        (reading(12, p7=10), reading(14, p7=10), True),
        (reading(12, p7=10), reading(22, p7=10, p9=10), False),
        (reading(12, p7=10), reading(12, p7=None), True),
        (reading(12, p7=None), reading(14, p7=None), False),
    ],
    ids=["the same", "a tenth", "a fifth", "the rest", "others only", "not told any more", "never told"],
)
def test_a_change_that_could_turn_the_answer_is_told_from_noise(before: Reading, now: Reading, moved: bool) -> None:
    assert release.moved((owe(GPU, before, (7,)),), (owe(GPU, now, (7,)),)) is moved
    assert release.moved((), (owe(GPU, now, (7,)),))
    assert release.moved((owe(GPU, now, (7,)),), (owe(GPU, now, (8,)),))
