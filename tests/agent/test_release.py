"""Memory that a stop must give back: measured per device, waited for, named when it does not come, and opened again."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from gridops.base.ids import DeviceId, Digest
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport, ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core.events import (
    AwaitListed,
    Began,
    Died,
    Ended,
    Listed,
    Measured,
    Placed,
    Released,
    RetryDue,
    Spawned,
    StartAgain,
    StartFailed,
    Stopping,
    Stuck,
)
from gridops_agent.core.release import Back, Owed, Reading, came_back, owe, verdict
from gridops_agent.release import readings
from gridops_agent.sensors.cards import Card, Cards, Condition
from tests.agent.driver import Driver, gpu
from tests.agent.test_heart import CPU, DEVICES, GPU, HANDLE, Story
from tests.protocol import build as b

GIB = 1 << 30
OTHER = DeviceId("gpu1")


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


@pytest.fixture
def story() -> Story:
    return Story()


def drained(story: Story) -> Digest:
    body = story.ready()
    story.tell(Ended(story.begun(story.drain_of(body)), Outcome.SUCCEEDED))
    return body


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


# --- devices that go and come back ----------------------------------------------------------------------------------


def lost(story: Story, *gone: DeviceId, why: str = "fell off") -> tuple[Any, ...]:
    there = tuple(d for d in DEVICES if d.id not in gone)
    return story.tell(Measured(there, lost=tuple((d, why) for d in gone)))


def test_a_lost_device_is_withdrawn_and_what_stood_on_it_has_failed_with_that_reason(story: Story) -> None:
    body = story.ready()
    generation = story.host.generation(GPU)
    lost(story, GPU)
    held = story.host.held[body]
    assert (held.state, held.code, held.detail) == (
        ResidencyState.FAILED,
        "device_lost",
        "gpu0 is withdrawn: fell off",
    )
    assert story.host.generation(GPU) > generation
    settled = story.host
    lost(story, GPU)
    assert story.host.held == settled.held, "told once"
    story.tell(Died(body, "pid 7 ended"))
    held = story.host.held[body]
    assert (held.state, held.retry_at_ms, held.handle) == (ResidencyState.FAILED, None, None), "not kept alive there"
    warm = story.issue(b.warm())
    story.tell(Began(warm))
    assert story.said(warm) == (Outcome.REFUSED, "over_ceiling")


def test_what_lived_through_the_loss_is_asked_again_when_its_device_is_back(story: Story) -> None:
    body = story.ready()
    lost(story, GPU)
    generation = story.host.generation(GPU)
    assert AwaitListed(body) in story.tell(Measured(DEVICES))
    assert story.host.generation(GPU) > generation
    assert story.state(body) is ResidencyState.WARMING
    story.tell(Listed(body, HANDLE))
    assert (story.state(body), story.host.held[body].code) == (ResidencyState.READY, None)


def test_what_died_with_its_device_is_kept_alive_again_when_that_is_back(story: Story) -> None:
    body = story.ready()
    lost(story, GPU)
    story.tell(Died(body, "pid 7 ended"))
    story.tell(Measured(DEVICES))
    held = story.host.held[body]
    assert (held.state, held.code) == (ResidencyState.WARMING, None)
    assert story.tell(RetryDue(body), after_ms=600_000) == (StartAgain(body),)


def test_a_silent_driver_takes_nothing_away(story: Story) -> None:
    body = story.ready()
    before = story.host
    story.tell(Measured(DEVICES[:1], absent=None))
    assert (story.host.held, story.host.counts) == (before.held, before.counts)
    story.tell(Measured(DEVICES[:1], absent="another version"))
    assert story.host.held[body].detail == "gpu0 is withdrawn: another version"


def test_a_loss_leaves_alone_what_drains_what_starts_and_what_failed_before(story: Story) -> None:
    body = drained(story)
    lost(story, GPU)
    assert (story.state(body), story.host.held[body].code) == (ResidencyState.DRAINING, None)
    begun = Story()
    start = begun.begun(b.warm())
    lost(begun, GPU)
    assert begun.state(start) is ResidencyState.WARMING
    begun.tell(StartFailed(start, "start_failed", "no card"))
    assert begun.said(start) == (Outcome.FAILED, "start_failed")
    stuck = Story()
    held = stuck.ready()
    stuck.tell(Stuck(held, "not_ours", "a doubt"))
    lost(stuck, GPU)
    assert stuck.host.held[held].code == "not_ours"
    stuck.tell(Measured(DEVICES))
    assert stuck.host.held[held].code == "not_ours"


def test_a_residency_of_several_devices_waits_for_all_of_them(story: Story) -> None:
    more = (*DEVICES, DeviceReport(id=OTHER, kind=DeviceKind.GPU, total_bytes=10_000))
    story.tell(Measured(more))
    body = story.ready(devices=(GPU, OTHER), device_bytes=10)
    story.tell(Measured(DEVICES, lost=((OTHER, "fell off"),)))
    assert story.host.held[body].detail == "gpu1 is withdrawn: fell off"
    story.tell(Measured((more[0], more[2])))
    assert story.host.held[body].code == "device_lost"
    story.tell(Measured(more))
    assert story.state(body) is ResidencyState.WARMING


# --- the whole agent, a real engine, a driver whose memory we move ---------------------------------------------------

AGENT = """
import asyncio, dataclasses, os, subprocess, tempfile
from gridops.base import limits
from gridops.base.ids import DeviceId
from gridops_agent import release
from tests.agent.site import Site, command, done, held_of, pid_of, receipt, until
from tests.builders.tiny_gguf import Shape, write_tiny_gguf
GPU = DeviceId("gpu0")
limits.RELEASE_MS = 1_500

