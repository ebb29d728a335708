"""Units: parse what people write, render what people read. Inside the house all values are integers.

bytes (`_bytes`), milliseconds (`_ms`), parts per million (`_ppm`), micro-units of the fleet's currency (`_micro`),
bits per second (`_bps`). A bare number where a unit belongs is refused, never guessed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

PPM = 1_000_000
INT_MAX = 2**53 - 1
"""Largest integer that every JSON reader keeps exactly (canonical form, trust.md B4)."""

_EPOCH = datetime.fromtimestamp(0, tz=UTC)
_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_TIMES = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_RATES = {"bit/s": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9, "MB/s": 8 * 10**6, "GB/s": 8 * 10**9}
_NUMBER = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([A-Za-z%/]*)")


def _scaled(text: str, table: dict[str, int], what: str, example: str) -> int:
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match.group(2) not in table:
        units = ", ".join(table)
        if match is not None and match.group(2) == "":
            raise ValueError(f"{what} needs a unit ({units}), such as {example}")
        raise ValueError(f"`{text}` is not {what}: expected a number and one of {units}, such as {example}")
    value = Decimal(match.group(1)) * table[match.group(2)]
    if value != value.to_integral_value():
        raise ValueError(f"`{text}` is not a whole number of {next(iter(table))}")
    if value > INT_MAX:
        raise ValueError(f"`{text}` is too large")
    return int(value)


def parse_bytes(text: str) -> int:
    """`48GiB` -> bytes. Raises ValueError with a sentence for the user."""
    return _scaled(text, _SIZES, "a size", "48GiB")


def parse_ms(text: str) -> int:
    """`30s`, `5m`, `250ms` -> milliseconds."""
    return _scaled(text, _TIMES, "a duration", "30s")


def parse_bps(text: str) -> int:
    """`1000Mbit/s` -> bits per second."""
    return _scaled(text, _RATES, "a rate", "1000Mbit/s")


def parse_ppm(text: str) -> int:
    """`75%` or a ratio such as `0.75` -> parts per million."""
    raw = text.strip()
    percent = raw.endswith("%")
    value = _decimal(raw.removesuffix("%").strip(), "a share, such as 75% or 0.75")
    scaled = value * (PPM // 100 if percent else PPM)
    if scaled != scaled.to_integral_value() or scaled < 0 or scaled > INT_MAX:
        raise ValueError(f"`{text}` is not a share with at most six decimals")
    return int(scaled)


def parse_micro(text: str) -> int:
    """A price such as `0.80` -> micro-units of the fleet's currency."""
    value = _decimal(text.strip(), "a price, such as 0.80") * PPM
    if value != value.to_integral_value() or value < 0 or value > INT_MAX:
        raise ValueError(f"`{text}` is not a price with at most six decimals")
    return int(value)


def _decimal(text: str, expected: str) -> Decimal:
    if not re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", text):
        raise ValueError(f"`{text}` is not {expected}")
    try:
        return Decimal(text)
    except InvalidOperation as error:  # pragma: no cover - the pattern above admits only decimals
        raise ValueError(f"`{text}` is not {expected}") from error


