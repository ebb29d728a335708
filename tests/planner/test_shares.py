"""Engines that take a share of a card are told what is planned of what the card has; never a fixed part of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridops.base.ids import EngineName
from gridops.footprint.share import SHARE_ARGUMENTS, share_ppm
from gridops.model.action import DeviceShare, Warm
from gridops.model.fleet import Host, Runtime
from gridops.model.profile import Config, DeviceNeed
from gridops.planner.actions import actions
from tests.planner.fleet import GIB, Fleet, config, host, profile, report


def runs(engine: str, gpus: tuple[float, ...]) -> Host:
    return host("ant", gpus, runtimes=tuple(Runtime(engine=EngineName(engine), backend=b) for b in ("cuda", "cpu")))


def asks(engine: str, gib: float, **more: object) -> Config:
    return replace(config("q", gib, **more), engine=EngineName(engine))  # type: ignore[arg-type]


def started(fleet: Fleet) -> Warm:
    """The command that starts the only replica."""
    made = fleet.plan()
    found = actions(made, fleet.snapshot(), fleet.now, desired=fleet.inputs().intent.desired)
    return next(s.action for s in found if isinstance(s.action, Warm))


@pytest.mark.parametrize("engine", sorted(SHARE_ARGUMENTS))
def test_the_share_is_what_is_planned_of_what_the_card_has(engine: str) -> None:
    made = started(Fleet(hosts=(runs(engine, (24,)),), profiles=(profile("c", configs=(asks(engine, 1.5),)),)))
    assert made.shares == (DeviceShare(device=made.devices[0], ppm=62_500),)


def test_each_card_has_its_own_share_and_it_is_rounded_down() -> None:
    pair = asks("vllm", 13, devices=DeviceNeed(count=2, uneven=True))
    made = started(Fleet(hosts=(runs("vllm", (24, 48)),), profiles=(profile("c", configs=(pair,)),)))
    assert [(s.device, s.ppm) for s in made.shares or ()] == [("gpu0", 541_666), ("gpu1", 270_833)]


def test_context_and_lanes_are_part_of_the_share() -> None:
    base = asks("vllm", 10, lanes=4, context=10_000)
    sized = replace(
        base, footprint=replace(base.footprint, kv_per_1k_bytes=100 << 20, fixed_per_sequence_bytes=256 << 20)
    )
    made = started(Fleet(hosts=(runs("vllm", (24,)),), profiles=(profile("c", configs=(sized,)),)))
    planned = 10 * GIB + 1_000 * (1 << 20) + GIB
    assert made.device_bytes == planned
    assert [s.ppm for s in made.shares or ()] == [planned * 1_000_000 // (24 * GIB)]


def test_a_ceiling_below_the_card_is_a_share_of_the_card() -> None:
    """The engine takes its part of what it finds, which is what the host reports and not what the file allows."""
    fleet = Fleet(hosts=(runs("vllm", (12,)),), profiles=(profile("c", configs=(asks("vllm", 10),)),))
    seen = tuple(replace(d, total_bytes=40 * GIB) if d.id == "gpu0" else d for d in report(fleet.hosts[0]).devices)
    assert [s.ppm for s in started(fleet.reporting("ant", devices=seen)).shares or ()] == [250_000]


@pytest.mark.parametrize(("engine", "backend"), [("llama.cpp", "cuda"), ("vllm", "cpu"), ("comfyui", "cuda")])
def test_who_takes_what_it_needs_is_told_no_share(engine: str, backend: str) -> None:
    asked = asks(engine, 10, backends=(backend,))
    assert started(Fleet(hosts=(runs(engine, (24,)),), profiles=(profile("c", configs=(asked,)),))).shares is None


@given(st.integers(0, 1 << 45), st.integers(0, 1 << 45))
def test_no_share_is_more_than_the_need_and_none_is_a_millionth_less(need: int, total: int) -> None:
    ppm = share_ppm(need, total)
    assert 0 <= ppm <= 1_000_000
    if total and need <= total:
        assert ppm * total <= need * 1_000_000 < (ppm + 1) * total


def test_a_process_that_was_told_its_share_holds_it_until_it_ends() -> None:
    """A footprint that is declared smaller frees nothing of a running engine that has filled its share, nor of any
    other: its host counts what it was started with. Once it was started anew, the rest is free."""
    for engine in ("vllm", "llama.cpp"):
        fleet = Fleet(hosts=(runs(engine, (24,)),), profiles=(profile("c", configs=(asks(engine, 20),)),))
        running = fleet.applied(fleet.plan())
        smaller = profile("c", configs=(asks(engine, 8),))
        both = running.but(profiles=(smaller, profile("d", configs=(asks(engine, 10, weights="d"),))))
        for fleet, holds in ((both, {"c/1": 20}), (both.restarted("c/1", 8), {"c/1": 8, "d/1": 10})):
            assert {a.replica: a.device_bytes // GIB for a in fleet.plan().placement} == holds
            # Nobody is told to wait for memory that nobody gives up.
            steps = actions(fleet.plan(), fleet.snapshot(), fleet.now, desired=fleet.inputs().intent.desired)
            assert not [s for s in steps if "memory on" in (s.waits_for or "")]
