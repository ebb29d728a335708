"""Devices that go and come back: what stood on one has failed with its reason, and lives again when it is back."""

from __future__ import annotations

from typing import Any

from gridops.base.ids import DeviceId
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport, ResidencyState
from gridops.protocol.messages import Outcome
from gridops_agent.core.events import (
    AwaitListed,
    Began,
    Died,
    Listed,
    Measured,
    RetryDue,
    StartAgain,
    StartFailed,
    Stuck,
)
from tests.agent.driver import Driver, gpu
from tests.agent.on_cards import AGENT
from tests.agent.story import DEVICES, GPU, HANDLE, OTHER, Story, drained
from tests.protocol import build as b


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
