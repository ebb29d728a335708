"""Times of the week in which something holds: `Fri 15:00 - Mon 06:00 Europe/Paris`, `Mon-Fri 08:00-18:00 Europe/Paris`.

Reading the grammar and comparing minutes is pure; how far a zone is from UTC at a moment is not (it reads the system's
zone files), so the caller hands in a function for it. Called by the controller before `authority.judge`, and by `files`
where windows are validated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY = 24 * 60
WEEK = 7 * DAY
EPOCH_DAY = 3
"""1 January 1970 was a Thursday."""

_DAY = "|".join(DAYS)
_TIME = r"([01]\d|2[0-4]):([0-5]\d)"
_ACROSS = re.compile(rf"({_DAY}) {_TIME} - ({_DAY}) {_TIME} ([A-Za-z0-9_+/-]+)")
_DAILY = re.compile(rf"(?:({_DAY})(?:-({_DAY}))? )?{_TIME}-{_TIME} ([A-Za-z0-9_+/-]+)")

Offset = Callable[[str, int], int]
"""(zone, now_ms) -> minutes east of UTC at that moment."""


@dataclass(frozen=True, slots=True)
class Window:
    """Spans of a week in minutes from Monday 00:00 local time; an end below its start passes the end of the week."""

    spans: tuple[tuple[int, int], ...]
    zone: str


def parse_window(text: str) -> Window:
    """Read a window. Raises ValueError with a sentence for the user."""
    if (match := _ACROSS.fullmatch(text.strip())) is not None:
        first, h1, m1, last, h2, m2, zone = match.groups()
        start = DAYS.index(first) * DAY + _minute(h1, m1, text)
        end = DAYS.index(last) * DAY + _minute(h2, m2, text)
        if start == end:
            raise ValueError(f"`{text}` begins and ends at the same moment")
        return Window(((start % WEEK, end % WEEK),), zone)
    if (match := _DAILY.fullmatch(text.strip())) is not None:
        first, last, h1, m1, h2, m2, zone = match.groups()
        start, end = _minute(h1, m1, text), _minute(h2, m2, text)
        if start == end:
            raise ValueError(f"`{text}` begins and ends at the same moment")
        length = (end - start) % DAY or DAY
        spans = tuple(((d * DAY + start) % WEEK, (d * DAY + start + length) % WEEK) for d in _days(first, last))
        return Window(spans, zone)
    raise ValueError(
        f"`{text}` is not a window: expected `Fri 15:00 - Mon 06:00 Europe/Paris` or `Mon-Fri 08:00-18:00 Europe/Paris`"
    )


def holds(window: Window, now_ms: int, offset_minutes: int) -> bool:
    """Is the moment inside the window, where the zone is `offset_minutes` east of UTC?"""
    minute = (now_ms // 60_000 + offset_minutes + EPOCH_DAY * DAY) % WEEK
    return any(start <= minute < end if start < end else minute >= start or minute < end for start, end in window.spans)


def active(texts: Iterable[str], now_ms: int, offset: Offset) -> frozenset[str]:
    """Those of the windows that hold now, as they are written."""
    found = set()
    for text in texts:
        window = parse_window(text)
        if holds(window, now_ms, offset(window.zone, now_ms)):
            found.add(text)
    return frozenset(found)


def _days(first: str | None, last: str | None) -> tuple[int, ...]:
    """Days from first to last, passing the end of the week if need be; all of them for none."""
    if first is None:
        return tuple(range(7))
    start = DAYS.index(first)
    count = 1 if last is None else (DAYS.index(last) - start) % 7 + 1
    return tuple((start + n) % 7 for n in range(count))


def _minute(hour: str, minute: str, text: str) -> int:
    total = int(hour) * 60 + int(minute)
    if total > DAY:
        raise ValueError(f"`{text}` names a time after 24:00")
    return total
