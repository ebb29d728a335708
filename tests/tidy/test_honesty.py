"""Things that make a repository look better than it is, and things that tie it to one machine."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.tidy.source import ROOT, check_none, python_files, tracked

GOLDEN_LINES = 120
TEXT = {
    ".py",
    ".md",
    ".yaml",
    ".yml",
    ".toml",
    ".txt",
    ".in",
    ".sh",
    ".cfg",
    ".ini",
    ".json",
    ".service",
    ".importlinter",
    "",
}
# Written in two halves so that this file does not find itself.
ELSEWHERE = re.compile(
    r"(?<![\w.\-/>])/(?:wo"
    r"rk|ro"
    r"ot)/|py"
    r"pi\.org|python"
    r"hosted\.org|npm"
    r"js\.org|deb\."
    r"debian\.org"
)
LEFT_OVER = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b(?!\(#\d+\))")


def _texts() -> list[tuple[str, str]]:
    found = []
    for path in tracked():
        if path.suffix in TEXT and path.stat().st_size < 2_000_000:
            try:
                found.append((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
            except UnicodeDecodeError:
                continue
    return found


def test_nothing_is_left_to_do_without_an_issue() -> None:
    bad = [
        f"{name}:{n}"
        for name, text in _texts()
        for n, line in enumerate(text.splitlines(), 1)
        if LEFT_OVER.search(line)
    ]
    check_none(bad, "name the issue in brackets, as in (#12), or do it")


def test_no_file_knows_one_machine_or_a_package_index() -> None:
    bad = [f"{name}: {found.group()}" for name, text in _texts() for found in ELSEWHERE.finditer(text)]
    check_none(bad, "a path of one machine, or a package index")


def test_no_test_is_switched_off() -> None:
    """Skipped, expected to fail, or unable to fail: all three hide the truth."""
    bad = []
    for source in python_files():
        if not source.shown.startswith(("tests/", "bench/")):
            continue
        for found in ast.walk(source.tree):
            if isinstance(found, ast.Attribute) and found.attr in (
                "skip",
                "skipif",
                "xfail",
                "importorskip",
                "skipTest",
            ):
                bad.append(f"{source.shown}:{found.lineno} {found.attr}")
            if isinstance(found, ast.Assert) and _cannot_fail(found.test):
                bad.append(f"{source.shown}:{found.lineno} assert cannot fail")
    check_none(bad, "switched off, or cannot fail")


def test_tests_are_not_empty() -> None:
    """A test states something: an assert, an expected exception, or a call of a function of the tests that does."""
    tests = [source for source in python_files() if source.shown.startswith(("tests/", "examples/"))]
    said = [(source, function, *_said(function)) for source in tests for function in source.functions()]
    stating = {function.name for _, function, asserts, _ in said if asserts}
    while more := {function.name for _, function, _, calls in said if calls & stating} - stating:
        stating |= more
    bad = [
        f"{source.shown}:{function.lineno} {function.name}"
        for source, function, asserts, calls in said
        if source.path.name.startswith("test_") and function.name.startswith("test_")
        if not asserts and not calls & (stating - {function.name})
    ]
    check_none(bad, "a test without a statement")


def test_golden_files_are_short_enough_to_be_reviewed() -> None:
    bad = []
    for path in tracked():
        inside = path.relative_to(ROOT).parts
        if (
            inside[0] == "tests"
            and any(part in ("golden", "goldens", "expected") for part in inside)
            and path.suffix != ".py"
        ):
            count = len(_lines(path))
            if count > GOLDEN_LINES:
                bad.append(f"{'/'.join(inside)}: {count} lines")
    check_none(bad, f"over {GOLDEN_LINES} lines")


def test_git_keeps_no_machine_made_files() -> None:
    made = (".pyc", ".sqlite", ".sqlite-wal", ".log", ".gguf", ".whl", ".orig", ".rej")
    check_none([path.name for path in tracked() if path.suffix in made], "made by a machine")


def _cannot_fail(test: ast.expr) -> bool:
    if isinstance(test, ast.Constant):
        return bool(test.value)
    return isinstance(test, ast.Tuple) and bool(test.elts)


def _said(function: ast.AST) -> tuple[bool, set[str]]:
    """Whether a function states something itself, and what it calls."""
    asserts, calls = False, set()
    for found in ast.walk(function):
        if isinstance(found, ast.Assert | ast.Raise):
            asserts = True
        elif isinstance(found, ast.Call):
            calls.add(found.func.attr if isinstance(found.func, ast.Attribute) else getattr(found.func, "id", ""))
    return asserts or bool(calls & {"raises", "warns", "fail"}), calls


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
