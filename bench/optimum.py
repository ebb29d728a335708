"""How far plans are from the exact optimum: one line per instance, with counts of work and the rules' own price.

    python -m bench.optimum                            24 instances of 16 hosts x 8 models
    python -m bench.optimum --size 64x32 --seeds 3     larger ones; 256x64 likewise
    python -m bench.optimum --size 64x32 --solve 60    find and keep what is not kept yet, 60 s a stage

`unmet` is the weight of wanted replicas that do not stand (or stand against the failure-domain rule). The gap is to the
optimum, or to its bound where nobody has proven one, in percent of the total weight. `rules` is what the optimum loses
when it must keep gridops' rules: the last replica of a profile stays, and only lower priority makes way. `ended` counts
profiles whose last replica the plan gave up all the same, which must be none.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.yard import kept
from bench.yard.instance import Instance, named
from bench.yard.judge import Score, score
from bench.yard.translate import Question, ask
from gridops.model.plan import Plan
from gridops.model.policy import PlanningPolicy, Search
from gridops.planner.check import check
from gridops.planner.planner import plan

TIGHTNESS = (0.7, 1.0, 1.3)
HEAD = (
    "instance            weight  unmet  optimum    (bound)  gap %   gap' %  rules  start s  (best)   crowded  dropped  "
    "ended  evaluated   CPU s"
)


@dataclass(frozen=True)
class Run:
    """One plan with its verdict."""

    question: Question
    plan: Plan
    score: Score
    cpu_s: float


def run(given: Instance, planning: PlanningPolicy | None = None) -> Run:
    """Plan the instance, check the plan and judge it."""
    question = ask(given, planning)
    began = time.process_time()
    made = plan(question.inputs)
    cpu_s = time.process_time() - began
    notes = check(made, question.inputs)
    if notes:
        raise AssertionError(f"{given.name}: the plan breaks a rule: {notes[0]}")
    return Run(question, made, score(given, question.placed(made)), cpu_s)


def gap_percent(given: Instance, unmet: float, best: float) -> float:
    """How much weight is lost, of all that is wanted."""
    return 100 * (unmet - best) / given.total_weight


def names(size: str, seeds: Sequence[int], tightness: Sequence[float] = TIGHTNESS) -> list[str]:
    return [f"{size}@{t:g}#{seed}" for t in tightness for seed in seeds]


def line(one: Run, optima: dict[str, kept.Optimum]) -> tuple[str, float | None]:
    """The row, and the gap to the optimum under the same rules (None: nothing known)."""
    given, mine = one.question.given, one.score
    plain, ruled = optima.get(f"{given.name} plain"), optima.get(f"{given.name} both")
    gap = gap_percent(given, mine.unmet, plain.bound) if plain else None
    own = gap_percent(given, mine.unmet, ruled.bound) if ruled else None
    price = ruled.bound - plain.bound if plain and ruled else None
    best = ruled or plain
    cells = (
        f"{given.name:18}",
        f"{given.total_weight:7}",
        f"{mine.unmet:6}",
        f"{plain.unmet:8.0f}" if plain else "       ?",
        f"{'' if plain is None or plain.proven else f'({plain.bound:.1f})':>10}",
        f"{gap:6.2f}" if gap is not None else "     ?",
        f"{own:8.2f}" if own is not None else "       ?",
        f"{price:6.1f}" if price is not None else "     ?",
        f"{mine.start_s:8.1f}",
        f"{f'({best.start_s:.1f})' if best and best.start_s is not None else '':>9}",
        f"{mine.crowded:6}",
        f"{mine.dropped:8}",
        f"{mine.ended:6}",
        f"{one.plan.planner.evaluated:11}",
        f"{one.cpu_s:8.3f}",
    )
    return " ".join(cells), own if own is not None else gap


def table(wanted: Sequence[str], planning: PlanningPolicy | None = None) -> None:
    optima, gaps = kept.load(), []
    print(HEAD)
    for name in wanted:
        text, gap = line(run(named(name), planning), optima)
        gaps += [gap] if gap is not None else []
        print(text, flush=True)
    if gaps:
        print(
            f"{len(gaps)} compared: mean gap {sum(gaps) / len(gaps):.2f} %, worst {max(gaps):.2f} %, "
            f"within 1 %: {sum(g <= 1 for g in gaps)}, equal: {sum(g < 1e-9 for g in gaps)} "
            "(gap', to the optimum under gridops' rules, where it is known)"
        )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="16x8", help="hosts x models: 16x8, 64x32, 256x64")
    parser.add_argument("--seeds", type=int, default=None, help="how many, from 0 (16x8: 8, else 3)")
    parser.add_argument("--tight", type=float, nargs="+", default=list(TIGHTNESS))
    parser.add_argument("--solve", type=float, metavar="SECONDS", help="solve what is not kept, so long per stage")
    parser.add_argument("--rules", nargs="+", default=["plain", "both"], help="plain, last, displace, both")
    parser.add_argument("--stages", type=int, default=3, help="how many stages to solve")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--moves", type=int, help="planning.search.moves instead of the default")
    chosen = parser.parse_args(arguments)
    seeds = chosen.seeds if chosen.seeds is not None else 8 if chosen.size == "16x8" else 3
    wanted = names(chosen.size, range(seeds), chosen.tight)
    if chosen.solve is not None:
        for rules in chosen.rules:
            kept.find(wanted, rules, (chosen.solve,) * chosen.stages, chosen.threads)
    planning = PlanningPolicy()
    if chosen.moves is not None:
        planning = replace(planning, search=Search(moves=chosen.moves))
    table(wanted, planning)


if __name__ == "__main__":
    main(sys.argv[1:])
