"""Two plans side by side, decision by decision: what is the same, what goes elsewhere, what is new or gone. Pure.

Called by `gridops plans diff` and wherever a stale plan is refused, so that a person sees what changed about the
answer and not merely that something did.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gridops.base.ids import ReplicaId, replica_key
from gridops.base.record import to_data
from gridops.base.units import counted
from gridops.model.plan import Decision, Plan
from gridops.planner.diff import ORDER
from gridops.planner.render_layout import clean, hang, pad
from gridops.planner.render_words import ASCII, Symbols, changes, headline, route, short_plan

SCHEMA = "gridops.plans-diff/1"


class Likeness(StrEnum):
    SAME = "same"
    OTHER_KIND = "other action"
    OTHER_HOST = "other host"
    OTHER_DEVICES = "other devices"
    OTHER_VALUE = "other value"
    ONLY_FIRST = "only in the first"
    ONLY_SECOND = "only in the second"


@dataclass(frozen=True, slots=True)
class Compared:
    """One replica that either plan decides about."""

    replica: ReplicaId
    likeness: Likeness
    first: Decision | None
    second: Decision | None


def compare(first: Plan, second: Plan) -> tuple[Compared, ...]:
    """Every decision of either plan, in the order in which plans show them."""
    before = {d.replica: d for d in first.decisions}
    after = {d.replica: d for d in second.decisions}
    found = [_compared(r, before.get(r), after.get(r)) for r in sorted({*before, *after}, key=replica_key)]
    return tuple(sorted(found, key=lambda c: (ORDER.index(_shown(c).kind), replica_key(c.replica))))


def same(first: Plan, second: Plan) -> bool:
    """Both do the same, whatever they cost or were caused by."""
    return first.decisions_digest == second.decisions_digest and first.scope == second.scope


def compare_lines(first: Plan, second: Plan, width: int = 80, symbols: Symbols = ASCII) -> list[str]:
    """The comparison as text: a star marks what differs."""
    found = compare(first, second)
    lines = [f"{short_plan(p)}  {p.scope}  {headline(p)}" for p in (first, second)]
    if not found:
        return [*lines, "", "Neither plan does anything."]
    lines.append("")
    column = max(len(c.replica) for c in found)
    for c in found:
        star = " " if c.likeness is Likeness.SAME else "*"
        decision = _shown(c)
        plan = second if c.second is not None else first
        head = f"  {star} {symbols.of(decision.kind)} {pad(c.replica, column)}   "
        facts = [route(decision, plan, symbols.arrow), clean(changes(decision, symbols.arrow)), c.likeness.value]
        if c.first is not None and c.second is not None and c.likeness is not Likeness.SAME:
            facts.append(f"was {_was(c.first, first, symbols)}")
        lines += hang(head, "   ".join(f for f in facts if f), width)
    differing = sum(c.likeness is not Likeness.SAME for c in found)
    verdict = (
        "The decisions are the same."
        if same(first, second)
        else f"{differing} of {counted(len(found), 'decision')} {'differs' if differing == 1 else 'differ'}."
    )
    return [*lines, "", verdict]


def compare_document(first: Plan, second: Plan) -> dict[str, Any]:
    """The comparison for machines."""
    return {
        "schema": SCHEMA,
        "first": first.id,
        "second": second.id,
        "same_decisions": same(first, second),
        "replicas": [
            {
                "replica": c.replica,
                "likeness": c.likeness.value.replace(" ", "_"),
                "first": None if c.first is None else to_data(c.first),
                "second": None if c.second is None else to_data(c.second),
            }
            for c in compare(first, second)
        ],
    }


def _compared(replica: ReplicaId, first: Decision | None, second: Decision | None) -> Compared:
    return Compared(replica, _likeness(first, second), first, second)


def _likeness(first: Decision | None, second: Decision | None) -> Likeness:
    if first is None:
        return Likeness.ONLY_SECOND
    if second is None:
        return Likeness.ONLY_FIRST
    if first.kind is not second.kind:
        return Likeness.OTHER_KIND
    if (first.source, first.target) != (second.source, second.target):
        hosts = [(d.source.host if d.source else None, d.target.host if d.target else None) for d in (first, second)]
        return Likeness.OTHER_HOST if hosts[0] != hosts[1] else Likeness.OTHER_DEVICES
    return Likeness.SAME if first.changes == second.changes else Likeness.OTHER_VALUE


def _shown(compared: Compared) -> Decision:
    decision = compared.second or compared.first
    assert decision is not None, "a compared replica stands in one of the plans"
    return decision


def _was(decision: Decision, plan: Plan, symbols: Symbols) -> str:
    kind, arrow = decision.kind.value.replace("_", " "), symbols.arrow
    facts = [kind, route(decision, plan, arrow), changes(decision, arrow)]
    return clean(" ".join(fact for fact in facts if fact))
