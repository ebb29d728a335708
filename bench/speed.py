"""The planner's yardsticks of speed: the table beside the earlier allocator, and how cost grows, as a plot.

    python -m bench.speed                      the table: CPU seconds of one plan, in process, after warm-up
    python -m bench.speed "half resident"      only the cases whose name has this in it
    python -m bench.speed --rounds 9           median of nine instead of five
    python -m bench.speed --profile CASE       where the time goes, function by function
    python -m bench.speed --grow FILE.svg      cost by hosts, profiles and replicas: a table, and the plot into the file

A number is the median CPU time of `planner.plan` alone, with Python's collector of garbage running as always. `ours` is
what a controller pays, which passes one `Recall` along from plan to plan; `first` is without one. `MiB` is the resident
size of the process at its largest; each case has a process of its own. `earlier` is the allocator that gridops
replaces; for 3,750 GPUs it is GPUStack, which takes so long for each single placement.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import multiprocessing
import os
import pstats
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor

from bench.speed_cases import CASES, Case, Round, sized
from bench.speed_plot import Line, svg

HEAD = (
    f"{'case':48} {'earlier':>8} {'wanted':>8} {'ours':>8} {'/wanted':>8} {'first':>8} "
    f"{'placed':>7} {'missing':>8} {'MiB':>6}"
)


def cpu_s(call: Callable[[], object]) -> float:
    gc.collect()
    started = time.process_time()
    call()
    return time.process_time() - started


def measure(case: Case, rounds: int, *, fresh: bool = False) -> tuple[float, Round]:
    """Median CPU seconds of the case's rounds after warm-up, and the last round with its plan."""
    run = case.begin(fresh=fresh)
    steps, times = [run.next() for _ in range(case.warm + rounds)], []
    for n, step in enumerate(steps):
        spent = cpu_s(step.plan)
        if n >= case.warm:
            times.append(spent)
    return statistics.median(times), steps[-1]


def line(case: Case, rounds: int) -> str:
    rounds = min(rounds, case.most_rounds)
    first, last = measure(case, rounds, fresh=True)
    spent = measure(case, rounds)[0] if case.warm else first
    whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    wanted = f"{case.wanted_s:8.3f}" if case.wanted_s else f"{'-':>8}"
    reached = f"{spent / case.wanted_s:8.2f}" if case.wanted_s else f"{'-':>8}"
    times = f"{wanted} {spent:8.4f} {reached} {first:8.4f}"
    counts = f"{len(last.made.placement):7d} {len(last.made.report.unplaced):8d}"
    return f"{case.name:48} {case.earlier:>8} {times} {counts} {whole:6d}"


def _named(name: str, rounds: int) -> str:
    """The line of a case, in a process of its own: what a larger one before it left would slow it down."""
    return line(next(case for case in CASES if case.name == name), rounds)


def table(cases: Sequence[Case], rounds: int) -> None:
    print(HEAD)
    alone = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=alone, max_tasks_per_child=1) as processes:
        for case in cases:
            print(processes.submit(_named, case.name, rounds).result(), flush=True)
    print(f"load average at the end: {', '.join(f'{part:.1f}' for part in os.getloadavg())}")


def profile(case: Case, *, fresh: bool) -> None:
    run = case.begin(fresh=fresh)
    for _ in range(case.warm):
        run.next().plan()
    step = run.next()
    found = cProfile.Profile()
    found.runcall(step.plan)
    pstats.Stats(found).sort_stats("tottime").print_stats(40)


def grow(file: str, rounds: int) -> None:
    """Double one of hosts, profiles and replicas while the others stay, cold and with one profile changed."""
    lines = []
    for name, sizes in sized().items():
        for label, cases in sizes.items():
            found = []
            for amount, case in cases:
                spent, _ = measure(case, rounds, fresh=label == "cold")
                found.append((amount, spent))
                print(f"{name:10} {label:22} {amount:8d} {spent * 1000:10.1f} ms", flush=True)
            lines.append(Line(name, label, tuple(found)))
    with open(file, "w", encoding="utf-8") as out:
        out.write(svg(lines))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="?", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", metavar="CASE")
    parser.add_argument("--fresh", action="store_true", help="with --profile: without a Recall")
    parser.add_argument("--grow", metavar="FILE")
    chosen = parser.parse_args(arguments)
    if chosen.grow is not None:
        grow(chosen.grow, chosen.rounds)
        return
    wanted = chosen.only if chosen.profile is None else chosen.profile
    cases = [c for c in CASES if wanted in c.name]
    if not cases:
        parser.error(f"no case has {wanted!r} in its name; there are {'; '.join(c.name for c in CASES)}")
    if chosen.profile is not None:
        profile(cases[0], fresh=chosen.fresh)
    else:
        table(cases, chosen.rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
