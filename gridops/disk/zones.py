"""Time zones: the rules of a zone, read once from the machine's database, as values that deciding rooms can ask.

Called by `files` (does a zone exist?) and by the controller's shell (which offset holds when?). The arithmetic on the
rules is `base.windows`; nothing here knows what time it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from gridops.base.windows import ZoneRules

FIRST_S = 1_577_836_800
"""2020-01-01: no plan is older."""
LAST_S = 3_155_760_000
"""2070-01-01: from then on the last offset is taken to hold; zone rules are not known so far ahead anyway."""
STEP_S = 7 * 86_400
"""Two changes within one week would be missed; no zone has had that since 2020 (the closest are five weeks apart)."""


@lru_cache(maxsize=64)
def zone_rules(name: str) -> ZoneRules | None:
    """The offsets of a zone; None when the machine knows no such zone."""
    try:
        zone = ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
    changes = [(FIRST_S * 1000, _ahead_s(zone, FIRST_S) * 1000)]
    for start in range(FIRST_S, LAST_S, STEP_S):
        end = start + STEP_S
        after = _ahead_s(zone, end)
        if after * 1000 != changes[-1][1]:
            changes.append((_turn_s(zone, start, end) * 1000, after * 1000))
    return ZoneRules(tuple(changes))


def rules_of(names: Iterable[str]) -> dict[str, ZoneRules]:
    """The rules of those zones that the machine knows."""
    return {name: rules for name in names if (rules := zone_rules(name)) is not None}


def has_database() -> bool:
    """Whether this machine can judge zones at all."""
    return zone_rules("Europe/London") is not None


def _ahead_s(zone: tzinfo, at_s: int) -> int:
    offset = datetime.fromtimestamp(at_s, tz=UTC).astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _turn_s(zone: tzinfo, start: int, end: int) -> int:
    """The first second with the offset of `end`, where `start` has another one."""
    wanted = _ahead_s(zone, end)
    while end - start > 1:
        middle = (start + end) // 2
        if _ahead_s(zone, middle) == wanted:
            end = middle
        else:
            start = middle
    return end
