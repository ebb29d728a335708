"""Records: frozen, strict, and the same bytes for the same meaning."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridops.base import canon
from gridops.base.record import (
    Malformed,
    adapter,
    digest_of,
    from_bytes,
    from_data,
    record,
    to_bytes,
    to_data,
    with_one,
)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@record
class Wheel:
    size: int
    colour: Colour = Colour.RED


@record
class Cart:
    name: str
    wheels: tuple[Wheel, ...] = ()
    note: str | None = None
    locked: bool = False
    mode: Literal["push", "pull"] = "push"


CART = Cart(name="c", wheels=(Wheel(size=1), Wheel(size=2, colour=Colour.BLUE)))
DATA = {
    "name": "c",
    "wheels": [{"size": 1, "colour": "red"}, {"size": 2, "colour": "blue"}],
    "locked": False,
    "mode": "push",
}


def test_a_record_becomes_plain_json_and_leaves_out_what_is_not_said() -> None:
    assert to_data(CART) == DATA
    assert to_data(dataclasses.replace(CART, note="n"))["note"] == "n"
    assert to_bytes(CART) == canon.dumps(DATA)
    assert digest_of(CART) == canon.digest(DATA)


wheels = st.builds(Wheel, size=st.integers(-(2**53) + 1, 2**53 - 1), colour=st.sampled_from(Colour))
carts = st.builds(
    Cart,
    name=st.text(st.characters(exclude_categories=["Cs"])),
    wheels=st.lists(wheels, max_size=3).map(tuple),
    note=st.none() | st.just("n"),
    locked=st.booleans(),
    mode=st.sampled_from(["push", "pull"]),
)


@given(carts)
def test_another_field_makes_the_record_that_replace_makes(cart: Cart) -> None:
    for field, to in (("name", "d"), ("wheels", ()), ("note", None), ("locked", True)):
        made = with_one(cart, field, to)
        assert made == dataclasses.replace(cart, **{field: to})
        assert to_bytes(made) == to_bytes(dataclasses.replace(cart, **{field: to}))
    with pytest.raises(TypeError):
        with_one(cart, "colour", "red")


@given(carts)
def test_a_record_comes_back_unchanged(cart: Cart) -> None:
    assert from_bytes(Cart, to_bytes(cart)) == cart
    assert from_data(Cart, to_data(cart)) == cart
    assert to_bytes(from_bytes(Cart, to_bytes(cart))) == to_bytes(cart)


def test_equal_records_are_one_key() -> None:
    assert hash(from_data(Cart, DATA)) == hash(CART)


BENT: dict[str, tuple[dict[str, Any], str]] = {
    "a field is missing": ({k: v for k, v in DATA.items() if k != "name"}, "Cart.name"),
    "a field nobody knows": ({**DATA, "colour": "red"}, "Cart.colour"),
    "a number for a text": ({**DATA, "name": 7}, "Cart.name"),
    "a text for a number": ({**DATA, "wheels": [{"size": "1"}]}, "Cart.wheels.0.size"),
    "true for a number": ({**DATA, "wheels": [{"size": True}]}, "Cart.wheels.0.size"),
    "a number for true": ({**DATA, "locked": 1}, "Cart.locked"),
    "a text for true": ({**DATA, "locked": "true"}, "Cart.locked"),
    "null for a text": ({**DATA, "name": None}, "Cart.name"),
    "a word that is not in the list": ({**DATA, "wheels": [{"size": 1, "colour": "green"}]}, "Cart.wheels.0.colour"),
    "another mode": ({**DATA, "mode": "ride"}, "Cart.mode"),
    "a record for a list": ({**DATA, "wheels": {"size": 1}}, "Cart.wheels"),
    "an unknown field deep inside": ({**DATA, "wheels": [{"size": 1, "x": 1}]}, "Cart.wheels.0.x"),
}


@pytest.mark.parametrize(("data", "field"), BENT.values(), ids=BENT.keys())
def test_anything_else_is_refused_by_the_name_of_its_first_wrong_field(data: dict[str, Any], field: str) -> None:
    with pytest.raises(Malformed) as caught:
        from_data(Cart, data)
    assert str(caught.value).startswith(f"{field}: ")


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"7", b"\xff"])
def test_bytes_that_are_no_document_are_refused(raw: bytes) -> None:
    with pytest.raises(Malformed, match=r"^Cart\.document: "):
        from_bytes(Cart, raw)


def test_a_record_cannot_be_changed_or_grown() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CART.name = "d"  # type: ignore[misc]
    assert not hasattr(CART, "__dict__")
    with pytest.raises(TypeError):
        Cart("positional")  # type: ignore[misc]


def test_a_value_that_has_no_canonical_form_is_refused_when_written() -> None:
    with pytest.raises(canon.NotCanonical):
        to_bytes(Wheel(size=2**53))


def test_an_adapter_is_made_once() -> None:
    assert adapter(Cart) is adapter(Cart)


def test_a_field_that_may_be_none_must_have_a_default() -> None:
    with pytest.raises(TypeError, match=r"Loose\.parent may be None"):

        @record
        class Loose:
            parent: int | None


@pytest.mark.parametrize("data", [{"n": 1.5}, {"n": float("nan")}, {"\ud800": 1}, {"n": "\ud800"}, {"N": 1}])
def test_values_that_have_no_canonical_form_are_malformed_and_nothing_else(data: Any) -> None:
    @record
    class Number:
        n: int

    with pytest.raises(Malformed):
        from_data(Number, data)
