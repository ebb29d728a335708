"""Proven changes as text: what to change, in which file, and where the replica would go then. Pure.

Called by `render_explain` for all that were found and by `gridops plan` for one. It shows what `fixes` proved and
decides nothing.
"""

from __future__ import annotations

from gridops.base.ids import ReplicaId
from gridops.model.plan import Plan
from gridops.planner.fixes import Fix, Found
from gridops.planner.fixes_ideas import FixKind
from gridops.planner.render_layout import cells, clean, hang, wrap
from gridops.planner.render_text import Style
from gridops.planner.render_words import place_line, seat


def fix_text(fix: Fix, arrow: str) -> str:
    """`footprint.device 47GiB => 37GiB of config q4`, `add always-on to tags of forge`, `end the drain of forge`."""
    if fix.kind is FixKind.DRAIN:
        return clean(f"end the drain of {fix.of} ({fix.old})")
    if fix.kind is FixKind.MOVE:
        return clean(f"move {fix.moves} off {fix.new} to {fix.moves_to}: add {fix.new} to its {fix.field}")
    if not fix.old:
        text = f"add {fix.new} to {fix.field}"
    elif not fix.new:
        text = f"drop {fix.old} from {fix.field}"
    else:
        text = f"{fix.field} {fix.old} {arrow} {fix.new}"
    return clean(f"{text} of {fix.of}" if fix.of else text)


def fix_lines(found: Found, plan: Plan, style: Style) -> list[str]:
    """All that were found, smallest first, each with its place in the files; or how many were tried in vain."""
    if not found.fixes:
        if not found.tried:
            return wrap("No single change of the files that is known here would place it.", style.width)
        tried = (
            "The one change that was tried" if found.tried == 1 else f"None of {found.tried} changes that were tried"
        )
        verb = "does not place it" if found.tried == 1 else "places it"
        return wrap(f"{tried} {verb} without taking a seat from others.", style.width)
    lines = [
        "The smallest change that would place it" if len(found.fixes) == 1 else "Smallest changes that would place it"
    ]
    for n, fix in enumerate(found.fixes, 1):
        lines += _numbered(n, fix, plan, style)
    each = "It was planned to be sure" if len(found.fixes) == 1 else "Each was planned to be sure"
    return [*lines, *wrap(f"{each}: nobody else loses a seat or is moved by it.", style.width)]


def hint_lines(replica: ReplicaId, fix: Fix, width: int, arrow: str) -> list[str]:
    """One proven change for the first replica that a plan leaves out."""
    at = clean(place_line(fix.at))
    return hang("hint  ", f"{replica} would fit: {fix_text(fix, arrow)}{f' ({at})' if at else ''}", width)


def _numbered(n: int, fix: Fix, plan: Plan, style: Style) -> list[str]:
    first, at = f"  {n}  ", clean(place_line(fix.at))
    text = fix_text(fix, style.symbols.arrow)
    lines = hang(first, text, style.width)
    if at:
        gap = style.width - cells(lines[-1]) - cells(at)
        lines = (
            [*lines[:-1], lines[-1] + " " * gap + at]
            if gap >= 3
            else [*lines, *hang(" " * cells(first), at, style.width)]
        )
    return [*lines, *hang(" " * cells(first), f"it would go to {seat(fix.seat, plan)}", style.width)]
