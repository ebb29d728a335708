"""Half and twice of the constants that weigh a seat: what they do to the part of the harm that they are about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.constants import changed
from gridops.base.ids import HostId
from gridops.model.fleet import Link
from gridops.model.learned import Learned, TimeKind
from gridops.planner import constants
from tests.planner.fleet import NOW, Fleet, host, laptop
from tests.planner.test_where import MEASURED, WANTED, delay, failed, gpu, made, rate, terms, took

PINNED = replace(WANTED, placement=replace(WANTED.placement, pins=(HostId("ant"),)))
BEST = replace(rate("bee", 40), latency_ms=1_000, latency_count=8, latency_at_ms=NOW)
TWO = (host("ant"), host("bee"))
CRAWLS = (host("ant", links=(Link(name="download", rate_bps=1),)),)

SWINGS: dict[str, tuple[str, tuple[Any, ...], Learned, tuple[int, int, int]]] = {
    "HORIZON_MS": ("slower", TWO, Learned(speeds=(rate("ant", 20), BEST)), (15_000, 30_000, 60_000)),
    "NOMINAL_MLANES": ("slower", TWO, Learned(speeds=(rate("ant", 20), BEST)), (15_000, 30_000, 60_000)),
    "WAITING_MLANES": ("starting", TWO, Learned(), (17_500, 35_000, 70_000)),
    "START_MAX_MS": ("starting", CRAWLS, Learned(), (43_200_000, 86_400_000, 172_800_000)),
    "FAILED_START_MS": ("failing", TWO, Learned(failures=(failed("ant", 1),)), (60_000, 120_000, 240_000)),
    "FAILURES_COUNTED": ("failing", TWO, Learned(failures=(failed("ant", 99),)), (240_000, 480_000, 960_000)),
    "OWNER_RETURNS_PPM": ("interrupted", (laptop("ant"),), Learned(), (500, 1_000, 2_000)),
    "LEARN_TRUSTED": ("starting", TWO, Learned(times=(took("ant", TimeKind.FETCH, 0, 2),)), (5_000, 20_000, 27_500)),
    "LEARN_CAP_MS": (
        "starting",
        TWO,
        Learned(times=(took("ant", TimeKind.FETCH, 2_000_000),)),
        (35_000, 2_005_000, 2_005_000),
    ),
    "SPEED_TRUSTED": ("slower", TWO, Learned(speeds=(rate("ant", 20, count=4), BEST)), (30_000, 15_000, 7_500)),
    "SPEED_VALID_MS": ("slower", TWO, Learned(speeds=(MEASURED["half as old"][0], BEST)), (0, 15_000, 22_500)),
    "SLOWER_MAX_PPM": ("slower", TWO, Learned(speeds=(delay("ant", 100_000), BEST)), (45_000, 90_000, 180_000)),
    "HARDWARE_PPM": ("slower", (gpu("ant", "Tesla T4"), gpu("bee", "RTX 4090")), Learned(), (189, 379, 758)),
}


@pytest.mark.parametrize("name", SWINGS)
def test_half_and_twice(name: str) -> None:
    """The part of the host's harm at half, at the value, and at twice."""
    part, hosts, learned, expected = SWINGS[name]
    value, found = vars(constants)[name], []
    for other in (value // 2, value, value * 2):
        with changed(name, other):
            found.append(terms(made(Fleet(hosts=hosts, profiles=(PINNED,)), learned))[f"harm_{part}"][0])
    assert tuple(found) == expected
