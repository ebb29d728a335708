"""Windows of the week: the grammar, both forms, and every edge of a span."""

from __future__ import annotations

import pytest

from gridops.base.units import parse_instant
from gridops.planner.windows import active, holds, parse_window

WEEKEND = "Fri 15:00 - Mon 06:00 Europe/Paris"
OFFICE = "Mon-Fri 08:00-18:00 Europe/Paris"
MOMENTS = {
    # 2026-11-29 is a Sunday; Paris is an hour east of UTC then.
    (WEEKEND, "2026-11-27T13:59:59Z"): False,
    (WEEKEND, "2026-11-27T14:00:00Z"): True,
    (WEEKEND, "2026-11-29T12:00:00Z"): True,
    (WEEKEND, "2026-11-30T04:59:59Z"): True,
    (WEEKEND, "2026-11-30T05:00:00Z"): False,
    (WEEKEND, "2026-12-02T12:00:00Z"): False,
    (OFFICE, "2026-11-30T06:59:59Z"): False,
    (OFFICE, "2026-11-30T07:00:00Z"): True,
    (OFFICE, "2026-12-04T16:59:59Z"): True,
    (OFFICE, "2026-12-04T17:00:00Z"): False,
    (OFFICE, "2026-11-29T12:00:00Z"): False,
    ("Sat 10:00-12:00 Europe/Paris", "2026-11-28T10:30:00Z"): True,
    ("Sat 10:00-12:00 Europe/Paris", "2026-11-29T10:30:00Z"): False,
    ("22:00-06:00 Europe/Paris", "2026-12-01T04:30:00Z"): True,
    ("22:00-06:00 Europe/Paris", "2026-12-01T12:30:00Z"): False,
    ("Sun 22:00-06:00 Europe/Paris", "2026-11-30T04:30:00Z"): True,
    ("Sun 22:00-06:00 Europe/Paris", "2026-11-29T04:30:00Z"): False,
    ("Fri-Mon 00:00-24:00 Europe/Paris", "2026-11-29T12:00:00Z"): True,
    ("Fri-Mon 00:00-24:00 Europe/Paris", "2026-12-01T12:00:00Z"): False,
}


@pytest.mark.parametrize(("text", "moment"), MOMENTS)
def test_a_moment_is_inside_or_outside(text: str, moment: str) -> None:
    assert holds(parse_window(text), parse_instant(moment), 60) is MOMENTS[text, moment]


WRONG = ["", "weekend", "Fri 15:00", "Fri 25:00 - Mon 06:00 UTC", "Fri 15:00 - Mon 06:00", "Fry 15:00 - Mon 06:00 UTC"]
WRONG += ["Mon 24:30-25:00 UTC", "Mon 08:00 - Mon 08:00 UTC", "08:00-08:00 UTC", "Mon-Fri 8:00-18:00 UTC"]


@pytest.mark.parametrize("text", WRONG)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"`.*` (is not a window|names a time|begins and ends)"):
        parse_window(text)


def test_the_zone_is_asked_of_the_caller() -> None:
    asked = []

    def offset(zone: str, now_ms: int) -> int:
        asked.append((zone, now_ms))
        return 60 if zone == "Europe/Paris" else 0

    now = parse_instant("2026-11-27T14:30:00Z")
    assert active((WEEKEND, "Fri 15:00 - Mon 06:00 UTC"), now, offset) == {WEEKEND}
    assert asked == [("Europe/Paris", now), ("UTC", now)]
