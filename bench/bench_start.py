"""How long `gridops --version` takes over a bare interpreter, and a few commands that people wait for.

The aim is 100 ms over bare Python. `extra_info` holds the ratio and the slowest imports.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

ROOT = Path(__file__).resolve().parent.parent
CLI = (sys.executable, "-c", "from gridops.cli.entry import main; main()")
ROUNDS = 10


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """One process, its output kept."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def bare_seconds() -> float:
    """The median of an interpreter that does nothing."""
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        run([sys.executable, "-c", "pass"])
        taken.append(time.perf_counter() - began)
    return sorted(taken)[ROUNDS // 2]


def slowest_imports(count: int = 8) -> list[str]:
    """Modules by their own import time, most expensive first."""
    done = run([sys.executable, "-X", "importtime", *CLI[1:], "--version"])
    rows = []
    for line in done.stderr.splitlines():
        own, _, rest = line.removeprefix("import time:").partition("|")
        if own.strip().isdigit():
            rows.append((int(own), rest.split("|")[-1].strip()))
    return [f"{name} {own / 1000:.1f} ms" for own, name in sorted(rows, reverse=True)[:count]]


def bench_bare_python(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(run, ([sys.executable, "-c", "pass"],), rounds=ROUNDS)


def bench_version(benchmark: BenchmarkFixture) -> None:
    done = benchmark.pedantic(run, ([*CLI, "--version"],), rounds=ROUNDS)
    assert done.returncode == 0, done.stderr
    bare = bare_seconds()
    benchmark.extra_info["bare_ms"] = round(bare * 1000)
    benchmark.extra_info["over_bare_ms"] = round((benchmark.stats.stats.median - bare) * 1000)
    benchmark.extra_info["ratio"] = round(benchmark.stats.stats.median / bare, 1)
    benchmark.extra_info["slowest_imports"] = slowest_imports()


@pytest.mark.parametrize("command", [("--help",), ("validate",), ("plan",)], ids=" ".join)
def bench_command(benchmark: BenchmarkFixture, command: tuple[str, ...]) -> None:
    """This repository's own example fleet."""
    done = benchmark.pedantic(run, ([*CLI, *command],), rounds=3)
    assert done.returncode != 70, done.stderr
