"""How long the files of a repository take: the whole of `check`, its parts, and the command as people call it.

Aims: 500 files with 14,000 lines in half a second, 10,000 hosts in one repository in five.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.bench_start import CLI, ROUNDS, bare_seconds
from bench.fleets import fleet, lines
from gridops.files.fmt import format_text
from gridops.files.load import check
from gridops.files.tree import MemoryTree, WorkingTree
from gridops.files.yamlish import parse


@pytest.fixture(scope="module")
def five_hundred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _on_disk(fleet(hosts=120, profiles=486), tmp_path_factory.mktemp("five-hundred"))


@pytest.fixture(scope="module")
def ten_thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _on_disk(fleet(hosts=10_000, profiles=20), tmp_path_factory.mktemp("ten-thousand"))


def _on_disk(files: dict[str, str], root: Path) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


def bench_five_hundred_files_are_checked(benchmark: BenchmarkFixture, five_hundred: Path) -> None:
    checked = benchmark(lambda: check(WorkingTree(five_hundred)))
    benchmark.extra_info["files"] = checked.files
    assert checked.problems == ()
    assert checked.files == 500


def bench_five_hundred_files_are_validated_by_the_command(benchmark: BenchmarkFixture, five_hundred: Path) -> None:
    def call() -> int:
        done = subprocess.run([*CLI, "-C", str(five_hundred), "validate", "-q"], check=False, capture_output=True)
        return done.returncode

    assert benchmark.pedantic(call, rounds=ROUNDS, warmup_rounds=1) == 0
    benchmark.extra_info["bare_ms"] = round(bare_seconds() * 1000)


def bench_ten_thousand_hosts_are_checked(benchmark: BenchmarkFixture, ten_thousand: Path) -> None:
    checked = benchmark.pedantic(lambda: check(WorkingTree(ten_thousand)), rounds=2, warmup_rounds=1)
    assert checked.intent is not None
    assert len(checked.intent.desired.hosts) == 10_000


def bench_fourteen_thousand_lines_are_parsed(benchmark: BenchmarkFixture) -> None:
    files = {path: text.encode() for path, text in fleet(hosts=120, profiles=486).items()}
    benchmark.extra_info["lines"] = lines(fleet(hosts=120, profiles=486))
    assert benchmark(lambda: all(parse(path, raw).root is not None for path, raw in files.items()))


def bench_five_hundred_files_are_formatted(benchmark: BenchmarkFixture) -> None:
    files = {path: text.encode() for path, text in fleet(hosts=120, profiles=486).items()}
    made = benchmark.pedantic(lambda: [format_text(p, raw) for p, raw in files.items()], rounds=2)
    assert not any(f.problems or f.kept for f in made)


def bench_one_syntax_error_in_a_large_repository_is_found(benchmark: BenchmarkFixture) -> None:
    files = fleet(hosts=120, profiles=486)
    files["policies/mode.yaml"] += "broken: [\n"
    assert benchmark(lambda: check(MemoryTree(files))).errors == 1
