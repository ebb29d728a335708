"""Who may do what: the table is complete, and each mode row by row. Limits and windows: `test_budgets`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import ProfileName
from gridops.model.plan import CauseKind, Decision, DecisionKind, Plan
from gridops.model.policy import (
    ActionClass,
    ApprovalPolicy,
    Automatic,
    Mode,
    Risk,
    ScopeMode,
)
from gridops.planner.authority import (
    TABLE,
    Circumstances,
    Traits,
    change_sets,
    classify,
    demand,
    effective_mode,
    judge,
    stricter,
)
from tests.planner.fleet import NOW, SCOPE, Fleet, host, profile

HOSTS = tuple(host(n) for n in ("ant", "bee", "cat", "dog", "eel"))
ALL = tuple(ActionClass)
PLAIN = Circumstances()


def mode(*allow: ActionClass, **more: object) -> ScopeMode:
    automatic = Automatic(allow=allow, **more)  # type: ignore[arg-type]
    return ScopeMode(scope=SCOPE, mode=Mode.AUTOMATIC, automatic=automatic)


def converged(*profiles: object, hosts: tuple[object, ...] = HOSTS) -> Fleet:
    fleet = Fleet(hosts=hosts, profiles=profiles)  # type: ignore[arg-type]
    return fleet.applied(fleet.plan())


def held(made: Plan, how: ScopeMode, circumstances: Circumstances = PLAIN) -> dict[int, str]:
    found = judge(made, how, NOW, circumstances)
    assert found.allowed.isdisjoint(n for n, _, _ in found.held)
    assert found.allowed | {n for n, _, _ in found.held} == set(change_sets(made.to_do))
    return {n: code for n, code, _ in found.held}


def test_every_decision_that_does_something_has_a_line_for_every_cause() -> None:
    kinds = set(DecisionKind) - {DecisionKind.CANNOT_PLACE}
    assert set(TABLE) == {(kind, cause) for kind in kinds for cause in CauseKind}


ROWS = {
    "a new replica": (DecisionKind.PLACE, CauseKind.INTENT, Traits(), ActionClass.SCALE_UP, Risk.ROUTINE),
    "after a lost host": (DecisionKind.MOVE, CauseKind.HOST_LOST, Traits(), ActionClass.REPAIR, Risk.ROUTINE),
    "off a drained host": (DecisionKind.MOVE, CauseKind.DRAIN, Traits(), ActionClass.REPAIR, Risk.DISRUPTIVE),
    "a rollout": (DecisionKind.CHANGE, CauseKind.INTENT, Traits(), ActionClass.ROLLOUT, Risk.DISRUPTIVE),
    "new terms": (DecisionKind.CHANGE, CauseKind.INTENT, Traits(gentle=True), ActionClass.ROLLOUT, Risk.ROUTINE),
    "a rename": (DecisionKind.CHANGE, CauseKind.RENAMED, Traits(gentle=True), ActionClass.ROLLOUT, Risk.ROUTINE),
    "a move for gain": (DecisionKind.MOVE, CauseKind.REBALANCE, Traits(), ActionClass.REBALANCE, Risk.DISRUPTIVE),
    "fewer replicas": (DecisionKind.REMOVE, CauseKind.INTENT, Traits(), ActionClass.SCALE_DOWN, Risk.ROUTINE),
    "the last replica": (
        DecisionKind.REMOVE,
        CauseKind.INTENT,
        Traits(last=True),
        ActionClass.SCALE_DOWN,
        Risk.DESTRUCTIVE,
    ),
    "a profile that is gone": (
        DecisionKind.REMOVE,
        CauseKind.INTENT,
        Traits(ends=True),
        ActionClass.REMOVE,
        Risk.DESTRUCTIVE,
    ),
    "an empty set": (DecisionKind.REMOVE, CauseKind.INTENT, Traits(empty=True), ActionClass.REMOVE, Risk.DESTRUCTIVE),
    "a move out of an empty set": (
        DecisionKind.MOVE,
        CauseKind.INTENT,
        Traits(empty=True),
        ActionClass.ROLLOUT,
        Risk.DESTRUCTIVE,
    ),
    "repair with downtime": (
        DecisionKind.CHANGE,
        CauseKind.UNHEALTHY,
        Traits(dips=True),
        ActionClass.REPAIR,
        Risk.DISRUPTIVE,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_class_and_risk_of(name: str) -> None:
    kind, cause, traits, group, risk = ROWS[name]
    assert classify(kind, cause, traits) == (group, risk)


MODES = {
    "before the end": (ScopeMode(scope=SCOPE, mode=Mode.OBSERVE, until_ms=NOW + 1, after=Mode.AUTOMATIC), Mode.OBSERVE),
    "from the end on": (ScopeMode(scope=SCOPE, mode=Mode.OBSERVE, until_ms=NOW, after=Mode.AUTOMATIC), Mode.AUTOMATIC),
    "without an end": (ScopeMode(scope=SCOPE, mode=Mode.AUTOMATIC), Mode.AUTOMATIC),
    "an end without a successor never loosens": (ScopeMode(scope=SCOPE, mode=Mode.OBSERVE, until_ms=NOW), Mode.OBSERVE),
    "and ends what was loose": (ScopeMode(scope=SCOPE, mode=Mode.AUTOMATIC, until_ms=NOW), Mode.RECOMMEND),
}


@pytest.mark.parametrize("name", MODES)
def test_the_mode_in_force(name: str) -> None:
    entry, expected = MODES[name]
    assert effective_mode(entry, NOW) is expected


def test_the_stricter_of_two_modes() -> None:
    assert stricter(Mode.AUTOMATIC, Mode.RECOMMEND) is Mode.RECOMMEND
    assert stricter(Mode.OBSERVE, Mode.RECOMMEND) is Mode.OBSERVE
    assert stricter(Mode.AUTOMATIC, Mode.AUTOMATIC) is Mode.AUTOMATIC


@pytest.mark.parametrize("current", [Mode.OBSERVE, Mode.RECOMMEND])
def test_nothing_is_done_by_itself_outside_automatic(current: Mode) -> None:
    made = Fleet(hosts=HOSTS, profiles=(profile("c"),)).plan()
    assert held(made, replace(mode(*ALL), mode=current)) == {1: codes.HELD_MODE.code}


def test_automatic_does_what_is_allowed_and_holds_the_rest() -> None:
    fleet = converged(profile("c"), profile("d"))
    made = fleet.but(profiles=(profile("c", 2),)).plan()
    assert [d.action_class for d in made.decisions] == [ActionClass.SCALE_UP, ActionClass.REMOVE]
    assert held(made, mode()) == {1: codes.HELD_CLASS.code, 2: codes.HELD_CLASS.code}
    assert held(made, mode(ActionClass.SCALE_UP)) == {2: codes.HELD_CLASS.code}
    assert held(made, mode(ActionClass.SCALE_UP, ActionClass.REMOVE)) == {2: codes.HELD_LAST_REPLICA.code}
    assert held(made, mode(*ALL, last_replica=(ProfileName("d"),))) == {}


def test_a_change_set_waits_for_its_strictest_member() -> None:
    fleet = converged(profile("old", gib=18), hosts=HOSTS[:1])
    made = fleet.but(profiles=(profile("new", gib=18),)).plan()
    assert {d.change_set for d in made.decisions} == {1}
    assert held(made, mode(ActionClass.SCALE_UP)) == {1: codes.HELD_CLASS.code}


def test_an_empty_set_is_always_a_proposal() -> None:
    made = converged(profile("c")).but(profiles=()).plan()
    assert held(made, mode(*ALL, last_replica=(ProfileName("c"),))) == {1: codes.HELD_EMPTY_SET.code}


def test_a_hypothetical_plan_is_never_carried_out() -> None:
    made = Fleet(hosts=HOSTS, profiles=(profile("c"),)).plan()
    dirty = replace(made, intent=replace(made.intent, dirty=True))
    assert held(dirty, mode(*ALL)) == {1: codes.HELD_HYPOTHETICAL.code}


def test_displacing_another_model_needs_consent_for_the_one_that_is_loaded() -> None:
    fleet = converged(profile("old", gib=18), hosts=HOSTS[:1])
    made = fleet.but(profiles=(profile("new", gib=18),)).plan()
    place, remove = made.decisions
    displaced = replace(remove, cause=replace(remove.cause, kind=CauseKind.DISPLACED), last_replica=False)
    pushing = replace(made, decisions=(place, displaced))
    assert held(pushing, mode(*ALL)) == {1: codes.HELD_DISPLACE.code}
    assert held(pushing, mode(*ALL, allow_displace=(ProfileName("new"),))) == {}


def test_people_answer_for_the_highest_risk_among_what_is_kept() -> None:
    fleet = converged(profile("c"), profile("d"))
    made = fleet.but(profiles=(profile("c", 2),)).plan()
    policy = ApprovalPolicy()
    assert demand(made, frozenset({1}), policy).risk is Risk.ROUTINE
    assert demand(made, frozenset({1, 2}), policy).risk is Risk.DESTRUCTIVE
    assert demand(made, frozenset(), policy).risk is Risk.ROUTINE


def test_change_sets_list_their_decisions_in_order() -> None:
    made = converged(profile("old", gib=18), hosts=HOSTS[:1]).but(profiles=(profile("new", gib=18),)).plan()
    found = change_sets(made.decisions)
    assert {n: [d.n for d in members] for n, members in found.items()} == {1: [1, 2]}
    assert isinstance(found[1][0], Decision)
