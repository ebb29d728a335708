"""A plan as documents for machines: `gridops.plan/1`, whole or as a stream of lines. Pure.

The document is the record that is signed, field for field, plus what a script wants without computing it: a summary,
whether there is anything to do, the exit code, and times as RFC 3339. Within a major version only additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gridops import __version__
from gridops.base.record import to_data
from gridops.base.units import render_instant
from gridops.model.plan import Plan
from gridops.planner.render_words import Context, is_empty, summary

SCHEMA = "gridops.plan/1"
SET_SCHEMA = "gridops.plan-set/1"
EVENTS_SCHEMA = "gridops.events/1"


def plan_document(plan: Plan, context: Context) -> dict[str, Any]:
    """One plan as a JSON document."""
    mode = None if context.mode is None else {"mode": context.mode.mode.value, "at": context.mode_at or None}
    return {
        "schema": SCHEMA,
        "summary": summary(plan),
        "has_changes": bool(plan.to_do),
        "hypothetical": plan.hypothetical,
        "exit_code": context.exit_code,
        "mode": mode,
        "times": {
            "created": render_instant(plan.created_ms),
            "observed": render_instant(plan.snapshot.observed_ms),
            "state_age_seconds": max(0, context.now_ms - plan.snapshot.observed_ms) // 1000,
        },
        **to_data(plan),
    }


def plans_document(plans: Sequence[tuple[Plan, Context]], exit_code: int) -> dict[str, Any]:
    """One document for one call: the plan itself, or a set where the call spoke of several scopes."""
    if len(plans) == 1:
        return {**plan_document(*plans[0]), "exit_code": exit_code}
    documents = [plan_document(plan, context) for plan, context in plans]
    return {"schema": SET_SCHEMA, "exit_code": exit_code, "plans": documents}


def plan_lines(plans: Sequence[tuple[Plan, Context]], exit_code: int, reason: str) -> list[dict[str, Any]]:
    """A stream: `hello`, one `planned_change` or `unplaced` each, `result` last. Without `result` it was cut off."""
    hello = {"schema": EVENTS_SCHEMA, "type": "hello", "gridops": __version__, "command": "plan"}
    lines: list[dict[str, Any]] = [hello]
    for plan, context in plans:
        head = {"scope": plan.scope, "plan": plan.id}
        document = plan_document(plan, context)
        facts = ("decisions_digest", "hypothetical", "intent", "snapshot", "times", "mode", "summary")
        lines.append({"type": "plan", **head, **{name: document[name] for name in facts}})
        lines += [{"type": "planned_change", **head, "decision": to_data(decision)} for decision in plan.decisions]
        lines += [{"type": "unplaced", **head, "unplaced": to_data(unplaced)} for unplaced in plan.report.unplaced]
        lines += [{"type": "shortfall", **head, "shortfall": to_data(short)} for short in plan.report.shortfalls]
    changes = not all(is_empty(plan) for plan, _ in plans)
    return [*lines, {"type": "result", "exit_code": exit_code, "reason": reason, "has_changes": changes}]
