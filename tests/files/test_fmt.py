"""Layout: one canonical form, comments kept, meaning unchanged, and twice is the same as once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.files.fmt import format_text, prove_stable
from gridops.files.yamlish import parse
from tests.files.test_yamlish import plain

HEAD = "apiVersion: gridops/v1\nkind: Profile\nname: x\n"
ROOT = Path(__file__).resolve().parents[2]


def fmt(text: str) -> str:
    made = format_text("x.yaml", text.encode())
    assert made.problems == ()
    assert made.kept == ""
    prove_stable("x.yaml", made)
    return made.text


CASES: dict[str, tuple[str, str]] = {
    "spaces after a colon and inside braces": ("a:   x\nb: {  c:  1,d: [ 2,3 ]}\n", "a: x\nb: {c: 1, d: [2, 3]}\n"),
    "four spaces become two": ("a:\n    b:\n        c: 1\n", "a:\n  b:\n    c: 1\n"),
    "lists hang two spaces in": ("a:\n- x\n-   y\n", "a:\n  - x\n  - y\n"),
    "maps in lists stay with their dash": ("a:\n- b: 1\n  c:   2\n", "a:\n  - b: 1\n    c: 2\n"),
    "blank lines at the ends and in runs": ("\n\na: 1\n\n\n\nb: 2\n\n", "a: 1\n\nb: 2\n"),
    "no newline at the end": ("a: 1", "a: 1\n"),
    "line ends of windows": ("a:\r\n    b: 1\r\n", "a:\n  b: 1\n"),
    "white space at the end of a line": ("a: 1   \nb:  \n  c: 2\t\n", "a: 1\nb:\n  c: 2\n"),
    "comments move with what they speak of": (
        "a:\n    # of b\n    b: 1\n    # after b\n# of c\nc: 2\n",
        "a:\n  # of b\n  b: 1\n  # after b\n# of c\nc: 2\n",
    ),
    "a comment behind a value keeps its column": (
        "a: 1      # one\nbb:    2  # two\n",
        "a: 1      # one\nbb: 2     # two\n",
    ),
    "a comment too close gets room": ("a: 1 # one\n", "a: 1  # one\n"),
    "a value on the next line comes home": ("a:\n  1\n", "a: 1\n"),
    "block text keeps its shape": (
        "a:\n    b: |\n        x\n          y\n    c: 1\n",
        "a:\n  b: |\n      x\n        y\n  c: 1\n",
    ),
    "quotes stay as they are": ("a:   'x'\nb:  \"y\"\n", "a: 'x'\nb: \"y\"\n"),
    "a flow map over several lines keeps its lines": (
        "a:\n    b: {x: 1,\n        y: 2}\n",
        "a:\n  b: {x: 1,\n      y: 2}\n",
    ),
    "the header comes first": (
        "# about\nname: x\nkind: Profile\napiVersion: gridops/v1\n",
        "# about\napiVersion: gridops/v1\nkind: Profile\nname: x\n",
    ),
    "fields of a group follow the schema": (
        f"{HEAD}priority: 1\nreplicas: 2\n\npriority2: 3\n".replace("priority2: 3", "downtime: never"),
        f"{HEAD}replicas: 2\npriority: 1\n\ndowntime: never\n",
    ),
    "nothing moves over a blank line or a comment": (
        f"{HEAD}\npriority: 1\n\nreplicas: 2\n# why\nserves: [a]\n",
        f"{HEAD}\npriority: 1\n\nreplicas: 2\n# why\nserves: [a]\n",
    ),
    "a comment above a group keeps its first field": (
        f"{HEAD}\n# the weight\npriority: 1\nreplicas: 2\n",
        f"{HEAD}\n# the weight\npriority: 1\nreplicas: 2\n",
    ),
    "the order of configs is a preference": (
        f"{HEAD}configs:\n  b: {{engine: x}}\n  a: {{engine: y}}\n",
        f"{HEAD}configs:\n  b: {{engine: x}}\n  a: {{engine: y}}\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=list(CASES))
def test_a_layout_has_one_form(before: str, after: str) -> None:
    assert fmt(before) == after


KEPT = {
    "two entries before the colon": "? a\n: 1\n",
    "a list inside a list": "a:\n- - 1\n  - 2\n",
    "block text that keeps its last lines": "a: |+\n  x\n\n\nb: 1\n",
    "a comment between key and value": "a: # why\n  1\n",
    "a comma at the end": "a: [1, 2,]\n",
}


@pytest.mark.parametrize("text", KEPT.values(), ids=list(KEPT))
def test_a_layout_that_cannot_be_rewritten_safely_is_left_alone(text: str) -> None:
    made = format_text("x.yaml", text.encode())
    assert made.text == text
    assert made.kept


def test_a_file_that_is_not_yaml_is_reported_and_not_touched() -> None:
    made = format_text("x.yaml", b"a: [\n")
    assert made.text == "a: [\n"
    assert [p.code for p in made.problems] == ["GO103"]


def test_the_files_of_this_repository_are_in_canonical_layout() -> None:
    files = [p for f in ("fleet.d", "profiles.d", "policies", "examples") for p in sorted((ROOT / f).rglob("*.yaml"))]
    assert len(files) > 60
    for path in files:
        assert fmt(path.read_text(encoding="utf-8")) == path.read_text(encoding="utf-8"), path


# Any tree, laid out by a careless hand: the same words, the same meaning, and stable.

_WORDS = st.sampled_from(["a", "bb", "c-d", "no", "12", "48GiB", '"q: r"', "'s'", "x y", "u:v"])
_COMMENT = st.sampled_from(["", "", "", "  # why", " # a: b", "    # [x"])
_BETWEEN = st.sampled_from(["", "", "", "\n", "\n\n", "#c\n", "    # deep\n", "  # two\n\n"])


@st.composite
def _flow(draw: st.DrawFn) -> str:
    items = draw(st.lists(_WORDS, max_size=3))
    gap = draw(st.sampled_from(["", " ", "  "]))
    if draw(st.booleans()):
        return "[" + gap + f",{gap}".join(items) + gap + "]"
    return "{" + gap + f",{gap} ".join(f"k{n}: {word}" for n, word in enumerate(items)) + gap + "}"


@st.composite
def _block(draw: st.DrawFn, depth: int = 0, indent: int = 0) -> str:
    pad = " " * indent
    lines = []
    for number in range(draw(st.integers(1, 4))):
        before = draw(_BETWEEN) if number or depth else draw(st.sampled_from(["", "# top\n", "\n"]))
        key = f"k{number}"
        kind = draw(st.sampled_from(["scalar", "flow", "map", "list", "text"] if depth < 3 else ["scalar", "flow"]))
        gap = draw(st.sampled_from([" ", "  ", "    "]))
        step = draw(st.sampled_from([1, 2, 4]))
        if kind == "map":
            body = f"{pad}{key}:{draw(_COMMENT)}\n" + draw(_block(depth + 1, indent + step))
        elif kind == "list":
            inner = " " * (indent + draw(st.sampled_from([0, 2, 3])))
            items = draw(st.lists(st.one_of(_WORDS, _flow()), min_size=1, max_size=3))
            body = f"{pad}{key}:\n" + "".join(f"{draw(_BETWEEN)}{inner}-{gap}{i}{draw(_COMMENT)}\n" for i in items)
        elif kind == "text":
            inner = " " * (indent + step)
            body = f"{pad}{key}: |\n{inner}one\n{inner}  two\n"
        else:
            value = draw(_WORDS if kind == "scalar" else _flow())
            body = f"{pad}{key}:{gap}{value}{draw(_COMMENT)}\n"
        lines.append(before + body)
    return "".join(lines)


def comments(text: str) -> list[str]:
    return sorted(line.partition("#")[2].strip() for line in text.splitlines() if "#" in line)


def ordered(value: Any) -> Any:
    return [(k, ordered(v)) for k, v in value.items()] if isinstance(value, dict) else value


@settings(max_examples=200)
@given(_block())
def test_any_careless_layout_is_formatted_without_changing_a_word(text: str) -> None:
    before = parse("x.yaml", text.encode())
    made = format_text("x.yaml", text.encode())
    prove_stable("x.yaml", made)
    if before.root is None or before.problems:
        assert made.problems
        return
    after = parse("x.yaml", made.text.encode())
    assert ordered(plain(after.root)) == ordered(plain(before.root))
    assert comments(made.text) == comments(text)


# A map behind a dash hangs two in from its dash whatever the step, so that such files cannot be stretched by lines.
STRETCHY = [
    path
    for path in sorted((ROOT / "examples").rglob("*.yaml"))
    if not re.search(r"^ *- \w+:", path.read_text(encoding="utf-8"), re.MULTILINE)
]


@settings(max_examples=40)
@given(st.sampled_from(STRETCHY), st.data())
def test_a_real_file_with_its_lines_indented_otherwise_comes_back(path: Path, data: st.DataObject) -> None:
    text = path.read_text(encoding="utf-8")
    factor = data.draw(st.integers(1, 3))
    wide = "".join(
        " " * ((len(line) - len(line.lstrip())) * factor) + line.lstrip() for line in text.splitlines(keepends=True)
    )
    again = fmt(wide)
    assert [line.split("#")[0].rstrip() for line in again.splitlines()] == [
        line.split("#")[0].rstrip() for line in text.splitlines()
    ]
