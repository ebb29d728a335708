"""Stories of what automatic mode does by itself and what it holds back, with the words that on-call reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gridops.base.ids import ReplicaId
from gridops.base.units import parse_instant
from gridops.disk.zones import rules_of
from gridops.model.fleet import Host
from gridops.model.policy import (
    ActionClass,
    Automatic,
    BudgetPolicy,
    DisruptionBudget,
    Mode,
    PriceCeiling,
    ScopeBudgets,
    ScopeMode,
    Window,
)
from gridops.planner.authority import judge
from gridops.planner.budgets import Circumstances
from gridops.planner.check import check
from gridops.planner.price_preview import preview, sentences
from gridops.planner.restrict import restrict
from tests.planner.fleet import SCOPE, Fleet, config, host, profile
from tests.planner.stage import MINUTE, Stage, verify
from tests.planner.walk import Walk

WEEKEND = "Fri 15:00 - Mon 06:00 Europe/Paris"
OFFICE = "Mon-Fri 08:00-18:00 Europe/Paris"
LIMITS = ScopeBudgets(
    scope=SCOPE,
    windows=(Window(deny=WEEKEND, exclude=(ActionClass.REPAIR,)),),
    disruptions=(
        DisruptionBudget(reasons=(ActionClass.ROLLOUT, ActionClass.REBALANCE), max_ppm=500_000, during=OFFICE),
    ),
)
AUTOMATIC = ScopeMode(scope=SCOPE, mode=Mode.AUTOMATIC, automatic=Automatic(allow=tuple(ActionClass)))


def by_itself(stage: Stage, *under_way: str) -> None:
    """Plan, carry out what automatic mode may do, and tell what it holds back and until when."""
    made, fleet = stage.plan(), stage.fleet
    budgets = fleet.inputs().intent.desired.budgets.of(SCOPE)
    disrupted = tuple(ReplicaId(r) for r in under_way)
    here = Circumstances(budgets=budgets, zones=rules_of(["Europe/Paris"]), disrupted=disrupted)
    found = judge(made, AUTOMATIC, fleet.now, here)
    stage.lines += [f"  held: set {n}: {text} ({code})" for n, code, text in found.held]
    part = restrict(made, fleet.parent, found.allowed)
    assert check(part, fleet.inputs(), partial=True) == ()
    walk = Walk(fleet, part).run()
    stage.lines += [f"    {line}" for line in walk.taken]
    stage.fleet = walk.fleet.but(parent=part)
    stage.later(MINUTE)


def clock(stage: Stage, instant: str) -> None:
    """It is so late; everybody who was alive has gone on beating."""
    stage.later(parse_instant(instant) - stage.fleet.now)


def servers(count: int) -> tuple[Host, ...]:
    return tuple(host(f"h{n}") for n in range(count))


def held_back() -> Stage:
    """A week-end window and a budget hold a rollout back, set by set; what broke is repaired at once, and each line
    says which budget, how much of it is used, and when it opens."""
    chat = profile("chat", 4, gib=18, configs=(config("q4", 18, weights="v1"),), max_per_host=1)
    begin = parse_instant("2026-12-04T12:00:00Z")
    stage = Stage(
        Fleet(hosts=servers(6), profiles=(chat,), now=begin, more={"budgets": BudgetPolicy(scopes=(LIMITS,))})
    )
    stage.say("Friday at one in Paris: first commit")
    by_itself(stage)
    stage.say("Friday at four: new weights, a new model, and h0 has been silent for two minutes")
    clock(stage, "2026-12-04T14:58:00Z")
    stage.commit(replace(chat, configs=(config("q4", 18, weights="v2"),)), profile("draw", gib=5))
    stage.silence("h0")
    by_itself(stage)
    stage.say("Sunday: nothing more")
    clock(stage, "2026-12-06T12:00:00Z")
    by_itself(stage)
    stage.say("Monday at six the window opens: outside office hours one at a time")
    clock(stage, "2026-12-07T05:00:00Z")
    by_itself(stage)
    stage.say("while that one still starts, the rest waits for it, or for office hours")
    by_itself(stage, "chat/2")
    stage.say("Monday at eight: two at once")
    clock(stage, "2026-12-07T07:00:00Z")
    by_itself(stage)
    return stage


def price_preview() -> Stage:
    """What a ceiling costs, before it is committed: who is left out, which ceiling would do, what would not return."""
    hosts = tuple(host(f"h{n}", price_per_hour_micro=p) for n, p in enumerate((800_000, 500_000, 700_000, None)))
    chat = profile("chat", 4, gib=18)
    stage = Stage(Fleet(hosts=hosts, profiles=(chat,), more=_ceiling(600_000)))

    def told() -> None:
        made = stage.plan()
        found = preview(stage.fleet.inputs(), made)
        stage.lines += [f"  preview: {line}" for line in (sentences(found) if found is not None else ())]

    stage.say("four replicas, 0.60 an hour")
    told()
    stage.say("the ceiling that was named")
    stage.fleet = stage.fleet.but(more=_ceiling(2_000_000))
    told()
    stage.apply()
    stage.say("and half of it, once they run")
    stage.fleet = stage.fleet.but(more=_ceiling(1_000_000))
    told()
    return stage


def _ceiling(micro: int) -> dict[str, BudgetPolicy]:
    return {"budgets": BudgetPolicy(scopes=(ScopeBudgets(scope=SCOPE, price=PriceCeiling(max_per_hour_micro=micro)),))}


STORIES: tuple[Callable[[], Stage], ...] = (held_back, price_preview)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story: Callable[[], Stage]) -> None:
    verify(story)
