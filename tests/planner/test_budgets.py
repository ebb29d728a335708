"""Limits and windows: each counts what goes on at once, holds back only what hits it, and says when it opens again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId, ReplicaId
from gridops.base.units import parse_instant
from gridops.disk.zones import rules_of
from gridops.model.fleet import Drain
from gridops.model.plan import CauseKind, Plan
from gridops.model.policy import (
    ActionClass,
    BudgetPolicy,
    DisruptionBudget,
    MoveLimits,
    Risk,
    ScopeBudgets,
    Window,
)
from gridops.model.profile import PlacementRules
from gridops.planner.authority import change_sets, judge
from gridops.planner.budgets import Circumstances, zones_named
from tests.planner.fleet import NOW, SCOPE, Fleet, config, decisions, host, profile
from tests.planner.test_authority import ALL, converged, mode

WEEKEND = "Fri 15:00 - Mon 06:00 Europe/Paris"
OFFICE = "Mon-Fri 08:00-18:00 Europe/Paris"
ZONES = rules_of(["Europe/Paris"])
HOUR = 3_600_000
REBALANCE = (ActionClass.REBALANCE,)
WIDE = MoveLimits(per_plan=99, per_hour=99)
INSIDE, OUTSIDE = parse_instant("2026-12-01T09:00:00Z"), parse_instant("2026-12-01T19:00:00Z")


def held(made: Plan, here: Circumstances, now_ms: int = NOW) -> dict[int, str]:
    """Code and text of every change set that does not go."""
    found = judge(made, mode(*ALL), now_ms, here)
    assert found.allowed | {n for n, _, _ in found.held} == set(change_sets(made.to_do))
    return {n: f"{code} {text}" for n, code, text in found.held}


def limited(*disruptions: DisruptionBudget, moves: MoveLimits = WIDE, **more: object) -> Circumstances:
    budgets = ScopeBudgets(scope=SCOPE, disruptions=disruptions, moves=moves)
    return Circumstances(budgets=budgets, zones=ZONES, **more)  # type: ignore[arg-type]


def windowed(*windows: Window) -> Circumstances:
    return Circumstances(budgets=ScopeBudgets(scope=SCOPE, windows=windows), zones=ZONES)


def names(*numbers: int) -> tuple[ReplicaId, ...]:
    return tuple(ReplicaId(f"x/{n}") for n in numbers)


@pytest.fixture(scope="module")
def one_move() -> Plan:
    made = converged(profile("c")).but(drains=(Drain(host=HostId("ant"), reason="x"),)).plan()
    assert decisions(made) == ["move c/1 ant -> bee"]
    return made


def moving(made: Plan, count: int, group: ActionClass = ActionClass.REBALANCE, each: int = 1) -> Plan:
    """A plan with so many moves of replicas of their own, `each` to a change set, in a scope of twice as many."""
    (move,) = made.decisions
    cause = CauseKind.REBALANCE if group is ActionClass.REBALANCE else CauseKind.HOST_LOST
    risk = Risk.DISRUPTIVE if group is ActionClass.REBALANCE else Risk.ROUTINE
    many = tuple(
        replace(
            move,
            n=n,
            replica=ReplicaId(f"c/{n}"),
            change_set=(n - 1) // each + 1,
            action_class=group,
            risk=risk,
            cause=replace(move.cause, kind=cause),
        )
        for n in range(1, count + 1)
    )
    return replace(made, decisions=many, placement=made.placement * (2 * count))


# Windows.


def grown() -> Plan:
    """One new replica and one repair, each by itself."""
    fleet = converged(profile("c")).but(drains=(Drain(host=HostId("ant"), reason="x"),))
    made = fleet.but(profiles=(profile("c"), profile("d"))).plan()
    assert [d.action_class for d in made.decisions] == [ActionClass.SCALE_UP, ActionClass.REPAIR]
    return made


def test_a_closed_window_holds_all_but_the_classes_it_excepts_and_says_when_it_opens() -> None:
    here = windowed(Window(deny=WEEKEND, exclude=(ActionClass.REPAIR,)))
    sunday, monday = parse_instant("2026-11-29T12:00:00Z"), parse_instant("2026-11-30T05:00:00Z")
    assert held(grown(), here, sunday) == {
        1: f"{codes.HELD_WINDOW.code} d/1: scale_up is closed by windows[1] ({WEEKEND}), opens 2026-11-30T05:00:00Z"
    }
    assert held(grown(), here, monday - 1).keys() == {1}
    assert held(grown(), here, monday) == {}


def test_a_window_without_exceptions_holds_repair_too() -> None:
    assert held(grown(), windowed(Window(deny=WEEKEND))).keys() == {1, 2}


def test_windows_that_touch_open_at_the_end_of_the_last() -> None:
    night = Window(deny="Mon 05:00-09:30 Europe/Paris")
    (text,) = held(
        grown(),
        windowed(Window(deny=WEEKEND, exclude=(ActionClass.REPAIR,)), replace(night, exclude=(ActionClass.REPAIR,))),
    ).values()
    assert text.endswith(", opens 2026-11-30T08:30:00Z")


def test_a_window_that_is_never_open_says_so() -> None:
    (text, _) = held(grown(), windowed(Window(deny="Mon-Sun 00:00-24:00 UTC"))).values()
    assert text.endswith("; it never opens by itself: apply the plan, or raise it")


def test_a_window_that_cannot_be_judged_denies_and_permits_nothing() -> None:
    never = Window(deny="Mon 00:00 - Mon 00:01 UTC")
    assert held(grown(), windowed(never)) == {}, "UTC needs no rules"
    lost = windowed(never, Window(deny="Mon 00:00 - Mon 00:01 Nowhere/City"))
    assert "windows[2]" in held(grown(), lost)[1]
    assert "time zone is not known" in held(grown(), lost)[1]


def test_zones_are_named_once_for_whoever_brings_their_rules() -> None:
    budgets = ScopeBudgets(
        scope=SCOPE,
        windows=(Window(deny=WEEKEND), Window(deny="22:00-06:00 UTC")),
        disruptions=(DisruptionBudget(reasons=REBALANCE, max_count=1, during="Mon 01:00-02:00 Asia/Tokyo"),),
    )
    assert zones_named(BudgetPolicy(scopes=(budgets,))) == ("Asia/Tokyo", "Europe/Paris", "UTC")


# Moves.


def test_moves_are_limited_per_plan_and_repair_is_not(one_move: Plan) -> None:
    here = limited(moves=MoveLimits(per_plan=2, per_hour=99))
    assert held(moving(one_move, 3), here) == {
        3: f"{codes.HELD_MOVES.code} c/3: moves.per_plan: 2 of 2 moves go on at once (c/1, c/2), 1 more wanted; "
        "it opens when they have arrived"
    }
    assert held(moving(one_move, 9, ActionClass.REPAIR), here) == {}


def test_moves_that_have_not_arrived_go_on_counting(one_move: Plan) -> None:
    limits = MoveLimits(per_plan=2, per_hour=99)
    assert held(moving(one_move, 3), limited(moves=limits, moving=names(1))).keys() == {2, 3}
    # The one on its way is decided again: it is the same move.
    assert held(moving(one_move, 3), limited(moves=limits, moving=(ReplicaId("c/1"),))).keys() == {3}
    tight = limited(moves=MoveLimits(per_plan=1, per_hour=99), moving=(ReplicaId("c/1"),))
    assert held(moving(one_move, 2), tight).keys() == {2}


def test_moves_are_limited_per_hour_and_open_when_the_oldest_is_an_hour_old(one_move: Plan) -> None:
    limits = MoveLimits(per_plan=99, per_hour=3)
    here = limited(moves=limits, moved_ms=(NOW - 50 * 60_000, NOW - HOUR, NOW - 1000))
    assert held(moving(one_move, 2), here) == {
        2: f"{codes.HELD_MOVES.code} c/2: moves.per_hour: 3 of 3 moves made within an hour, 1 more wanted; "
        "it opens 2026-11-30T01:03:20Z"
    }
    assert held(moving(one_move, 2), here, NOW + 10 * 60_000 - 1).keys() == {2}
    assert held(moving(one_move, 2), here, NOW + 10 * 60_000) == {}


def test_a_change_set_that_is_larger_than_a_limit_is_told_that_it_never_opens(one_move: Plan) -> None:
    for limits in (MoveLimits(per_plan=2, per_hour=99), MoveLimits(per_plan=99, per_hour=2)):
        (text,) = held(moving(one_move, 3, each=3), limited(moves=limits)).values()
        assert text.endswith("it never opens by itself: apply the plan, or raise it")


# Disruptions.

BUDGETS = {
    "a count": (DisruptionBudget(reasons=REBALANCE, max_count=2), INSIDE, 0, 2),
    "a count less what is down already": (DisruptionBudget(reasons=REBALANCE, max_count=2), INSIDE, 1, 1),
    "a share of what is wanted": (DisruptionBudget(reasons=REBALANCE, max_ppm=375_000), INSIDE, 0, 3),
    "a share is rounded down": (DisruptionBudget(reasons=REBALANCE, max_ppm=374_999), INSIDE, 0, 2),
    "a small share is still one": (DisruptionBudget(reasons=REBALANCE, max_ppm=1), INSIDE, 0, 1),
    "an explicit zero is none": (DisruptionBudget(reasons=REBALANCE, max_ppm=0), INSIDE, 0, 0),
    "the smaller of count and share": (
        DisruptionBudget(reasons=REBALANCE, max_count=1, max_ppm=900_000), INSIDE, 0, 1,
    ),
    "inside its hours": (DisruptionBudget(reasons=REBALANCE, max_count=3, during=OFFICE), INSIDE, 0, 3),
    "one outside its hours": (DisruptionBudget(reasons=REBALANCE, max_count=3, during=OFFICE), OUTSIDE, 0, 1),
    "none inside, one outside": (DisruptionBudget(reasons=REBALANCE, max_count=0, during=OFFICE), OUTSIDE, 0, 1),
    "one in hours that cannot be judged": (
        DisruptionBudget(reasons=REBALANCE, max_count=3, during="Mon-Sun 00:00-24:00 Nowhere/City"), INSIDE, 0, 1,
    ),
    "none for another reason": (DisruptionBudget(reasons=(ActionClass.ROLLOUT,), max_count=0), INSIDE, 0, 4),
}  # fmt: skip


@pytest.mark.parametrize("name", BUDGETS)
def test_disruptions_are_budgeted_by(name: str, one_move: Plan) -> None:
    budget, at_ms, down, expected = BUDGETS[name]
    found = held(moving(one_move, 4), limited(budget, disrupted=names(*range(down))), at_ms)
    assert 4 - len(found) == expected
    assert {text.split()[0] for text in found.values()} <= {codes.HELD_DISRUPTION.code}


def test_the_strictest_of_several_budgets_holds(one_move: Plan) -> None:
    both = DisruptionBudget(reasons=REBALANCE, max_count=3), DisruptionBudget(reasons=ALL, max_count=1)
    assert held(moving(one_move, 3), limited(*both)).keys() == {2, 3}
    assert "disruptions[2]" in held(moving(one_move, 3), limited(*both))[2]


def test_a_disruption_that_is_held_says_which_budget_how_much_is_used_and_when_it_opens(one_move: Plan) -> None:
    budget = DisruptionBudget(reasons=(ActionClass.REBALANCE, ActionClass.ROLLOUT), max_ppm=300_000, during=OFFICE)
    two = moving(one_move, 2)
    title = f"disruptions[1] (rebalance, rollout: max 30% during {OFFICE})"
    assert held(two, limited(budget, disrupted=names(7)), INSIDE) == {
        1: f"{codes.HELD_DISRUPTION.code} c/1: {title}: 1 of 1 disrupted at once (x/7), 1 more wanted; "
        "it opens when they serve again",
        2: f"{codes.HELD_DISRUPTION.code} c/2: {title}: 1 of 1 disrupted at once (x/7), 1 more wanted; "
        "it opens when they serve again",
    }
    more = replace(budget, max_ppm=1_000_000)
    assert held(two, limited(more, disrupted=names(7)), OUTSIDE)[1].endswith(
        "it opens when they serve again or 2026-12-02T07:00:00Z for 4"
    )
    never = replace(budget, max_ppm=0, during=None)
    assert held(two, limited(never), INSIDE)[1].endswith("it never opens by itself: apply the plan, or raise it")
    quiet = replace(budget, max_ppm=0)
    assert held(two, limited(quiet), INSIDE)[1].endswith("it opens 2026-12-01T17:00:00Z for 1")


def test_many_replicas_are_counted_and_some_are_named(one_move: Plan) -> None:
    budget = DisruptionBudget(reasons=REBALANCE, max_count=5)
    (text,) = held(moving(one_move, 1), limited(budget, disrupted=names(10, 2, 1, 9, 3))).values()
    assert "5 of 5 disrupted at once (x/1, x/2, x/3 and 2 more)" in text


def test_who_is_down_already_may_be_moved_or_restarted(one_move: Plan) -> None:
    budget = DisruptionBudget(reasons=REBALANCE, max_count=1)
    assert held(moving(one_move, 1), limited(budget, disrupted=(ReplicaId("c/1"),))) == {}


def test_repair_draws_on_the_limits_first(one_move: Plan) -> None:
    budget = DisruptionBudget(reasons=(ActionClass.REBALANCE, ActionClass.REPAIR), max_count=1)
    both = moving(one_move, 2)
    repair = replace(both.decisions[1], action_class=ActionClass.REPAIR)
    mixed = replace(both, decisions=(both.decisions[0], repair))
    assert held(mixed, limited(budget)).keys() == {1}


def test_repair_passes_the_limits_and_windows_of_others(one_move: Plan) -> None:
    """Everything optional is stopped three times over; every repair of the same plan goes."""
    optional = tuple(c for c in ALL if c is not ActionClass.REPAIR)
    many = moving(one_move, 4)
    repairs = tuple(replace(d, action_class=ActionClass.REPAIR) for d in many.decisions[2:])
    mixed = replace(many, decisions=(*many.decisions[:2], *repairs))
    full = limited(DisruptionBudget(reasons=optional, max_count=0), moves=MoveLimits(per_plan=0, per_hour=0))
    assert held(mixed, full).keys() == {1, 2}
    assert held(mixed, windowed(Window(deny=WEEKEND, exclude=(ActionClass.REPAIR,)))).keys() == {1, 2}


def test_a_change_set_that_hits_a_limit_leaves_the_others_to_go_on(one_move: Plan) -> None:
    """The first set is too large, the smaller ones after it are not."""
    six = moving(one_move, 6)
    sets = tuple(replace(d, change_set=1 if d.n <= 3 else d.n - 2) for d in six.decisions)
    mixed = replace(six, decisions=sets)
    assert held(mixed, limited(moves=MoveLimits(per_plan=3, per_hour=99))).keys() == {2, 3, 4}
    assert held(mixed, limited(moves=MoveLimits(per_plan=2, per_hour=99))).keys() == {1, 4}
    budget = DisruptionBudget(reasons=REBALANCE, max_count=2)
    assert held(mixed, limited(budget)).keys() == {1, 4}


def test_what_does_not_stop_anything_is_no_disruption() -> None:
    budget = DisruptionBudget(reasons=ALL, max_count=0)
    fleet = converged(profile("c"))
    made = fleet.but(profiles=(replace(profile("c", 2), serves=("x",)),)).plan()
    assert held(made, limited(budget)) == {}
    rollout = fleet.but(profiles=(profile("c", configs=(config("c-q4", 10, context=9),)),)).plan()
    assert held(rollout, limited(budget)).keys() == {1}


def test_what_is_held_and_what_goes_are_whole_change_sets() -> None:
    """A rollout of two replicas is one set: a limit for one holds both, and leaves a new profile alone."""
    fleet = converged(profile("c", 2))
    old = config("c-q4", 10)
    rolled = profile("c", 2, configs=(replace(old, context=8192),))
    made = fleet.but(profiles=(rolled, profile("d"))).plan()
    sets = change_sets(made.to_do)
    found = held(made, limited(DisruptionBudget(reasons=(ActionClass.ROLLOUT,), max_count=1)))
    assert found, "one at a time is not what two changes need"
    for n in found:
        assert {d.action_class for d in sets[n]} == {ActionClass.ROLLOUT}
    assert all(n not in found for n, members in sets.items() if members[0].profile == "d")


def crowded() -> Plan:
    """A chain of three (draw needs the large host, so code and chat move on), a new model, and a repair."""
    code, chat, note = profile("code", gib=28), profile("chat", gib=20), profile("note", gib=6)
    only = replace(note, placement=PlacementRules(allow_hosts=(HostId("near"), HostId("next"))))
    others = (host("near", (8,)), host("next", (8,)))
    first = Fleet(hosts=(host("large", (48,)), *others), profiles=(code, only))
    second = first.applied(first.plan(), later_ms=HOUR)
    second = second.but(hosts=(*second.hosts, host("middle", (32,))), profiles=(chat, code, only))
    third = second.applied(second.plan(), later_ms=HOUR)
    tiny = replace(profile("tiny", gib=1), placement=PlacementRules(allow_hosts=(HostId("small"),)))
    third = third.but(
        hosts=(*third.hosts, host("small", (24,))),
        profiles=(chat, code, profile("draw", gib=40), only, tiny),
        drains=(Drain(host=next(a.seat.host for a in third.parent.placement if a.profile == "note"), reason="fan"),),  # type: ignore[union-attr]
    )
    return third.plan()


def test_a_chain_stands_or_falls_together_and_leaves_everybody_else_alone() -> None:
    made = crowded()
    by_replica = {d.replica: d for d in made.to_do}
    assert sorted(by_replica) == ["chat/1", "code/1", "draw/1", "note/1", "tiny/1"]
    chain = {by_replica[r].change_set for r in ("chat/1", "code/1", "draw/1")}  # type: ignore[index]
    assert len(chain) == 1
    assert by_replica["note/1"].action_class is ActionClass.REPAIR  # type: ignore[index]
    assert held(made, limited()) == {}
    # One move of the two is too many: all three wait, also the new one, and nobody else does.
    for here in (
        limited(moves=MoveLimits(per_plan=1, per_hour=99)),
        limited(moves=MoveLimits(per_plan=99, per_hour=1)),
        limited(DisruptionBudget(reasons=REBALANCE, max_count=1)),
        windowed(Window(deny=WEEKEND, exclude=(ActionClass.REPAIR, ActionClass.SCALE_UP))),
    ):
        (text,) = (found := held(made, here)).values()
        assert found.keys() == chain
        assert " chat/1, code/1, draw/1: " in text
