"""Canonical JSON: one byte form per meaning, so that a digest or a signature speaks about meaning.

The subset (trust.md B4): UTF-8, keys `[a-z][a-z0-9_]*` and sorted, integers within +/-(2^53-1), no floats, no
duplicate keys, no lone surrogates, depth at most 16. Inside it the output equals RFC 8785 byte for byte (a test
compares). Python's `json` accepts duplicate keys, NaN and lone surrogates by default, so every hook is set here.
Everything that is signed, digested or journalled passes here; `record` may write the same bytes by a shorter way.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

from gridops.base.ids import Digest
from gridops.base.units import INT_MAX

DEPTH_MAX = 16
_KEY = re.compile(r"[a-z][a-z0-9_]*")
_PLAIN = frozenset({str, int, bool, type(None)})
_NONE: frozenset[type] = frozenset()
# Circles need no watch: `_check` has refused them, for they have no depth.
_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
).encode


class NotCanonical(ValueError):
    """Bytes or values outside the canonical subset."""


text: Callable[[str], str] = json.encoder.encode_basestring
"""One text as it stands in canonical JSON, for who writes out a form of its own; `whole` makes bytes of it."""


def dumps(value: Any) -> bytes:
    """Canonical bytes of a JSON value. Raises NotCanonical for floats, odd keys, huge integers or deep nesting."""
    _check(value, 0, set())
    return whole(_encode(value))


def whole(written: str) -> bytes:
    """The bytes of canonical JSON that is written already. Raises NotCanonical for texts that have none."""
    try:
        return written.encode("utf-8")
    except UnicodeEncodeError as error:
        raise NotCanonical("text holds a lone surrogate") from error


def loads(raw: bytes) -> Any:
    """Parse bytes that must be canonical already: `dumps(loads(raw)) == raw` or NotCanonical."""
    value = _read(raw)
    if dumps(value) != raw:
        raise NotCanonical("not in canonical form")
    return value


def parse(raw: bytes) -> Any:
    """Strict JSON of the same subset in any layout (spaces and key order free). Raises NotCanonical."""
    value = _read(raw)
    if b"\\u" in raw:
        dumps(value)  # only an escape can smuggle in a lone surrogate
    else:
        _check(value, 0, set())
    return value


def digest(value: Any) -> Digest:
    """SHA-256 of the canonical bytes, as `sha256:<hex>`."""
    return digest_bytes(dumps(value))


def digest_bytes(raw: bytes) -> Digest:
    return Digest("sha256:" + hashlib.sha256(raw).hexdigest())


@lru_cache(maxsize=4096)
def is_key(text: str) -> bool:
    """True for a key that the subset allows. The house has a few hundred names of fields and asks for them for ever."""
    return _KEY.fullmatch(text) is not None


def _read(raw: bytes) -> Any:
    """JSON without duplicate keys, floats and constants; what remains to be refused, `_check` and `_encode` refuse."""
    try:
        return json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_pairs,
            parse_float=_no_float,
            parse_constant=_no_constant,
            parse_int=_integer,
        )
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise NotCanonical(f"not JSON: {error}") from error


def _check(value: Any, depth: int, keys: set[str]) -> None:
    """`keys` are those of this value found good so far: a large value has many keys and few different ones.

    Scalars are judged where they stand, without a call each, unless they stand too deep.
    """
    if depth > DEPTH_MAX:
        raise NotCanonical(f"nested deeper than {DEPTH_MAX}")
    kind = type(value)
    plain = _PLAIN if depth < DEPTH_MAX else _NONE
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or key not in keys:  # a subclass of str may equal a good key and is refused
                _check_key(key, keys)
            inner = type(item)
            if inner not in plain or (inner is int and not -INT_MAX <= item <= INT_MAX):
                _check(item, depth + 1, keys)
    elif kind is list or kind is tuple:
        for item in value:
            inner = type(item)
            if inner not in plain or (inner is int and not -INT_MAX <= item <= INT_MAX):
                _check(item, depth + 1, keys)
    elif kind is int:
        if not -INT_MAX <= value <= INT_MAX:
            raise NotCanonical(f"integer {value} is outside +/-(2^53-1)")
    elif not (value is None or kind is bool or isinstance(value, str)):
        raise NotCanonical(f"{kind.__name__} has no canonical form")


def _check_key(key: Any, keys: set[str]) -> None:
    if type(key) is not str or not is_key(key):
        raise NotCanonical(f"key {key!r} is not of the form [a-z][a-z0-9_]*")
    keys.add(key)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotCanonical(f"key {key!r} is given twice")
            seen.add(key)
    return result


def _integer(text: str) -> int:
    if len(text) > 17 or text == "-0":
        raise NotCanonical(f"integer {text[:24]} is outside the canonical range")
    return int(text)


def _no_float(text: str) -> NoReturn:
    raise NotCanonical(f"{text[:24]} is not an integer")


def _no_constant(text: str) -> NoReturn:
    raise NotCanonical(f"{text} is not JSON")
