"""`gridops plans`: the plans that lie in git. Whatever is shown of one was verified first; a hand edit is refused.

Reads the plans branch of this repository, needs no controller and changes nothing; only `reject` asks one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from gridops.base.ids import ScopeName
from gridops.cli import exits
from gridops.cli.output import Context, context_of, dump_json
from gridops.cli.planning import place_of, plans_of, read_stored
from gridops.cli.reject import reject_plan
from gridops.cli.tables import table
from gridops.files.plandoc import render_plan
from gridops.files.projection import PlanBranch, PlanPlace
from gridops.files.results import Result, read_result
from gridops.model.plan import Plan
from gridops.planner.render_compare import compare_document, compare_lines, same
from gridops.planner.render_json import plan_document
from gridops.planner.render_layout import coloured, plain
from gridops.planner.render_markdown import render_markdown
from gridops.planner.render_text import Style, render_text
from gridops.planner.render_words import ASCII, UTF8
from gridops.planner.render_words import Context as Words

SHOWN = 20
LIST_SCHEMA = "gridops.stored-plans/1"
_HEADLINE = re.compile(r"# [0-9a-f]{8} [^:\n]+: ([^\n]*)\.\n")

LIST_EXAMPLES = """\b
Examples:
  gridops plans list
  gridops plans list --scope prod-eu --all
  gridops plans list -o json
"""
SHOW_EXAMPLES = """\b
Examples:
  gridops plans show 7f3a2c19
  gridops plans show 20261129T0907Z -o markdown
  gridops plans show 7f3a2c19 --all
"""
DIFF_EXAMPLES = """\b
Examples:
  gridops plans diff 7f3a2c19 c08e11d4
  gridops plans diff 7f3a2c19 c08e11d4 -o json
  gridops plans diff 7f3a2c19 c08e11d4 --detailed-exitcode
"""


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of the list. The headline is read from the text and not verified: it helps to find, not to decide."""

    place: PlanPlace
    headline: str
    outcome: str | None
    """None while no result was written."""
    later: PlanPlace | None
    """An apply plans again: the plan that it carried out has an id of its own, and the result stands there."""


def register(app: typer.Typer) -> None:
    plans = typer.Typer(help="List, show, compare and reject plans.", no_args_is_help=True)
    plans.command("list", epilog=LIST_EXAMPLES, help="List stored plans, newest last.")(list_plans)
    plans.command("show", epilog=SHOW_EXAMPLES, help="Show a stored plan, after verifying it.")(show)
    plans.command("diff", epilog=DIFF_EXAMPLES, help="Compare what two stored plans decide.")(diff)
    plans.command("reject")(reject_plan)
    app.add_typer(plans, name="plans")


def list_plans(
    ctx: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help=f"All of them, not only the newest {SHOWN}.")] = False,
) -> None:
    context = context_of(ctx)
    context.check(("text", "json"))
    branch = plans_of(place_of(context))
    places = [p for p in branch.places() if context.wants(p.scope)]
    shown = places if everything else places[-SHOWN:]
    listed = _listed(branch, shown)
    context.emit(
        {
            "text": lambda: "\n".join(_table(context, listed, branch)),
            "json": lambda: dump_json({"schema": LIST_SCHEMA, "plans": [_line(item) for item in listed]}),
        }
    )
    if len(shown) < len(places):
        context.say(f"{len(places) - len(shown)} older plans are not shown (--all).")


def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="PLAN", help="Id, beginning of an id, or short digest.")],
    show_all: Annotated[bool, typer.Option("--all", help="Show replicas that stay as they are, too.")] = False,
) -> None:
    context = context_of(ctx)
    context.check(("text", "json", "yaml", "markdown"))
    place = place_of(context)
    branch = plans_of(place)
    found = branch.find(name, _scope(context))
    plan = read_stored(place, branch, found.id, found.scope)
    own = branch.result_text(found)
    result = read_result(found.id, own) if own is not None else _carried_out(branch, found)
    words = Words(now_ms=int(time.time() * 1000), show_all=show_all)
    outcome = {"outcome": result.outcome if own is not None and result is not None else None, "result": _became(result)}
    said = "\n".join(_result_lines(found, result, own))
    context.emit(
        {
            "text": lambda: "\n".join([*render_text(plan, words, _style(context)), "", said]),
            "json": lambda: dump_json({**plan_document(plan, words), **outcome}),
            "yaml": lambda: render_plan(plan),
            "markdown": lambda: f"{render_markdown(plan, words).rstrip()}\n\n{said}",
        }
    )


