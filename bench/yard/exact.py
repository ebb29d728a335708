"""The exact optimum of an instance by integer programming, in three lexicographic stages.

    x[m,h]  a replica of m stands on h     p[m,k]  at least k replicas of m stand     y[m,d]  m stands in domain d
    sum_h x = sum_k p, p falling in k;  y[m,d] <= sum of x in d;  sum_d y >= sum_{k <= F} p[m,k]
    memory and slots per host;  x[a,h] + x[b,h] <= 1 for exclusions;  x = 1 for pins
    1. unmet weight   2. start-up seconds of what does not run yet   3. running replicas that go

`Rules` adds what gridops forbids itself and the plain model does not. The solver is a test dependency: the product
never loads it.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import highspy

from bench.yard.instance import Instance, Pair

FEASIBLE = 2
"""The solver's word for a solution that is one (`primal_solution_status`)."""


@dataclass(frozen=True)
class Rules:
    """What gridops does not do although it might gain by it."""

    last: bool = False
    """A profile that runs keeps at least one replica."""
    displace: bool = False
    """A profile has fewer replicas than run only where something of higher weight came to a host that one left."""

    @property
    def name(self) -> str:
        return {(0, 0): "plain", (1, 0): "last", (0, 1): "displace", (1, 1): "both"}[self.last, self.displace]


ALL_RULES = (Rules(), Rules(last=True), Rules(displace=True), Rules(last=True, displace=True))


@dataclass
class Stage:
    """One solve. `bound` equals `value` when it is proven."""

    value: float
    bound: float
    seconds: float


@dataclass
class Answer:
    stages: list[Stage] = field(default_factory=list)
    placed: frozenset[Pair] = frozenset()


def version() -> str:
    """The solver by name and version, for what is kept."""
    return f"HiGHS {importlib.metadata.version('highspy')}"


