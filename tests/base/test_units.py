"""Units: what people write, what people read, and that both agree."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridops.base import units
from gridops.base.units import INT_MAX

READ: dict[str, tuple[Callable[[str], int], str, int]] = {
    "bytes": (units.parse_bytes, "17B", 17),
    "gibibytes": (units.parse_bytes, "48GiB", 48 << 30),
    "spaces around and between": (units.parse_bytes, " 48 GiB ", 48 << 30),
    "a fraction of a unit": (units.parse_bytes, "1.5MiB", 1536 << 10),
    "nothing at all": (units.parse_bytes, "0B", 0),
    "milliseconds": (units.parse_ms, "250ms", 250),
    "minutes": (units.parse_ms, "5m", 300_000),
    "half a second": (units.parse_ms, "0.5s", 500),
    "days": (units.parse_ms, "2d", 172_800_000),
    "a rate": (units.parse_bps, "1000Mbit/s", 10**9),
    "a fast rate": (units.parse_bps, "2.5Gbit/s", 2_500_000_000),
    "per cent": (units.parse_ppm, "75%", 750_000),
    "per cent with a space": (units.parse_ppm, "12.5 %", 125_000),
    "a ratio": (units.parse_ppm, "0.75", 750_000),
    "a ratio above one": (units.parse_ppm, "2", 2_000_000),
    "a price": (units.parse_micro, "0.80", 800_000),
    "a small price": (units.parse_micro, "0.000001", 1),
    "an instant": (units.parse_instant, "2026-11-30T08:00:00Z", 1_796_025_600_000),
    "an instant elsewhere": (units.parse_instant, "2026-11-30T09:00:00+01:00", 1_796_025_600_000),
    "an instant with milliseconds": (units.parse_instant, "2026-11-30T08:00:00.123Z", 1_796_025_600_123),
}


@pytest.mark.parametrize(("read", "text", "value"), READ.values(), ids=READ.keys())
def test_what_people_write_is_read(read: Callable[[str], int], text: str, value: int) -> None:
    assert read(text) == value
    assert isinstance(read(text), int)


NOT_READ: dict[str, tuple[Callable[[str], int], str, str]] = {
    "a bare number is no size": (units.parse_bytes, "48", "a size needs a unit"),
    "decimal units are not ours": (units.parse_bytes, "48GB", "is not a size"),
    "units have a spelling": (units.parse_bytes, "48gib", "is not a size"),
    "negative": (units.parse_bytes, "-1GiB", "is not a size"),
    "nothing": (units.parse_bytes, "", "is not a size"),
    "a word": (units.parse_bytes, "many", "is not a size"),
    "an exponent": (units.parse_bytes, "1e3MiB", "is not a size"),
    "digits of another script": (units.parse_bytes, "٤٨GiB", "is not a size"),
    "less than a byte": (units.parse_bytes, "0.5B", "is not a whole number of B"),
    "a third of a byte": (units.parse_bytes, "1.1KiB", "is not a whole number of B"),
    "too much": (units.parse_bytes, "99999999TiB", "is too large"),
    "a bare number is no duration": (units.parse_ms, "30", "a duration needs a unit"),
    "two units": (units.parse_ms, "1m30s", "is not a duration"),
    "less than a millisecond": (units.parse_ms, "0.5ms", "is not a whole number of ms"),
    "bytes are no rate": (units.parse_bps, "10MiB", "is not a rate"),
    "a negative share": (units.parse_ppm, "-5%", "is not a share"),
    "a share of seven decimals": (units.parse_ppm, "0.1234567", "at most six decimals"),
    "a share in words": (units.parse_ppm, "half", "is not a share"),
    "a share in another script": (units.parse_ppm, "٥%", "is not a share"),
    "a negative price": (units.parse_micro, "-0.8", "is not a price"),
    "a price of seven decimals": (units.parse_micro, "0.0000001", "at most six decimals"),
    "a price with its currency": (units.parse_micro, "0.80 EUR", "is not a price"),
    "no zone": (units.parse_instant, "2026-11-30T08:00:00", "has no time zone"),
    "a day": (units.parse_instant, "2026-11-30", "has no time zone"),
    "no time": (units.parse_instant, "tomorrow", "is not a time"),
    "a month that is none": (units.parse_instant, "2026-13-30T08:00:00Z", "is not a time"),
}


@pytest.mark.parametrize(("read", "text", "sentence"), NOT_READ.values(), ids=NOT_READ.keys())
def test_what_cannot_be_meant_is_refused_with_a_sentence(read: Callable[[str], int], text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read(text)


@given(st.integers(0, INT_MAX))
def test_sizes_and_durations_are_written_without_loss(value: int) -> None:
    # The written form has at most 15 digits before its point, as the reader allows.
    if value < 10**15:
        assert units.parse_bytes(units.exact_bytes(value)) == value
        assert units.parse_ms(units.exact_ms(value)) == value


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0B"), (17, "17B"), (1 << 10, "1KiB"), (1536 << 20, "1536MiB"), (48 << 30, "48GiB")]
)
def test_exact_sizes_take_the_largest_unit_that_divides(value: int, text: str) -> None:
    assert units.exact_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0ms"),
        (250, "250ms"),
        (1_500, "1500ms"),
        (30_000, "30s"),
        (900_000, "15m"),
        (7_200_000, "2h"),
        (86_400_000, "1d"),
    ],
)
def test_exact_durations_take_the_largest_unit_that_divides(value: int, text: str) -> None:
    assert units.exact_ms(value) == text


@given(st.integers(0, 4_102_444_800_000))
def test_instants_come_back_to_the_millisecond(at_ms: int) -> None:
    assert units.parse_instant(units.render_instant(at_ms)) == at_ms


@given(st.integers(0, 4_102_444_800_000))
def test_an_instant_is_the_same_in_every_zone(at_ms: int) -> None:
    moment = datetime.fromtimestamp(at_ms // 1000, tz=UTC).astimezone()
    assert units.parse_instant(moment.isoformat()) == at_ms // 1000 * 1000


SHOWN: dict[str, tuple[str, str]] = {
    "no bytes": (units.render_bytes(0), "0 B"),
    "bytes": (units.render_bytes(1023), "1023 B"),
    "a round size": (units.render_bytes(132 << 30), "132 GiB"),
    "one decimal": (units.render_bytes(10_307_921_510), "9.5 GiB"),
    "never rounded up to more than there is": (units.render_bytes((1 << 30) - 1), "1023 MiB"),
    "no decimal from a hundred on": (units.render_bytes(int(132.9 * (1 << 30))), "132 GiB"),
    "a debt": (units.render_bytes(-(3 << 20)), "-3 MiB"),
    "milliseconds": (units.render_ms(999), "999 ms"),
    "a second": (units.render_ms(1_000), "1 s"),
    "below two minutes": (units.render_ms(119_999), "119 s"),
    "two minutes": (units.render_ms(120_000), "2 min"),
    "minutes and seconds": (units.render_ms(232_000), "3m52s"),
    "minutes and few seconds": (units.render_ms(185_000), "3m05s"),
    "two hours": (units.render_ms(7_200_000), "2 h"),
    "hours and minutes": (units.render_ms(8_100_000), "2 h 15 min"),
    "two days": (units.render_ms(2 * 86_400_000), "2 d"),
    "an instant": (units.render_instant(1_796_025_600_000), "2026-11-30T08:00:00Z"),
    "an instant that no calendar has": (units.render_instant(-62_135_596_800_001), "-62135596800001 ms"),
    "an instant too far ahead": (units.render_instant(2**53 - 1), "9007199254740991 ms"),
    "the last instant": (units.render_instant(253_402_300_799_000), "9999-12-31T23:59:59Z"),
    "a time of day that no calendar has": (units.render_clock(2**53 - 1), "9007199254740991 ms"),
    "an instant between seconds": (units.render_instant(1_796_025_600_007), "2026-11-30T08:00:00.007Z"),
    "a time of day": (units.render_clock(1_796_025_600_000), "08:00Z"),
    "a share": (units.render_ppm(750_000), "75%"),
    "a share with a decimal": (units.render_ppm(12_345), "1.2%"),
    "a share above one": (units.render_ppm(2_000_000), "200%"),
    "no share": (units.render_ppm(0), "0%"),
}


@pytest.mark.parametrize(("shown", "text"), SHOWN.values(), ids=SHOWN.keys())
def test_what_people_read(shown: str, text: str) -> None:
    assert shown == text


@pytest.mark.parametrize(("n", "said"), [(0, "0 hosts"), (1, "1 host"), (2, "2 hosts")])
def test_one_thing_is_not_said_in_the_plural(n: int, said: str) -> None:
    assert units.counted(n, "host") == said


def test_an_article_fits_its_noun() -> None:
    assert (units.article("host"), units.article("argument")) == ("a host", "an argument")
