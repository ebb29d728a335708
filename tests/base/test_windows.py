"""Times of the week as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridops.base.units import parse_instant
from gridops.base.windows import DAY, UTC, WEEK, WeeklyTimes, ZoneRules, parse_weekly

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


WINTER, SUMMER = 3_600_000, 7_200_000
PARIS = ZoneRules(
    (
        (parse_instant("2025-10-26T01:00:00Z"), WINTER),
        (parse_instant("2026-03-29T01:00:00Z"), SUMMER),
        (parse_instant("2026-10-25T01:00:00Z"), WINTER),
    )
)
WEEKEND = "Fri 15:00 - Mon 06:00 Europe/Paris"


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
    assert parse_weekly(WEEKEND).holds(parse_instant(moment), PARIS) is inside


def test_every_minute_lies_inside_a_window_or_inside_its_complement() -> None:
    night, day = parse_weekly("22:00-06:00 UTC"), parse_weekly("06:00-22:00 UTC")
    assert all(night.covers(minute) != day.covers(minute) for minute in range(WEEK))


TURNS = {
    "opens on Monday": (WEEKEND, "2026-11-29T12:00:00Z", "2026-11-30T05:00:00Z"),
    "closes on Friday": (WEEKEND, "2026-11-30T05:00:00Z", "2026-12-04T14:00:00Z"),
    "the last moment before": (WEEKEND, "2026-11-30T04:59:59Z", "2026-11-30T05:00:00Z"),
    "a weekend with an hour less": (WEEKEND, "2026-03-27T14:00:00Z", "2026-03-30T04:00:00Z"),
    "a weekend with an hour more": (WEEKEND, "2026-10-23T13:00:00Z", "2026-10-26T05:00:00Z"),
    "begins with a skipped hour": ("Sun 02:30-04:00 Europe/Paris", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"),
    "an hour that is not there": ("Sun 02:10-02:50 Europe/Paris", "2026-03-29T00:00:00Z", "2026-04-05T00:10:00Z"),
    "an hour that comes twice": ("Sun 02:10-02:50 Europe/Paris", "2026-10-25T00:50:00Z", "2026-10-25T01:10:00Z"),
    "and ends twice": ("Sun 02:10-02:50 Europe/Paris", "2026-10-25T01:10:00Z", "2026-10-25T01:50:00Z"),
    "cut short by the second hour": ("Sun 02:30-04:00 Europe/Paris", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z"),
    "the only minute of a week": ("Wed 00:00 - Wed 00:01 UTC", "2026-12-02T00:01:00Z", "2026-12-09T00:00:00Z"),
}  # fmt: skip


@pytest.mark.parametrize("name", TURNS)
def test_the_next_turn_of_a_window(name: str) -> None:
    text, at, expected = TURNS[name]
    times, at_ms = parse_weekly(text), parse_instant(at)
    rules = UTC if times.zone == "UTC" else PARIS
    turn_ms = times.turns(at_ms, rules)
    assert turn_ms == parse_instant(expected)
    assert times.holds(turn_ms, rules) is not times.holds(at_ms, rules)
    assert times.holds(turn_ms - 1, rules) is times.holds(at_ms, rules)


def test_a_window_without_an_end_never_turns() -> None:
    assert parse_weekly("Mon-Sun 00:00-24:00 Europe/Paris").turns(parse_instant("2026-03-28T00:00:00Z"), PARIS) is None


@given(at_s=st.integers(1_760_000_000, 1_800_000_000), text=st.sampled_from(sorted({w for w, _, _ in TURNS.values()})))
def test_nothing_turns_before_the_next_turn(at_s: int, text: str) -> None:
    times = parse_weekly(text)
    turn_ms = times.turns(at_s * 1000, PARIS)
    assert turn_ms is not None
    before = (*range(at_s * 1000, turn_ms, 7 * 60_000), turn_ms - 1)
    assert {times.holds(at, PARIS) for at in before} == {not times.holds(turn_ms, PARIS)}
