"""Zone rules read from the machine's database say what the database says."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from gridops.base.windows import DAY, minute_of_week
from gridops.disk.zones import FIRST_S, has_database, rules_of, zone_rules

ZONES = (
    "UTC", "Europe/Paris", "America/New_York", "Africa/Casablanca", "Asia/Kathmandu", "Australia/Lord_Howe",
)  # fmt: skip


@pytest.mark.parametrize("name", ZONES)
def test_the_wall_clock_is_that_of_the_database(name: str) -> None:
    """Some 12,000 moments over twenty years, and the seconds around every change."""
    rules, zone = zone_rules(name), ZoneInfo(name)
    assert rules is not None
    around = [at // 1000 + shift for at, _ in rules.changes[1:40] for shift in (-1, 0, 1)]
    for at_s in (*range(FIRST_S, FIRST_S + 630_000_000, 52_361), *around):
        there = datetime.fromtimestamp(at_s, tz=zone)
        assert minute_of_week(at_s * 1000, rules) == there.weekday() * DAY + there.hour * 60 + there.minute


def test_a_zone_that_nobody_knows_has_no_rules() -> None:
    assert zone_rules("Nowhere/City") is None
    assert zone_rules("../../etc/passwd") is None
    assert rules_of(["Nowhere/City", "UTC"]).keys() == {"UTC"}
    assert has_database()
