"""Where a host has too little memory, somebody leaves it while anybody there can: who should, else another instead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId
from gridops.model.fleet import Host
from gridops.model.plan import CauseKind
from gridops.model.profile import PlacementRules, Profile
from gridops.model.snapshot import ResidencyState
from gridops.planner.draft import begin
from gridops.planner.gather import gather
from gridops.planner.instead import instead
from gridops.planner.seats import Seats
from gridops.planner.targets import choose
from gridops.planner.views import look
from tests.planner.fleet import Fleet, decisions, host, profile, with_external

ANT = HostId("ant")
HERE = PlacementRules(allow_hosts=(ANT,))
DAY = 86_400_000


def crowded(*profiles: Profile, gib: float = 8, others: tuple[Host, ...] = (host("bee"),)) -> Fleet:
    """All stand on ant, of whose card somebody else has taken so much now; bee is empty."""
    ant = host("ant")
    fleet = Fleet(hosts=(ant,), profiles=profiles)
    fleet = fleet.applied(fleet.plan(), later_ms=DAY)
    seen = fleet.reports["ant"]
    assert seen is not None
    return fleet.reporting("ant", devices=with_external(seen, "gpu0", gib).devices).but(hosts=(ant, *others))


def left_behind(fleet: Fleet) -> list[str]:
    return [w.detail.split()[0] for w in fleet.plan().report.waiting]


def test_who_should_leave_leaves_if_it_can() -> None:
    fleet = crowded(profile("c", priority=200), profile("d"))
    assert decisions(fleet.plan()) == ["move d/1 ant -> bee"]


def test_another_leaves_instead_of_one_that_may_stand_nowhere_else() -> None:
    fleet = crowded(profile("c", priority=200), profile("d", placement=HERE))
    (moved,) = fleet.plan().decisions
    assert decisions(fleet.plan()) == ["move c/1 ant -> bee"]
    assert moved.cause.kind is CauseKind.UNHEALTHY
    assert left_behind(fleet) == []
    after = fleet.applied(fleet.plan())
    assert decisions(after.plan()) == []


def test_of_several_the_least_important_goes() -> None:
    profiles = [profile(name, gib=6, priority=p) for name, p in (("a", 300), ("b", 200))]
    fleet = crowded(*profiles, profile("d", gib=6, placement=HERE))
    assert decisions(fleet.plan()) == ["move b/1 ant -> bee"]


def test_who_fits_nowhere_is_passed_over() -> None:
    profiles = [profile(name, gib=6, priority=p) for name, p in (("a", 300), ("b", 200))]
    only = replace(profiles[1], placement=HERE)
    fleet = crowded(profiles[0], only, profile("d", gib=6, placement=HERE))
    assert decisions(fleet.plan()) == ["move a/1 ant -> bee"]


def test_one_that_leaves_is_enough_for_two_that_cannot() -> None:
    small = [profile(name, gib=6.8, placement=HERE) for name in ("d", "e")]
    fleet = crowded(profile("a", gib=9, priority=300), *small, gib=9)
    assert decisions(fleet.plan()) == ["move a/1 ant -> bee"]
    assert left_behind(fleet) == []


def test_nobody_leaves_for_one_that_may_stay_since_another_left() -> None:
    stuck = [profile(name, gib=6.8, priority=p, placement=HERE) for name, p in (("d", 300), ("e", 200))]
    fleet = crowded(profile("a", gib=9, priority=400), *stuck, profile("b", gib=0.2), gib=9)
    assert decisions(fleet.plan()) == ["move a/1 ant -> bee"]
    assert left_behind(fleet) == []


@pytest.mark.parametrize(
    "fleet",
    [
        crowded(profile("c", priority=200, placement=PlacementRules(pins=(ANT,))), profile("d", placement=HERE)),
        crowded(profile("c", priority=200), profile("d", placement=HERE), others=()),
        crowded(profile("c", priority=200), profile("d", placement=HERE), others=(host("bee", (8,)),)),
        crowded(profile("c", gib=2, priority=200), profile("d", gib=18, placement=HERE)),
    ],
    ids=["it is pinned", "there is no other host", "no other host has room", "it would not be enough"],
)
def test_nobody_goes_if(fleet: Fleet) -> None:
    made = fleet.plan()
    assert decisions(made) == []
    assert left_behind(fleet) == ["d/1"]
    assert codes.OVER_MEMORY.code in {s.code for s in made.report.shortfalls}


def test_nobody_goes_for_whom_nobody_can_vouch() -> None:
    fleet = crowded(profile("c", priority=200), profile("d", placement=HERE))
    seen = fleet.reports["ant"]
    assert seen is not None
    doubtful = tuple(replace(r, state=ResidencyState.UNKNOWN) if r.profile == "c" else r for r in seen.residencies)
    fleet = fleet.reporting("ant", residencies=doubtful)
    assert decisions(fleet.plan()) == []
    world = look(fleet.inputs())
    seats = Seats(begin(world, choose(world, gather(world))))
    board = seats.draft.board.hosts[ANT]
    before = tuple(board.sums())
    assert len(instead(seats, seats.draft.items)) == 1
    assert tuple(board.sums()) == before


def test_who_stands_on_a_card_that_is_gone_does_not_stay_because_the_others_have_room() -> None:
    fleet = crowded(profile("d", placement=HERE), gib=0)
    seen = fleet.reports["ant"]
    assert seen is not None
    gone = fleet.reporting("ant", devices=tuple(d for d in seen.devices if d.id != "gpu0"))
    assert left_behind(gone) == ["d/1"]