async def told(work):
    folder = Path(tempfile.mkdtemp())
    model = write_tiny_gguf(folder / "tiny.gguf", shape=Shape(context=65_536))
    site = Site(folder / "state", model).join()
    try:
        async with site.agent() as agent:
            watch = asyncio.ensure_future(agent.watch.run())
            try:
                return await work(agent, site)
            finally:
                watch.cancel()
    finally:
        site.end()

async def measure(agent):
    # A look at what was just said, not at what was read a moment ago.
    agent.cards._last = None
    await agent._measure()

def warm(site, number=1): return site.warm("tiny" + str(number), devices=(GPU,), device_bytes=4 << 30)

def seen(made): return [made.outcome.value, made.code, made.detail]
"""


def test_a_leak_is_named_in_receipt_alarm_and_status_and_the_device_is_closed_until_it_is_gone(
    driver: Driver,
) -> None:
    driver.say(gpu("GPU-a", used=500))
    said = driver.run(
        AGENT
        + """
from gridops_agent.status import render, status

async def work(agent, site):
    warmed = await command(agent, site, warm(site))
    assert (await receipt(agent, warmed)).outcome == "succeeded"
    pid = pid_of(agent, warmed)
    ended = subprocess.Popen(("true",))  # nobody waits for it
    zombie = ended.pid
    say(gpu("GPU-a", used=9_900, procs=f"{pid}:9000,{zombie}:300"))
    await measure(agent)
    await done(agent, site, site.drain(warmed))
    unload = await done(agent, site, site.unload(warmed))
    await until(lambda: held_of(agent, warmed).handle is None, "its end to be seen")
    stuck = held_of(agent, warmed)
    second = await done(agent, site, warm(site, 2))
    await measure(agent)
    agent._write_status()
    shown = render(status(site.config, True), 10**15)
    alarms = agent.alarms.now()
    say(gpu("GPU-a", used=500))
    await measure(agent)
    after = held_of(agent, warmed)
    again = await done(agent, site, site.unload(warmed))
    third = await done(agent, site, warm(site, 3))
    return [pid, zombie, seen(unload), stuck.code, [o.device for o in stuck.owed], seen(second), list(alarms), shown,
            [after.code, list(after.owed)], seen(again), seen(third), agent.alarms.now(), len(site.processes())]

answer(asyncio.run(told(work)))
"""
    )
    pid, zombie, unload, code, owed, second, alarms, shown, after, again, third, quiet, engines = said
    assert unload[:2] == ["failed", "release_stuck"]
    assert f"gpu0 did not give its memory back (8.7 GiB were held there); held by pid {pid} (8.7 GiB, of" in unload[2]
    assert "this engine, gone from the process table)" in unload[2]
    assert f"pid {zombie} (300 MiB, not of this engine, a zombie)" in unload[2]
    assert (code, owed) == ("release_stuck", ["gpu0"])
    assert second[:2] == ["refused", "release_stuck"]
    assert "gpu0 is closed for starts" in second[2]
    assert [a for a in alarms if a.startswith("release_stuck: tiny1/1: gpu0 did not give")]
    assert f"pid {pid}" in shown
    assert "cpu0  " in shown
    assert " used by others at most, " in shown
    assert "not read: gpu0: " not in shown
    assert after == [None, []]
    assert again[0] == "succeeded"
    assert third[0] == "succeeded"
    assert [a for a in quiet if a.startswith("release_stuck")] == []
    assert engines == 1


def test_an_engine_that_is_killed_starts_again_only_when_its_memory_is_back(driver: Driver) -> None:
    driver.say(gpu("GPU-a", used=500))
    said = driver.run(
        AGENT
        + """
limits.RELEASE_MS = 60_000

