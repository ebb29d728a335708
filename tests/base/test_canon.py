"""Canonical JSON: one byte form per meaning, equal to RFC 8785 inside the subset, and nothing outside it."""

from __future__ import annotations

import json
import math
import re
from enum import StrEnum
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from gridops.base import canon
from gridops.base.canon import DEPTH_MAX, NotCanonical, digest, digest_bytes, dumps, loads, parse
from gridops.base.units import INT_MAX

keys = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = st.none() | st.booleans() | st.integers(-INT_MAX, INT_MAX) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=20
)


@given(values)
def test_inside_the_subset_the_bytes_are_those_of_rfc_8785(value: Any) -> None:
    assert dumps(value) == rfc8785.dumps(value)


CHANGES = st.sampled_from(
    [b"", b" ", b"0", b"-", b".5", b"e3", b"\n", b'"', b"\\u0061", b",", b"}", b"A", b"\xff", b"9" * 16]
)


@given(values, st.data())
def test_a_changed_byte_leaves_canonical_bytes_here_exactly_where_it_does_by_rfc_8785(
    value: Any, data: st.DataObject
) -> None:
    raw = dumps(value)
    at = data.draw(st.integers(0, len(raw)))
    bent = raw[:at] + data.draw(CHANGES) + raw[at + data.draw(st.integers(0, 2)) :]
    try:
        read = json.loads(bent)
        theirs = rfc8785.dumps(read) == bent
    except (ValueError, RecursionError, rfc8785.CanonicalizationError):
        read, theirs = None, False
    try:
        ours = loads(bent) == read
    except NotCanonical:
        ours = False
    assert ours == (theirs and within(read))


def within(value: Any) -> bool:
    """Whether a value lies in the subset that the house signs: RFC 8785 also has fractions and any key."""
    match value:
        case dict():
            return all(re.fullmatch("[a-z][a-z0-9_]*", key) and within(item) for key, item in value.items())
        case list():
            return all(map(within, value))
        case _:
            return not isinstance(value, float)


@given(values)
def test_a_value_comes_back_and_has_one_form(value: Any) -> None:
    raw = dumps(value)
    assert loads(raw) == value
    assert dumps(loads(raw)) == raw


@given(values)
def test_layout_means_nothing_to_parse_and_everything_to_loads(value: Any) -> None:
    loose = json.dumps(value, indent=1).encode()
    assert parse(loose) == value
    assert dumps(parse(loose)) == dumps(value)
    if loose != dumps(value):
        with pytest.raises(NotCanonical):
            loads(loose)


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


REFUSED_VALUES: dict[str, Any] = {
    "a float": 1.0,
    "a float inside": {"a": [0.5]},
    "not a number": math.nan,
    "an integer above the range": INT_MAX + 1,
    "an integer below the range": -INT_MAX - 1,
    "bytes": b"x",
    "a set": {1},
    "an object": object(),
    "a lone surrogate": "\ud800",
    "an empty key": {"": 1},
    "a capital in a key": {"payloadType": 1},
    "a digit first": {"1a": 1},
    "a dash in a key": {"a-b": 1},
    "a line break after a key": {"a\n": 1},
    "a key beyond ASCII": {"ü": 1},
    "a key that is no text": {1: 1},
    "too deep": nested(DEPTH_MAX + 1),
}


@pytest.mark.parametrize("value", REFUSED_VALUES.values(), ids=REFUSED_VALUES.keys())
def test_a_value_outside_the_subset_has_no_bytes(value: Any) -> None:
    with pytest.raises(NotCanonical):
        dumps(value)


REFUSED_BYTES: dict[str, bytes] = {
    "nothing": b"",
    "not JSON": b"{",
    "two documents": b"1 2",
    "not UTF-8": b'"\xff"',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "a float": b"1.0",
    "an exponent": b"1e3",
    "infinity by overflow": b"1e400",
    "NaN": b"NaN",
    "Infinity": b"-Infinity",
    "minus zero": b"-0",
    "2^53": b"9007199254740992",
    "-2^53": b"-9007199254740992",
    "an integer longer than Python reads": b"1" * 5_000,
    "a key twice": b'{"a":1,"a":1}',
    "a key twice, one escaped": b'{"a":1,"\\u0061":2}',
    "an escaped lone surrogate": b'"\\ud800"',
    "a capital in a key": b'{"A":1}',
    "too deep": json.dumps(nested(DEPTH_MAX + 1)).encode(),
    "deeper than the stack": b"[" * 100_000,
    "a comment": b"{} // x",
    "single quotes": b"{'a':1}",
}


@pytest.mark.parametrize("raw", REFUSED_BYTES.values(), ids=REFUSED_BYTES.keys())
def test_bytes_outside_the_subset_are_refused_also_in_loose_layout(raw: bytes) -> None:
    for read in (parse, loads):
        with pytest.raises(NotCanonical):
            read(raw)


NOT_THE_ONE_FORM: dict[str, bytes] = {
    "a space": b'{"a": 1}',
    "a line break": b"{}\n",
    "keys out of order": b'{"b":1,"a":1}',
    "an escape that is not needed": b'"\\u0061"',
    "an escaped slash": b'"\\/"',
    "a capital escape": b'"\\u001F"',
    "a letter beyond ASCII, escaped": b'"\\u00fc"',
}


@pytest.mark.parametrize("raw", NOT_THE_ONE_FORM.values(), ids=NOT_THE_ONE_FORM.keys())
def test_the_same_meaning_in_another_form_is_refused_where_it_is_signed(raw: bytes) -> None:
    assert loads(dumps(parse(raw))) == parse(raw)
    with pytest.raises(NotCanonical, match="not in canonical form"):
        loads(raw)


def test_the_edges_are_inside() -> None:
    for value in (INT_MAX, -INT_MAX, 0, nested(DEPTH_MAX)):
        assert loads(dumps(value)) == value


class Word(StrEnum):
    ONE = "one"


def test_what_looks_like_json_is_written_as_json() -> None:
    assert dumps({"b": (1, True), "a": Word.ONE, "c": None}) == b'{"a":"one","b":[1,true],"c":null}'
    assert dumps('\x00\x1f"\\\x7fü\u2028') == b'"\\u0000\\u001f\\"\\\\\x7f\xc3\xbc\xe2\x80\xa8"'


def test_a_digest_is_of_the_canonical_bytes() -> None:
    assert digest({"b": 1, "a": 2}) == digest_bytes(b'{"a":2,"b":1}')
    assert digest_bytes(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_not_canonical(raw: bytes) -> None:
    try:
        value = canon.parse(raw)
    except NotCanonical:
        return
    assert canon.loads(canon.dumps(value)) == value
