"""A plan as text for people: at 80 columns one block per profile, from 110 columns on a table. Pure.

Called by `gridops plan` and `gridops plans show`. Every decision says what, where, why and what it costs; the legend
names only signs that are used; no line is wider than asked, no id is cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gridops.base.ids import short
from gridops.base.units import counted, render_bytes, render_clock, render_instant
from gridops.model.plan import Decision, DecisionKind, Plan
from gridops.model.snapshot import SnapshotSource
from gridops.planner.render_advice import advice_lines
from gridops.planner.render_layout import Paint, cells, clean, flow, grid, hang, pad, plain, wrap
from gridops.planner.render_words import (
    ASCII,
    NOUNS,
    Context,
    Symbols,
    about,
    by_profile,
    copies_bytes,
    cost,
    counts,
    extra_unplaced,
    is_empty,
    longest_ms,
    nowhere,
    out_of_reach,
    place_line,
    replicas_before_after,
    route,
    seat,
    short_plan,
    touched_hosts,
    unplaced_of,
    why,
    worst_dip,
)

WIDE = 110
_LEGEND = {
    DecisionKind.PLACE: "place",
    DecisionKind.MOVE: "move",
    DecisionKind.CHANGE: "change in place",
    DecisionKind.REMOVE: "remove",
    DecisionKind.CANNOT_PLACE: "cannot place",
}
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Style:
    """How the text is drawn."""

    width: int = 80
    symbols: Symbols = ASCII
    paint: Paint = field(default=plain)


def render_text(plan: Plan, context: Context, style: Style = Style()) -> list[str]:
    """The answer of `gridops plan`, as lines without line ends."""
    if is_empty(plan):
        return [*_no_changes(plan, context, style), *_remarks(plan, style), *_unchanged(plan, context, style)]
    table = _table(plan, context, style) if style.width >= WIDE else None
    body = _blocks(plan, context, style) if table is None else table
    legend = _legend(plan, style) if table is None else []
    return [
        *_heading(plan, context, style),
        *legend,
        "",
        *body,
        "",
        *_summary(plan, context, style),
        *_remarks(plan, style),
        *_unchanged(plan, context, style),
    ]


def closing(plan: Plan, context: Context, width: int = 80) -> list[str]:
    """What is said after the answer, on stderr: that nothing was changed, why, and what to do next."""
    lines: list[str] = []
    if plan.snapshot.source is SnapshotSource.DECLARED:
        text = "This plan is hypothetical: no host was asked, only what is declared was used. It can never be applied."
        lines += wrap(text, width)
    elif plan.hypothetical:
        text = "This plan is hypothetical: it was made from files that are not committed. It can never be applied."
        lines += wrap(text, width)
    if not is_empty(plan):
        mode = "" if context.mode is None else f" {plan.scope} is in mode `{context.mode.mode}`"
        at = f" ({context.mode_at})" if mode and context.mode_at else ""
        halt = f" {clean(context.halt)}" if context.halt else ""
        lines += wrap(f"Nothing was changed.{mode}{at}{'.' if mode else ''}{halt}", width)
    room = max((cells(label) for label, _ in context.next_steps), default=0)
    for label, command in context.next_steps:
        lines += hang(f"  {pad(label, room)}   ", command, width)
    return lines


def state_words(plan: Plan, context: Context) -> str:
    """`state 09:01Z, 6 min old`, or where else it comes from."""
    source, at = plan.snapshot.source, plan.snapshot.observed_ms
    if source is SnapshotSource.DECLARED:
        return "state: declared hosts only"
    age = max(0, context.now_ms - at)
    clock = render_clock(at) if age < _DAY_MS else render_instant(at)
    words = f"state {clock}, {about(age)} old" if age >= 1_000 else f"state {clock}"
    return f"{words}, from gridops/state" if source is SnapshotSource.STATE else words


_NAMED = 6
"""So many replicas are named of those that are planned and not there."""


def _no_changes(plan: Plan, context: Context, style: Style) -> list[str]:
    n = len(plan.placement)
    stand = "1 replica is where it should be" if n == 1 else f"{n} replicas are where they should be"
    commit = "uncommitted files" if plan.intent.commit is None else _commit(plan)
    state = state_words(plan, context).partition(",")[0] if plan.snapshot.source is SnapshotSource.LIVE else ""
    detail = f"intent {commit}, {state or state_words(plan, context)}"
    lines = wrap(f"No changes. {stand} ({detail}).", style.width)
    if context.unseen:
        shown = ", ".join(context.unseen[:_NAMED]) + (", ..." if len(context.unseen) > _NAMED else "")
        lines += wrap(f"Not seen there now: {shown}. What it waits for: gridops status", style.width)
    return lines


def _commit(plan: Plan) -> str:
    return f"{short(plan.intent.commit or '', 7)}{' + uncommitted changes' if plan.intent.dirty else ''}"


def _heading(plan: Plan, context: Context, style: Style) -> list[str]:
    branch = f" ({context.branch})" if context.branch else ""
    intent = "intent: uncommitted files" if plan.intent.commit is None else f"intent {_commit(plan)}{branch}"
    parts = [f"Plan {short_plan(plan)}", plan.scope, intent, state_words(plan, context)]
    wide = style.width >= WIDE
    if wide and plan.intent.subject:
        parts.insert(3, f'"{clean(plan.intent.subject)}"')
    if wide:
        parts.append(f"gridops {plan.planner.version}")
    gap = f" {style.symbols.dot} " if style.symbols.dot else "   "
    lines: list[str] = []
    for numbers in flow(parts, gap, style.width - 2):
        lines += wrap(gap.join(parts[n] for n in numbers), style.width - 2)
    return [lines[0], *("  " + line for line in lines[1:])]


def _legend(plan: Plan, style: Style) -> list[str]:
    used = [kind for kind, n in counts(plan).items() if n]
    if extra_unplaced(plan) and DecisionKind.CANNOT_PLACE not in used:
        used.append(DecisionKind.CANNOT_PLACE)
    bare = [f"{style.symbols.of(kind)} {_LEGEND[kind]}" for kind in used]
    painted = [style.paint(text[0], kind.value) + text[1:] for kind, text in zip(used, bare, strict=True)]
    return ["   ".join(painted[n] for n in numbers) for numbers in flow(bare, "   ", style.width)]


def _blocks(plan: Plan, context: Context, style: Style) -> list[str]:
    lines: list[str] = []
    names = [d.replica for d in plan.decisions] + [u.replica for u in extra_unplaced(plan)]
    column = min(max(cells(name) for name in names), 24)
    profiles = min(max((cells(d.profile) for d in plan.decisions), default=0), 24)
    for group in by_profile(plan):
        shared = len({(why(d, style.symbols.arrow), d.cause.at) for d in group}) == 1
        lines += _block_head(group[0], profiles, style) if shared else [style.paint(group[0].profile, "head")]
        for decision in group:
            parts = _facts(decision, plan, context, style)
            parts += [] if shared else [_why_at(decision, style)]
            lines += _decision(decision, parts, style, column)
    for unplaced in extra_unplaced(plan):
        mark = style.symbols.of(DecisionKind.CANNOT_PLACE)
        text = f"{clean(nowhere(unplaced))}; gridops explain {unplaced.replica}"
        drawn = hang(f"  {mark} {pad(unplaced.replica, column)}   ", text, style.width)
        lines += _painted(drawn, DecisionKind.CANNOT_PLACE.value, style)
    return lines


def _block_head(decision: Decision, column: int, style: Style) -> list[str]:
    """Profile, the reason that its decisions share, and where that stands, right-aligned where it fits."""
    name, reason, at = decision.profile, clean(why(decision, style.symbols.arrow)), clean(place_line(decision.cause.at))
    first = f"{pad(name, column)}   "
    left = first + reason
    if cells(left) + 2 + cells(at) <= style.width:
        lines = [pad(left, style.width - cells(at)) + at if at else left]
    else:
        indent = cells(first) if cells(first) + cells(at) <= style.width else 4
        lines = hang(first, reason, style.width)
        lines += [" " * indent + line for line in wrap(at, style.width - indent)] if at else []
    return [style.paint(name, "head") + lines[0][len(name) :], *lines[1:]]


def _why_at(decision: Decision, style: Style) -> str:
    at = clean(place_line(decision.cause.at))
    return clean(why(decision, style.symbols.arrow)) + (f" ({at})" if at else "")


def _decision(decision: Decision, parts: list[str], style: Style, column: int) -> list[str]:
    first = f"  {style.symbols.of(decision.kind)} {pad(decision.replica, column)}   "
    indent = " " * cells(f"  x {'':{column}}   ")
    lines: list[str] = []
    room = style.width - len(indent)
    for part in parts:
        if lines and cells(lines[-1]) + 3 + cells(part) <= room:
            lines[-1] += "   " + part
        else:
            lines += wrap(part, room)
    if cells(first) > len(indent) and lines and cells(first) + cells(lines[0]) > style.width:
        lines = [first.rstrip(), *(indent + line for line in lines)]
    else:
        lines = [first + (lines[0] if lines else ""), *(indent + line for line in lines[1:])]
    return _painted([line.rstrip() for line in lines], decision.kind.value, style)


def _facts(decision: Decision, plan: Plan, context: Context, style: Style) -> list[str]:
    """Where, at what price, and what else on-call must know before saying yes."""
    if decision.kind is DecisionKind.CANNOT_PLACE:
        return [f"{clean(nowhere(unplaced_of(plan, decision)))}; gridops explain {decision.replica}"]
    parts = [route(decision, plan, style.symbols.arrow), cost(decision)]
    if out_of_reach(decision, context.unheard):
        parts.append("nobody can stop the old one: its host is out of reach")
    elif decision.kind is DecisionKind.MOVE:
        parts.append("stops before the new one is ready" if decision.cost.dip else "starts before the old one stops")
    elif decision.cost.dip and decision.kind is not DecisionKind.REMOVE:
        parts.append(f"{decision.cost.dip} missing meanwhile")
    if decision.last_replica:
        parts.append("LAST replica, asks for its name on apply")
    return [part for part in parts if part]


def _painted(lines: list[str], role: str, style: Style) -> list[str]:
    """The sign of a decision in its colour; signs carry the meaning, colour only repeats it."""
    mark = lines[0][2:3]
    return [lines[0][:2] + style.paint(mark, role) + lines[0][3:], *lines[1:]]


def _table(plan: Plan, context: Context, style: Style) -> list[str] | None:
    rows: list[tuple[str, ...]] = [("", "REPLICA", "FROM", "TO", "WHY", "COST", "CAPACITY")]
    rows += [_row(decision, plan, context, style) for decision in plan.decisions]
    for u in extra_unplaced(plan):
        mark = style.symbols.of(DecisionKind.CANNOT_PLACE)
        rows.append((mark, u.replica, style.symbols.none, "nowhere", clean(nowhere(u)), style.symbols.none, ""))
    wrapped = grid(rows, style.width - 1, flexible=4)
    if wrapped is None:
        return None
    kinds = ["", *(d.kind.value for d in plan.decisions), *("cannot_place" for _ in extra_unplaced(plan))]
    lines: list[str] = []
    for kind, row in zip(kinds, wrapped, strict=True):
        height = max(len(cell) for cell in row)
        for n in range(height):
            parts = [cell[n] if n < len(cell) else " " * cells(cell[0]) for cell in row]
            if n == 0 and kind:
                parts[0] = style.paint(parts[0], kind)
            lines.append((" " + "  ".join(parts)).rstrip())
    return lines


def _row(decision: Decision, plan: Plan, context: Context, style: Style) -> tuple[str, ...]:
    none, arrow = style.symbols.none, style.symbols.arrow
    source = seat(decision.source, plan) or none
    target = seat(decision.target, plan) or none
    if decision.kind is DecisionKind.CANNOT_PLACE:
        target = "nowhere"
    elif decision.source == decision.target:
        target = "same"
    at = place_line(decision.cause.at)
    reason = " ".join(part for part in (why(decision, arrow), f" {at}" if at else "") if part)
    if decision.kind is DecisionKind.CANNOT_PLACE:
        reason = f"{reason}: {nowhere(unplaced_of(plan, decision))}"
    price = cost(decision).removeprefix("copy ").replace(", ", "  ") or none
    return (
        style.symbols.of(decision.kind), decision.replica, source, target, clean(reason), price,
        _capacity(decision, plan, arrow)
        + (", old out of reach" if out_of_reach(decision, context.unheard) else ""),
    )  # fmt: skip


def _capacity(decision: Decision, plan: Plan, arrow: str) -> str:
    before, after = replicas_before_after(plan, decision.profile)
    match decision.kind:
        case DecisionKind.CANNOT_PLACE:
            missing = sum(d.profile == decision.profile and d.kind is decision.kind for d in plan.decisions)
            return f"{after} of {after + missing}"
        case DecisionKind.REMOVE if decision.last_replica:
            return f"{before} {arrow} {after} LAST"
        case DecisionKind.CHANGE | DecisionKind.MOVE:
            low = max(0, after - decision.cost.dip)
            return f"{before} {arrow} {low} {arrow} {after}" if decision.cost.dip else f"{after} kept"
        case _:
            return f"{before} {arrow} {after}"


def _summary(plan: Plan, context: Context, style: Style) -> list[str]:
    found = counts(plan)
    missing = found.pop(DecisionKind.CANNOT_PLACE) + len(extra_unplaced(plan))
    parts = [f"{n} to {NOUNS[kind]}" for kind, n in found.items() if n]
    parts += [f"{missing} not placed"] if missing else []
    sentences = [f"{', '.join(parts)}."]
    sentences.append(f"{plan.report.unchanged} unchanged{'' if context.show_all else ' (--all)'}.")
    if copies_bytes(plan):
        sentences.append(f"Copies {render_bytes(copies_bytes(plan))}.")
    if longest_ms(plan):
        sentences.append(f"The longest start takes about {about(longest_ms(plan))}.")
    lines = hang("Plan: ", " ".join(sentences), style.width)
    return lines + _limits(plan, context, style)


def _limits(plan: Plan, context: Context, style: Style) -> list[str]:
    parts: list[str] = []
    moves = counts(plan)[DecisionKind.MOVE]
    if context.budgets is not None:
        parts.append(f"{moves} of {counted(context.budgets.moves.per_plan, 'move')}")
    touched = len(touched_hosts(plan))
    hosts = counted(touched, "host") if context.hosts is None else f"{touched} of {counted(context.hosts, 'host')}"
    parts.append(f"{hosts} touched")
    if worst_dip(plan):
        profiles = sorted({d.profile for d in plan.decisions if d.cost.dip == worst_dip(plan)})
        parts.append(f"{worst_dip(plan)} missing meanwhile ({', '.join(profiles)})")
    return hang("Limits: ", ", ".join(parts) + ".", style.width) if plan.to_do else []


def _remarks(plan: Plan, style: Style) -> list[str]:
    """Promises that are not kept, what is held back, and notes."""
    lines: list[str] = []
    for s in plan.report.shortfalls:
        text = f"{s.profile}: {clean(s.detail)} (wanted {s.want}, have {s.have}; gridops rule {s.code})"
        lines += hang("warn  ", text, style.width)
    for w in plan.report.waiting:
        lines += hang("waits ", f"{w.host}: {clean(w.detail)} (gridops rule {w.code})", style.width)
    for word, text in advice_lines(plan):
        lines += hang(f"{word} ", clean(text), style.width)
    for note in plan.report.notes:
        lines += hang("note  ", clean(note), style.width)
    return lines


def _unchanged(plan: Plan, context: Context, style: Style) -> list[str]:
    if not context.show_all:
        return []
    changed = {d.replica for d in plan.decisions}
    rest = [a for a in plan.placement if a.replica not in changed]
    column = max((cells(a.replica) for a in rest), default=0)
    lines = ["", "Unchanged"] if rest else []
    for a in rest:
        lines += hang(f"    {pad(a.replica, min(column, 24))}   ", seat(a.seat, plan), style.width)
    return lines
