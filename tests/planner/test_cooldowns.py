"""Times of rest, each at its edge to the millisecond: watermarks, the last use, and the minimum residency."""

from __future__ import annotations

import pytest

from gridops.model.forecast import Watermark
from gridops.model.profile import Timing
from gridops.model.snapshot import ResidencyState
from tests.planner.fleet import NOW, Fleet, running
from tests.planner.test_targets_forecast import MINUTE, entry, expect, planned, standing, wanted, wide

REST, STAY = 15 * MINUTE, 5 * MINUTE
"""The defaults of `timing.scale_down_after` and `timing.min_residency`."""
SHORT = Timing(scale_down_after_ms=2 * MINUTE, min_residency_ms=1 * MINUTE)


def ready_for(ms: int, timing: Timing | None = None) -> Fleet:
    """Four replicas that demand asked for, ready since so long."""
    fleet = standing(wide() if timing is None else wide(timing=timing), forecast=expect(entry(7.2)))
    assert fleet.parent is not None
    for a in fleet.parent.placement:
        here = running(a, fleet.parent, ResidencyState.READY, since_ms=NOW - ms)
        fleet = fleet.reporting(a.seat.host, residencies=(here,))
    assert len(fleet.parent.placement) == 4
    return fleet


def after(fleet: Fleet, **fields: object) -> int:
    return wanted(planned(fleet, expect(entry(1, **fields))))


@pytest.mark.parametrize(("timing", "rest"), [(None, REST), (SHORT, SHORT.scale_down_after_ms)])
def test_a_watermark_holds_until_scale_down_after_has_passed_and_not_longer(timing: Timing | None, rest: int) -> None:
    fleet = ready_for(24 * 60 * MINUTE, timing)
    young, old = (Watermark(at_ms=NOW - rest + ms, offered_mlanes=9_000) for ms in (1, 0))
    assert after(fleet, watermarks=(young,)) == 4
    assert after(fleet, watermarks=(old,)) == 1


@pytest.mark.parametrize(("timing", "rest"), [(None, REST), (SHORT, SHORT.scale_down_after_ms)])
def test_the_last_use_holds_what_stands_for_as_long(timing: Timing | None, rest: int) -> None:
    fleet = ready_for(24 * 60 * MINUTE, timing)
    for ms, expected in ((1, 4), (0, 1)):
        idle = entry(last_used_ms=NOW - rest + ms)
        assert wanted(planned(fleet, expect(idle))) == expected


@pytest.mark.parametrize(("timing", "stay"), [(None, STAY), (SHORT, SHORT.min_residency_ms)])
def test_who_is_ready_for_less_than_min_residency_is_not_given_up(timing: Timing | None, stay: int) -> None:
    low = (Watermark(at_ms=NOW, offered_mlanes=1_000),)
    assert after(ready_for(stay - 1, timing), watermarks=low) == 4
    assert after(ready_for(stay, timing), watermarks=low) == 1


def test_one_young_replica_keeps_all_of_its_profile() -> None:
    """Which of them goes is chosen later; none goes while one of them would be stopped right after it came."""
    fleet = ready_for(STAY)
    assert fleet.parent is not None
    last = fleet.parent.placement[-1]
    young = running(last, fleet.parent, ResidencyState.READY, since_ms=NOW - STAY + 1)
    low = (Watermark(at_ms=NOW, offered_mlanes=1_000),)
    assert after(fleet.reporting(last.seat.host, residencies=(young,)), watermarks=low) == 4
