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
from tests.lab.fresh import FLEETS, TALKS, again, seeds, told

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("part", range(24))
def test_every_rule_holds(part: int) -> None:
    for seed in seeds(TALKS, 10, part):
        ran = run(draw_talk(seed))
        assert ran.broken is None, told(ran)


def asked_for(batch: str, at: Path = ROOT) -> str:
    code = "from tests.lab.fresh import FLEETS, TALKS, header, seeds"
    code += "; print(header(), seeds(TALKS, 5, 1), seeds(FLEETS, 5, 1))"
    env = {**os.environ, "GRIDOPS_LAB_BATCH": batch, "GIT_DIR": str(at / ".git")}
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def held(first: int) -> str:
    return str(range(first + 5, first + 10))


def test_a_batch_is_played_again_by_its_number() -> None:
    new = range(1_004_711_005, 1_004_711_010)
    words = "lab: batch 4711, 300 new seeds (the same ones again: GRIDOPS_LAB_BATCH=4711)"
    assert asked_for("4711") == f"{words} {new} {new}"


def test_the_batch_of_a_commit_is_named_by_its_tree_and_is_run_unless_another_is_asked_for() -> None:
    git = ["git", "rev-parse", "HEAD^{tree}"]
    tree = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    number = int(tree[:12], 16) % 1_000_000
    assert asked_for("") == asked_for("commit") == asked_for(str(number))


def test_what_holds_is_run_where_that_is_asked_for_and_where_there_is_no_git(tmp_path: Path) -> None:
    for batch, at in (("held", ROOT), ("", tmp_path)):
        said = asked_for(batch, at)
        assert said.startswith("lab: the 300 seeds that hold")
        assert said.endswith(f"{held(TALKS)} {held(FLEETS)}")


def test_what_is_said_of_a_seed_that_breaks_is_a_command_that_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(draw_talk(3), 50)
    assert again(ran.options) in told(ran)
    line = again(ran.options).split('"')[1]
    assert line == written(ran.options)
    assert main(["--line", line, "--until", "50"]) == 0
    assert ran.lines[-1] in capsys.readouterr().out
