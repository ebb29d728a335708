"""Who may do what: the table is complete, each mode row by row, and limits hold back only what hits them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId, ProfileName
from gridops.model.fleet import Drain
from gridops.model.plan import CauseKind, Decision, DecisionKind, Plan
from gridops.model.policy import (
    ActionClass,
    ApprovalPolicy,
    Automatic,
    DisruptionBudget,
    Mode,
    MoveLimits,
    Risk,
    ScopeBudgets,
    ScopeMode,
    Window,
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
from tests.planner.fleet import NOW, SCOPE, Fleet, config, decisions, host, profile

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


WINDOW = "Fri 15:00 - Mon 06:00 Europe/Paris"


def test_a_closed_window_holds_all_but_the_classes_it_excepts() -> None:
    fleet = converged(profile("c")).but(drains=(Drain(host=HostId("ant"), reason="x"),))
    made = fleet.but(profiles=(profile("c"), profile("d"))).plan()
    budgets = ScopeBudgets(scope=SCOPE, windows=(Window(deny=WINDOW, exclude=(ActionClass.REPAIR,)),))
    assert [d.action_class for d in made.decisions] == [ActionClass.SCALE_UP, ActionClass.REPAIR]
    assert held(made, mode(*ALL), Circumstances(budgets=budgets)) == {}
    closed = Circumstances(budgets=budgets, active_windows=frozenset({WINDOW}))
    assert held(made, mode(*ALL), closed) == {1: codes.HELD_WINDOW.code}


def moving(made: Plan, count: int, group: ActionClass = ActionClass.REBALANCE) -> Plan:
    """A plan with so many moves, each its own change set."""
    (move,) = made.decisions
    cause = CauseKind.REBALANCE if group is ActionClass.REBALANCE else CauseKind.HOST_LOST
    risk = Risk.DISRUPTIVE if group is ActionClass.REBALANCE else Risk.ROUTINE
    many = tuple(
        replace(move, n=n, change_set=n, action_class=group, risk=risk, cause=replace(move.cause, kind=cause))
        for n in range(1, count + 1)
    )
    return replace(made, decisions=many)


@pytest.fixture
def one_move() -> Plan:
    made = converged(profile("c")).but(drains=(Drain(host=HostId("ant"), reason="x"),)).plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    return made


def test_moves_are_limited_per_plan_and_per_hour_and_repair_is_not(one_move: Plan) -> None:
    limits = ScopeBudgets(scope=SCOPE, moves=MoveLimits(per_plan=2, per_hour=3))
    assert held(moving(one_move, 3), mode(*ALL), Circumstances(budgets=limits)) == {3: codes.HELD_MOVES.code}
    late = Circumstances(budgets=limits, moves_last_hour=2)
    assert held(moving(one_move, 3), mode(*ALL), late) == {2: codes.HELD_MOVES.code, 3: codes.HELD_MOVES.code}
    assert held(moving(one_move, 9, ActionClass.REPAIR), mode(*ALL), late) == {}


def test_repair_draws_on_the_limits_first(one_move: Plan) -> None:
    budget = DisruptionBudget(reasons=(ActionClass.REBALANCE, ActionClass.REPAIR), max_count=1)
    limits = Circumstances(budgets=ScopeBudgets(scope=SCOPE, disruptions=(budget,)))
    both = moving(one_move, 2)
    repair = replace(both.decisions[1], action_class=ActionClass.REPAIR)
    mixed = replace(both, decisions=(both.decisions[0], repair))
    assert held(mixed, mode(*ALL), limits) == {1: codes.HELD_DISRUPTION.code}


DURING = "Mon-Fri 08:00-18:00 Europe/Paris"
BUDGETS = {
    "a count": (DisruptionBudget(reasons=(ActionClass.REBALANCE,), max_count=2), frozenset(), 0, 2),
    "a count less what is down already": (
        DisruptionBudget(reasons=(ActionClass.REBALANCE,), max_count=2),
        frozenset(),
        1,
        1,
    ),
    "a share of what is wanted": (
        DisruptionBudget(reasons=(ActionClass.REBALANCE,), max_ppm=500_000),
        frozenset(),
        0,
        2,
    ),
    "a small share is still one": (DisruptionBudget(reasons=(ActionClass.REBALANCE,), max_ppm=1), frozenset(), 0, 1),
    "an explicit zero is none": (DisruptionBudget(reasons=(ActionClass.REBALANCE,), max_ppm=0), frozenset(), 0, 0),
    "the smaller of count and share": (
        DisruptionBudget(reasons=(ActionClass.REBALANCE,), max_count=1, max_ppm=900_000),
        frozenset(),
        0,
        1,
    ),
    "inside its hours": (
        DisruptionBudget(reasons=(ActionClass.REBALANCE,), max_count=3, during=DURING),
        frozenset({DURING}),
        0,
        3,
    ),
    "one outside its hours": (
        DisruptionBudget(reasons=(ActionClass.REBALANCE,), max_count=3, during=DURING),
        frozenset(),
        0,
        1,
    ),
    "none for another reason": (DisruptionBudget(reasons=(ActionClass.ROLLOUT,), max_count=0), frozenset(), 0, 4),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_disruptions_are_budgeted_by(name: str, one_move: Plan) -> None:
    budget, active, down, expected = BUDGETS[name]
    four = replace(moving(one_move, 4), placement=one_move.placement * 4)
    limits = ScopeBudgets(scope=SCOPE, disruptions=(budget,), moves=MoveLimits(per_plan=99, per_hour=99))
    circumstances = Circumstances(budgets=limits, active_windows=active, disrupted=down)
    found = held(four, mode(*ALL), circumstances)
    assert 4 - len(found) == expected
    assert set(found.values()) <= {codes.HELD_DISRUPTION.code}


def test_what_does_not_stop_anything_is_no_disruption() -> None:
    budget = DisruptionBudget(reasons=ALL, max_count=0)
    fleet = converged(profile("c"))
    made = fleet.but(profiles=(replace(profile("c", 2), serves=("x",)),)).plan()
    limits = Circumstances(budgets=ScopeBudgets(scope=SCOPE, disruptions=(budget,)))
    assert held(made, mode(*ALL), limits) == {}
    rollout = fleet.but(profiles=(profile("c", configs=(config("c-q4", 10, context=9),)),)).plan()
    assert held(rollout, mode(*ALL), limits) == {1: codes.HELD_DISRUPTION.code}


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
