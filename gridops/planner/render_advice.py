"""Advice about disks in words: one line for each file set that is to come ahead of demand, or to go again. Pure.

Called by the text, Markdown and explanation of a plan. It is no decision, so it stands among the remarks.
"""

from __future__ import annotations

from gridops.base.ids import ProfileName
from gridops.base.units import render_bytes
from gridops.model.plan import Plan


def advice_lines(plan: Plan, about: ProfileName | None = None) -> list[tuple[str, str]]:
    """A word and what it is about, for all profiles or for one."""
    advice = plan.report.advice
    if advice is None:
        return []
    lines = [
        ("ahead", f"{p.profile} ({p.config}): {render_bytes(p.size_bytes)} to {p.host}: {p.detail}")
        for p in advice.prefetch
        if about in (None, p.profile)
    ]
    return lines + [
        ("evict", f"{e.profile}: {render_bytes(e.size_bytes)} on {e.host}: {e.detail}")
        for e in advice.evict
        if about in (None, e.profile, e.instead)
    ]
