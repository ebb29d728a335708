"""The slow, literal reading of the canonical subset, which the fast ways of `canon` and `record` are compared with."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

from gridops.base.canon import NotCanonical
from gridops.base.record import adapter

DEPTH = 16
GREATEST = 2**53 - 1


def literal_bytes(value: Any) -> bytes:
    judge(value, 0)
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise NotCanonical("text holds a lone surrogate") from error


def literal_record_bytes(value: Any) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return literal_bytes(adapter(type(value)).dump_python(value, mode="json", exclude_none=True))


def judge(value: Any, depth: int) -> None:
    if depth > DEPTH:
        raise NotCanonical(f"nested deeper than {DEPTH}")
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or re.fullmatch("[a-z][a-z0-9_]*", key) is None:
                raise NotCanonical(f"key {key!r} is not of the form [a-z][a-z0-9_]*")
            judge(item, depth + 1)
    elif kind in (list, tuple):
        for item in value:
            judge(item, depth + 1)
    elif kind is int:
        if abs(value) > GREATEST:
            raise NotCanonical(f"integer {value} is outside +/-(2^53-1)")
    elif not (value is None or kind is bool or isinstance(value, str)):
        raise NotCanonical(f"{kind.__name__} has no canonical form")


def answer(write: Any, value: Any) -> bytes | tuple[str, str]:
    """The bytes, or which refusal and in which words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = write(value)
        except Exception as error:  # noqa: BLE001 (whatever one way raises, the other must raise)
            return type(error).__name__, str(error)
    assert isinstance(made, bytes)
    return made
