"""240 runs of the world in which nobody plans."""

from __future__ import annotations

import pytest

from gridops.lab.options import draw_talk, written
from gridops.lab.run import run
from tests.lab.fresh import TALKS, seeds


@pytest.mark.parametrize("part", range(24))
def test_every_rule_holds(part: int) -> None:
    for seed in seeds(TALKS, 10, part):
        ran = run(draw_talk(seed))
        assert ran.broken is None, f"{ran.broken}\nfor tests/lab/seeds.txt: {written(ran.options)} | what was wrong"
