"""Judges a placement of an instance from first principles: is it allowed, and what does it leave unmet?

Knows neither gridops nor the solver, so that neither can talk it round. A replica that stands against the
failure-domain rule counts for nothing; anything else that is wrong is an error, since a plan may not do it at all.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from bench.yard.instance import Instance, Pair


class Wrong(AssertionError):
    """The placement breaks a hard rule of the instance."""


@dataclass(frozen=True)
class Score:
    unmet: int
    """Weight of wanted replicas that do not stand, or stand against the failure-domain rule."""
    start_s: float
    """Seconds of starting what did not run there before."""
    dropped: int
    """Pairs that ran and do not any more."""
    crowded: int
    """Replicas that count for nothing because their failure domains are too few."""
    left_on_drained: int
    """Replicas that still wait on a drained host; they count for nothing either."""
    ended: int
    """Models that ran and do not run anywhere any more: their last replica was given up."""


def score(given: Instance, placed: Set[Pair]) -> Score:
    """The three values of the objective, or Wrong."""
    standing = {pair for pair in placed if pair in given.allowed}
    waiting = set(placed) - standing
    for m, h in sorted(waiting):
        if h not in given.drained or (m, h) not in given.current:
            raise Wrong(f"{given.name}: model {m} may not stand on host {h}")
    if not given.pins <= standing:
        raise Wrong(f"{given.name}: pins {sorted(given.pins - standing)} are not kept")
    for h in range(len(given.machines)):
        _host(given, h, [m for m, k in placed if k == h])
    unmet = crowded = 0
    for m, model in enumerate(given.models):
        hosts = [h for k, h in standing if k == m]
        if len(hosts) > model.replicas:
            raise Wrong(f"{given.name}: model {m} stands {len(hosts)} times, {model.replicas} wanted")
        domains = len({given.machines[h].domain for h in hosts})
        counted = len(hosts) if domains >= min(model.domains, len(hosts)) else domains
        unmet += model.weight * (model.replicas - counted)
        crowded += len(hosts) - counted
    return Score(
        unmet=unmet,
        start_s=sum(given.start_s(pair) for pair in sorted(standing - given.current)),
        dropped=len(given.current - standing),
        crowded=crowded,
        left_on_drained=len(waiting),
        ended=len({m for m, _ in given.current} - {m for m, _ in placed}),
    )


def _host(given: Instance, host: int, models: list[int]) -> None:
    machine = given.machines[host]
    used = sum(given.models[m].mem for m in models)
    if used > machine.mem or len(models) > machine.slots:
        raise Wrong(f"{given.name}: host {host} holds {used} of {machine.mem} MB, {len(models)} of {machine.slots}")
    for a, b in sorted(given.excludes):
        if a in models and b in models:
            raise Wrong(f"{given.name}: host {host} holds {a} and {b}, which exclude each other")