def diff(
    ctx: typer.Context,
    first: Annotated[str, typer.Argument(metavar="FIRST", help="The older plan.")],
    second: Annotated[str, typer.Argument(metavar="SECOND", help="The newer plan.")],
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit 2 when the decisions differ.")
    ] = False,
) -> int:
    context = context_of(ctx)
    context.check(("text", "json"))
    one, two = _read(context, first), _read(context, second)
    style = _style(context)
    context.emit(
        {
            "text": lambda: "\n".join(compare_lines(one, two, style.width, style.symbols)),
            "json": lambda: dump_json(compare_document(one, two)),
        }
    )
    return exits.CHANGES if detailed_exitcode and not same(one, two) else exits.OK


def _read(context: Context, name: str) -> Plan:
    place = place_of(context)
    return read_stored(place, plans_of(place), name, _scope(context))


def _scope(context: Context) -> ScopeName | None:
    return context.scopes[0] if len(context.scopes) == 1 else None


def _style(context: Context) -> Style:
    return Style(context.width(), UTF8 if context.utf8() else ASCII, coloured if context.colored() else plain)


def _listed(branch: PlanBranch, places: list[PlanPlace]) -> list[Listed]:
    texts = branch.texts(places)
    outcomes = {place: _outcome(place, texts[place][1]) for place in places}
    return [
        Listed(
            place,
            match.group(1) if (match := _HEADLINE.match(texts[place][0])) is not None else "(cannot be read)",
            outcomes[place],
            None if outcomes[place] is not None else _carried_out_as(place, outcomes),
        )
        for place in places
    ]


def _outcome(place: PlanPlace, text: str | None) -> str | None:
    return None if text is None else read_result(place.id, text).outcome


def _carried_out(branch: PlanBranch, place: PlanPlace) -> Result | None:
    """The result of an apply of this plan, which stands beside the plan that it made."""
    alike = [p for p in branch.places() if p.finished and (p.scope, _digest(p)) == (place.scope, _digest(place))]
    texts = {p: text for p in alike if (text := branch.result_text(p)) is not None}
    later = _carried_out_as(place, {p: _outcome(p, text) for p, text in texts.items()})
    return None if later is None else read_result(later.id, texts[later])


def _carried_out_as(place: PlanPlace, outcomes: Mapping[PlanPlace, str | None]) -> PlanPlace | None:
    """The first later plan with the same decisions that has a result: what an apply of this one made and did."""
    later = (
        other
        for other, outcome in outcomes.items()
        if outcome is not None
        and (other.scope, _digest(other)) == (place.scope, _digest(place))
        and other.id > place.id
    )
    return min(later, key=lambda other: other.id, default=None)


def _digest(place: PlanPlace) -> str:
    return place.id.rpartition("-")[2]


def _table(context: Context, listed: list[Listed], branch: PlanBranch) -> list[str]:
    if not listed:
        return [f"No plans on branch {branch.branch.name}."]
    rows = [(i.place.id, i.place.scope, _result(i), i.headline) for i in listed]
    return table(("PLAN", "SCOPE", "RESULT", "DECISIONS"), rows, context.columns())


def _result(item: Listed) -> str:
    if item.later is not None:
        return f"see {item.later.id.rpartition('-')[0]}"
    return item.outcome or "no result yet"


def _line(item: Listed) -> dict[str, Any]:
    line = {"id": item.place.id, "scope": item.place.scope, "headline": item.headline, "outcome": item.outcome}
    return {**line, "carried_out_as": item.later.id} if item.later is not None else line


def _became(result: Result | None) -> dict[str, Any] | None:
    if result is None:
        return None
    return {
        "plan": result.plan,
        "outcome": result.outcome,
        "applied": result.applied,
        "ended": result.ended,
        "by": result.by,
        "approved_by": list(result.approved_by),
    }


def _result_lines(place: PlanPlace, result: Result | None, own: str | None) -> list[str]:
    """One sentence: applied or not, when, by whom, as which plan, with what outcome; then what the journal wrote."""
    if result is None:
        return ["Result: none yet; nobody applied it."]
    when = f" {result.applied}" if result.applied is not None else ""
    by = f" by {result.by}" if result.by is not None else ""
    approved = f", approved by {', '.join(result.approved_by)}" if result.approved_by else ""
    carried = f" as {result.plan}" if result.plan != place.id else ""
    lines = [f"Result: applied{when}{by}{approved}{carried}: {result.outcome or 'outcome not known'}."]
    if own is None:
        return [*lines, f"  gridops plans show {result.plan}"]
    return [*lines, *own.rstrip().splitlines()]
