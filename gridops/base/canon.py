"""Canonical JSON: one byte form per meaning, so that a digest or a signature speaks about meaning.

The subset (trust.md B4): UTF-8, keys `[a-z][a-z0-9_]*` and sorted, integers within +/-(2^53-1), no floats, no
duplicate keys, no lone surrogates, depth at most 16. Inside it the output equals RFC 8785 byte for byte (a test
compares). Python's `json` accepts duplicate keys, NaN and lone surrogates by default, so every hook is set here.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, NoReturn

from gridops.base.ids import Digest
from gridops.base.units import INT_MAX

DEPTH_MAX = 16
_KEY = re.compile(r"[a-z][a-z0-9_]*")


class NotCanonical(ValueError):
    """Bytes or values outside the canonical subset."""


def dumps(value: Any) -> bytes:
    """Canonical bytes of a JSON value. Raises NotCanonical for floats, odd keys, huge integers or deep nesting."""
    _check(value, 0)
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise NotCanonical("text holds a lone surrogate") from error


def loads(raw: bytes) -> Any:
    """Parse bytes that must be canonical already: `dumps(loads(raw)) == raw` or NotCanonical."""
    value = parse(raw)
    if dumps(value) != raw:
        raise NotCanonical("not in canonical form")
    return value


def parse(raw: bytes) -> Any:
    """Strict JSON of the same subset in any layout (spaces and key order free). Raises NotCanonical."""
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_pairs,
            parse_float=_no_float,
            parse_constant=_no_constant,
            parse_int=_integer,
        )
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise NotCanonical(f"not JSON: {error}") from error
    _check(value, 0)
    if b"\\u" in raw:
        dumps(value)  # only an escape can smuggle in a lone surrogate
    return value


def digest(value: Any) -> Digest:
    """SHA-256 of the canonical bytes, as `sha256:<hex>`."""
    return digest_bytes(dumps(value))


def digest_bytes(raw: bytes) -> Digest:
    return Digest("sha256:" + hashlib.sha256(raw).hexdigest())


def _check(value: Any, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise NotCanonical(f"nested deeper than {DEPTH_MAX}")
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or _KEY.fullmatch(key) is None:
                raise NotCanonical(f"key {key!r} is not of the form [a-z][a-z0-9_]*")
            _check(item, depth + 1)
    elif kind is list or kind is tuple:
        for item in value:
            _check(item, depth + 1)
    elif kind is int:
        if not -INT_MAX <= value <= INT_MAX:
            raise NotCanonical(f"integer {value} is outside +/-(2^53-1)")
    elif not (value is None or kind is bool or isinstance(value, str)):
        raise NotCanonical(f"{kind.__name__} has no canonical form")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise NotCanonical(f"key {key!r} is given twice")
        result[key] = value
    return result


def _integer(text: str) -> int:
    if len(text) > 17 or text == "-0":
        raise NotCanonical(f"integer {text[:24]} is outside the canonical range")
    return int(text)


def _no_float(text: str) -> NoReturn:
    raise NotCanonical(f"{text[:24]} is not an integer")


def _no_constant(text: str) -> NoReturn:
    raise NotCanonical(f"{text} is not JSON")
