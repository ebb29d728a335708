"""What is wrong with a file: a code, a place, a sentence, what to do, and often the edit that does it.

Every room of `files` makes these; `draw` shows them to people, `report` to machines, `fix` applies their edits.
Nothing here decides whether something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

from gridops.base.codes import Code
from gridops.files.secrets import masked

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file, quoted."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of one line; line and column count from 1. `lines` is what a drawing shows, the line itself last."""

    file: str
    line: int
    column: int
    length: int = 1
    lines: tuple[Line, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that explains the problem, with a few words about it."""

    place: Place
    label: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text from a position up to another (exclusive) by `text`."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits of the problem's own file that remove it. Safe: the meaning that was intended is certain."""

    title: str
    edits: tuple[Edit, ...]
    safe: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding. `hint` stands beside the caret, `notes` below the snippet."""

    code: str
    message: str
    place: Place
    severity: Severity = "error"
    hint: str = ""
    related: tuple[Related, ...] = ()
    notes: tuple[str, ...] = ()
    fix: Fix | None = None

    @property
    def file(self) -> str:
        return self.place.file

    @property
    def line(self) -> int:
        return self.place.line

    @property
    def column(self) -> int:
        return self.place.column

    @property
    def length(self) -> int:
        return self.place.length

    @property
    def snippet(self) -> tuple[Line, ...]:
        return self.place.lines

    def __str__(self) -> str:
        tail = f" ({self.hint})" if self.hint else ""
        return f"{self.place}: {self.severity}[{self.code}]: {self.message}{tail}"


class More(TypedDict, total=False):
    """What a problem may carry besides its sentence."""

    related: tuple[Related, ...]
    notes: tuple[str, ...]
    fix: Fix | None


def error(code: Code, place: Place, message: str, hint: str = "", **more: Unpack[More]) -> Problem:
    """A problem that keeps the files from being used."""
    return Problem(code=code.code, place=place, message=masked(message), hint=masked(hint), **more)


def warning(code: Code, place: Place, message: str, hint: str = "", **more: Unpack[More]) -> Problem:
    """A problem that a person should see and may accept."""
    text, tip = masked(message), masked(hint)
    return Problem(code=code.code, place=place, message=text, hint=tip, severity="warning", **more)


def brief(text: str, most: int = 60) -> str:
    """A word of a file for a message, never a page of it."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def ordered(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """By file, line, column and code; equal findings once."""
    unique = dict.fromkeys(problems)
    return tuple(sorted(unique, key=lambda p: (p.file, p.line, p.column, p.code, p.message)))


def has_errors(problems: Iterable[Problem]) -> bool:
    return any(p.severity == "error" for p in problems)
