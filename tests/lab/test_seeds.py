"""Runs of the lab: committed seeds that once failed, a batch of others, one run twice, and what was seen at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gridops.lab.__main__ import main
from gridops.lab.options import Options, calm, draw
from gridops.lab.run import Ran, batch, run

SEEDS = Path(__file__).with_name("seeds.txt")
BATCH = range(1, 25)
"""Always the same, so that a change that breaks a rule is told from a new finding: `python -m gridops.lab` hunts."""


def told() -> list[tuple[int, str]]:
    """Seeds that once broke a rule, with one line of prose each."""
    lines = (line.split(None, 1) for line in SEEDS.read_text().splitlines() if line and not line.startswith("#"))
    return [(int(seed), prose) for seed, prose in lines]


def words(ran: Ran) -> str:
    return f"seed {ran.options.seed}: {ran.broken}\n{ran.options}\n" + "\n".join(ran.lines[-30:])


@pytest.mark.parametrize(("seed", "prose"), told(), ids=lambda v: str(v) if isinstance(v, int) else "")
def test_a_seed_that_once_failed_holds(seed: int, prose: str) -> None:
    ran = run(draw(seed))
    assert ran.broken is None, f"{prose}\n{words(ran)}"


def test_a_batch_holds_and_meets_what_a_batch_must_meet() -> None:
    runs = batch(BATCH)
    broken = [ran for ran in runs if ran.broken is not None]
    assert not broken, words(broken[0])
    seen = {name for ran in runs for name in ran.tally}
    assert {"stale_session", "replayed", "kept alive", "agent crash", "open intent at a start"} <= seen


def test_the_same_seed_is_the_same_run_under_another_hash_seed() -> None:
    print_ = "from gridops.lab.options import draw; from gridops.lab.run import run; print(run(draw(7)).fingerprint)"
    env = {**os.environ, "PYTHONHASHSEED": "4711"}
    there = subprocess.run([sys.executable, "-c", print_], env=env, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == run(draw(7)).fingerprint


def test_without_faults_everything_wanted_stands() -> None:
    ran = run(calm(Options(seed=1)))
    assert ran.broken is None, words(ran)
    assert any("of model-1/1" in line for line in ran.lines)


def test_the_way_in_runs_seeds_and_says_what_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["1", "2"]) == 0
    assert capsys.readouterr().out.startswith("2 seeds from 1 on: every rule held. Seen:\n")
    assert main(["many"]) == 2
    assert capsys.readouterr().err == "usage: python -m gridops.lab SEED [COUNT]\n"
