"""Problems drawn for people: what is wrong, where, the lines with a caret, related places, what to do.

Called by the CLI. Pure text in, text out; colours are the caller's choice. Nothing from a file reaches a terminal
unescaped: control and direction characters become a visible sign, and very long lines are cut around the caret.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from gridops.base.codes import registry
from gridops.base.limits import PROBLEMS_SHOWN
from gridops.files.diagnose import Line, Place, Problem

WIDTH = 80
NEAR = 3
"""Lines between two places of one file that are still drawn in one piece."""
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


@dataclass(frozen=True, slots=True)
class Paint:
    """Escape codes around parts of a drawing; all empty means plain text."""

    error: str = ""
    warning: str = ""
    frame: str = ""
    bold: str = ""
    end: str = ""

    def of(self, severity: str) -> str:
        return self.error if severity == "error" else self.warning


PLAIN = Paint()
COLOR = Paint(error="\x1b[1;31m", warning="\x1b[1;33m", frame="\x1b[34m", bold="\x1b[1m", end="\x1b[0m")


@dataclass(frozen=True, slots=True)
class _Label:
    """One underlined stretch of a line."""

    line: int
    column: int
    length: int
    text: str
    sign: str


def draw_all(problems: Iterable[Problem], *, width: int = WIDTH, paint: Paint = PLAIN) -> str:
    """All problems, an empty line between them; past the bound only a count."""
    every = tuple(problems)
    drawn = [draw(p, width=width, paint=paint) for p in every[:PROBLEMS_SHOWN]]
    if len(every) > PROBLEMS_SHOWN:
        drawn.append(f"... and {len(every) - PROBLEMS_SHOWN} more\n")
    return "\n".join(drawn)


def draw(problem: Problem, *, width: int = WIDTH, paint: Paint = PLAIN) -> str:
    """One problem."""
    gutter = _gutter(problem)
    head = f"{paint.of(problem.severity)}{problem.severity}[{problem.code}]{paint.end}{paint.bold}: "
    lines = [f"{head}{_safe(problem.message)}{paint.end}", _arrow("-->", problem.place, gutter, paint)]
    near = [r for r in problem.related if _is_near(r.place, problem.place)]
    labels = [_Label(problem.line, problem.column, problem.length, problem.hint, "^")]
    labels += [_Label(r.place.line, r.place.column, r.place.length, r.label, "-") for r in near]
    quoted = {line.number: line for place in (problem.place, *(r.place for r in near)) for line in place.lines}
    notes = list(problem.notes)
    lines += _piece(quoted, labels, _Frame(gutter, width, paint), notes)
    for related in problem.related:
        if related not in near:
            place = related.place
            lines += [_bar(gutter, paint), _arrow(":::", place, gutter, paint)]
            label = _Label(place.line, place.column, place.length, related.label, "-")
            lines += _piece({n.number: n for n in place.lines}, [label], _Frame(gutter, width, paint), notes)
    if not problem.hint and problem.fix is None:
        # Nobody is left with a complaint alone: what the code says in general is said where nothing closer is known.
        notes.append(registry()[problem.code].remedy)
    if problem.fix is not None:
        mark = "[*]" if problem.fix.safe else "[ ]"
        notes.append(
            f"fix {mark}: {problem.fix.title} ({'safe' if problem.fix.safe else 'unsafe: changes the meaning'})"
        )
    if notes:
        lines += [_bar(gutter, paint), *(f"{' ' * gutter} {paint.frame}={paint.end} {_safe(n)}" for n in notes)]
    return "\n".join(lines) + "\n"


def summary(problems: Iterable[Problem], files: int, seconds: float | None = None) -> list[str]:
    """The closing lines: how much was read, what was found, what can be fixed."""
    every = tuple(problems)
    errors = sum(p.severity == "error" for p in every)
    warnings = len(every) - errors
    took = f" in {seconds:.2f} s" if seconds is not None else ""
    lines = [f"Checked {_count(files, 'file')}{took}: {_count(errors, 'error')}, {_count(warnings, 'warning')}."]
    fixable = sum(p.fix is not None and p.fix.safe for p in every)
    if every:
        code = next((p.code for p in every if p.severity == "error"), every[0].code)
        more = f"More on a code: gridops rule {code}"
        lines.append(f"[*] {fixable} can be fixed with --fix.   {more}" if fixable else more)
    return lines


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class _Frame:
    gutter: int
    width: int
    paint: Paint


def _gutter(problem: Problem) -> int:
    numbers = [problem.line, *(r.place.line for r in problem.related)]
    return max(2, len(str(max(numbers))))


def _is_near(place: Place, main: Place) -> bool:
    return place.file == main.file and abs(place.line - main.line) <= NEAR


def _arrow(sign: str, place: Place, gutter: int, paint: Paint) -> str:
    return f"{' ' * gutter}{paint.frame}{sign}{paint.end} {_safe(place.file)}:{place.line}:{place.column}"


def _bar(gutter: int, paint: Paint) -> str:
    return f"{' ' * gutter} {paint.frame}|{paint.end}"


def _piece(quoted: dict[int, Line], labels: list[_Label], frame: _Frame, notes: list[str]) -> list[str]:
    """Quoted lines of one file with their labels below them. A hint that does not fit becomes a note."""
    if not quoted:
        notes.extend(label.text for label in labels if label.text)
        return []
    paint = frame.paint
    lines = [_bar(frame.gutter, paint)]
    before: int | None = None
    for number in sorted(quoted):
        if before is not None and number > before + 1:
            lines.append(f"{' ' * frame.gutter}{paint.frame}...{paint.end}")
        before = number
        here = sorted((label for label in labels if label.line == number), key=lambda label: label.column)
        text, shift = _window(quoted[number].text, here, frame)
        lines.append(f"{number:>{frame.gutter}} {paint.frame}|{paint.end} {text}".rstrip())
        lines += [_underline(quoted[number].text, label, shift, frame, notes) for label in here]
    return lines


def _underline(text: str, label: _Label, shift: int, frame: _Frame, notes: list[str]) -> str:
    paint = frame.paint
    prefix = " " * (_columns(text[: label.column - 1]) - shift)
    stretch = text[label.column - 1 : label.column - 1 + label.length]
    signs = label.sign * min(max(_columns(stretch), 1), frame.width)
    hint = _safe(label.text)
    line = f"{_bar(frame.gutter, paint)} {prefix}{signs}"
    if not hint:
        return line
    if frame.gutter + 3 + len(prefix) + len(signs) + 1 + _columns(hint) > frame.width:
        notes.insert(0, hint)
        return line
    return f"{line} {hint}"


def _window(text: str, labels: list[_Label], frame: _Frame) -> tuple[str, int]:
    """The line made safe, cut around its first label when it is much too long; and how many columns were cut off."""
    room = max(frame.width - frame.gutter - 3, 20)
    if len(text) <= 2 * room:
        return _safe(text), 0
    column = labels[0].column if labels else 1
    start = 0 if column < room else column - room // 2
    return _safe(text[start : start + room]), _columns(text[:start])


def _safe(text: str) -> str:
    return _UNSAFE.sub(lambda m: " " if m[0] == "\t" else "\ufffd", text)


def _columns(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
