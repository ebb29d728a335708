"""Records written the straight way: the bytes and refusals of the literal way, and digests remembered by identity."""

from __future__ import annotations

import dataclasses
import math
import types
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Discriminator

from gridops.base import canon, limits
from gridops.base.record import Digests, _straight_bytes, digest_of, known_digest, record, to_bytes
from gridops.model.intent import Desired
from gridops.model.plan import Plan
from gridops.model.snapshot import Snapshot
from gridops.protocol.messages import Grant
from tests.base.literal import answer, literal_record_bytes


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Number(IntEnum):
    THREE = 3


class Text(str):
    __slots__ = ()


@record
class Inner:
    z: int = 1
    a: str = "q"


class Grown(Inner):
    pass


@record
class Left:
    kind: Literal["left"] = "left"
    b: int = 1
    a: str | None = None


@record
class Right:
    kind: Literal["right"] = "right"
    a: Inner = Inner()


@record
class Outer:
    whole: int = 1
    text: str = "a"
    truth: bool = False
    colour: Colour = Colour.RED
    way: Literal["push", "pull"] = "push"
    inner: Inner = Inner()
    several: tuple[int, ...] = ()
    pair: tuple[str, int] = ("a", 1)
    inners: tuple[Inner | None, ...] = ()
    maybe: Inner | None = None
    number: int | None = None
    form: Literal[1, 2] = 1
    side: Annotated[Left | Right, Discriminator("kind")] = Left()


JUNK: list[Any] = [
    *(None, True, 0, 2**53 - 1, 2**53, -(2**53), 2**63, 2**70, -(10**16), 1.0, math.nan, Number.THREE),
    *("x", "\ud800", "push", "\x00\x1f\x7f\u2028\U0001f600", Text("x"), Colour.BLUE, b"x", object()),
    *("1234567890123456,", ":1234567890123456]", "1234567890123456"),
    *(
        [],
        [1],
        (),
        (1,),
        (True,),
        ("a",),
        ("a", 1),
        ("a", 2**53),
        (Number.THREE,),
        {"a": 1},
        {"A": 1},
        {"b": 1, "a": 2},
    ),
    *(Inner(), Grown(), Inner(z=2**53), Inner(z="a"), Inner(a=Colour.RED), Outer(), (Inner(),), (Inner(), None)),  # type: ignore[arg-type]
    *(Left(a="x"), Left(b=2**53), Right(), Left(kind="right"), Right(kind="left"), Right(a=None), Left(kind=1)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Outer)])
def test_whatever_stands_in_a_field_both_ways_say_the_same(name: str) -> None:
    for junk in JUNK:
        value = dataclasses.replace(Outer(), **{name: junk})
        assert answer(to_bytes, value) == answer(literal_record_bytes, value), repr(junk)


