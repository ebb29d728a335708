"""A plan as a pull-request comment: one table, details below, found again by a hidden marker. Pure.

Names and values from people's files stand in code spans only, so they can neither ping anybody nor break the page.
A comment has a size limit at every forge: whole decisions are dropped from the end, and the count of them is said.
"""

from __future__ import annotations

import re

from gridops.base import limits
from gridops.base.ids import short
from gridops.base.units import counted, render_bytes
from gridops.model.plan import Decision, DecisionKind, Plan
from gridops.planner.render_advice import advice_lines
from gridops.planner.render_layout import clean
from gridops.planner.render_text import state_words
from gridops.planner.render_words import (
    NOUNS,
    Context,
    about,
    copies_bytes,
    cost,
    counts,
    extra_unplaced,
    is_empty,
    longest_ms,
    nowhere,
    place_line,
    seat,
    short_plan,
    touched_hosts,
    unplaced_of,
    why,
)

_SIGNS = {
    DecisionKind.PLACE: "➕",
    DecisionKind.MOVE: "➡️",
    DecisionKind.CHANGE: "✏️",
    DecisionKind.REMOVE: "➖",
    DecisionKind.CANNOT_PLACE: "❗",
}
_DETAILS = 40
"""Hosts, shortfalls and notes listed at most; the rest is counted."""


def render_markdown(plan: Plan, context: Context, limit: int = limits.MARKDOWN_CHARS) -> str:
    """The comment. Never longer than `limit` characters."""
    head = [_marker(plan), f"### gridops plan for {code(plan.scope)}: {_counts(plan)}", ""]
    foot = ["", *_blocked(plan), *_remarks(plan), *_details(plan, context), *_footer(plan, context)]
    if is_empty(plan):
        return "\n".join([*head, *foot]) + "\n"
    columns = ["| | replica | from | to | why | cost |", "|---|---|---|---|---|---|"]
    room = limit - len("\n".join([*head, *columns, *foot])) - 120
    rows: list[str] = []
    for decision in plan.decisions:
        row = _row(decision, plan)
        room -= len(row) + 1
        if room < 0:
            break
        rows.append(row)
    left = len(plan.decisions) - len(rows)
    report = f"`gridops plans show {short_plan(plan)}`"
    more = ["", f"**{left} more decisions** are in the full report ({report})."] if left else []
    return "\n".join([*head, *columns, *rows, *more, *foot]) + "\n"


def code(text: str) -> str:
    """A code span that shows exactly `text`, whatever it holds, also inside a table."""
    inner = clean(text).replace("|", "\\|")
    if not inner.strip():
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", inner)), default=0) + 1)
    gap = " " if inner[0] in "` " or inner[-1] in "` " else ""
    return f"{fence}{gap}{inner}{gap}{fence}"


def _marker(plan: Plan) -> str:
    commit = short(plan.intent.commit, 7) if plan.intent.commit is not None else "none"
    return f"<!-- gridops:plan scope={plan.scope} head={commit} decisions={short_plan(plan)} -->"


def _counts(plan: Plan) -> str:
    found = counts(plan)
    missing = found.pop(DecisionKind.CANNOT_PLACE) + len(extra_unplaced(plan))
    parts = [f"{n} {NOUNS[kind]}" for kind, n in found.items() if n]
    parts += [f"**{missing} not placed**"] if missing else []
    return " · ".join(parts) or "no changes"


def _row(decision: Decision, plan: Plan) -> str:
    at = place_line(decision.cause.at)
    reason = code(why(decision, "→")) + (f" ({code(at)})" if at else "")
    source, target = _seat(seat(decision.source, plan)), _seat(seat(decision.target, plan))
    if decision.kind is DecisionKind.CANNOT_PLACE:
        target = "nowhere"
        reason = f"{reason}: {code(nowhere(unplaced_of(plan, decision)))}"
    elif decision.source == decision.target:
        source = target = ""
    elif decision.last_replica:
        reason += ", **last replica**"
    price = cost(decision).removeprefix("copy ")
    return f"| {_SIGNS[decision.kind]} | {code(decision.replica)} | {source} | {target} | {reason} | {price} |"


def _seat(text: str) -> str:
    return code(text) if text else ""


def _blocked(plan: Plan) -> list[str]:
    lines = [
        f"**Blocked** (exit 5): {code(u.replica)}: {code(nowhere(u))}. Why: `gridops explain {u.replica}`"
        for u in plan.report.unplaced[:_DETAILS]
    ]
    rest = len(plan.report.unplaced) - len(lines)
    return [*lines, *([f"and {rest} more replicas that stand nowhere"] if rest else []), *([""] if lines else [])]


def _remarks(plan: Plan) -> list[str]:
    found = [
        *(f"⚠️ {code(s.profile)}: {code(s.detail)} (wanted {s.want}, have {s.have})" for s in plan.report.shortfalls),
        *(f"⏳ {code(w.host)}: {code(w.detail)}" for w in plan.report.waiting),
        *(f"💾 {word} {code(text)}" for word, text in advice_lines(plan)),
        *(code(note) for note in plan.report.notes),
    ]
    lines = [f"- {line}" for line in found[:_DETAILS]]
    rest = len(found) - len(lines)
    return [*lines, *([f"- and {rest} more remarks"] if rest else []), *([""] if lines else [])]


def _details(plan: Plan, context: Context) -> list[str]:
    if not plan.to_do:
        return []
    hosts = touched_hosts(plan)
    listed = ", ".join(code(host) for host in hosts[:_DETAILS])
    more = f" and {len(hosts) - _DETAILS} more" if len(hosts) > _DETAILS else ""
    touched = counted(len(hosts), "host") if context.hosts is None else f"{len(hosts)} of {context.hosts} hosts"
    facts = [f"{touched} touched: {listed}{more}"]
    if copies_bytes(plan):
        facts.append(f"Copies {render_bytes(copies_bytes(plan))}")
    if longest_ms(plan):
        facts.append(f"The longest start takes about {about(longest_ms(plan))}")
    if context.budgets is not None:
        facts.append(f"{counts(plan)[DecisionKind.MOVE]} of {counted(context.budgets.moves.per_plan, 'move')}")
    one = plan.report.unchanged == 1
    facts.append(f"{counted(plan.report.unchanged, 'replica')} {'stays as it is' if one else 'stay as they are'}")
    summary = "<details><summary>Limits, hosts, costs</summary>"
    return [summary, "", *(f"- {fact}" for fact in facts), "", "</details>", ""]


def _footer(plan: Plan, context: Context) -> list[str]:
    commit = "files that are not committed" if plan.intent.commit is None else code(short(plan.intent.commit, 7))
    base = f" on {code(context.branch)}" if context.branch else ""
    words = f"Planned on {commit}{base}, {state_words(plan, context)}."
    if plan.hypothetical:
        return [f"{words} It is hypothetical and can never be applied; after the merge it is planned again."]
    return [
        f"{words} After the merge it is planned again; if the decisions are still `{short_plan(plan)}`,",
        f"this review counts. `gridops plans show {short_plan(plan)}`",
    ]
