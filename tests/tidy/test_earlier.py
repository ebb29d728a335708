"""The table of what an earlier allocator's tests pinned: every test that it names exists, and no cell is empty."""

from __future__ import annotations

import ast
import re

from tests.tidy.source import ROOT, check_none

TABLE = ROOT / "tests" / "earlier.md"
ROW = re.compile(r"\| `(\w+)` \| (.+) \|")
OURS = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
REASON = re.compile(r"not applicable: \w.{14,}")


def rows() -> list[tuple[int, str]]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return [(n, line) for n, line in enumerate(lines, 1) if line.startswith("| ") and line not in _HEADS]


_HEADS = ("| behaviour | our test |", "| --- | --- |")


def named_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}


def fault(line: str) -> str | None:
    row = ROW.fullmatch(line)
    if row is None:
        return "is no row of a behaviour and a test"
    ours = OURS.fullmatch(row.group(2))
    if ours is None:
        return None if REASON.fullmatch(row.group(2)) else "names neither a test nor a reason"
    file, name = ours.groups()
    if not (ROOT / "tests" / file).is_file():
        return f"names {file}, which is not there"
    return None if name in named_in(file) else f"names {name}, which is not in {file}"


def test_every_behaviour_has_a_test_that_exists_or_a_reason() -> None:
    check_none([f"tests/earlier.md:{n} {why}" for n, line in rows() if (why := fault(line))], "mend the row")
    names = [ROW.fullmatch(line).group(1) for _, line in rows()]  # type: ignore[union-attr]
    assert len(names) == len(set(names)) == 340


def test_a_row_that_says_nothing_or_names_nothing_is_noticed() -> None:
    good = "| `a_b` | `tidy/test_earlier.py::test_a_row_that_says_nothing_or_names_nothing_is_noticed` |"
    assert fault(good) is None
    assert fault("| `a_b` | not applicable: it does not arise here |") is None
    for bad in (
        "| `a_b` |  |",
        "| `a_b` | not applicable: |",
        "| `a_b` | later |",
        good.replace("noticed", "missed"),
        good.replace("test_earlier", "test_gone"),
        "| a_b | not applicable: it does not arise here |",
    ):
        assert fault(bad) is not None, bad
