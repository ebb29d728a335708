"""Hearsay: text of programs that are not ours (engines, tools, drivers, the kernel's files), read without trust.

Adapters and sensors call this for whatever somebody else wrote. What is not plainly a number or a document is nothing:
the caller says "unknown" then. Must never raise, and never make a number of half of one.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from gridops.base.units import INT_MAX

DIGITS = 20
"""As many as the largest number of 64 bits has; more is no reading of anything."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


def document(text: str | bytes) -> Any:
    """A JSON document; None where it is none, or holds what no answer of ours could repeat (half a surrogate, NaN)."""
    try:
        found = json.loads(text, parse_constant=_no_constant)
        if ("\\u" if isinstance(text, str) else b"\\u") in text:  # type: ignore[operator]
            json.dumps(found, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        return None
    return found


def count(text: str) -> int | None:
    """A whole number as kernels and tools write one, if it can be signed: 2^64-1 is how a driver says that it has none.

    Other scripts have digits too, and some of those are no numbers.
    """
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS:
        return None
    return number if (number := int(text)) <= INT_MAX else None


def measure(text: str) -> float | None:
    """A number with or without a fraction, finite and not below zero."""
    if len(text) > 64 or _NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    return value if 0 <= value < float("inf") else None


def words(text: str) -> str:
    """Somebody else's words as they may stand among ours: valid Unicode, whatever bytes they came from."""
    return text.encode("utf-8", "replace").decode()


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
