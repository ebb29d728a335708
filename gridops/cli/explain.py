"""`gridops explain`: why a replica is where it is, or why it is nowhere, from the plan that says so.

Without `--plan` it plans as `gridops plan` does; with it, it reads a stored plan after verifying it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated

import typer

from gridops.base.errors import Failed
from gridops.base.ids import ReplicaId, split_replica
from gridops.cli.output import Context, Usage, context_of, dump_json
from gridops.cli.planning import AGAINST, Place, inputs_of, intent_of, look, place_of, plan_scope, plans_of, read_stored
from gridops.files.near import nearest
from gridops.model.plan import Plan
from gridops.planner.explain import rejected_by
from gridops.planner.render_explain import explain_document, explain_lines
from gridops.planner.render_text import Style
from gridops.planner.render_words import ASCII, UTF8
from gridops.planner.render_words import Context as Words


def register(app: typer.Typer) -> None:
    app.command("explain")(explain)


def explain(
    ctx: typer.Context,
    replica: Annotated[str, typer.Argument(metavar="REPLICA", help="Such as coder/1.")],
    plan: Annotated[str | None, typer.Option("--plan", metavar="PLAN", help="A stored plan, not a new one.")] = None,
    against: Annotated[
        str, typer.Option("--against", metavar="|".join(AGAINST), help="Which state to plan from; auto takes the best.")
    ] = "auto",
) -> None:
    """Say why a replica is where it is, or why it is nowhere.

    \b
    Examples:
      gridops explain coder/1
      gridops explain coder/2 --plan 7f3a2c19
      gridops explain coder/2 -o json
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    if against not in AGAINST:
        raise Usage(f"--against {against}: expected one of {', '.join(AGAINST)}")
    try:
        split_replica(replica)
    except ValueError as error:
        raise Usage(str(error)) from error
    name, now_ms = ReplicaId(replica), int(time.time() * 1000)
    place = place_of(context)
    plans = _plans(context, place, plan, against, (name, now_ms))
    found = next((p for p in plans if explain_document(p, name) is not None), None)
    if found is None:
        raise _unknown(name, plans)
    style = Style(context.width(), UTF8 if context.utf8() else ASCII)
    words = Words(now_ms=now_ms, show_all=context.verbosity > 0)
    context.emit(
        {
            "text": lambda: "\n".join(explain_lines(found, name, words, style) or ()),
            "json": lambda: dump_json(explain_document(found, name)),
        }
    )


def _plans(
    context: Context, place: Place, stored: str | None, against: str, moment: tuple[ReplicaId, int]
) -> list[Plan]:
    """The plans that may know the replica; new ones also say what a large fleet's plan leaves out."""
    replica, now_ms = moment
    if stored is not None:
        scope = context.scopes[0] if len(context.scopes) == 1 else None
        return [read_stored(place, plans_of(place), stored, scope)]
    intent = intent_of(place)
    made = []
    for scope, seen in look(context, place, intent, now_ms, against).items():
        plan = plan_scope(place, intent, scope, seen, now_ms)
        bare = next((c for c in plan.report.choices if c.replica == replica and not c.rejected), None)
        if bare is not None:
            full = replace(bare, rejected=rejected_by(inputs_of(place, intent, scope, seen, now_ms), replica))
            choices = tuple(full if c is bare else c for c in plan.report.choices)
            plan = replace(plan, report=replace(plan.report, choices=choices))
        made.append(plan)
    return made


def _unknown(replica: ReplicaId, plans: list[Plan]) -> Failed:
    """Not in any plan: because it is not wanted, was retired, or is called otherwise."""
    profile, _ = split_replica(replica)
    known = sorted({str(r) for p in plans for r in _replicas(p)})
    mine = [r for r in known if split_replica(r)[0] == profile]
    for plan in plans:
        if any(r.profile == profile for r in plan.retirements):
            return Failed(f"{replica}: {profile} was removed; it is retired until somebody declares it again")
    if mine:
        return Failed(f"{replica}: is not wanted; of {profile} there are {', '.join(mine)}")
    near = nearest(replica, known)
    hints = (f"did you mean `{near}`?",) if near is not None else ("see what there is: gridops plan --all",)
    return Failed(f"{replica}: no profile `{profile}` wants a replica", hints=hints)


def _replicas(plan: Plan) -> set[ReplicaId]:
    placed = {a.replica for a in plan.placement}
    return placed | {d.replica for d in plan.decisions} | {u.replica for u in plan.report.unplaced}
