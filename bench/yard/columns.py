"""The bound of an instance by column generation: what stands on a host is one choice of all that fits there together.

`exact` mixes fractions of models on a host and has to branch until they are whole. Here a host mixes whole contents
(Dantzig and Wolfe, "Decomposition principle for linear programs", Operations Research 8, 1960), so that memory, slots
and exclusions of a single host leave no gap: on 64 x 32 the bound takes seconds and is within a few units of the best
placement. That placement is then looked for among the contents that were found, by the solver.

    .venv/bin/python -m bench.yard.columns 64x32@1#2 both
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from bench.yard.exact import ALL_RULES, Rules
from bench.yard.instance import Instance, Pair, named
from bench.yard.judge import score

ROUNDS = 200
"""Columns are there after some thirty."""
SMALL = 1e-7
Entries = list[tuple[int, float]]


@dataclass(frozen=True)
class Found:
    """`bound`: unmet weight that nothing can be below. `placed`: the best that was found, with its unmet weight."""

    bound: float
    unmet: int
    placed: frozenset[Pair]


class _Master:
    """Contents of hosts, mixed. Rows as in `exact`; each knows in which of them a pair stands."""

    def __init__(self, given: Instance, rules: Rules) -> None:
        self.given = given
        self.solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        self.solver.setOptionValue("output_flag", False)
        self.solver.setOptionValue("threads", 1)
        self.rows, self.columns = 0, 0
        self.whole: list[int] = []
        """Columns that are whole numbers in a placement."""
        self.of: dict[Pair, Entries] = {pair: [] for pair in sorted(given.allowed)}
        self.contents: dict[tuple[int, tuple[int, ...]], int] = {}
        self.hosts: dict[int, list[int]] = {m: [] for m in range(len(given.models))}
        for m, h in self.of:
            self.hosts[m].append(h)
        self.one = [self.row(1, 1) for _ in given.machines]
        for m in self.hosts:
            self._replicas(m)
            if rules.last:
                self._keep_one(m)
            if rules.displace:
                self._displace_lower(m)

    def row(self, least: float, most: float) -> int:
        self.solver.addRow(least, most, 0, np.array([], np.int32), np.array([], np.float64))
        self.rows += 1
        return self.rows - 1

    def column(self, cost: float, most: float, entries: Iterable[tuple[int, float]], *, whole: bool) -> int:
        known = sorted(entries)
        rows, values = np.array([r for r, _ in known], np.int32), np.array([v for _, v in known], np.float64)
        self.solver.addCol(cost, 0.0, most, len(rows), rows, values)
        self.whole += [self.columns] if whole else []
        self.columns += 1
        return self.columns - 1

    def at_least(self, least: float, pairs: Iterable[Pair]) -> int:
        """A row that these pairs count for; what it lacks costs more than everything else."""
        row = self.row(least, highspy.kHighsInf)
        for pair in pairs:
            self.of[pair].append((row, 1.0))
        self.column(10.0 * self.given.total_weight, highspy.kHighsInf, [(row, 1.0)], whole=False)
        return row

    def _replicas(self, m: int) -> None:
        model, hosts = self.given.models[m], self.hosts[m]
        stands, apart = self.row(0, 0), self.row(0, highspy.kHighsInf) if model.domains > 1 and hosts else None
        by_domain: dict[int, int] = {}
        for h in hosts:
            self.of[m, h].append((stands, 1.0))
            domain = self.given.machines[h].domain
            if apart is not None and domain not in by_domain:
                by_domain[domain] = self.row(-highspy.kHighsInf, 0)
                self.column(0.0, 1.0, [(by_domain[domain], 1.0), (apart, 1.0)], whole=False)
            if apart is not None:
                self.of[m, h].append((by_domain[domain], -1.0))
        falls: int | None = None
        for k in range(1, model.replicas + 1):
            entries = [(stands, -1.0)]
            entries += [(apart, -1.0)] if apart is not None and k <= model.domains else []
            entries += [(falls, -1.0)] if falls is not None else []
            falls = self.row(0, highspy.kHighsInf) if k < model.replicas else None
            entries += [(falls, 1.0)] if falls is not None else []
            self.column(-float(model.weight), 1.0, entries, whole=True)

    def _keep_one(self, m: int) -> None:
        running = [h for k, h in sorted(self.given.current) if k == m]
        if running and all((m, h) in self.of for h in running):
            self.at_least(1, [(m, h) for h in self.hosts[m]])

    def _displace_lower(self, m: int) -> None:
        models, current = self.given.models, self.given.current
        running = [h for h in self.hosts[m] if (m, h) in current]
        if not running:
            return
        stands = self.at_least(min(len(running), models[m].replicas), [(m, h) for h in self.hosts[m]])
        for h in running:
            better = [b for b, host in self.of if host == h and models[b].weight > models[m].weight]
            better = [b for b in better if (b, h) not in current]
            if better:
                gone, came = self.row(-highspy.kHighsInf, 1), self.row(-highspy.kHighsInf, 0)
                self.of[m, h].append((gone, 1.0))
                for b in better:
                    self.of[b, h].append((came, -1.0))
                self.column(0.0, 1.0, [(gone, 1.0), (came, 1.0), (stands, 1.0)], whole=False)

    def add(self, host: int, content: tuple[int, ...]) -> bool:
        if (host, content) in self.contents:
            return False
        sums: dict[int, float] = {self.one[host]: 1.0}
        for m in content:
            for row, value in self.of[m, host]:
                sums[row] = sums.get(row, 0.0) + value
        self.contents[host, content] = self.column(0.0, highspy.kHighsInf, sums.items(), whole=True)
        return True


def _best(given: Instance, host: int, worth: dict[int, float]) -> tuple[float, tuple[int, ...]]:
    """The content of the host that is worth most: pins, and what fits beside them, by branch and bound."""
    machine, models = given.machines[host], given.models
    pins = [m for m in worth if (m, host) in given.pins]
    foes = {m: {a + b - m for a, b in given.excludes if m in (a, b)} for m in worth}
    barred = {foe for m in pins for foe in foes[m]} | set(pins)
    items = [m for m in worth if worth[m] > SMALL and m not in barred]
    items.sort(key=lambda m: (-worth[m] / models[m].mem, m))
    best, chosen = 0.0, tuple[int, ...]()

    def branch(at: int, room: int, slots: int, value: float, taken: tuple[int, ...]) -> None:
        nonlocal best, chosen
        if value > best + SMALL:
            best, chosen = value, taken
        hope, left = value, room
        for m in items[at:] if slots else ():
            share = min(1.0, left / models[m].mem)
            hope, left = hope + share * worth[m], left - int(share * models[m].mem)
            if share < 1:
                break
        if hope <= best + SMALL:
            return
        m = items[at]
        if models[m].mem <= room and foes[m].isdisjoint(taken):
            branch(at + 1, room - models[m].mem, slots - 1, value + worth[m], (*taken, m))
        branch(at + 1, room, slots, value, taken)

    branch(0, machine.mem - sum(models[m].mem for m in pins), machine.slots - len(pins), 0.0, ())
    return best + sum(worth[m] for m in pins), tuple(sorted((*pins, *chosen)))


def solve(given: Instance, rules: Rules, seconds: float = 60) -> Found:
    """The bound, and the best placement among the contents that were found within so many seconds."""
    master = _Master(given, rules)
    solver = master.solver
    for h in range(len(given.machines)):
        master.add(h, tuple(sorted(m for m, k in given.pins if k == h)))
    for _ in range(ROUNDS):
        solver.run()
        duals, added = list(solver.getSolution().row_dual), 0
        for h in range(len(given.machines)):
            worth = {m: sum(v * duals[r] for r, v in of) for (m, k), of in master.of.items() if k == h}
            value, content = _best(given, h, worth)
            added += value + duals[master.one[h]] > SMALL and master.add(h, content)
        if not added:
            break
    else:
        raise AssertionError(f"{given.name}: {ROUNDS} rounds did not find all contents: there is no bound")
    bound = given.total_weight + math.ceil(solver.getInfo().objective_function_value - 1e-6)
    for column in master.whole:
        solver.changeColIntegrality(column, highspy.HighsVarType.kInteger)
    solver.setOptionValue("time_limit", float(seconds))
    solver.run()
    values = solver.getSolution().col_value
    placed = frozenset((m, h) for (h, content), n in master.contents.items() if values[n] > 0.5 for m in content)
    return Found(bound, score(given, placed).unmet, placed)


if __name__ == "__main__":
    _given, _rules = named(sys.argv[1]), next(r for r in ALL_RULES if r.name == sys.argv[2])
    _found = solve(_given, _rules)
    print(f"{_given.name} {_rules.name}: unmet {_found.unmet}, bound {_found.bound:g}; {score(_given, _found.placed)}")
