"""The loop around the judge: sensors that hang or fail, a full disk, a front that needs no network."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from gridops.model.policy import Sensor
from gridops.model.snapshot import HostState
from gridops_agent import protect
from gridops_agent.core.protection import Sample
from gridops_agent.ledger import Unwritable
from tests.agent.site import Site


async def test_a_sensor_that_hangs_makes_readings_unknown_and_is_not_asked_twice_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protect, "PATIENCE_S", 0.2)
    async with site.agent() as agent:
        hang, asked = threading.Event(), 0

        def stuck() -> Sample:
            nonlocal asked
            asked += 1
            hang.wait(30)
            return site.sense()

        agent.protection._parts = replace(agent.protection._parts, senses=stuck)
        began = time.monotonic()
        for _ in range(3):
            await agent.protection.tick()
            assert agent.protection.sample == Sample(mono_ms=agent.protection.sample.mono_ms)
        assert time.monotonic() - began < 10
        assert asked == 1
        hang.set()
        await agent.protection.tick()
        assert agent.protection.sample.idle_ms is not None, "it is listened to again"


async def test_a_sensor_that_fails_is_unknown_and_told(site: Site) -> None:
    async with site.agent() as agent:

        def broken() -> Sample:
            raise RuntimeError("no bus")

        agent.protection._parts = replace(agent.protection._parts, senses=broken)
        await agent.protection.tick()
        assert agent.protection.sample is not None
        assert agent.protection.sample.idle_ms is None
        assert any("sensors: RuntimeError: no bus" in alarm for alarm in agent.alarms.now())


async def test_an_owner_does_not_wait_for_a_disk_that_is_full(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.readings = {"idle_ms": 0}
    async with site.agent() as agent:
        assert agent.memory.host.state is HostState.PAUSED
    site.readings = {}
    async with site.agent() as agent:
        assert agent.front.verdict.state is HostState.ACCEPTING

        def full(*_: object) -> None:
            raise Unwritable("full")

        with monkeypatch.context() as patched:
            patched.setattr(agent._ledger, "write", full)
            site.readings = {"temperature_c": 120}
            agent.protection._guard = type(agent.protection._guard)()
            with pytest.raises(Unwritable):
                await agent.protection.tick()
            assert agent.front.verdict.state is HostState.PAUSED, "the front is closed all the same"
            assert agent.memory.host.state is HostState.ACCEPTING
        await agent.protection.tick()
        assert agent.memory.host.state is HostState.PAUSED, "and the heart hears of it as soon as it can"


async def test_a_front_on_loopback_needs_no_network(site: Site) -> None:
    site.readings = {"network_up": False}
    async with site.agent() as agent:
        assert agent.memory.host.state is HostState.ACCEPTING
        assert agent.protection.sample is not None
        assert Sensor.NETWORK in agent.protection.sample.absent
    site.config = replace(site.config, front="0.0.0.0:0")
    async with site.agent() as agent:
        assert agent.memory.host.state is HostState.UNHEALTHY


async def test_numbers_in_reasons_are_told_seldom_and_codes_at_once(site: Site) -> None:
    site.readings = {"temperature_c": 84}
    async with site.agent() as agent:
        first = agent.memory.host.reasons
        assert first == ("too_hot: 84 C, from 80 C on it yields",)
        site.readings = {"temperature_c": 85}
        await agent.protection.tick()
        assert agent.memory.host.reasons == first
        agent.protection._told_ms = agent.protection.sample.mono_ms - protect.WORDS_EVERY_MS  # type: ignore[union-attr,operator]
        await agent.protection.tick()
        assert agent.memory.host.reasons == ("too_hot: 85 C, from 80 C on it yields",)
