"""Hosts that have become too small for who stands there, and rules that those no longer keep together: who goes."""

from __future__ import annotations

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId, ProfileName
from gridops.model.policy import ActionClass
from gridops.model.profile import Colocation, Spread
from tests.planner.fleet import (
    GIB,
    Fleet,
    decisions,
    device,
    host,
    profile,
    with_external,
)
from tests.planner.settled import converged


def test_the_lowest_priority_goes_first_when_a_reserve_grows() -> None:
    fleet = converged(profile("low", gib=8, priority=10), profile("top", gib=8, priority=90), hosts=(host("ant"),))
    fleet = fleet.but(
        hosts=(host("ant", devices=(device("gpu0", 24, reserve_bytes=12 * GIB), device("cpu0", 64))), host("bee"))
    )
    assert decisions(fleet.plan()) == ["move low/1 ant -> bee"]
    stuck = fleet.but(hosts=fleet.hosts[:1])
    made = stuck.plan()
    assert made.to_do == ()
    assert [(s.code, s.profile) for s in made.report.shortfalls] == [(codes.OVER_MEMORY.code, "low")]


def test_external_use_that_grows_beyond_the_headroom_moves_a_replica() -> None:
    fleet = converged(profile("c", gib=15))
    seen = fleet.snapshot().host(HostId("ant"))
    assert seen is not None
    assert fleet.but(reports={**fleet.reports, "ant": with_external(seen, "gpu0", 9)}).plan().to_do == ()
    made = fleet.but(reports={**fleet.reports, "ant": with_external(seen, "gpu0", 9.5)}).plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    assert made.decisions[0].action_class is ActionClass.REPAIR


def test_a_lower_slot_limit_and_new_exclusions_move_the_less_important() -> None:
    fleet = converged(profile("low", gib=4, priority=10), profile("top", gib=4, priority=90), hosts=(host("ant"),))
    limit = fleet.but(hosts=(host("ant", max_replicas=1), host("bee")))
    assert decisions(limit.plan()) == ["move low/1 ant -> bee"]
    picky = profile("top", gib=4, priority=90, colocation=Colocation(exclude=(ProfileName("low"),)))
    apart = fleet.but(hosts=(host("ant"), host("bee")), profiles=(profile("low", gib=4, priority=10), picky))
    assert decisions(apart.plan()) == ["move low/1 ant -> bee"]
    both = converged(profile("c", 2, gib=4, max_per_host=2), hosts=(host("ant"),))
    spread = both.but(hosts=(host("ant"), host("bee")), profiles=(profile("c", 2, gib=4),))
    assert decisions(spread.plan()) == ["move c/2 ant -> bee"]


def test_a_footprint_that_grows_is_accounted_without_a_restart() -> None:
    fleet = converged(profile("c", gib=10), hosts=(host("ant"), host("bee", (48,))))
    grown = fleet.but(profiles=(profile("c", gib=20),)).plan()
    assert (grown.to_do, grown.placement[0].device_bytes) == ((), 20 * GIB)
    assert decisions(fleet.but(profiles=(profile("c", gib=30),)).plan()) == ["move c/1 ant -> bee"]


def test_a_spread_that_is_broken_by_incumbents_is_reported_and_moves_nobody() -> None:
    hosts = (host("ant", rack="r1"), host("bee", rack="r1"), host("cat", rack="r2"))
    fleet = converged(profile("c", 2), hosts=hosts)
    made = fleet.but(profiles=(profile("c", 2, spread=Spread(by="rack", min=2)),)).plan()
    assert made.to_do == ()
    assert [(s.code, s.want, s.have) for s in made.report.shortfalls] == [(codes.SPREAD_SHORT.code, 2, 1)]


def test_first_to_go_is_somebody_on_the_device_that_is_too_small() -> None:
    """The other one has the lower priority and stands on the other device."""
    here, there = profile("here", gib=18, priority=200), profile("there", gib=18, priority=50)
    fleet = Fleet(hosts=(host("ant", (24, 24)),), profiles=(here, there))
    stands = fleet.plan()
    seat = next(a.seat for a in stands.placement if a.profile == "here")
    fleet = fleet.applied(stands, later_ms=1_000)
    taken = with_external(fleet.snapshot().hosts[0], seat.devices[0], 20)
    made = fleet.reporting("ant", devices=taken.devices).plan()
    (short,) = made.report.shortfalls
    assert (short.code, short.profile) == (codes.OVER_MEMORY.code, "here")
    assert short.detail.startswith(f"ant {seat.devices[0]}: ")
