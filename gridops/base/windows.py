"""Weekly times as people write them: `Mon-Fri 08:00-18:00 Europe/Paris`, `Fri 15:00 - Mon 06:00 Europe/Paris`.

Parsed here so that files can refuse a wrong one, and deciding rooms can ask whether a moment lies inside and when that
changes. A zone's rules are a value that the caller brings (`disk.zones` reads them); nothing here asks the machine.

A window follows the clock on the wall: an hour that is skipped in spring is not there, one that comes twice in autumn
counts twice.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY = 1_440
WEEK = 7 * DAY
MINUTE_MS = 60_000
EPOCH_MINUTE = DAYS.index("Thu") * DAY
"""The first of January 1970 was a Thursday."""
LOOKS = 64
"""Ends of spans and changes of a zone that are looked at for the next turn: more than any week has of both."""

_DAY = "(?:" + "|".join(DAYS) + ")"
_CLOCK = r"([01]?\d|2[0-3]):([0-5]\d)|24:00"
_ZONE = r"(?P<zone>UTC|[A-Za-z]+(?:/[A-Za-z0-9_+-]+){1,2})"
_SPAN = re.compile(
    rf"(?P<first>{_DAY}) (?P<start>{_CLOCK.replace('(', '(?:')}) ?- ?"
    rf"(?P<last>{_DAY}) (?P<end>{_CLOCK.replace('(', '(?:')}) {_ZONE}"
)
_DAILY = re.compile(
    rf"(?:(?P<days>{_DAY}(?:-{_DAY})?(?:, ?{_DAY}(?:-{_DAY})?)*) )?"
    rf"(?P<start>{_CLOCK.replace('(', '(?:')}) ?- ?(?P<end>{_CLOCK.replace('(', '(?:')}) {_ZONE}"
)


@dataclass(frozen=True, slots=True)
class ZoneRules:
    """How far the clocks of a zone are ahead of UTC: from each moment on, so many milliseconds. In order, never empty;
    the first holds before its moment, too."""

    changes: tuple[tuple[int, int], ...]

    def ahead_ms(self, at_ms: int) -> int:
        return self.changes[max(0, self._next(at_ms) - 1)][1]

    def next_change(self, at_ms: int) -> int | None:
        """The first moment after this one from which another offset may hold."""
        n = self._next(at_ms)
        return self.changes[n][0] if n < len(self.changes) else None

    def _next(self, at_ms: int) -> int:
        return bisect_right(self.changes, at_ms, key=lambda change: change[0])


UTC = ZoneRules(((0, 0),))


@dataclass(frozen=True, slots=True)
class WeeklyTimes:
    """Minutes of the week, from Monday 00:00 in `zone`, as sorted half-open spans within one week."""

    zone: str
    spans: tuple[tuple[int, int], ...]

    def covers(self, minute: int) -> bool:
        """True when a minute of the week lies inside."""
        return any(start <= minute < end for start, end in self.spans)

    def holds(self, at_ms: int, rules: ZoneRules) -> bool:
        """True when a moment lies inside, by the zone's clock on the wall."""
        return self.covers(minute_of_week(at_ms, rules))

    def turns(self, at_ms: int, rules: ZoneRules) -> int | None:
        """The next moment at which the answer of `holds` is another one; None when it never is."""
        now, looked = self.holds(at_ms, rules), at_ms
        for _ in range(LOOKS):
            looked = self._next_look(looked, rules)
            if self.holds(looked, rules) is not now:
                return looked
        return None

    def _next_look(self, at_ms: int, rules: ZoneRules) -> int:
        """The next moment at which a span begins or ends, or the zone's offset changes."""
        minute = minute_of_week(at_ms, rules)
        ends = (edge for span in self.spans for edge in span)
        ahead = min((edge - minute - 1) % WEEK + 1 for edge in ends)
        started = (at_ms + rules.ahead_ms(at_ms)) % MINUTE_MS
        edge_ms, change_ms = at_ms + ahead * MINUTE_MS - started, rules.next_change(at_ms)
        return edge_ms if change_ms is None else min(edge_ms, change_ms)


@lru_cache(maxsize=1_024)
def parse_weekly(text: str) -> WeeklyTimes:
    """Read one. Raises ValueError with a sentence; whether the zone exists is not checked here."""
    span = _SPAN.fullmatch(text.strip())
    if span is not None:
        start = DAYS.index(span["first"]) * DAY + _minutes(span["start"])
        end = DAYS.index(span["last"]) * DAY + _minutes(span["end"])
        return WeeklyTimes(span["zone"], _within_week([(start, end)], text))
    daily = _DAILY.fullmatch(text.strip())
    if daily is None:
        raise ValueError(
            f"`{text}` is not a time window: expected days, times and a zone, "
            "such as `Mon-Fri 08:00-18:00 Europe/Paris` or `Fri 15:00 - Mon 06:00 Europe/Paris`"
        )
    start, end = _minutes(daily["start"]), _minutes(daily["end"])
    if end <= start:
        end += DAY
    days = _days(daily["days"] or "Mon-Sun")
    return WeeklyTimes(daily["zone"], _within_week([(d * DAY + start, d * DAY + end) for d in days], text))


def minute_of_week(at_ms: int, rules: ZoneRules) -> int:
    """Minutes since Monday 00:00 on the wall clock of a zone."""
    return ((at_ms + rules.ahead_ms(at_ms)) // MINUTE_MS + EPOCH_MINUTE) % WEEK


def _minutes(clock: str) -> int:
    hours, _, minutes = clock.partition(":")
    return int(hours) * 60 + int(minutes)


def _days(text: str) -> list[int]:
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        start, end = DAYS.index(first), DAYS.index(last or first)
        found.update((start + n) % 7 for n in range((end - start) % 7 + 1))
    return sorted(found)


def _within_week(spans: list[tuple[int, int]], text: str) -> tuple[tuple[int, int], ...]:
    """Cut at the end of the week and join what overlaps."""
    cut: list[tuple[int, int]] = []
    for start, end in spans:
        if start == end:
            raise ValueError(f"`{text}` begins and ends at the same time")
        stop = end if end > start else end + WEEK
        cut.append((start, min(stop, WEEK)))
        if stop > WEEK:
            cut.append((0, stop - WEEK))
    joined: list[tuple[int, int]] = []
    for start, end in sorted(cut):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return tuple(joined)
