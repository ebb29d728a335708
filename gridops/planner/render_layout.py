"""Layout of text on a terminal: display width, wrapping that never cuts an id, columns, colour. Pure.

Called by the text rendering and by the CLI's tables. Escape codes are added here and nowhere else, and only when a
`Paint` that adds them is passed in.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

Paint = Callable[[str, str], str]
"""(text, role) -> text; roles are `place move change remove cannot_place head warn`."""

_CODES = {
    "place": "32", "move": "36", "change": "33", "remove": "31", "cannot_place": "1;31", "head": "1", "warn": "33",
}  # fmt: skip


def plain(text: str, role: str) -> str:
    """No colour: no escape byte at all."""
    return text


def coloured(text: str, role: str) -> str:
    return f"\x1b[{_CODES[role]}m{text}\x1b[0m" if text else text


def cells(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def pad(text: str, width: int) -> str:
    return text + " " * max(0, width - cells(text))


def clean(text: str) -> str:
    """Text from people's files without what could steer a terminal or begin a new line."""
    return "".join(c if c.isprintable() else "?" for c in text)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, broken at spaces. A word that is too long is broken after `/` or `,` only.

    An id that is longer than the width stands on a line of its own, whole: a cut id helps nobody.
    """
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        for n, piece in enumerate(_pieces(word, width)):
            joined = (f"{line} {piece}" if n == 0 else line + piece) if line else piece
            if line and cells(joined) > width:
                lines.append(line.rstrip(" "))
                line = piece
            else:
                line = joined
    return [*lines, line.rstrip(" ")] if line.rstrip(" ") or not lines else lines


def _pieces(word: str, width: int) -> list[str]:
    """A word, or its parts after `/` and `,` where the whole word cannot fit on any line."""
    if cells(word) <= width:
        return [word]
    parts: list[str] = []
    for char in word:
        if parts and parts[-1] and parts[-1][-1] not in "/,":
            parts[-1] += char
        else:
            parts.append(char)
    joined: list[str] = []
    for part in parts:
        if joined and cells(joined[-1] + part) <= width:
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def hang(first: str, text: str, width: int) -> list[str]:
    """`first` followed by wrapped text; later lines are indented below the text."""
    room = max(20, width - cells(first))
    lines = wrap(text, room)
    return [first + lines[0], *(" " * cells(first) + line for line in lines[1:])]


def flow(parts: Sequence[str], gap: str, width: int) -> list[list[int]]:
    """Numbers of the parts that stand together on each line, joined by `gap`."""
    lines: list[list[int]] = []
    taken = 0
    for n, part in enumerate(parts):
        if lines and taken + cells(gap) + cells(part) <= width:
            lines[-1].append(n)
            taken += cells(gap) + cells(part)
        else:
            lines.append([n])
            taken = cells(part)
    return lines


def grid(rows: Sequence[Sequence[str]], width: int, flexible: int) -> list[list[list[str]]] | None:
    """Rows of cells as wrapped cells: column `flexible` gives way. None when even that does not fit `width`."""
    widths = [max(cells(row[n]) for row in rows) for n in range(len(rows[0]))]
    fixed = sum(w for n, w in enumerate(widths) if n != flexible) + 2 * (len(widths) - 1)
    room = width - fixed
    if room < 20:
        return None
    widths[flexible] = min(widths[flexible], room)
    return [[[pad(line, widths[n]) for line in wrap(cell, widths[n])] for n, cell in enumerate(row)] for row in rows]
