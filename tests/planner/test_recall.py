"""A plan with a `Recall` is the plan without one, whatever happened since; and it really takes something from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.base.record import digest_of, from_bytes, to_bytes
from gridops.model.fleet import Host
from gridops.model.intent import Desired
from gridops.model.plan import Plan
from gridops.model.policy import Search
from gridops.model.snapshot import Snapshot
from gridops.planner.planner import Inputs, Recall, plan
from gridops.planner.recall import Shelf
from gridops.planner.world import HostView, look
from tests.planner.fleet import Fleet, host, profile, report
from tests.planner.worlds import Cook, Drawn, change, later, make_fleet, rolled

STEPS = 4


def chain(cook: Cook) -> Iterator[Inputs]:
    """What a controller asks one after another: things happen, time goes by, plans are carried out or are not."""
    fleet = make_fleet(cook)
    fleet = fleet.but(policy=replace(fleet.policy, search=Search(moves=8)))
    for _ in range(STEPS):
        yield fleet.inputs()
        match cook.pick(("carried out", "only the parent", "time goes by", "nothing", "read again")):
            case "carried out":
                fleet = later(plan(fleet.inputs()), fleet)
            case "only the parent":
                fleet = fleet.but(parent=plan(fleet.inputs()))
            case "time goes by":
                fleet = fleet.but(now=fleet.now + 20_000)
            case "read again":
                yield read_again(fleet.inputs())
            case _:
                pass
        if cook.pick((True, True, False)):
            fleet = change(cook, fleet)


def read_again(inputs: Inputs) -> Inputs:
    """Equal to the byte, and no object the same."""
    parent = None if inputs.parent is None else from_bytes(Plan, to_bytes(inputs.parent))
    desired = from_bytes(Desired, to_bytes(inputs.intent.desired))
    snapshot = from_bytes(Snapshot, to_bytes(inputs.snapshot))
    return replace(inputs, intent=replace(inputs.intent, desired=desired), snapshot=snapshot, parent=parent)


def nothing_is_stale(cook: Cook) -> None:
    recall = Recall()
    for inputs in chain(cook):
        assert to_bytes(plan(inputs, recall)) == to_bytes(plan(inputs))


@settings(max_examples=20)
@given(st.data())
def test_a_chain_of_drawn_worlds_is_planned_as_if_each_were_the_first(data: st.DataObject) -> None:
    nothing_is_stale(Drawn(data))


@pytest.mark.parametrize("seed", range(30))
def test_a_chain_of_rolled_worlds_is_planned_as_if_each_were_the_first(seed: int) -> None:
    nothing_is_stale(rolled(1_000 + seed))
