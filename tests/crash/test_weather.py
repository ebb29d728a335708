"""A quarter of a minute of bad weather between the processes; `soak_weather.py` has ten minutes."""

from __future__ import annotations

from pathlib import Path

from tests.crash.between import HONEST
from tests.crash.weather import FEWEST, blown


def test_whoever_stands_between_them_doubles_nothing_and_loses_nothing(tmp_path: Path) -> None:
    done, _ = blown(tmp_path, 12.0, 3)
    assert done.total() - done[HONEST] >= FEWEST, done
