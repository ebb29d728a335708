"""60 runs of whole fleets."""

from __future__ import annotations

import pytest

from gridops.lab.options import draw
from gridops.lab.run import run
from tests.lab.fresh import FLEETS, seeds, told


@pytest.mark.parametrize("part", range(12))
def test_every_rule_holds(part: int) -> None:
    for seed in seeds(FLEETS, 5, part):
        ran = run(draw(seed))
        assert ran.broken is None, told(ran)