def made(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type, with every field of every record given."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind, include_extras=True)
        return st.builds(kind, **{field.name: made(hints[field.name]) for field in dataclasses.fields(kind)})
    if get_origin(kind) is Annotated:
        return made(get_args(kind)[0])
    if get_origin(kind) is tuple:
        first, *more = get_args(kind)
        if more == [...]:
            return st.lists(made(first), max_size=2).map(tuple)
        return st.tuples(made(first), *(made(one) for one in more))
    if get_origin(kind) in (Union, types.UnionType):
        return st.one_of(*(made(one) for one in get_args(kind)))
    if hasattr(kind, "__supertype__"):
        return made(kind.__supertype__)
    if kind is int:
        return st.integers(-(10**15) + 1, 10**15 - 1)
    if kind is str:
        return st.text('az09,]}:"\\\x1f\x7fü\U0001f600', max_size=12)
    return st.from_type(kind)


LARGE = [Plan, Snapshot, Desired, Grant]
slow = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", LARGE)
@slow
@given(choice=st.data())
def test_the_large_records_go_the_straight_way_to_the_literal_bytes(kind: type[Any], choice: st.DataObject) -> None:
    value = choice.draw(made(kind))
    assert _straight_bytes(value) == to_bytes(value) == literal_record_bytes(value)


@given(made(Outer))
def test_any_outer_has_the_literal_bytes(value: Outer) -> None:
    assert to_bytes(value) == literal_record_bytes(value)


@given(made(Outer), st.sampled_from([field.name for field in dataclasses.fields(Outer)]), st.sampled_from(JUNK))
def test_one_wrong_field_among_right_ones_is_judged_alike(value: Outer, name: str, junk: Any) -> None:
    bent = dataclasses.replace(value, **{name: junk})
    assert answer(to_bytes, bent) == answer(literal_record_bytes, bent)


@record
class Ring:
    next: Ring | None = None


def test_a_record_that_may_hold_itself_is_judged_by_its_depth() -> None:
    ring = Ring()
    for depth in range(1, 19):
        ring = Ring(next=ring)
        assert answer(to_bytes, ring) == answer(literal_record_bytes, ring), depth
    assert isinstance(answer(to_bytes, ring), tuple)


def chain(levels: int) -> type[Any]:
    kind: type[Any] = Inner
    for _ in range(levels):
        kind = record(type("Level", (), {"__annotations__": {"inner": kind}, "inner": kind(), "__module__": __name__}))
    return kind


@pytest.mark.parametrize("levels", [14, 15, 16, 17])
def test_a_type_as_deep_as_the_subset_allows_is_written_and_a_deeper_one_is_refused(levels: int) -> None:
    value = chain(levels)()
    assert answer(to_bytes, value) == answer(literal_record_bytes, value)
    assert isinstance(answer(to_bytes, value), bytes) == (levels <= 15)
    assert (_straight_bytes(value) is not None) == (levels <= 15)


def test_what_the_proof_does_not_know_is_written_the_literal_way() -> None:
    @record
    class Loose:
        any: Any = 1
        free: dict[str, int] = dataclasses.field(default_factory=dict)

    @record
    class Capital:
        someName: int = 1  # noqa: N815

    @record
    class Half:
        part: float = 0.5

    for value in (Loose(), Loose(free={"b": 1, "a": 2}), Loose(any=1.5), Capital(), Half()):
        assert _straight_bytes(value) is None
        assert answer(to_bytes, value) == answer(literal_record_bytes, value)


def test_a_digest_is_made_once_for_one_object() -> None:
    digests, value = Digests(), Outer()
    assert digests.of(value) == digests.of(value) == digest_of(value)
    assert len(digests) == 1
    assert digests.of(dataclasses.replace(value, whole=2)) != digests.of(value)
    assert digests.of(Outer()) == digest_of(value)
    assert len(digests) == 3


def test_an_object_that_was_digested_keeps_its_identity_while_it_is_remembered() -> None:
    digests = Digests()
    for number in range(2_000):  # each is dropped by this test at once, so that its address would be used again
        assert digests.of(Inner(z=number)) == canon.digest({"a": "q", "z": number})


def test_a_remembered_digest_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    digests, value = Digests(), Outer()
    known = digests.of(value)
    monkeypatch.setattr(canon, "digest_bytes", lambda raw: pytest.fail("digested again"))
    assert digests.of(value) is known


def test_what_could_change_is_never_remembered() -> None:
    digests, items = Digests(), [1]
    value = Outer(several=items)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="Expected `tuple"):
        before = digests.of(value)
    items.append(2)
    with pytest.warns(UserWarning, match="Expected `tuple"):
        assert digests.of(value) != before
    assert len(digests) == 0


def test_memory_is_bounded_by_count_and_by_bytes_and_the_longest_unused_goes_first() -> None:
    one, two, three = (Inner(z=n) for n in (1, 2, 3))
    digests = Digests(kept=2)
    for value in (one, two, one, three):
        digests.of(value)
    assert len(digests) == 2
    assert [entry.value for entry in digests._known.values()] == [one, three]

    size = len(to_bytes(one))
    digests = Digests(kept_bytes=2 * size)
    for value in (one, two, three, Inner(a="q" * 3 * size)):
        digests.of(value)
    assert [entry.value for entry in digests._known.values()] == [two, three]
    assert Digests()._kept == limits.DIGESTS_KEPT


def test_a_known_digest_is_the_digest_of_what_was_asked_for() -> None:
    for value in (Inner(), Inner(z=2), Inner(a="x"), Left(), Left(a="x")):
        for _ in range(2):
            assert known_digest(value) == digest_of(value)
            assert known_digest(dataclasses.replace(value)) == digest_of(value)
