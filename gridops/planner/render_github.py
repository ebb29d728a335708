"""A plan for a GitHub workflow: annotations, the step's outputs, the step summary. Pure text; the CLI writes the files.

GitHub shows ten annotations a step and drops the rest without a word, so the most severe are chosen and the rest is
counted.
"""

from __future__ import annotations

from gridops.base import limits
from gridops.model.plan import Plan
from gridops.planner.render_layout import clean
from gridops.planner.render_words import Context, headline, nowhere, place_parts, short_plan, why


def annotation_lines(plan: Plan, context: Context, limit: int = limits.ANNOTATIONS) -> list[str]:
    """Workflow commands, most severe first, at most `limit`, and one notice with the summary."""
    places = {d.replica: d.cause.at for d in plan.decisions}
    errors = [
        _command("error", u.code, f"{u.replica}: {nowhere(u)}", places.get(u.replica)) for u in plan.report.unplaced
    ]
    last = [(d, f"{d.replica} is the last replica of {d.profile}") for d in plan.decisions if d.last_replica]
    warnings = [_command("warning", "last replica", f"{text}: {why(d, '=>')}", d.cause.at) for d, text in last]
    warnings += [
        _command("warning", s.code, f"{s.profile}: {s.detail} (wanted {s.want}, have {s.have})", None)
        for s in plan.report.shortfalls
    ]
    found = errors + warnings
    left = len(found) - limit
    more = f"; {left} more findings are in the summary" if left > 0 else ""
    title = f"gridops plan {plan.scope}"
    notice = _command("notice", title, f"plan {short_plan(plan)}: {headline(plan)}{more}", None)
    return [*found[:limit], notice]


def step_outputs(plan: Plan, exit_code: int) -> dict[str, str]:
    """What later steps of the workflow can read."""
    return {
        "has_changes": "true" if plan.to_do else "false",
        "exit_code": str(exit_code),
        "plan_id": plan.id,
        "decisions_digest": plan.decisions_digest,
    }


def _command(level: str, title: str, message: str, at: str | None) -> str:
    place = place_parts(at)
    where = "" if place is None else f"file={_property(place[0])},line={place[1]},col={place[2]},"
    return f"::{level} {where}title={_property(title)}::{_escaped(clean(message))}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(clean(text)).replace(":", "%3A").replace(",", "%2C")
