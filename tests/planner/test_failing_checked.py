"""The checker knows by itself when a replica may leave a host on which it never comes up (`test_failing`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gridops.base.codes.host import NO_SPACE
from gridops.base.ids import HostId, ReplicaId
from gridops.model.fleet import Drain
from gridops.model.plan import Plan
from gridops.model.policy import ActionClass
from gridops.model.profile import PlacementRules
from gridops.model.snapshot import ResidencyState
from gridops.planner import check_leaves, constants
from gridops.planner.check import check
from gridops.planner.learned import HOPELESS
from tests.planner.fleet import NOW, Fleet, running
from tests.planner.test_failing import ANT, C, decided, failed, lesson, only


def test_the_checker_goes_by_the_same_numbers() -> None:
    assert check_leaves.ATTEMPTS == constants.LEAVE_AFTER
    assert check_leaves.BELIEVED_MS == constants.LEARN_VALID_MS
    assert frozenset({NO_SPACE.code}) == HOPELESS
    assert constants.LEAVE_AFTER <= constants.FAILURES_COUNTED


def moved(**more: Any) -> tuple[Fleet, Plan]:
    fleet = decided(learned=lesson(failed("ant")), **more)
    return fleet, fleet.plan()


def alive(state: ResidencyState) -> Mapping[str, Any]:
    fleet, _ = moved()
    assert fleet.parent is not None
    here = running(fleet.parent.placement[0], fleet.parent, state)
    return {"reports": {"ant": replace(fleet.snapshot().hosts[0], residencies=(here,))}}


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        (alive(ResidencyState.READY), "although it is ready there"),
        (alive(ResidencyState.WARMING), "although it is warming there"),
        (alive(ResidencyState.UNKNOWN), "although it is unknown there"),
        ({"learned": None}, "that nobody has learned of"),
        ({"learned": lesson(failed("ant", 2))}, "that nobody has learned of"),
        ({"learned": lesson(failed("ant", last_ms=NOW - constants.LEARN_VALID_MS))}, "that nobody has learned of"),
        ({"learned": lesson(failed("ant"), failed("bee"))}, "where its starts fail, too"),
        ({"drains": (Drain(host=HostId("ant"), reason="fan"),)}, "and ant is drained"),
        ({"profiles": (replace(C, placement=PlacementRules(pins=(HostId("ant"),))),)}, "and is pinned there"),
    ],
)
def test_the_checker_objects_to_a_move_for_this_cause(changes: Mapping[str, Any], note: str) -> None:
    fleet, made = moved()
    assert check(made, fleet.inputs()) == ()
    assert any(note in line for line in check(made, fleet.but(**changes).inputs()))


def test_the_checker_objects_while_it_is_being_tried() -> None:
    fleet, made = moved()
    inputs = replace(fleet.inputs(), under_way=frozenset({ReplicaId("c/1")}))
    assert any("while one is under way" in line for line in check(made, inputs))
    assert check(made, replace(inputs, waiting=made)) == ()


def test_the_checker_objects_to_another_class_and_to_another_kind() -> None:
    fleet, made = moved()
    other = replace(only(made), action_class=ActionClass.REBALANCE)
    assert any("is called rebalance" in n for n in check(replace(made, decisions=(other,)), fleet.inputs()))
    cause = only(made).cause
    first = Fleet(hosts=(ANT,), profiles=(C,))
    placed = first.plan()
    wrong = replace(placed, decisions=(replace(only(placed), cause=cause),))
    assert any("is no move to another host" in n for n in check(wrong, first.inputs()))
