"""A small table: aligned, one line a row, so that it can be searched. It drops columns, never parts of a value.

Called by every command that lists things. On a terminal it drops columns from the right until the rest fits; piped it
has no width. Names and ids are never cut: if even the first columns do not fit, the lines are simply longer.
"""

from __future__ import annotations

from collections.abc import Sequence

from gridops.planner.render_layout import cells as shown


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Lines of a table with a heading. `width` None: as wide as it needs."""
    cells = [list(head), *(list(row) for row in rows)]
    widths = [max(shown(row[n]) for row in cells) for n in range(len(head))]
    keep = len(widths)
    while width is not None and keep > 1 and sum(widths[:keep]) + 2 * (keep - 1) > width:
        keep -= 1
    return [_line(row[:keep], widths[:keep]) for row in cells]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell + " " * (width - shown(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
