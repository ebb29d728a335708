"""Fleets where somebody wants a place that another has: the important one, the less important one, and who gave way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gridops.model.plan import CauseKind, DecisionKind, Plan
from gridops.model.policy import BudgetPolicy, ScopeBudgets
from gridops.model.profile import PlacementRules, Profile
from tests.planner.fleet import SCOPE, Fleet, host, profile

RESTED = 600_000


def standing(*profiles: Profile, hosts: int = 2, **more: Any) -> Fleet:
    """Everybody stands, long enough to be moved. Hosts of 24 GiB take two of 10 or one of 18."""
    fleet = Fleet(hosts=tuple(host(f"h{n}", rack=f"r{n}", **more) for n in range(hosts)), profiles=profiles)
    made = fleet.plan()
    assert made.report.unplaced == ()
    return fleet.applied(made, later_ms=RESTED)


def wants(fleet: Fleet, *profiles: Profile) -> Fleet:
    """The same with more profiles, or others of the same name."""
    names = {p.name for p in profiles}
    return fleet.but(profiles=(*(p for p in fleet.profiles if p.name not in names), *profiles))


def budget(fleet: Fleet, **more: Any) -> Fleet:
    return fleet.but(more={"budgets": BudgetPolicy(scopes=(ScopeBudgets(scope=SCOPE, **more),))})


def gave_way(made: Plan) -> list[str]:
    return sorted(
        d.replica for d in made.decisions if d.kind is DecisionKind.REMOVE and d.cause.kind is CauseKind.DISPLACED
    )


LOW = profile("low", 2, gib=18, priority=50, max_per_host=1)


HIGH = profile("high", 1, gib=18, priority=200)


def on(p: Profile, *names: str) -> Profile:
    return replace(p, placement=PlacementRules(allow_hosts=names))  # type: ignore[arg-type]
