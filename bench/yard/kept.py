"""Optima found once and kept: `optima.json` beside this file, so that a bench run needs no solver and no minutes.

An entry is named by instance and rules and says which solver gave it, with its bound where nothing was proven. The
tests solve a few afresh and compare. Called by bench/optimum.py and tests/planner/test_yardsticks.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("optima.json")


@dataclass(frozen=True)
class Optimum:
    """`unmet` is the best known, `bound` what none can be below. `start_s` belongs to that unmet weight."""

    unmet: float
    bound: float
    start_s: float | None
    start_bound: float | None
    dropped: float | None
    seconds: float
    solver: str

    @property
    def proven(self) -> bool:
        return self.unmet - self.bound < 0.5  # weights are whole numbers


def load() -> dict[str, Optimum]:
    """Everything kept, by `<instance> <rules>`."""
    if not FILE.exists():
        return {}
    return {name: Optimum(**entry) for name, entry in json.loads(FILE.read_text(encoding="utf-8")).items()}


def save(kept: dict[str, Optimum]) -> None:
    """One entry a line, sorted, so that a change is one line of a diff."""
    rows = [f"  {json.dumps(name)}: {json.dumps(vars(kept[name]))}" for name in sorted(kept)]
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def find(names: Sequence[str], rules: str, limits: tuple[float, ...], threads: int = 1) -> dict[str, Optimum]:
    """Solve what is not kept yet, keeping each as soon as it is there."""
    from bench.yard import exact
    from bench.yard.instance import named

    wanted = next(r for r in exact.ALL_RULES if r.name == rules)
    for name in names:
        key = f"{name} {rules}"
        if key in load():
            continue
        answer = exact.solve(named(name), wanted, limits=limits, threads=threads)
        if not answer.stages:
            continue
        first, *rest = answer.stages
        found = Optimum(
            unmet=first.value,
            bound=first.bound,
            start_s=rest[0].value if rest else None,
            start_bound=rest[0].bound if rest else None,
            dropped=rest[1].value if len(rest) > 1 else None,
            seconds=round(sum(s.seconds for s in answer.stages), 2),
            solver=exact.version(),
        )
        save(load() | {key: found})
    return load()