class _Model:
    """Rows and columns of one instance in the solver."""

    def __init__(self, given: Instance, rules: Rules, threads: int) -> None:
        self.given = given
        self.solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        self.solver.setOptionValue("output_flag", False)
        self.solver.setOptionValue("threads", threads)
        self.solver.setOptionValue("mip_rel_gap", 0.0)
        self.solver.setOptionValue("mip_abs_gap", 1e-6)
        self.x = {pair: self.solver.addBinary() for pair in sorted(given.allowed)}
        self.p: dict[Pair, Any] = {}
        self.y: dict[Pair, Any] = {}
        self.hosts: dict[int, list[int]] = {m: [] for m in range(len(given.models))}
        for m, h in self.x:
            self.hosts[m].append(h)
        for m in range(len(given.models)):
            self._replicas(m)
        for h in range(len(given.machines)):
            self._machine(h)
        for pair in sorted(given.pins):
            self._row(self.x[pair] * 1.0 == 1)
        if rules.last:
            self._keep_one()
        if rules.displace:
            self._displace_lower()

    def _row(self, row: Any) -> None:
        self.solver.addConstr(row)

    def _total(self, terms: Iterable[Any]) -> Any:
        """A sum that is an expression even with a single term or none."""
        return self.solver.qsum(list(terms))

    def _replicas(self, m: int) -> None:
        model, hosts = self.given.models[m], self.hosts[m]
        steps = [self.solver.addBinary() for _ in range(model.replicas)]
        self.p |= {(m, k): step for k, step in enumerate(steps, 1)}
        for lower, higher in pairwise(steps):
            self._row(lower - higher >= 0)
        if not hosts:
            self._row(self._total(steps) <= 0)
            return
        self._row(self._total(self.x[m, h] for h in hosts) - self._total(steps) == 0)
        if model.domains < 2:
            return
        by_domain: dict[int, list[Any]] = {}
        for h in hosts:
            by_domain.setdefault(self.given.machines[h].domain, []).append(self.x[m, h])
        for domain, there in sorted(by_domain.items()):
            self.y[m, domain] = self.solver.addBinary()
            self._row(self.y[m, domain] - self._total(there) <= 0)
        reached = self._total(self.y[m, d] for d in sorted(by_domain))
        self._row(reached - self._total(steps[: model.domains]) >= 0)

    def _machine(self, h: int) -> None:
        machine = self.given.machines[h]
        here = [m for m in range(len(self.given.models)) if (m, h) in self.x]
        if not here:
            return
        self._row(self._total(self.x[m, h] * self.given.models[m].mem for m in here) <= machine.mem)
        self._row(self._total(self.x[m, h] for m in here) <= machine.slots)
        for a, b in sorted(self.given.excludes):
            if (a, h) in self.x and (b, h) in self.x:
                self._row(self.x[a, h] + self.x[b, h] <= 1)

    def _keep_one(self) -> None:
        """A profile on drained hosts alone is free: gridops leaves it where it is until it has somewhere to go."""
        for m, hosts in self.hosts.items():
            running = [h for k, h in self.given.current if k == m]
            if running and all((m, h) in self.x for h in running):
                self._row(self._total(self.x[m, h] for h in hosts) >= 1)

    def _displace_lower(self) -> None:
        models = self.given.models
        for m, hosts in self.hosts.items():
            running = [h for h in hosts if (m, h) in self.given.current]
            if not running:
                continue
            excused = []
            for h in running:
                better = [
                    self.x[b, h]
                    for b in range(len(models))
                    if models[b].weight > models[m].weight and (b, h) in self.x and (b, h) not in self.given.current
                ]
                if better:
                    pardon = self.solver.addBinary()
                    self._row(pardon + self.x[m, h] <= 1)
                    self._row(pardon - self._total(better) <= 0)
                    excused.append(pardon)
            stands = self._total([self.x[m, h] for h in hosts] + excused)
            self._row(stands >= min(len(running), models[m].replicas))

    def objectives(self) -> list[list[tuple[Any, float]]]:
        given = self.given
        unmet = [(step, -float(given.models[m].weight)) for (m, _), step in self.p.items()]
        start = [(x, given.start_s(pair)) for pair, x in self.x.items() if pair not in given.current]
        gone = [(x, -1.0) for pair, x in self.x.items() if pair in given.current]
        return [unmet, start, gone]

    def minimise(self, terms: list[tuple[Any, float]]) -> None:
        """These costs and no others."""
        costs = [0.0] * self.solver.getNumCol()
        for variable, factor in terms:
            costs[variable.index] += factor
        self.solver.changeColsCost(len(costs), list(range(len(costs))), costs)

    def placed(self, values: list[float]) -> frozenset[Pair]:
        return frozenset(pair for pair, x in self.x.items() if values[x.index] > 0.5)


def solve(
    given: Instance, rules: Rules = Rules(), *, limits: tuple[float, ...] = (60, 60, 60), threads: int = 1
) -> Answer:
    """The best placement found and how good any can be; `limits` are seconds per stage, and say how many stages."""
    model, answer = _Model(given, rules, threads), Answer()
    base = (given.total_weight, 0, len(given.current))
    warm: list[float] | None = None
    for number, (terms, limit) in enumerate(zip(model.objectives(), limits, strict=False)):
        if not terms:
            answer.stages.append(Stage(base[number], base[number], 0.0))
            continue
        objective = model._total(variable * factor for variable, factor in terms)
        model.solver.setOptionValue("time_limit", float(limit))
        model.minimise(terms)
        if warm is not None:
            # After the costs: a change of the model makes the solver forget where it was told to start.
            start = highspy.HighsSolution()
            start.col_value = warm
            model.solver.setSolution(start)
        began = time.perf_counter()
        model.solver.run()
        taken = time.perf_counter() - began
        info = model.solver.getInfo()
        if info.primal_solution_status != FEASIBLE:
            break
        value, bound = info.objective_function_value, info.mip_dual_bound
        warm = list(model.solver.getSolution().col_value)
        answer.placed = model.placed(warm)
        answer.stages.append(Stage(round(value + base[number], 3), round(bound + base[number], 3), round(taken, 2)))
        # Weights are whole numbers: half of one keeps the next stage at this value and lets its start point in.
        slack = 0.5 if number == 0 else 1e-4 * max(1.0, abs(value))
        model.solver.addConstr(objective <= value + slack)
    return answer
