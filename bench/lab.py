"""How fast the lab is: CPU seconds a seed of both worlds, and seeds a second on one core and on two.

    python -m bench.lab                        both worlds, 60 seeds each
    python -m bench.lab talk --seeds 200       only the world in which nobody plans
    python -m bench.lab --code DIR             another checkout beside: the same seeds by turns, ratios, and whether
                                               each trace is the same to the byte

A seed differs from the next one by a factor of ten, so the mean is what a batch costs and the median what a seed does.
`a core` is one divided by the mean. `two` is measured: two processes side by side, seeds over the time on the wall.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORLDS = ("talk", "full")
HERE = Path(__file__).resolve().parents[1]
TURN = 10
"""So many seeds of one checkout, then as many of the other: whoever else uses the machine slows both."""


@dataclass(frozen=True, slots=True)
class Seed:
    """What one seed came to."""

    cpu_s: float
    fingerprint: str
    steps: int
    broken: str | None


class Runner:
    """A process that runs seeds of one checkout's lab; it waits until it is told to begin."""

    def __init__(self, code: Path, world: str, first: int, count: int) -> None:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(code), str(code / "agent")))}
        program = [sys.executable, "-P", str(HERE / "bench" / "lab_seeds.py"), world, str(first), str(count)]
        self._process = subprocess.Popen(program, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._said()

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def results(self, count: int) -> list[Seed]:
        found = [Seed(*self._said()) for _ in range(count)]
        self._process.communicate()
        return found

    def _said(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def measured(codes: Sequence[Path], world: str, first: int, count: int) -> list[list[Seed]]:
    """The same seeds of each checkout, by turns."""
    found: list[list[Seed]] = [[] for _ in codes]
    for start in range(first, first + count, TURN):
        many = min(TURN, first + count - start)
        for mine, code in zip(found, codes, strict=True):
            runner = Runner(code, world, start, many)
            runner.begin()
            mine.extend(runner.results(many))
    return found


def on_two(code: Path, world: str, first: int, count: int) -> float:
    """Seeds a second of two processes side by side."""
    runners = [Runner(code, world, first + part * count, count) for part in range(2)]
    began = time.monotonic()
    for runner in runners:
        runner.begin()
    for runner in runners:
        runner.results(count)
    return 2 * count / (time.monotonic() - began)


def line(name: str, found: Sequence[Seed], two: float | None) -> str:
    times = [seed.cpu_s for seed in found]
    mean = statistics.mean(times)
    broken = sum(seed.broken is not None for seed in found)
    both = f"{two:8.2f}" if two is not None else f"{'-':>8}"
    steps = sum(seed.steps for seed in found) // len(found)
    return (
        f"{name:24} {len(times):6} {statistics.median(times):8.3f} {mean:8.3f} {max(times):8.3f} {1 / mean:8.2f} "
        f"{both} {steps:7} {broken:7}"
    )


def beside(mine: Sequence[Seed], other: Sequence[Seed]) -> str:
    """How much of the other's time it takes, for runs in which the same happened: a world may have grown."""
    pairs = list(zip(mine, other, strict=True))
    same = [(one.cpu_s, two.cpu_s) for one, two in pairs if one.fingerprint == two.fingerprint]
    if not same:
        return "no trace is the same as the other's"
    whole = sum(one for one, _ in same) / sum(two for _, two in same)
    middle = statistics.median(one / two for one, two in same)
    words = f"{whole:.2f} of the other's CPU time in all, {middle:.2f} in the median"
    return f"{words}, where the trace is the same: {len(same)} of {len(pairs)}"


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="bench.lab", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("world", nargs="*", choices=[*WORLDS, []], help="talk or full; both when none is named")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--code", type=Path, help="another checkout, measured by turns with this one")
    parser.add_argument("--one", action="store_true", help="leave out the measurement of two processes")
    chosen = parser.parse_args(words)
    codes = [HERE] if chosen.code is None else [HERE, chosen.code.resolve()]
    print(f"{'CPU seconds a seed':24} {'seeds':>6} {'median':>8} {'mean':>8} {'most':>8} {'a core':>8} {'two':>8} "
          f"{'steps':>7} {'broken':>7}")  # fmt: skip
    for world in chosen.world or WORLDS:
        found = measured(codes, world, chosen.first, chosen.seeds)
        for code, mine in zip(codes, found, strict=True):
            name = world if code == HERE else f"{world}, {code.name}"
            two = None if chosen.one else on_two(code, world, chosen.first, max(chosen.seeds // 2, 1))
            print(line(name, mine, two), flush=True)
        if len(found) == 2:
            print(f"{world}: {beside(*found)}")
    print(f"load average at the end: {', '.join(f'{part:.1f}' for part in os.getloadavg())}")


if __name__ == "__main__":
    main(sys.argv[1:])
