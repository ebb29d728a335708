"""A small table: aligned, one line a row, so that it can be searched. It drops columns, never parts of a value.

Called by every command that lists things. On a terminal it drops columns from the right until the rest fits; piped it
has no width. Names and ids are never cut: if even the first columns do not fit, the lines are simply longer. A note is
never dropped: one that has no room beside its row stands below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gridops.planner.render_layout import cells as shown
from gridops.planner.render_layout import hang

NOTE_INDENT = 4


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Lines of a table with a heading. `width` None: as wide as it needs."""
    cells = [list(head), *(list(row) for row in rows)]
    widths = [max(shown(row[n]) for row in cells) for n in range(len(head))]
    keep = len(widths)
    while width is not None and keep > 1 and sum(widths[:keep]) + 2 * (keep - 1) > width:
        keep -= 1
    return [_line(row[:keep], widths[:keep]) for row in cells]


def noted(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """A table whose last column is a note: the other columns may be dropped, a note only goes below its row."""
    if width is None:
        return table(head, rows)
    names, *lines = table(head[:-1], [row[:-1] for row in rows], width)
    column, title = max(shown(line) for line in (names, *lines)) + 2, head[-1]
    made = [f"{names}{' ' * (column - shown(names))}{title}" if column + shown(title) <= width else names]
    for line, row in zip(lines, rows, strict=True):
        note = row[-1]
        beside = note and column + shown(note) <= width
        made.append(f"{line}{' ' * (column - shown(line))}{note}" if beside else line)
        made += hang(" " * NOTE_INDENT, note, width) if note and not beside else []
    return made


def fitted(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """Sentences as they are for a pipe; on a terminal wrapped, each further line a little below its first."""
    for text in lines:
        for line in text.split("\n"):
            words = line.lstrip(" ")
            indent = len(line) - len(words)
            if width is None or shown(line) <= width:
                yield line
                continue
            first, *rest = hang(" " * indent, words, width - 2)
            yield first
            yield from (f"  {more}" for more in rest)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell + " " * (width - shown(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
