"""240 runs of the world in which nobody plans; and how a batch is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gridops.lab.__main__ import main
from gridops.lab.options import draw_talk, written
from gridops.lab.run import run
from tests.lab.fresh import TALKS, again, seeds, told

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("part", range(24))
def test_every_rule_holds(part: int) -> None:
    for seed in seeds(TALKS, 10, part):
        ran = run(draw_talk(seed))
        assert ran.broken is None, told(ran)


def asked_for(batch: str) -> str:
    code = "from tests.lab.fresh import header, seeds; print(header(), seeds(7, 5, 1))"
    env = {**os.environ, "GRIDOPS_LAB_BATCH": batch}
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_a_batch_is_played_again_by_its_number() -> None:
    first = 1_004_711_005
    assert asked_for("4711") == (
        f"lab: batch 4711 of 300 new seeds (the same ones again: GRIDOPS_LAB_BATCH=4711) range({first}, {first + 5})"
    )
    assert asked_for("").endswith(" range(12, 17)")


def test_the_batch_of_a_commit_is_named_by_its_tree() -> None:
    git = ["git", "rev-parse", "HEAD^{tree}"]
    tree = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert asked_for("commit") == asked_for(str(int(tree[:12], 16) % 1_000_000))


def test_what_is_said_of_a_seed_that_breaks_is_a_command_that_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(draw_talk(3), 50)
    assert again(ran.options) in told(ran)
    line = again(ran.options).split('"')[1]
    assert line == written(ran.options)
    assert main(["--line", line, "--until", "50"]) == 0
    assert ran.lines[-1] in capsys.readouterr().out
