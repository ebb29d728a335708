"""The table of constants is complete: every number has one row, and each row says what the number does."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from gridops.model.forecast import Evidence
from gridops.planner import constants, constants_room, pressure, sizing
from tests.planner.fleet import NOW
from tests.planner.test_targets_forecast import entry, expect, planned, standing, wanted, wide


@pytest.mark.parametrize("where", [constants, constants_room], ids=["constants", "constants_room"])
def test_every_constant_has_one_row_with_its_value(where: ModuleType) -> None:
    numbers = {n: v for n, v in vars(where).items() if n.isupper() and isinstance(v, int)}
    assert {row.name: row.value for row in where.TABLE} == numbers
    assert len(where.TABLE) == len(numbers)


def test_every_row_says_unit_source_and_what_twice_and_half_would_change() -> None:
    for row in (*constants.TABLE, *constants_room.TABLE):
        assert row.value > 0
        assert all((row.unit, row.source, row.doubled, row.halved, row.measured)), row.name
        assert row.doubled != row.halved, row.name


SWINGS: dict[str, tuple[Any, dict[str, Any], int, tuple[int, int, int]]] = {
    "LATENCY_PRESSURE_PPM": (pressure, {"lanes": 4.6, "p95_ms": 20_000}, 0, (2, 4, 8)),
    "ERROR_PRESSURE_PPM": (pressure, {"lanes": 9.2, "error_ppm": 1_000_000}, 0, (5, 6, 8)),
    "ERROR_NOTICED_PPM": (pressure, {"lanes": 0.1, "error_ppm": 10_000}, 0, (2, 2, 1)),
    "WEAK_CONFIDENCE_PPM": (
        sizing,
        {"lanes": 9, "evidence": Evidence.AUTHORISED, "confidence_ppm": 600_000},
        0,
        (4, 4, 1),
    ),
    "FORECAST_VALID_MS": (pressure, {"lanes": 9}, 200_000, (1, 4, 4)),
}


@pytest.mark.parametrize("name", SWINGS)
def test_half_and_twice_change_what_the_table_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas at half, at the value, and at twice. The rows of the table speak of these."""
    room, demand, age, expected = SWINGS[name]
    value, fleet = getattr(constants, name), standing(wide(1, 9))
    found = []
    for changed in (value // 2, value, value * 2):
        monkeypatch.setattr(room, name, changed)
        found.append(wanted(planned(fleet, expect(entry(**demand), made=NOW - age))))
    assert tuple(found) == expected
