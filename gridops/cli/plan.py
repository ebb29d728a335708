"""`gridops plan`: what would happen, and why. It computes and prints; it changes nothing, here or anywhere.

The reconciler computes the same plan from the same function, so what a person sees is what will be proposed.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from gridops.base import limits
from gridops.base.errors import Failed, GridopsError
from gridops.base.ids import HostId, ReplicaId
from gridops.cli import exits
from gridops.cli.client import connect
from gridops.cli.output import Context, Usage, context_of, dump_json, dump_line, write_file
from gridops.cli.planning import (
    AGAINST,
    Place,
    Seen,
    from_base,
    inputs_of,
    intent_at,
    intent_of,
    is_live,
    look,
    place_of,
    plan_scope,
)
from gridops.files.plandoc import render_plan
from gridops.model.intent import Intent
from gridops.model.plan import Plan
from gridops.model.policy import Mode
from gridops.model.snapshot import SnapshotSource
from gridops.planner.fixes import first_fix
from gridops.planner.planner import Inputs
from gridops.planner.price_preview import preview, sentences
from gridops.planner.render_fixes import hint_lines
from gridops.planner.render_github import annotation_lines, step_outputs
from gridops.planner.render_json import plan_lines, plans_document
from gridops.planner.render_layout import coloured, plain
from gridops.planner.render_markdown import render_markdown
from gridops.planner.render_text import Style, closing, render_text
from gridops.planner.render_words import ASCII, UTF8, short_plan
from gridops.planner.render_words import Context as Words
from gridops.planner.scene import unseen

FORMS = ("text", "json", "jsonl", "yaml", "markdown", "github")


@dataclass(frozen=True, slots=True)
class Asked:
    """The flags of one call."""

    base: str | None
    against: str
    save: Path | None
    show_all: bool
    detailed_exitcode: bool
    allow_unplaced: bool
    github: bool


@dataclass(frozen=True, slots=True)
class Call:
    """One call: what was asked for, where, at which moment."""

    context: Context
    asked: Asked
    place: Place
    intent: Intent
    now_ms: int


def register(app: typer.Typer) -> None:
    app.command("plan")(plan)


def plan(
    ctx: typer.Context,
    base: Annotated[
        str | None, typer.Option("--base", metavar="REV", help="Show what changes against commit REV (pull requests).")
    ] = None,
    against: Annotated[
        str, typer.Option("--against", metavar="|".join(AGAINST), help="Which state to plan from; auto takes the best.")
    ] = "auto",
    save: Annotated[
        Path | None, typer.Option("--save", metavar="DIR", help="Write the (unsigned) plan document into DIR as well.")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show replicas that stay as they are, too.")] = False,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit 2 when there is something to do.")
    ] = False,
    allow_unplaced: Annotated[
        bool, typer.Option("--allow-unplaced", help="Exit 0 although replicas fit nowhere.")
    ] = False,
    github: Annotated[
        bool, typer.Option("--github", help="In a workflow: annotations, step outputs and step summary, too.")
    ] = False,
) -> int:
    """Show what would happen; changes nothing.

    Plans the files as they stand here from the newest state that can be had: the controller's, else what lies on the
    branch gridops/state, else what is declared (then the plan is hypothetical).

    \b
    Examples:
      gridops plan
      gridops plan --base origin/main -o text -o markdown=comment.md
      gridops plan --detailed-exitcode -o json > plan.json
    """
    context = context_of(ctx)
    context.check(FORMS)
    if against not in AGAINST:
        raise Usage(f"--against {against}: expected one of {', '.join(AGAINST)}")
    asked = Asked(base, against, save, show_all, detailed_exitcode, allow_unplaced, github)
    return run(context, asked, int(time.time() * 1000))


def run(context: Context, asked: Asked, now_ms: int) -> int:
    """The command, at a moment."""
    place = place_of(context)
    call = Call(context, asked, place, intent_of(place), now_ms)
    base = intent_at(place, asked.base) if asked.base is not None else None
    known = call.intent.desired.scopes
    if not any(context.wants(scope) for scope in known):
        raise Usage(f"no such scope: {', '.join(context.scopes)}", hints=(f"scopes: {', '.join(known)}",))
    plans = []
    notes: list[str] = []
    hints: list[str] = []
    for scope, seen in look(context, place, call.intent, now_ms, asked.against).items():
        before = seen if base is None else from_base(place, base, scope, seen, now_ms)
        question = inputs_of(place, call.intent, scope, before, now_ms)
        made = _with_preview(question, plan_scope(place, call.intent, scope, before, now_ms))
        plans.append((made, _words(call, seen, made)))
        hints += _hint(call, question, made)
        notes.append(seen.note)
    code = exits.worst([_exit(made, asked) for made, _ in plans])
    _emit(context, plans, code)
    _talk(context, notes, plans, hints)
    if asked.save is not None:
        _save(context, asked.save, [made for made, _ in plans])
    if asked.github:
        _github(plans, code)
    return code


def _with_preview(question: Inputs, plan: Plan) -> Plan:
    """The plan with what its price ceiling costs among the notes, in every form in which it is shown."""
    found = preview(question, plan)
    if found is None:
        return plan
    return replace(plan, report=replace(plan.report, notes=(*plan.report.notes, *sentences(found))))


def _exit(plan: Plan, asked: Asked) -> int:
    """The code of one plan."""
    found = [exits.OK]
    if plan.report.unplaced and not asked.allow_unplaced:
        found.append(exits.UNPLACED)
    if asked.detailed_exitcode and plan.to_do:
        found.append(exits.CHANGES)
    return exits.worst(found)


def _words(call: Call, seen: Seen, plan: Plan) -> Words:
    desired, checkout = call.intent.desired, call.place.checkout
    where = call.intent.where(f"mode/{plan.scope}")
    next_steps, halt = _ahead(call.context, plan, seen)
    return Words(
        now_ms=call.now_ms,
        mode=desired.mode.of(plan.scope),
        mode_at="" if where is None else f"{where.file}:{where.line}",
        budgets=desired.budgets.of(plan.scope),
        hosts=sum(host.scope == plan.scope for host in desired.hosts),
        branch=(checkout.branch() if checkout is not None else None) or "",
        exit_code=_exit(plan, call.asked),
        next_steps=next_steps,
        halt=halt,
        unheard=_unheard(call, seen, plan),
        unseen=_unseen(call, seen, plan),
        show_all=call.asked.show_all,
    )


def _unheard(call: Call, seen: Seen, plan: Plan) -> frozenset[HostId]:
    """Hosts with a place in the plan that nobody had heard for too long when it was made."""
    if seen.snapshot.source is SnapshotSource.DECLARED:
        return frozenset()
    at_ms = seen.snapshot.observed_ms if seen.snapshot.source is SnapshotSource.STATE else call.now_ms
    patience_ms = call.intent.desired.planning.heartbeat.stale_after_ms
    heard = {h.host for h in seen.snapshot.hosts if not h.goodbye and at_ms - h.observed_ms <= patience_ms}
    return frozenset(d.source.host for d in plan.decisions if d.source is not None) - heard


def _unseen(call: Call, seen: Seen, plan: Plan) -> tuple[ReplicaId, ...]:
    return unseen(plan, seen.snapshot, call.now_ms, call.intent.desired) if is_live(seen) else ()


def _ahead(context: Context, plan: Plan, seen: Seen) -> tuple[tuple[tuple[str, str], ...], str]:
    """Commands that get further from here, each of which exists and works now; and what stands in the way first."""
    if not plan.to_do or plan.hypothetical or not is_live(seen):
        return (), ""
    try:
        client = connect(context)
        known = client.get("/v1/plans")["plans"]
        waits = [p["id"] for p in known if p["state"] == "waits" and p["decisions_digest"] == plan.decisions_digest]
        modes = {scope["scope"]: scope["mode"] for scope in client.get("/v1/status")["scopes"]}
        mode = modes[plan.scope]
        if mode["effective"] == Mode.OBSERVE.value:
            return _halted(plan, mode)
    except (GridopsError, LookupError, TypeError):
        return (), ""
    if not waits:
        return (("when the reconciler has written it", "gridops plans list"),), ""
    name = short_plan(plan)
    return (("look at it", f"gridops plans show {name}"), ("carry it out", f"gridops apply {name}")), ""


def _halted(plan: Plan, mode: dict[str, Any]) -> tuple[tuple[tuple[str, str], ...], str]:
    """In mode observe nobody writes a plan and nobody may apply one, whatever these files say."""
    freeze = mode.get("freeze")
    if freeze is None or mode["configured"] == Mode.OBSERVE.value:
        halt = f"The controller keeps {plan.scope} in mode `observe`, so no plan is written or applied."
        return (("see why", "gridops status"),), halt
    halt = f"{plan.scope} is FROZEN by {freeze['by']} ({freeze['reason']}): no plan is written or applied until a thaw."
    return (("end the freeze", "gridops thaw"), ("see what is frozen", "gridops status")), halt


def _emit(context: Context, plans: list[tuple[Plan, Words]], code: int) -> None:
    symbols = UTF8 if context.utf8() else ASCII
    style = Style(context.width(), symbols, coloured if context.colored() else plain)

    def text() -> str:
        return "\n\n".join("\n".join(render_text(plan, words, style)) for plan, words in plans)

    def everything() -> str:
        whole = [(plan, replace(words, show_all=True)) for plan, words in plans]
        return "\n\n".join("\n".join(render_text(plan, words, replace(style, width=200))) for plan, words in whole)

    def lines() -> str:
        return "".join(dump_line(line) for line in plan_lines(plans, code, exits.name(code)))

    context.emit(
        {
            "text": text,
            "wide": everything,
            "json": lambda: dump_json(plans_document(plans, code)),
            "jsonl": lines,
            "yaml": lambda: "---\n".join(render_plan(plan) for plan, _ in plans),
            "markdown": lambda: _markdown(plans),
            "github": lambda: "\n".join(line for plan, words in plans for line in annotation_lines(plan, words)),
        }
    )


def _markdown(plans: list[tuple[Plan, Words]]) -> str:
    share = limits.MARKDOWN_CHARS // len(plans)
    return "\n".join(render_markdown(plan, words, share) for plan, words in plans)


def _hint(call: Call, inputs: Inputs, plan: Plan) -> list[str]:
    """For people: what would place the first replica that the plan leaves out, proven by planning it."""
    if call.context.on_stdout not in ("text", "wide") or not plan.report.unplaced:
        return []
    found = first_fix(inputs, plan)
    arrow = (UTF8 if call.context.utf8() else ASCII).arrow
    return [] if found is None else hint_lines(*found, call.context.width(), arrow)


def _talk(context: Context, notes: list[str], plans: list[tuple[Plan, Words]], hints: list[str]) -> None:
    """What is not the answer: why the state is not a better one, that nothing was changed, what to do next."""
    for note in dict.fromkeys(note for note in notes if note):
        context.say(f"note: {note}")
    if context.on_stdout not in ("text", "wide"):
        return
    if hints:
        context.say("", *hints)
    for plan, words in plans:
        lines = closing(plan, words, context.width())
        if lines:
            context.say("", *lines)


def _save(context: Context, folder: Path, plans: list[Plan]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(f"{folder}: cannot be made: {error.strerror}") from error
    for plan in plans:
        file = folder / f"{plan.scope}-{plan.id}.yaml"
        write_file(file, render_plan(plan))
        context.say(f"Wrote {file} (unsigned: it can be read, never applied).")


def _github(plans: list[tuple[Plan, Words]], code: int) -> None:
    """Annotations go to stderr, which a workflow reads too, so that stdout keeps its format."""
    for plan, words in plans:
        typer.echo("\n".join(annotation_lines(plan, words)), err=True)
    merged = step_outputs(plans[0][0], code)
    merged["has_changes"] = "true" if any(plan.to_do for plan, _ in plans) else "false"
    _append("GITHUB_OUTPUT", "".join(f"{name}={value}\n" for name, value in merged.items()))
    _append("GITHUB_STEP_SUMMARY", _markdown(plans))


def _append(variable: str, text: str) -> None:
    path = os.environ.get(variable)
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Failed(f"{variable}={path}: cannot be written: {error.strerror}") from error
