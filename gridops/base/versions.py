"""Versions of programs as people write them: `0.2.0`, `1.10`, `0.3.0rc1`. Compared as numbers, never as text.

Asked where a root document demands a least version of agents. What is no version has no place among them: whoever
asks says what that means there.
"""

from __future__ import annotations

import re

CHARS = 64
"""No version is longer."""
_FORM = re.compile(
    r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?"
    r"([.-]?(?:a|alpha|b|beta|rc|dev)\.?[0-9]{0,9}(?:\.dev[0-9]{0,9})?)?(?:\.post[0-9]{1,9})?(?:\+[0-9A-Za-z.-]{1,32})?"
)


def ranked(text: str) -> tuple[int, ...] | None:
    """Where a version stands among versions; None for what is none. What precedes a release counts as older than it."""
    found = _FORM.fullmatch(text) if len(text) <= CHARS else None
    if found is None:
        return None
    numbers = tuple(int(part) if part is not None else 0 for part in found.groups()[:4])
    return (*numbers, 0 if found[5] is not None else 1)


def agent_words(version: str | None) -> str:
    """An agent by its version, also where that is none."""
    if ranked(version or "") is not None:
        return f"agent {version}"
    return f"agent of no readable version ({version!r:.34})"


def precedes(version: str | None, least: str | None) -> bool:
    """Whether a version is before the least one that is demanded (None: none is). One that cannot be read is before
    every other, and no version meets a demand that cannot be read."""
    if least is None:
        return False
    has, asked = ranked(version or ""), ranked(least)
    return has is None or asked is None or has < asked
