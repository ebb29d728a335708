"""The table of constants is complete: every number has one row, and each row says what the number does."""

from __future__ import annotations

from gridops.planner import constants
from gridops.planner.constants import TABLE


def test_every_constant_has_one_row_with_its_value() -> None:
    numbers = {n: v for n, v in vars(constants).items() if n.isupper() and isinstance(v, int)}
    assert {row.name: row.value for row in TABLE} == numbers
    assert len(TABLE) == len(numbers)


def test_every_row_says_unit_source_and_what_twice_and_half_would_change() -> None:
    for row in TABLE:
        assert row.value > 0
        assert all((row.unit, row.source, row.doubled, row.halved)), row.name
        assert row.doubled != row.halved, row.name
