"""The fast check of canonical JSON against the literal one: equal bytes, or the same refusal in the same words."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.base.canon import dumps, text, whole
from tests.base.literal import answer, literal_bytes


class Key(StrEnum):
    A = "a"


good_keys = st.sampled_from(["a", "b", "key", "k_1"])
bad_keys = st.sampled_from(["", "A", "1a", "a-b", "a\n", "\ud800", "ü", 1, None, True, 1.5, Key.A, (1,)])
integers = st.integers(-(2**54), 2**54) | st.sampled_from([2**53 - 1, 2**53, -(2**53) + 1, -(2**53), 2**70])
scalars = (
    st.none()
    | st.booleans()
    | integers
    | st.text(max_size=8)
    | st.sampled_from(["\ud800", "a\udfff", Key.A, "\x00\x7f\u2028", b"x", 1.0, math.nan, math.inf, {1}, 1j])
)
good_scalars = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text("aü\x1f\U0001f600")


def nest(inner: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=4)
    return lists | lists.map(tuple) | st.dictionaries(keys, inner, max_size=4)


good = st.recursive(good_scalars, lambda inner: nest(inner, good_keys), max_leaves=20)
mixed = st.recursive(scalars | good, lambda inner: nest(inner, good_keys | bad_keys), max_leaves=10)


@st.composite
def deep(draw: st.DrawFn) -> Any:
    """Around the greatest depth, where a scalar, an empty list and a wrong key are judged in a certain order."""
    value = draw(st.sampled_from([1, "a", None, True, 2**53, [], {}, {"A": 1}, {"a": 1}, [1.0], [2**53]]))
    for _ in range(draw(st.integers(12, 18))):
        value = draw(st.sampled_from([[value], (value,), {"a": value}, [1, value], {"b": "x", "a": value}]))
    return value


@settings(max_examples=400)
@given(good | mixed | deep())
def test_the_fast_check_and_the_literal_one_agree_on_bytes_and_on_refusals(value: Any) -> None:
    assert answer(dumps, value) == answer(literal_bytes, value)


@settings(max_examples=200)
@given(st.text() | st.sampled_from(["\ud800", "a\udfff", Key.A, "\x00\x7f\u2028"]))
def test_a_text_that_is_written_by_itself_has_the_bytes_that_it_has_as_a_value(value: str) -> None:
    assert answer(lambda v: whole(text(v)), value) == answer(literal_bytes, value)


def test_a_key_that_only_equals_a_good_one_is_refused_also_after_the_good_one() -> None:
    value = [{"a": 1}, {Key.A: 1}]
    assert answer(dumps, value) == answer(literal_bytes, value)
    assert isinstance(answer(dumps, value), tuple)


def test_a_value_that_holds_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert answer(dumps, circle) == ("NotCanonical", "nested deeper than 16")
