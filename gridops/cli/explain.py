"""`gridops explain`: why a replica is where it is, or why it is nowhere, from the plan that says so.

A profile without a number lists its replicas (`cli.replicas`), each with its state and one reason. Without `--plan`
it plans as `gridops plan` does, compares the seat anew and tries what would place a replica that stands nowhere; with
it, it reads a stored plan after verifying it and shows what that recorded. What fails to start again and again is the
controller's to know: it is asked where it answers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

import typer

from gridops.base.errors import Failed, GridopsError
from gridops.base.ids import ProfileName, ReplicaId, is_name, split_replica
from gridops.cli import replicas
from gridops.cli.client import connect
from gridops.cli.output import Context, Usage, context_of, dump_json
from gridops.cli.planning import AGAINST, Place, inputs_of, intent_of, look, place_of, plan_scope, plans_of, read_stored
from gridops.files.near import nearest
from gridops.model.plan import Plan
from gridops.model.snapshot import Snapshot, SnapshotSource
from gridops.planner.evidence import measured_by
from gridops.planner.explain import told, walk
from gridops.planner.fixes import Found, fixes_for
from gridops.planner.planner import Inputs
from gridops.planner.render_explain import explain_document, explain_lines
from gridops.planner.render_text import Style
from gridops.planner.render_words import ASCII, UTF8, short_plan
from gridops.planner.render_words import Context as Words


def register(app: typer.Typer) -> None:
    app.command("explain")(explain)


def explain(
    ctx: typer.Context,
    replica: Annotated[
        str, typer.Argument(metavar="REPLICA|PROFILE", help="Such as coder/1; coder lists its replicas.")
    ],
    plan: Annotated[str | None, typer.Option("--plan", metavar="PLAN", help="A stored plan, not a new one.")] = None,
    against: Annotated[
        str, typer.Option("--against", metavar="|".join(AGAINST), help="Which state to plan from; auto takes the best.")
    ] = "auto",
) -> None:
    """Say why a replica is where it is, or why it is nowhere.

    \b
    Examples:
      gridops explain coder
      gridops explain coder/1
      gridops explain coder/2 --plan 7f3a2c19
      gridops explain coder/2 -o json
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    if against not in AGAINST:
        raise Usage(f"--against {against}: expected one of {', '.join(AGAINST)}")
    now_ms = int(time.time() * 1000)
    if is_name(replica):
        _profile(context, ProfileName(replica), plan, against, now_ms)
        return
    try:
        split_replica(replica)
    except ValueError as error:
        raise Usage(str(error)) from error
    name = ReplicaId(replica)
    made = _plans(context, place_of(context), plan, against, now_ms)
    known = next((one for one in made if explain_document(one.plan, name) is not None), None)
    if known is None:
        raise _unknown(name, [one.plan for one in made])
    shown, fixes = _complete(known, name)
    failing = _failing(context, known, name)
    style = Style(context.width(), UTF8 if context.utf8() else ASCII)
    words = Words(
        now_ms=now_ms,
        show_all=context.verbosity > 0,
        stored=known.inputs is None,
        in_force=known.in_force,
        measured=measured_by(known.inputs, known.plan) if known.inputs is not None else {},
    )
    context.emit(
        {
            "text": lambda: "\n".join([*(explain_lines(shown, name, words, style, fixes) or ()), *_said(failing)]),
            "json": lambda: dump_json({**(explain_document(shown, name, fixes) or {}), "failing": failing}),
        }
    )


def _failing(context: Context, made: Made, replica: ReplicaId) -> str | None:
    """What the controller tried for the replica's profile again and again without success; None when it did not."""
    if made.observed is None or made.observed.source is not SnapshotSource.LIVE:
        return None
    profile, _ = split_replica(replica)
    try:
        scopes = connect(context).get("/v1/status")["scopes"]
    except GridopsError as silence:  # the explanation is the plan's and stands without it
        context.say(f"note: whether it fails to start is not known: {silence.message}")
        return None
    models = (m for scope in scopes if scope["scope"] == made.plan.scope for m in scope["models"])
    return next((m["note"] for m in models if (m["profile"], m["state"]) == (profile, "Degraded")), None)


def _said(failing: str | None) -> list[str]:
    return [] if failing is None else ["", f"Failing: {failing}. More: gridops status"]


