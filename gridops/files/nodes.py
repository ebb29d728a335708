"""YAML as a tree with places: what `yamlish` reads and what every judge of a file points into.

Lines and columns count from 1, in characters. Scalars are text: their type comes from the schema, never from a guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gridops.files.diagnose import Line, Place
from gridops.files.secrets import LOOKED_AT, masked

NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(slots=True)
class Scalar:
    """A piece of text. `style` is empty when plain, else its quote or block sign."""

    value: str
    style: str
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def is_null(self) -> bool:
        """True for a value that was left out or written as `~` or `null` without quotes."""
        return not self.style and self.value in NULLS


@dataclass(slots=True)
class Entry:
    """One key of a map with its value."""

    key: Scalar
    value: Node


@dataclass(slots=True)
class Map:
    """`flow` is True for `{a: b}`."""

    flow: bool
    line: int
    column: int
    entries: dict[str, Entry] = field(default_factory=dict)
    repeated: list[Entry] = field(default_factory=list)
    """Entries whose key was given before; reported, and judged for what else is wrong inside them."""
    end_line: int = 0
    end_column: int = 0


@dataclass(slots=True)
class Seq:
    """`flow` is True for `[a, b]`."""

    flow: bool
    line: int
    column: int
    items: list[Node] = field(default_factory=list)
    end_line: int = 0
    end_column: int = 0


@dataclass(slots=True)
class Hole:
    """Something refused (an alias) that already has its problem; judges pass over it."""

    line: int
    column: int
    end_line: int
    end_column: int


Node = Scalar | Map | Seq | Hole


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one file, cut into lines."""

    file: str
    lines: tuple[str, ...]

    def line(self, number: int) -> str:
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def place(self, node: Node, *, since: int | None = None) -> Place:
        """Where a node stands, with its line and, from line `since` on, what comes before it."""
        length = node.end_column - node.column if node.end_line == node.line else 0
        if isinstance(node, Map | Seq):
            length = 1 if node.flow else 0
        if length <= 0:
            length = len(self.line(node.line).rstrip()) - node.column + 1
        return self.spot(node.line, node.column, length=length, since=since)

    def spot(self, line: int, column: int, *, length: int = 1, since: int | None = None) -> Place:
        first = line if since is None or line - since > CONTEXT or since > line else since
        numbers = range(max(first, 1), min(line, len(self.lines)) + 1)
        shown = tuple(Line(n, _quoted(self.line(n), column if n == line else 1)) for n in numbers)
        return Place(self.file, line, column, max(length, 1), shown)


def _quoted(text: str, column: int) -> str:
    """A line for showing: secrets blotted out; of an endless line only what stands around the column."""
    if len(text) <= LOOKED_AT:
        return masked(text)
    start = max(column - AROUND, 0)
    return " " * start + masked(text[start : start + 2 * AROUND])


AROUND = 400
CONTEXT = 4
"""A parent farther up than this many lines is not shown."""
