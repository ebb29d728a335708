"""What changes while it stands: commands beside the old process or after it, terms, names, adoption."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId, PersonName, ProfileName
from gridops.model.fleet import Drain
from gridops.model.plan import CauseKind, DecisionKind, Plan
from gridops.model.policy import ActionClass, Risk
from gridops.model.profile import Downtime, PlacementRules
from tests.planner.fleet import (
    config,
    decisions,
    host,
    profile,
)
from tests.planner.settled import converged


def test_a_renamed_profile_takes_its_replicas_over() -> None:
    fleet = converged(profile("old", 2))
    new = profile("new", 2, configs=profile("old").configs, renamed_from=ProfileName("old"))
    made = fleet.but(profiles=(new,)).plan()
    assert decisions(made) == ["change new/1 ant -> ant", "change new/2 bee -> bee"]
    assert {d.cause.kind for d in made.decisions} == {CauseKind.RENAMED}
    assert {d.risk for d in made.decisions} == {Risk.ROUTINE}
    assert {d.change_set for d in made.decisions} == {1}
    assert made.retirements == ()
    before = {a.seat.host: a.launch for a in fleet.parent.placement} if fleet.parent else {}
    assert {a.seat.host: a.launch for a in made.placement} == before, "the same processes"


def test_a_rename_from_a_profile_that_still_stands_takes_nothing() -> None:
    fleet = converged(profile("old"))
    new = profile("new", renamed_from=ProfileName("old"))
    assert decisions(fleet.but(profiles=(new, profile("old"))).plan()) == ["place new/1 -> ant"]


def test_residencies_that_nobody_planned_are_adopted_when_they_are_what_is_wanted() -> None:
    fleet = converged(profile("c", 2))
    lost = fleet.but(parent=None)
    made = lost.plan()
    assert decisions(made) == ["place c/1 -> ant", "place c/2 -> bee"]
    assert {d.cause.detail for d in made.decisions} == {"already runs there"}
    other = lost.but(profiles=(profile("c", 1, configs=(config("c-q4", 10, context=1),)),))
    assert "already runs there" not in {d.cause.detail for d in other.plan().decisions}


def test_what_is_adopted_on_a_host_that_is_drained_keeps_its_number_elsewhere() -> None:
    fleet = converged(profile("c", 3))
    assert fleet.parent is not None
    third = next(a.seat.host for a in fleet.parent.placement if a.replica == "c/3")
    drain = Drain(host=third, reason="driver", by=PersonName("mira"), until_ms=None)
    lost = fleet.but(parent=None, profiles=(profile("c", 2),), drains=(drain,))
    for other in fleet.hosts:
        if other.id != third:
            lost = lost.reporting(other.id, residencies=())
    made = lost.plan()
    (moved,) = [d for d in made.decisions if d.replica == "c/3"]
    assert (moved.kind, moved.cause.kind) == (DecisionKind.PLACE, CauseKind.DRAIN)
    assert sorted(a.replica for a in made.placement) == ["c/1", "c/3"]


@pytest.mark.parametrize(("gib", "most"), [(8, 1), (14, 2)], ids=["one per host", "too little memory"])
def test_what_is_adopted_where_there_is_no_room_for_it_beside_another_goes_elsewhere(gib: int, most: int) -> None:
    wanted = profile("c", 2, gib=gib, max_per_host=most)
    fleet = converged(wanted)
    assert fleet.parent is not None
    first, second = fleet.parent.placement
    both = tuple(r for report in fleet.reports.values() for r in report.residencies)
    lost = fleet.but(parent=replace(fleet.parent, placement=(first,)))
    lost = lost.reporting(second.seat.host, residencies=()).reporting(first.seat.host, residencies=both)
    (decision,) = lost.plan().decisions
    assert (decision.kind, decision.replica) == (DecisionKind.PLACE, "c/2")
    assert decision.cause.kind is (CauseKind.POLICY if most == 1 else CauseKind.UNHEALTHY)
    assert decision.target is not None
    assert decision.target.host != first.seat.host


def test_a_change_moves_nothing_where_the_new_command_fits_beside_the_old() -> None:
    fleet = converged(profile("c", gib=8))
    made = fleet.but(profiles=(profile("c", configs=(config("c-q4", 8, context=8192),)),)).plan()
    (decision,) = made.decisions
    assert decisions(made) == ["change c/1 ant -> ant"]
    assert [(c.field, c.old, c.new) for c in decision.changes] == [("context", "4096", "8192")]
    assert (decision.cost.dip, decision.risk, decision.action_class) == (0, Risk.DISRUPTIVE, ActionClass.ROLLOUT)


def test_a_change_without_room_for_two_is_break_before_make_and_says_its_seconds() -> None:
    fleet = converged(profile("c", gib=18), hosts=(host("ant"), host("bee")))
    made = fleet.but(profiles=(profile("c", configs=(config("c-q4", 18, context=8192),)),)).plan()
    (decision,) = made.decisions
    assert decisions(made) == ["change c/1 ant -> ant"]
    assert (decision.cost.dip, decision.cost.start_ms) == (1, 5_000)


def test_a_free_device_beside_is_better_than_a_break_in_place() -> None:
    fleet = converged(profile("c", gib=18), hosts=(host("ant", (24, 24)),))
    made = fleet.but(profiles=(profile("c", configs=(config("c-q4", 18, context=8192),)),)).plan()
    (decision,) = made.decisions
    assert decision.target is not None
    assert (decision.target.devices, decision.cost.dip) == (("gpu1",), 0)


def test_a_profile_that_refuses_downtime_moves_or_waits() -> None:
    never = profile("c", gib=18, downtime=Downtime.NEVER)
    changed = profile("c", configs=(config("c-q4", 18, context=8192),), downtime=Downtime.NEVER)
    two = converged(never, hosts=(host("ant"), host("bee"))).but(profiles=(changed,)).plan()
    assert decisions(two) == ["move c/1 ant -> bee"]
    assert two.decisions[0].cost.dip == 0
    one = converged(never, hosts=(host("ant"),)).but(profiles=(changed,)).plan()
    assert one.to_do == ()
    assert [w.code for w in one.report.waiting] == [codes.DOWNTIME_NEVER.code]


def test_a_slot_limit_makes_a_change_break_first() -> None:
    fleet = converged(profile("c", gib=4), hosts=(host("ant", max_replicas=1),))
    made = fleet.but(profiles=(profile("c", configs=(config("c-q4", 4, context=8192),)),)).plan()
    assert made.decisions[0].cost.dip == 1


def test_what_does_not_serve_may_break_at_no_cost() -> None:
    fleet = converged(profile("c", gib=18, downtime=Downtime.NEVER), hosts=(host("ant"),))
    changed = profile("c", configs=(config("c-q4", 18, context=8192),), downtime=Downtime.NEVER)
    made = fleet.but(profiles=(changed,)).reporting("ant", residencies=()).plan()
    assert decisions(made) == ["change c/1 ant -> ant"]
    assert made.decisions[0].cost.dip == 0


def test_changed_terms_are_a_decision_of_their_own_without_a_restart() -> None:
    fleet = converged(profile("c", 2))
    made = fleet.but(profiles=(replace(profile("c", 2), serves=("chat",)),)).plan()
    assert decisions(made) == ["change c/1 ant -> ant", "change c/2 bee -> bee"]
    assert [(c.field, c.old, c.new) for c in made.decisions[0].changes] == [("serves", "c", "c, chat")]
    assert {(d.risk, d.change_set, d.cost.start_ms) for d in made.decisions} == {(Risk.ROUTINE, 1, 0)}
    assert {d.cause.detail for d in made.decisions} == {"serves c => c, chat"}


def test_where_the_weights_come_from_is_no_reason_to_restart() -> None:
    fleet = converged(profile("c"))
    one = config("c-q4", 10)
    moved = replace(one, artifact=replace(one.artifact, source="https://elsewhere.example/m.gguf"))
    assert fleet.but(profiles=(profile("c", configs=(moved,)),)).plan().to_do == ()


def test_two_that_must_change_places_do_not_wait_for_each_other_for_ever() -> None:
    """Each would need the other's memory first: neither is promised, and both say that they wait."""
    fleet = converged(profile("a", gib=18), profile("b", gib=18), hosts=(host("ant"), host("bee")))
    swap = (
        profile("a", gib=18, placement=PlacementRules(deny_hosts=(HostId("ant"),))),
        profile("b", gib=18, placement=PlacementRules(deny_hosts=(HostId("bee"),))),
    )
    made: Plan = fleet.but(profiles=swap).plan()
    assert made.to_do == ()
    assert [w.code for w in made.report.waiting] == [codes.NOWHERE_ELSE.code] * 2