def _profile(context: Context, profile: ProfileName, stored: str | None, against: str, now_ms: int) -> None:
    """Every replica of a profile, one line each."""
    plans = _plans(context, place_of(context), stored, against, now_ms)
    symbols = UTF8 if context.utf8() else ASCII
    lists = ((one, replicas.lines_of(one.plan, profile, one.observed, symbols)) for one in plans)
    found = next(((one, lines) for one, lines in lists if lines), None)
    if found is None:
        raise _unknown_profile(profile, [one.plan for one in plans])
    made, lines = found
    flags = f" --plan {stored}" if stored is not None else "" if against == "auto" else f" --against {against}"
    more = f"gridops explain{flags}"
    context.emit(
        {
            "text": lambda: "\n".join(replicas.text_lines(made.plan, profile, lines, more, made.name)),
            "json": lambda: dump_json(replicas.document(made.plan, profile, lines, more)),
        }
    )


@dataclass(frozen=True, slots=True)
class Made:
    """A plan that may know the replica: new ones with what they were made from, stored ones without."""

    plan: Plan
    inputs: Inputs | None = None

    @property
    def observed(self) -> Snapshot | None:
        """What was observed, if anything was."""
        seen = self.inputs.snapshot if self.inputs is not None else None
        return seen if seen is not None and seen.source is not SnapshotSource.DECLARED else None

    @property
    def in_force(self) -> str:
        """Short name of the plan that a new one was compared with; empty where there is none."""
        parent = self.inputs.parent if self.inputs is not None else None
        return "" if parent is None else short_plan(parent)

    @property
    def name(self) -> str:
        """What to call it: a new plan that changes nothing says what the plan in force says."""
        if self.inputs is None or self.plan.decisions or not self.in_force:
            return f"plan {short_plan(self.plan)}"
        return f"plan {self.in_force} in force"


def _plans(context: Context, place: Place, stored: str | None, against: str, now_ms: int) -> list[Made]:
    if stored is not None:
        scope = context.scopes[0] if len(context.scopes) == 1 else None
        return [Made(read_stored(place, plans_of(place), stored, scope))]
    intent = intent_of(place)
    made = []
    for scope, seen in look(context, place, intent, now_ms, against).items():
        plan = plan_scope(place, intent, scope, seen, now_ms)
        made.append(Made(plan, inputs_of(place, intent, scope, seen, now_ms)))
    return made


def _complete(made: Made, replica: ReplicaId) -> tuple[Plan, Found | None]:
    """The plan with everything that can be said about the replica, and what would place one that stands nowhere."""
    if made.inputs is None:
        return made.plan, None
    missing = any(u.replica == replica for u in made.plan.report.unplaced)
    fixes = fixes_for(made.inputs, made.plan, replica) if missing else None
    return told(made.plan, walk(made.inputs, watched=replica), replica), fixes


def _unknown(replica: ReplicaId, plans: list[Plan]) -> Failed:
    """Not in any plan: because it is not wanted, was retired, or is called otherwise."""
    profile, _ = split_replica(replica)
    known = sorted({str(r) for p in plans for r in replicas.replicas_of(p)})
    mine = [r for r in known if split_replica(r)[0] == profile]
    if _retired(profile, plans):
        return Failed(f"{replica}: {profile} was removed; it is retired until somebody declares it again")
    if mine:
        return Failed(f"{replica}: is not wanted; of {profile} there are {', '.join(mine)}")
    near = nearest(replica, known)
    hints = (f"did you mean `{near}`?",) if near is not None else ("see what there is: gridops plan --all",)
    return Failed(f"{replica}: no profile `{profile}` wants a replica", hints=hints)


def _unknown_profile(profile: ProfileName, plans: list[Plan]) -> Failed:
    if _retired(profile, plans):
        return Failed(f"{profile} was removed; it is retired until somebody declares it again")
    near = nearest(profile, {str(split_replica(r)[0]) for p in plans for r in replicas.replicas_of(p)})
    hints = (f"did you mean `{near}`?",) if near is not None else ("see what there is: gridops plan --all",)
    return Failed(f"no profile `{profile}` wants a replica", hints=hints)


def _retired(profile: ProfileName, plans: list[Plan]) -> bool:
    return any(r.profile == profile for p in plans for r in p.retirements)
