"""What was given up where it stands: when it is started again, and when nobody may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gridops.base.ids import ReplicaId
from gridops.model.plan import Cause, CauseKind, Change, Plan
from gridops.model.policy import ActionClass, Risk
from gridops.model.profile import PlacementRules
from gridops.model.snapshot import LIVE_STATES, HostState, ResidencyState
from gridops.planner.check import check
from gridops.planner.planner import plan
from gridops.planner.restrict import restrict
from gridops.planner.world import GivenUp
from tests.planner.fleet import (
    Fleet,
    decisions,
    profile,
    running,
    seats,
)
from tests.planner.settled import HOSTS, STALE, converged, drained, silent

GONE = Cause(kind=CauseKind.UNHEALTHY, detail="restart on ant: failed once")


WAS = Change(field="process", old="failed 1234", new="started again")


def given_up(fleet: Fleet, **more: object) -> Plan:
    inputs = replace(fleet.inputs(), given_up=(GivenUp(ReplicaId("c/1"), GONE, WAS),), **more)  # type: ignore[arg-type]
    made = plan(inputs)
    assert check(made, inputs) == ()
    return made


def lone(state: ResidencyState | None, **more: object) -> Fleet:
    """One replica on one host, and what its process is in."""
    fleet = converged(profile("c"), hosts=HOSTS[:1])
    assert fleet.parent is not None
    found = () if state is None else (running(fleet.parent.placement[0], fleet.parent, state),)
    return fleet.reporting("ant", residencies=found, **more)


DOWN = (ResidencyState.FAILED, ResidencyState.DRAINING)
"""What is drained serves no more: it is ended first, and nothing starts beside it before."""


@pytest.mark.parametrize("state", [None, *DOWN])
def test_what_was_given_up_is_placed_again_where_it_stands(state: ResidencyState | None) -> None:
    made = given_up(lone(state))
    assert decisions(made) == ["place c/1 -> ant"]
    (decision,) = made.to_do
    assert (decision.action_class, decision.risk, decision.changes) == (ActionClass.REPAIR, Risk.ROUTINE, (WAS,))
    assert decision.cause == GONE
    assert made.placement == lone(state).parent.placement  # type: ignore[union-attr]
    assert made.decisions_digest != lone(state).but(parent=None).plan().decisions_digest, "not the first one's name"


ALIVE = tuple(s for s in ResidencyState if s in LIVE_STATES and s not in DOWN)


@pytest.mark.parametrize("state", ALIVE)
def test_what_may_still_serve_is_never_started_again(state: ResidencyState) -> None:
    assert given_up(lone(state)).to_do == ()


CLOSED: dict[str, Callable[[Fleet], Fleet]] = {
    "silent": lambda f: silent(f, "ant", STALE + 1),
    "paused": lambda f: f.reporting("ant", state=HostState.PAUSED),
    "drained": lambda f: drained(f, "ant"),
    "said goodbye": lambda f: f.reporting("ant", goodbye=True),
    "forbidden now": lambda f: f.but(profiles=(profile("c", placement=PlacementRules(deny_hosts=("ant",))),)),
    "without its device": lambda f: f.reporting("ant", devices=()),
}


@pytest.mark.parametrize("why", sorted(CLOSED))
def test_nothing_is_started_again_on_a_host_that_may_not_take_it(why: str) -> None:
    assert given_up(CLOSED[why](lone(None))).to_do == ()


def test_what_failed_moves_rather_than_starts_again_where_another_host_has_room() -> None:
    fleet = converged(profile("c"))
    assert fleet.parent is not None
    failed = running(fleet.parent.placement[0], fleet.parent, ResidencyState.FAILED)
    assert decisions(given_up(fleet.reporting("ant", residencies=(failed,)))) == ["move c/1 ant -> bee"]


def test_who_plans_without_the_controllers_memory_asks_what_its_proposal_asks() -> None:
    fleet = lone(None)
    proposal = given_up(fleet)
    inputs = replace(fleet.inputs(), waiting=proposal)
    again = plan(inputs)
    assert check(again, inputs) == ()
    assert again.decisions_digest == proposal.decisions_digest
    served = replace(lone(ResidencyState.READY).inputs(), waiting=proposal)
    assert plan(served).to_do == ()
    known = replace(inputs, given_up=())
    assert plan(known).to_do == (), "who knows better is believed"


def test_the_checker_objects_to_starting_again_what_runs_or_cannot_be_seen() -> None:
    made = given_up(lone(None))
    for fleet in (lone(ResidencyState.READY), lone(ResidencyState.UNKNOWN), silent(lone(None), "ant", STALE + 1)):
        assert any("has no difference behind it" in note for note in check(made, fleet.inputs()))


def test_a_restart_that_is_held_back_leaves_the_parents_placement() -> None:
    fleet = lone(None)
    made = given_up(fleet.but(profiles=(profile("c"), profile("d"))))
    assert decisions(made) == ["place c/1 -> ant", "place d/1 -> ant"]
    first, second = (d.change_set for d in made.decisions)
    part = restrict(made, fleet.parent, frozenset({second}))
    assert seats(part) == {"c/1": "ant", "d/1": "ant"}
    assert decisions(part) == ["place d/1 -> ant"]
    assert decisions(restrict(made, fleet.parent, frozenset({first}))) == ["place c/1 -> ant"]
