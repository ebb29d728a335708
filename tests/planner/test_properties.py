"""What must hold for every fleet: generated worlds, generated events, and the independent checker on each plan."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.base.record import to_bytes
from gridops.model.plan import DecisionKind, Plan
from gridops.model.snapshot import ResidencyState
from gridops.planner.check import check
from gridops.planner.planner import plan
from gridops.planner.restrict import restrict
from tests.planner.fleet import Fleet
from tests.planner.worlds import Cook, Drawn, change, later, make_fleet, rolled, shuffled

SEEDS = range(60)
EXAMPLES = settings(max_examples=20)


@EXAMPLES
@given(st.data())
def test_every_drawn_world_keeps_every_promise(data: st.DataObject) -> None:
    every_promise(Drawn(data))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_rolled_world_keeps_every_promise(seed: int) -> None:
    every_promise(rolled(seed))


def every_promise(cook: Cook) -> None:
    """A first plan, something happens, a second plan: each promise on both."""
    fleet = make_fleet(cook)
    first = fleet.plan()
    order_is_irrelevant(fleet, cook)
    converged_is_quiet(first, fleet)
    after = change(cook, later(first, fleet))
    second = after.plan()
    order_is_irrelevant(after, cook)
    nothing_vanishes(second, after)
    parts_are_clean(second, after, cook)
    converged_is_quiet(second, after)


def order_is_irrelevant(fleet: Fleet, cook: Cook) -> None:
    """Neither the order of files nor a second call changes one byte."""
    expected = to_bytes(plan(fleet.inputs()))
    order = random.Random(cook.pick(range(1000)))
    assert to_bytes(plan(shuffled(fleet, order).inputs())) == expected
    assert to_bytes(plan(fleet.inputs())) == expected


def converged_is_quiet(made: Plan, fleet: Fleet) -> None:
    """Once carried out, the same question has no new answer.

    Clearing away a failed process is news of its own: the host may be tried again.
    """
    if any(r.state is ResidencyState.FAILED for h in fleet.snapshot().hosts for r in h.residencies):
        return
    again = later(made, fleet).plan()
    assert again.to_do == (), "the planner changes its mind although nothing happened"
    assert _what(again) == _what(made)


def nothing_vanishes(made: Plan, fleet: Fleet) -> None:
    """A replica leaves the placement only by a decision that says so."""
    assert fleet.parent is not None
    removed = {d.replica for d in made.decisions if d.kind is DecisionKind.REMOVE}
    renamed = {c.old for d in made.decisions for c in d.changes if c.field == "profile"}
    for a in fleet.parent.placement:
        assert made.assignment(a.replica) is not None or a.replica in removed or a.profile in renamed


def parts_are_clean(made: Plan, fleet: Fleet, cook: Cook) -> None:
    """Any part of the change sets leads to a placement that keeps every rule, and the rest is decided again."""
    sets = sorted({d.change_set for d in made.to_do})
    keep = frozenset(n for n in sets if cook.pick((True, False)))
    part = restrict(made, fleet.parent, keep)
    notes = check(part, fleet.inputs(), partial=True)
    assert notes == (), "\n".join(notes)
    assert {d.change_set for d in part.to_do} == set(keep)
    later(part, fleet).plan()


def _what(made: Plan) -> dict[str, tuple[str, tuple[str, ...], str]]:
    return {a.replica: (a.seat.host, a.seat.devices, a.launch) for a in made.placement}