async def work(agent, site):
    warmed = await command(agent, site, warm(site))
    await receipt(agent, warmed)
    pid = pid_of(agent, warmed)
    say(gpu("GPU-a", used=9_500, procs=f"{pid}:9000"))
    await measure(agent)
    os.kill(pid, 9)
    await until(lambda: held_of(agent, warmed).handle is None, "its death to be seen")
    owed = held_of(agent, warmed).owed
    await until(lambda: held_of(agent, warmed).restarts == 1, "keep-alive to begin")
    await asyncio.sleep(1)
    waiting = [held_of(agent, warmed).handle is None, len(site.processes())]
    say(gpu("GPU-a", used=700, procs="4242:200"))
    await until(lambda: held_of(agent, warmed).state == "ready", "the restart")
    return [[o.held_bytes >> 20 for o in owed], waiting, pid_of(agent, warmed) != pid]

answer(asyncio.run(told(work)))
"""
    )
    assert said == [[9_000], [True, 0], True]


def test_a_card_that_falls_off_while_it_serves_fails_its_model_and_brings_it_back(driver: Driver) -> None:
    driver.say(gpu("GPU-a", used=500), gpu("GPU-b"))
    said = driver.run(
        AGENT
        + """
async def work(agent, site):
    warmed = await command(agent, site, warm(site))
    await receipt(agent, warmed)
    pid = pid_of(agent, warmed)
    say(gpu("GPU-a", err=15), gpu("GPU-b"))
    await measure(agent)
    held = held_of(agent, warmed)
    story = [held.state.value, held.code, held.detail, [d.id for d in agent.memory.host.measured]]
    alarms = [a for a in agent.alarms.now() if a.startswith("device_lost")]
    say(gpu("GPU-a", used=500), gpu("GPU-b"))
    await measure(agent)
    await until(lambda: held_of(agent, warmed).state == "ready", "its return")
    return [story, alarms, pid_of(agent, warmed) == pid, [a for a in agent.alarms.now() if "device_lost" in a]]

answer(asyncio.run(told(work)))
"""
    )
    story, alarms, same, quiet = said
    assert story[:2] == ["failed", "device_lost"]
    assert story[2].startswith("gpu0 is withdrawn: the card is lost")
    assert story[3] == ["cpu0", "gpu1"]
    assert len(alarms) == 1
    assert (same, quiet) == (True, [])


def test_an_agent_whose_driver_hangs_goes_on_and_takes_nothing_away(driver: Driver) -> None:
    driver.say(gpu("GPU-a", used=500))
    said = driver.run(
        AGENT
        + """
async def work(agent, site):
    warmed = await command(agent, site, warm(site))
    await receipt(agent, warmed)
    say("latency_ms=20000", gpu("GPU-a"))
    late = []
    async def tick():
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.05)
            late.append(time.monotonic() - before)
    ticking = asyncio.ensure_future(tick())
    began = time.monotonic()
    await measure(agent)
    first = time.monotonic() - began
    began = time.monotonic()
    await measure(agent)
    second = time.monotonic() - began
    ticking.cancel()
    held = held_of(agent, warmed)
    return [first, second, max(late), held.state.value, [d.id for d in agent.memory.host.measured],
            [a for a in agent.alarms.now() if "sensor_silent" in a], list(agent._readings().unread)]

answer(asyncio.run(told(work)))
"""
    )
    first, second, late, state, devices, alarms, unread = said
    assert first < 6
    assert second < 2
    assert late < 2, "the loop ran on while the driver was asked"
    assert (state, devices) == ("ready", ["cpu0", "gpu0"])
    assert len(alarms) == 1
    assert any(reason.startswith("nvml has not answered for") for reason in unread)


def test_a_start_looks_at_memory_again_right_before_it_launches(driver: Driver) -> None:
    """What others took while a command waited for its lanes is seen before a process exists."""
    driver.say(gpu("GPU-a", total=12_000, used=500))
    said = driver.run(
        AGENT
        + """
async def work(agent, site):
    taken = []
    gate = agent.effects._tools.releases.gate
    async def late(held):
        say(gpu("GPU-a", total=12_000, used=11_000, procs="4242:10500"))
        agent.cards._last = None
        taken.append(held.body)
        return await gate(held)
    agent.effects._tools.releases.gate = late
    warmed = await done(agent, site, warm(site))
    return [seen(warmed), len(taken), len(site.processes()), len(agent.memory.host.held)]

answer(asyncio.run(told(work)))
"""
    )
    warmed, taken, processes, held = said
    assert warmed[:2] == ["failed", "over_ceiling"]
    assert "5.3 GiB used by others" in warmed[2]
    assert (taken, processes, held) == (1, 0, 0)
