"""When demand falls: what stands is given up late, in the right order, and for a reason that is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridops.base.ids import HostId, ProfileName
from gridops.model.fleet import Drain
from gridops.model.forecast import Band, ProfileForecast, Watermark
from gridops.model.plan import CauseKind
from gridops.model.policy import ActionClass, Risk
from gridops.model.profile import Profile
from gridops.model.snapshot import ResidencyState
from gridops.planner.constants import FORECAST_VALID_MS
from tests.planner.fleet import NOW, Fleet, running, seats
from tests.planner.test_targets_forecast import MINUTE, at, entry, expect, planned, standing, wanted, wide


def aged(minutes: int, want: Profile | None = None, **changes: Any) -> Fleet:
    """Four replicas that demand asked for have been ready for so long."""
    fleet = standing(want or wide(), forecast=expect(entry(7.2)))
    assert fleet.parent is not None
    assert len(fleet.parent.placement) == 4
    for a in fleet.parent.placement:
        ready = running(a, fleet.parent, since_ms=NOW - minutes * MINUTE, **changes)
        fleet = fleet.reporting(a.seat.host, residencies=(ready,))
    return fleet


FALLS: dict[str, tuple[Fleet, ProfileForecast | None, int]] = {
    "nothing asked for long": (aged(60), entry(last_used_ms=NOW - 16 * MINUTE), 1),
    "demand whose last request is that old": (aged(60), entry(7.2, last_used_ms=NOW - 16 * MINUTE), 1),
    "used within the cooldown": (aged(60), entry(last_used_ms=NOW - 14 * MINUTE), 4),
    "used when the cooldown ended": (aged(60), entry(last_used_ms=NOW - 15 * MINUTE), 1),
    "a lower peak within the cooldown": (aged(60), entry(1, watermarks=(at(20, 9), at(14, 4))), 2),
    "a peak before the cooldown": (aged(60), entry(1, watermarks=(at(15, 9),)), 1),
    "a peak from the future": (aged(60), entry(1, watermarks=(at(-2, 9),)), 1),
    "ready since a moment that has not come": (aged(-2), entry(1, watermarks=(at(0, 1),)), 1),
    "a use from the future": (aged(60), entry(last_used_ms=NOW + 2 * MINUTE), 1),
    "it may be more than likely": (
        aged(60),
        entry(2, rate_mrpm=Band(low=0, likely=24_000, high=60_000), watermarks=(at(0, 2),)),
        3,
    ),
    "no entry is unknown and not zero": (aged(60), None, 4),
    "ready for less than its minimum residency": (aged(4), entry(1, watermarks=(at(0, 1),)), 4),
    "ready for as long": (aged(5), entry(1, watermarks=(at(0, 1),)), 1),
    "a falling trend changes nothing": (aged(60), entry(7.2, trend_mrpm=-80_000, watermarks=(at(0, 7.2),)), 4),
}


@pytest.mark.parametrize("name", FALLS)
def test_what_stands_is_given_up_with_care(name: str) -> None:
    fleet, asked, expected = FALLS[name]
    assert wanted(planned(fleet, expect(*([asked] if asked is not None else [])))) == expected


def test_one_that_still_starts_is_not_stopped_for_a_reading() -> None:
    fleet = aged(60)
    assert fleet.parent is not None
    last = fleet.parent.placement[-1]
    loading = running(last, fleet.parent, ResidencyState.LOADING, since_ms=NOW - 60 * MINUTE)
    fleet = fleet.reporting(last.seat.host, residencies=(loading,))
    assert wanted(planned(fleet, expect(entry(1, watermarks=(at(0, 1),))))) == 4


def test_a_forecast_that_is_too_old_changes_nothing() -> None:
    idle = entry(last_used_ms=NOW - 60 * MINUTE)
    assert wanted(planned(aged(60), expect(idle, made=NOW - FORECAST_VALID_MS))) == 4
    assert wanted(planned(aged(60), expect(idle, made=NOW - FORECAST_VALID_MS + 1))) == 1
    assert wanted(planned(standing(wide()), expect(entry(20), made=NOW - FORECAST_VALID_MS))) == 1
    assert wanted(planned(standing(wide()), expect(entry(20), made=NOW + MINUTE))) == 1, "nor one from the future"


def test_scale_down_by_demand_is_routine_and_says_its_numbers() -> None:
    made = planned(aged(60), expect(entry(4, watermarks=(at(3, 4),))))
    (first, second) = made.decisions
    assert [first.replica, second.replica] == ["c/3", "c/4"]
    assert (first.action_class, first.risk, first.cause.kind) == (
        ActionClass.SCALE_DOWN,
        Risk.ROUTINE,
        CauseKind.DEMAND,
    )
    assert first.cause.detail == "offered 4 lanes + 20% of 4 x 0.70 => 2 replicas"


def test_victims_are_those_who_would_have_to_move_anyway() -> None:
    fleet = aged(60).but(drains=(Drain(host=HostId("h1"), reason="fan"),))
    made = planned(fleet, expect(entry(4, watermarks=(at(3, 4),))))
    assert [d.replica for d in made.decisions] == ["c/2", "c/4"]


def test_the_last_replica_is_called_so_also_when_demand_gives_it_up() -> None:
    fleet = standing(wide(1)).but(profiles=(wide(0),))
    (decision,) = planned(fleet, expect(entry(last_used_ms=NOW - 60 * MINUTE))).decisions
    assert (decision.action_class, decision.risk, decision.last_replica) == (
        ActionClass.SCALE_DOWN,
        Risk.DESTRUCTIVE,
        True,
    )


def test_fewer_by_the_file_is_laid_to_the_file() -> None:
    fleet = aged(60)
    lowered = planned(fleet.but(profiles=(wide(1, 2),)), expect(entry(7.2)))
    assert {(d.cause.kind, d.cause.detail) for d in lowered.decisions} == {(CauseKind.INTENT, "replicas 4 => 2")}
    three = standing(wide(3)).but(profiles=(wide(1),))
    idle = expect(entry(last_used_ms=NOW - 60 * MINUTE))
    assert {d.cause.kind for d in planned(three, idle).decisions} == {CauseKind.INTENT}


def test_a_renamed_profile_keeps_its_demand() -> None:
    fleet = aged(60)
    renamed = replace(wide(), name=ProfileName("n"), renamed_from=ProfileName("c"))
    made = planned(fleet.but(profiles=(renamed,)), expect(entry(11)))
    assert wanted(made, "n") == 5


def test_what_is_gone_with_its_host_is_not_kept() -> None:
    """Nobody knows the demand: what stands is kept, and what was taken from us is not begun anew for it."""
    fleet = aged(60)
    assert wanted(planned(fleet.but(hosts=tuple(h for h in fleet.hosts if h.id != "h3")), expect())) == 3


def test_one_whose_command_is_on_its_way_is_new_too() -> None:
    fleet = aged(60).reporting("h3", residencies=())
    low = expect(entry(1, watermarks=(at(0, 1),)))
    assert fleet.parent is not None
    assert wanted(planned(fleet, low)) == 4
    old = replace(fleet.parent, created_ms=NOW - 5 * MINUTE)
    assert wanted(planned(fleet.but(parent=old), low)) == 1


def test_a_swing_of_demand_moves_nothing_to_and_fro() -> None:
    """Demand swings about a threshold each minute; within the cooldown the higher level holds."""
    fleet, made_decisions = standing(wide()), 0
    for minute in range(30):
        now = NOW + minute * MINUTE
        lanes = 2.2 if minute % 2 else 2.5
        peaks = (Watermark(at_ms=now - (MINUTE if minute % 2 else 0), offered_mlanes=2_500),)
        made = planned(fleet, expect(entry(lanes, last_used_ms=now, watermarks=peaks), made=now))
        made_decisions += len(made.to_do)
        fleet = fleet.applied(made, later_ms=MINUTE)
    assert made_decisions == 1


def test_what_stands_may_stay_where_a_forecast_does_not_speak_of_it() -> None:
    """Its demand is unknown, and unknown is no reason to stop anything, for the plan as for the check."""
    fleet = standing(wide(), forecast=expect(entry(8)))
    assert fleet.parent is not None
    before = seats(fleet.parent)
    assert len(before) > 1
    assert seats(planned(fleet, expect(entry(1, name="other")))) == before
