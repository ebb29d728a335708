"""openb: how full a GPU cluster gets when pods arrive one by one, beside BestFit and FGD in the same setting.

    python -m bench.openb                      BestFit, FGD and gridops on all hosts
    python -m bench.openb --departures         stays end as recorded, in three settings

Departures: on all hosts nobody is ever turned away, because the trace holds few of those who were there at once. So the
same times also meet as many hosts, drawn by chance, as make demand peak at 130 % of their GPUs; and on all hosts
everybody comes with a double and stays longer, until demand peaks at 130 %. A few long stays are most of the GPU-time.

Pods come in the order of the list, and from its beginning again, until 130 % of all GPUs have been asked for; whoever
finds no seat is turned away for good. `--shuffled` mixes them as the published experiments do. gridops does not model
CPU cores, so the published policies run with and without them. Ties are broken by host names; ten permutations of the
names give a mean and its 95 % interval.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.yard.cluster import (
    ARRIVALS,
    LISTS,
    Cluster,
    Pod,
    Policy,
    arrivals,
    fill,
    machines,
    peak_of,
    pods,
    stretch_to,
    total_gpu,
    turn_over,
    twice,
)
from bench.yard.opened import Classes
from bench.yard.published import FGD, BestFit

STUDENT_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Student's t for the mean of so many runs."""
Maker = Callable[[Sequence[int], str], Policy]

POLICIES: dict[str, Maker] = {
    "BestFit": lambda order, name: BestFit(Cluster(order)),
    "FGD": lambda order, name: FGD(Cluster(order), pods(name)),
    "BestFit without CPU": lambda order, name: BestFit(Cluster(order, with_cpu=False)),
    "FGD without CPU": lambda order, name: FGD(Cluster(order, with_cpu=False), pods(name)),
    "gridops": lambda order, name: Classes(order, pods(name)),
}


@dataclass(frozen=True)
class Setting:
    hosts: tuple[int, ...]
    name: str
    permutations: int
    shuffled: int | None = None

    @property
    def total(self) -> int:
        return total_gpu(self.hosts)

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The list; for a sample of hosts the same share of it, at equal distances, because its order has a grain."""
        listed = pods(self.name)
        count = len(listed) * len(self.hosts) // len(machines())
        return tuple(listed[n * len(listed) // count] for n in range(count))

    @property
    def arrivals(self) -> list[Pod]:
        return arrivals(self.pods, self.total, self.shuffled)

    def orders(self) -> list[list[int]]:
        """The same hosts under other names."""
        found = []
        for seed in range(self.permutations):
            order = list(self.hosts)
            random.Random(seed).shuffle(order)
            found.append(order)
        return found


def sample(size: int) -> tuple[int, ...]:
    """Hosts at equal distances in the list, which is sorted by kind. 0: all."""
    every = len(machines())
    return tuple(range(every)) if size == 0 else tuple(n * every // size for n in range(size))


def mean(values: Sequence[float]) -> str:
    """`95.12 +- 0.10`: the mean and half its 95 % interval."""
    if len(values) < 2:
        return f"{values[0]:.2f}"
    half = STUDENT_95[len(values)] * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.fmean(values):.2f} ± {half:.2f}"


def arrival_row(policy: str, setting: Setting) -> str:
    given = setting.arrivals
    began = time.process_time()
    found = [fill(POLICIES[policy](order, setting.name), given, setting.total) for order in setting.orders()]
    cpu_s = (time.process_time() - began) / len(found)
    return f"{mean(found):>16} % {len(found):4} runs of {len(given)} pods, {cpu_s:.1f} CPU s each"


def few(listed: Sequence[Pod], seed: int) -> list[int]:
    """Hosts drawn by chance, as long as demand at its recorded peak is at least ARRIVALS of their GPUs."""
    order, peak = list(sample(0)), peak_of(listed)
    random.Random(seed).shuffle(order)
    count = next(n for n in range(1, len(order)) if ARRIVALS * total_gpu(order[: n + 1]) > peak)
    return order[:count]


def departure_row(
    policy: str, name: str, orders: Sequence[Sequence[int]], given: Sequence[Pod], stretch: float = 1.0
) -> str:
    runs = [turn_over(POLICIES[policy](order, name), given, total_gpu(order), stretch) for order in orders]
    served = mean([r.served_percent for r in runs])
    refused = statistics.fmean(r.refused for r in runs)
    peak = mean([r.peak_percent for r in runs])
    return f"{served:>16} % of GPU-time served, {refused:.0f} turned away, {peak} % at most"


def table(chosen: argparse.Namespace) -> None:
    for name in chosen.lists:
        for policy in chosen.policies:
            size = chosen.hosts if policy == "gridops" or chosen.same else 0
            setting = Setting(sample(size), name, chosen.permutations, chosen.shuffled)
            title = f"{name:11} {policy:20}"
            if not chosen.departures:
                print(f"{title} {len(setting.hosts):5} hosts", arrival_row(policy, setting), flush=True)
            elif setting.pods[-1].gone:
                departures(title, policy, setting)


def departures(title: str, policy: str, setting: Setting) -> None:
    """The three settings of stays that end."""
    small = [few(pods(setting.name), seed) for seed in range(setting.permutations)]
    crowd = twice(setting.pods)
    longer = stretch_to(crowd, setting.total)
    name, orders, hosts = setting.name, setting.orders(), f"{len(setting.hosts)} hosts"
    print(title, departure_row(policy, name, orders, setting.pods), f"({hosts}, as recorded)", flush=True)
    some = f"{min(map(len, small))}-{max(map(len, small))} hosts"
    print(title, departure_row(policy, name, small, pods(name)), f"({some}, as recorded)", flush=True)
    print(
        title,
        departure_row(policy, name, orders, crowd, longer),
        f"({hosts}, twice, stays x {longer:.1f})",
        flush=True,
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", nargs="+", default=list(LISTS), choices=LISTS)
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=list(POLICIES))
    parser.add_argument("--permutations", type=int, default=10, choices=range(1, 11))
    parser.add_argument("--hosts", type=int, default=0, help="sample for gridops; 0: all")
    parser.add_argument("--same", action="store_true", help="the published policies on the sample as well")
    parser.add_argument("--shuffled", type=int, metavar="SEED", help="mix the list")
    parser.add_argument("--departures", action="store_true")
    table(parser.parse_args(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
