"""What a plan is worth when the world is not as planned for: more demand, slower loads, a failure domain gone.

    python -m bench.robust                        24 instances of 16 hosts x 8 models, beside the exact optimum
    python -m bench.robust --size 64x32 --seeds 3 --alone

The plan stands as it is and is scored again. A wanted replica carries `UTILISATION` of what one can carry, so that
demand can grow before it is lost; lost demand is weighed and given in percent of all that is asked. `dark` counts
models that ran and have no replica left. Loads on a host follow each other; `last` is when the last host is done.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from bench.optimum import TIGHTNESS, names, run
from bench.yard.instance import FIXED_START_S, Instance, Pair, named

UTILISATION = 0.7
"""Of a wanted replica: what profiles plan for by default."""
MORE = 1.5
"""How much more demand, and how much longer a load takes, than planned for."""


@dataclass(frozen=True)
class Worth:
    """Percentages of weighted demand; seconds of loading."""

    lost: float
    lost_more: float
    """At MORE times the demand."""
    lost_domain: float
    """With the worst failure domain gone."""
    lost_domain_mean: float
    lost_both: float
    """At MORE times the demand, with the worst failure domain gone."""
    dark: int
    """Models without any replica left when the worst domain for that is gone."""
    start_s: float
    start_more_s: float
    last_s: float
    last_more_s: float


def worth(given: Instance, placed: AbstractSet[Pair]) -> Worth:
    """The placement in the planned world and in the worse ones."""
    domains = sorted({m.domain for m in given.machines})
    left = [frozenset(p for p in placed if given.machines[p[1]].domain != d) for d in domains]
    gone = [lost(given, rest) for rest in left]
    standing = {m for m, _ in placed}
    return Worth(
        lost=lost(given, placed),
        lost_more=lost(given, placed, MORE),
        lost_domain=max(gone),
        lost_domain_mean=statistics.fmean(gone),
        lost_both=max(lost(given, rest, MORE) for rest in left),
        dark=max(len(standing - {m for m, _ in rest}) for rest in left),
        start_s=sum(loads(given, placed).values()),
        start_more_s=sum(loads(given, placed, MORE).values()),
        last_s=max(loads(given, placed).values(), default=0.0),
        last_more_s=max(loads(given, placed, MORE).values(), default=0.0),
    )


def lost(given: Instance, placed: AbstractSet[Pair], demand: float = 1.0) -> float:
    """Percent of the weighted demand that the replicas cannot carry."""
    missing = asked = 0.0
    for number, model in enumerate(given.models):
        wanted = demand * UTILISATION * model.replicas
        there = sum(1 for m, _ in placed if m == number)
        missing += model.weight * max(0.0, wanted - there)
        asked += model.weight * wanted
    return 100 * missing / asked


def loads(given: Instance, placed: AbstractSet[Pair], slower: float = 1.0) -> dict[int, float]:
    """Seconds that each host loads, one model after the other."""
    found: dict[int, float] = {}
    for pair in sorted(set(placed) - given.current):
        seconds = (given.start_s(pair) - FIXED_START_S) * slower + FIXED_START_S
        found[pair[1]] = found.get(pair[1], 0.0) + seconds
    return found


HEAD = (
    "                             lost %  demand x1.5  domain gone (mean)   both  dark  start s   x1.5  last s   x1.5"
)


def line(title: str, w: Worth) -> str:
    return (
        f"{title:28} {w.lost:6.2f} {w.lost_more:12.2f} {w.lost_domain:12.2f} {f'({w.lost_domain_mean:.2f})':>7} "
        f"{w.lost_both:6.2f} {w.dark:5} {w.start_s:8.1f} {w.start_more_s:6.1f} {w.last_s:7.1f} {w.last_more_s:6.1f}"
    )


def mean(found: Sequence[Worth]) -> Worth:
    values = {name: statistics.fmean(getattr(w, name) for w in found) for name in Worth.__dataclass_fields__}
    return Worth(**{**values, "dark": max(w.dark for w in found)})  # type: ignore[arg-type]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="16x8")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--tight", type=float, nargs="+", default=list(TIGHTNESS))
    parser.add_argument("--alone", action="store_true", help="without the exact optimum, which takes long when large")
    chosen = parser.parse_args(arguments)
    ours: list[Worth] = []
    best: list[Worth] = []
    print(HEAD)
    for name in names(chosen.size, range(chosen.seeds), chosen.tight):
        one = run(named(name))
        ours.append(worth(one.question.given, one.question.placed(one.plan) & one.question.given.allowed))
        print(line(f"{name} plan", ours[-1]), flush=True)
        if not chosen.alone:
            from bench.yard import exact

            best.append(worth(one.question.given, exact.solve(one.question.given).placed))
            print(line(f"{name} optimum", best[-1]), flush=True)
    print(line("mean plan (most dark)", mean(ours)))
    if best:
        print(line("mean optimum (most dark)", mean(best)))


if __name__ == "__main__":
    main(sys.argv[1:])
