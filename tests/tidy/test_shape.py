"""Size and shape: what a reader can hold in the head. Numbers are those of the house style, hard limits only."""

from __future__ import annotations

import ast

import pytest

from tests.tidy.source import Function, check_none, product, python_files

FILE_LINES = 600
FILE_LINES_SMELL = 400
FUNCTION_LINES = 60
POSITIONAL = 6
EMPTY_WORDS = {"manager", "helper", "helpers", "util", "utils", "data", "common", "misc"}


def test_no_file_is_too_long_to_read_in_one_sitting() -> None:
    long = [f"{source.shown}: {source.lines} lines" for source in python_files() if source.lines > FILE_LINES]
    check_none(long, f"over {FILE_LINES} lines")


def test_long_files_are_few(record_property: pytest.RecordProperty) -> None:
    smells = [f"{source.shown}: {source.lines} lines" for source in product() if source.lines > FILE_LINES_SMELL]
    record_property("files over 400 lines", "; ".join(smells))
    assert len(smells) <= len(product()) // 20, (
        f"more than one file in twenty is over {FILE_LINES_SMELL} lines: {smells}"
    )


def test_no_function_is_longer_than_a_screen() -> None:
    long = []
    for source in product():
        for function in source.functions():
            count = _code_lines(function)
            if count > FUNCTION_LINES:
                long.append(f"{source.shown}:{function.lineno} {function.name}: {count} lines")
    check_none(long, f"over {FUNCTION_LINES} lines without the docstring")


def test_functions_take_few_arguments_by_position() -> None:
    wide = []
    for source in product():
        if ".cli." in source.name:
            continue  # a command's parameters are its flags
        for function in source.functions():
            names = [argument.arg for argument in function.args.posonlyargs + function.args.args]
            count = len([name for name in names if name not in ("self", "cls")])
            if count > POSITIONAL:
                wide.append(f"{source.shown}:{function.lineno} {function.name}: {count}")
    check_none(wide, f"over {POSITIONAL} positional parameters: pass a frozen dataclass")


def test_every_module_says_what_it_is_for() -> None:
    silent = [source.shown for source in python_files() if not (ast.get_docstring(source.tree) or "").strip()]
    check_none(silent, "no module docstring")


def test_first_docstring_lines_fit_the_map() -> None:
    """docs/map.md shows the first line, so it must be one sentence on one line."""
    bad = []
    for source in product():
        first = (ast.get_docstring(source.tree) or "-").splitlines()[0]
        if not first.endswith((".", "?", ":", ")")) and "." not in first:
            bad.append(f"{source.shown}: {first!r}")
    check_none(bad, "the first docstring line is no sentence")


def test_no_module_has_an_empty_name() -> None:
    bad = [source.shown for source in product() if set(source.path.stem.split("_")) & EMPTY_WORDS]
    check_none(bad, f"a name out of {sorted(EMPTY_WORDS)} says nothing")


def _code_lines(function: Function) -> int:
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total
