"""Times of the week as people write them."""

from __future__ import annotations

import pytest

from gridops.base.units import parse_instant
from gridops.base.windows import DAY, WEEK, WeeklyTimes, parse_weekly

READ = {
    "Mon-Fri 08:00-18:00 Europe/Paris": ("Europe/Paris", [(d * DAY + 480, d * DAY + 1080) for d in range(5)]),
    "Fri 15:00 - Mon 06:00 Europe/Paris": ("Europe/Paris", [(0, 360), (4 * DAY + 900, WEEK)]),
    "Sat,Sun 00:00-24:00 UTC": ("UTC", [(5 * DAY, WEEK)]),
    "Sun-Tue 10:00-11:00 UTC": ("UTC", [(600, 660), (DAY + 600, DAY + 660), (6 * DAY + 600, 6 * DAY + 660)]),
    "22:00-06:00 UTC": (
        "UTC",
        [(0, 360)] + [(d * DAY + 1320, d * DAY + 1800) for d in range(6)] + [(WEEK - 120, WEEK)],
    ),
    "Wed 00:00 - Wed 01:00 America/Argentina/Ushuaia": ("America/Argentina/Ushuaia", [(2 * DAY, 2 * DAY + 60)]),
}
REFUSED = (
    "", "at night", "Mon-Fri 8-18 UTC", "Mon-Fri 08:00-18:00", "Fri 25:00 - Mon 06:00 UTC", "Mon 08:60-09:00 UTC",
    "Freitag 15:00 - Montag 06:00 UTC", "Mon 08:00 - Mon 08:00 UTC", "Mon-Fri 08:00-18:00 +01:00",
)  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_a_window_is_read(text: str) -> None:
    zone, spans = READ[text]
    assert parse_weekly(text) == WeeklyTimes(zone, tuple(spans))


@pytest.mark.parametrize("text", REFUSED)
def test_what_could_be_misunderstood_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="`"):
        parse_weekly(text)


@pytest.mark.parametrize(
    ("moment", "inside"),
    [
        ("2026-11-27T13:59:59Z", False),  # Friday, 14:59 in Paris in winter
        ("2026-11-27T14:00:00Z", True),
        ("2026-11-29T12:00:00Z", True),
        ("2026-11-30T04:59:59Z", True),
        ("2026-11-30T05:00:00Z", False),
        ("2026-07-03T12:59:59Z", False),  # in summer Paris is one hour farther
        ("2026-07-03T13:00:00Z", True),
    ],
)
def test_a_window_follows_the_clock_on_the_wall(moment: str, inside: bool) -> None:
    assert parse_weekly("Fri 15:00 - Mon 06:00 Europe/Paris").holds(parse_instant(moment)) is inside


def test_every_minute_lies_inside_a_window_or_inside_its_complement() -> None:
    night, day = parse_weekly("22:00-06:00 UTC"), parse_weekly("06:00-22:00 UTC")
    assert all(night.covers(minute) != day.covers(minute) for minute in range(WEEK))
