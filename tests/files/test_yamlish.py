"""The reader: what YAML 1.2 says, with places, from the fast parser and the pure one alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridops.files import yamlish
from gridops.files.nodes import Map, Node, Scalar, Seq
from gridops.files.yamlish import parse

WORDS_THAT_YAML_1_1_MISREADS = ("no", "on", "22:22", "0123", "1_000", "2026-11-29", "1e3", "0x1F", ".inf", "=", "y")


def plain(node: Node | None) -> Any:
    """A tree without its places."""
    if isinstance(node, Scalar):
        return None if node.is_null else node.value
    if isinstance(node, Seq):
        return [plain(item) for item in node.items]
    if isinstance(node, Map):
        return {key: plain(entry.value) for key, entry in node.entries.items()}
    return node


def read(text: str, *, pure: bool = False) -> Any:
    parsed = parse("x.yaml", text.encode(), pure=pure)
    assert parsed.problems == []
    return plain(parsed.root)


@pytest.mark.parametrize("word", WORDS_THAT_YAML_1_1_MISREADS)
def test_a_word_is_text_until_the_schema_gives_it_a_type(word: str) -> None:
    assert read(f"a: {word}") == {"a": word}


def test_a_scalar_knows_where_it_begins_and_ends() -> None:
    parsed = parse("x.yaml", b'a:\n  b: [1, "two"]\n')
    assert isinstance(parsed.root, Map)
    outer = parsed.root.entries["a"]
    assert isinstance(outer.value, Map)
    entry = outer.value.entries["b"]
    assert (entry.key.line, entry.key.column, entry.key.end_column) == (2, 3, 4)
    assert isinstance(entry.value, Seq)
    second = entry.value.items[1]
    assert isinstance(second, Scalar)
    assert (second.line, second.column, second.end_column, second.style) == (2, 10, 15, '"')


def test_columns_count_characters_and_not_bytes() -> None:
    parsed = parse("x.yaml", "é: ü x\n".encode())
    assert isinstance(parsed.root, Map)
    value = parsed.root.entries["é"].value
    assert (value.line, value.column, value.end_column) == (1, 4, 7)


@pytest.mark.parametrize(
    "text",
    [
        "{at: 2026-11-29T09:12:00Z, s: hf://a/b@c}",
        "[a:b, c::d, http://x/y]",
        "{a: 'x:y', \"b\":1}",
        "a: {b: sha256:00, c: [d:e]}",
    ],
)
def test_a_colon_inside_a_word_is_text_also_within_braces(text: str) -> None:
    """The C parser follows YAML 1.1 here; the pure one follows 1.2 and is the judge."""
    assert read(text) == read(text, pure=True)


def test_windows_line_ends_are_read() -> None:
    assert read("a:\r\n  b: 1\r\n") == {"a": {"b": "1"}}


def test_an_empty_value_and_null_are_no_value_but_quoted_ones_are_text() -> None:
    assert read("a:\nb: ~\nc: null\nd: ''\ne: 'null'") == {"a": None, "b": None, "c": None, "d": "", "e": "null"}


def test_reading_goes_on_after_a_problem_that_can_be_passed_over() -> None:
    parsed = parse("x.yaml", b"a: &x 1\nb: *x\n<<: {c: 1}\na: 2\nd: !!int 3\n")
    assert [p.code for p in parsed.problems] == ["GO106", "GO106", "GO107", "GO105", "GO108"]
    assert isinstance(parsed.root, Map)
    assert list(parsed.root.entries) == ["a", "b", "d"]


def test_the_pure_parser_stands_in_when_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yamlish, "CParser", None)
    assert read("a: {b: c:d}") == {"a": {"b": "c:d"}}


_SCALARS = st.text("abc019 :#-'\"{}[],&*!|>%@`\t", max_size=8)
_LINES = st.lists(
    st.tuples(st.sampled_from(["", "  ", "    ", "- "]), st.sampled_from(["a", "b", '"c"']), _SCALARS), max_size=6
)


@given(_LINES)
def test_both_parsers_read_the_same(lines: list[tuple[str, str, str]]) -> None:
    text = "".join(f"{indent}{key}: {value}\n" for indent, key, value in lines)
    fast, slow = parse("x.yaml", text.encode()), parse("x.yaml", text.encode(), pure=True)
    if not fast.problems and not slow.problems:
        assert plain(fast.root) == plain(slow.root)
    if slow.problems and all(p.code == "GO103" for p in slow.problems):
        # What the judge cannot read is never read as something else.
        assert fast.problems or plain(fast.root) is not None