def parse_instant(text: str) -> int:
    """RFC 3339 with a zone, such as `2026-11-30T08:00:00Z` -> milliseconds since 1970 UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(f"`{text}` is not a time: expected RFC 3339, such as 2026-11-30T08:00:00Z") from error
    if moment.tzinfo is None:
        raise ValueError(f"`{text}` has no time zone: write 2026-11-30T08:00:00Z or +01:00")
    return (moment - _EPOCH) // timedelta(milliseconds=1)  # in integers: a float would lose milliseconds


def render_bytes(value: int) -> str:
    """Largest unit that shows at most one decimal honestly: `132 GiB`, `9.6 GiB`, `512 MiB`."""
    sign, size = ("-", -value) if value < 0 else ("", value)
    for unit, factor in reversed(_SIZES.items()):
        if size >= factor:
            whole, rest = divmod(size * 10 // factor, 10)
            return f"{sign}{whole} {unit}" if rest == 0 or whole >= 100 else f"{sign}{whole}.{rest} {unit}"
    return f"{sign}{size} B"


def render_need(value: int) -> str:
    """An amount that is needed: as `render_bytes`, but rounded up, since less would not do."""
    unit, factor = next(((u, f) for u, f in reversed(_SIZES.items()) if value >= f), ("B", 1))
    tenths = -(-value * 10 // factor)
    return _tenths(tenths if tenths < 1_000 else -(-tenths // 10) * 10, unit)


def render_lack(need: int, have: int) -> tuple[str, str, str]:
    """What is needed, what there is and what is missing, so that a line with these three adds up.

    The one rule for all of them: one unit, in tenths; needed is rounded up, there is rounded down, and missing is the
    difference of what is shown. GiB where a tenth of one is missing, else MiB, so that rounding never tells the story.
    """
    unit = "GiB" if (need - have) * 10 >= _SIZES["GiB"] else "MiB" if need >= _SIZES["MiB"] else "B"
    wanted, there = -(-need * 10 // _SIZES[unit]), have * 10 // _SIZES[unit]
    return _tenths(wanted, unit), _tenths(there, unit), _tenths(wanted - there, unit)


def _tenths(tenths: int, unit: str) -> str:
    whole, rest = divmod(abs(tenths), 10)
    return f"{'-' if tenths < 0 else ''}{whole}{f'.{rest}' if rest else ''} {unit}"


def exact_bytes(value: int) -> str:
    """The form that people write in YAML, without loss: `48GiB`, `1536MiB`, `17B`."""
    for unit, factor in reversed(_SIZES.items()):
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    return f"{value}B"


def exact_ms(value: int) -> str:
    """The form that people write in YAML, without loss: `30s`, `15m`, `250ms`."""
    for unit, factor in reversed(_TIMES.items()):
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    return f"{value}ms"


def render_ms(value: int) -> str:
    """A duration for people: `3m52s`, `20 s`, `250 ms`, `2 h 15 m`."""
    if value < 1_000:
        return f"{value} ms"
    seconds = value // 1_000
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7_200:
        minutes, rest = divmod(seconds, 60)
        return f"{minutes} min" if rest == 0 else f"{minutes}m{rest:02d}s"
    minutes = seconds // 60
    if minutes < 2_880:
        hours, rest = divmod(minutes, 60)
        return f"{hours} h" if rest == 0 else f"{hours} h {rest} min"
    return f"{minutes // 1_440} d"


FIRST_INSTANT_MS, LAST_INSTANT_MS = 0, 253_402_300_799_000
"""1970 and the end of the year 9999."""


def render_instant(at_ms: int) -> str:
    """Milliseconds since 1970 UTC -> `2026-11-29T09:07:00Z` (milliseconds only when they are not zero).

    Total: what no calendar has (somebody may sign any number) is said in milliseconds, since an error here would take
    the place of the refusal that it is for.
    """
    if not FIRST_INSTANT_MS <= at_ms <= LAST_INSTANT_MS:
        return f"{at_ms} ms"
    moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    if at_ms % 1000:
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def render_clock(at_ms: int) -> str:
    """`09:01Z`: the time of day in text output; always UTC, so that every machine prints the same. Total as above."""
    if not FIRST_INSTANT_MS <= at_ms <= LAST_INSTANT_MS:
        return f"{at_ms} ms"
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%H:%MZ")


def render_price(micro: int) -> str:
    """As people write it: two decimals, more only where they count."""
    whole, rest = divmod(micro, PPM)
    digits = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{whole}.{digits}"


def render_ppm(value: int) -> str:
    """Parts per million as a percentage with at most one decimal."""
    whole, rest = divmod(value * 1000 // PPM, 10)
    return f"{whole}%" if rest == 0 else f"{whole}.{rest}%"


def counted(n: int, thing: str, things: str | None = None) -> str:
    """`1 host`, `2 hosts`, `2 residencies`: a number and its noun, as a reader would say it."""
    return f"{n} {thing}" if n == 1 else f"{n} {things or thing + 's'}"


def article(noun: str) -> str:
    """`a host`, `an argument`."""
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"
