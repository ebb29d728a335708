"""Applies the edits that problems carry, by position, so that comments and layout stay as they are.

Called by `gridops validate --fix`. Edits that touch each other are left for the next round; a round never makes a
file that cannot be read from one that can.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gridops.files.diagnose import Edit, Fix, Problem
from gridops.files.load import Checked, check
from gridops.files.tree import MemoryTree, Tree
from gridops.files.yamlish import parse

ROUNDS = 8
"""One repair may uncover another; more than a few in a row would be our own fault."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """New contents of the files that changed, how many problems were repaired, and what is left."""

    changed: dict[str, bytes]
    repaired: int
    checked: Checked


def repair(tree: Tree, *, unsafe: bool = False, only: frozenset[str] | None = None) -> Fixed:
    """Fix and check again until nothing is left to fix. The tree itself is not written to."""
    files = {path: _read(tree, path) for path in tree.paths()}
    contents = {path: raw for path, raw in files.items() if raw is not None}
    original = dict(contents)
    repaired = 0
    checked = check(tree)
    for _ in range(ROUNDS):
        done = _round(contents, checked.problems, unsafe=unsafe, only=only)
        if not done:
            break
        repaired += done
        checked = check(MemoryTree(contents))
    changed = {path: raw for path, raw in sorted(contents.items()) if raw != original[path]}
    return Fixed(changed, repaired, checked)


def _read(tree: Tree, path: str) -> bytes | None:
    try:
        return tree.read(path)
    except OSError:
        return None


def _round(
    contents: dict[str, bytes], problems: Iterable[Problem], *, unsafe: bool, only: frozenset[str] | None
) -> int:
    by_file: dict[str, list[Fix]] = {}
    for problem in problems:
        wanted = problem.fix is not None and (problem.fix.safe or unsafe)
        if problem.fix is not None and wanted and (only is None or problem.file in only) and problem.file in contents:
            by_file.setdefault(problem.file, []).append(problem.fix)
    done = 0
    for file, fixes in by_file.items():
        text, count = apply(contents[file].decode("utf-8"), fixes)
        made = text.encode()
        if count and (parse(file, made).root is not None or parse(file, contents[file]).root is None):
            contents[file] = made
            done += count
    return done


def apply(text: str, fixes: Iterable[Fix]) -> tuple[str, int]:
    """The text with as many fixes as do not overlap, and their number."""
    body = text.removeprefix("\ufeff")
    starts = [0]
    for line in body.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    taken: list[tuple[int, int, str]] = []
    done = 0
    for fix in fixes:
        spans = [_span(edit, starts, len(body)) for edit in fix.edits]
        if any(_overlap(new, old) for new in spans for old in taken):
            continue
        taken.extend(spans)
        done += 1
    for start, end, new in sorted(taken, reverse=True):
        body = body[:start] + new + body[end:]
    return body, done


def _span(edit: Edit, starts: list[int], size: int) -> tuple[int, int, str]:
    start = starts[min(edit.line, len(starts)) - 1] + edit.column - 1
    end = starts[min(edit.end_line, len(starts)) - 1] + edit.end_column - 1
    return min(start, size), min(end, size), edit.text


def _overlap(left: tuple[int, int, str], right: tuple[int, int, str]) -> bool:
    return left[0] <= right[1] and right[0] <= left[1]
