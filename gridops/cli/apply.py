"""`gridops apply`: show what would be signed, sign it, hand it to the controller, and stay until it is done.

Decides nothing: the controller judges plan, approvals, mode and lock, and its answer is shown. What is signed is the
controller's plan document, verified here against the trust root before anything is shown.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gridops.base import limits
from gridops.base.codes.control import GO422
from gridops.base.codes.trust import PLAN_EDITED, WRONG_FLEET, WRONG_KIND
from gridops.base.errors import Bug, Failed, Refusal, Unreachable
from gridops.base.ids import Digest, PersonName, ProfileName, short
from gridops.base.record import from_bytes, from_data
from gridops.base.units import counted, render_ms
from gridops.cli import exits
from gridops.cli.host import As, Controller
from gridops.cli.named import kind_at, text_at
from gridops.cli.output import Context, Usage, context_of, dump_json, dump_line
from gridops.cli.planning import place_of, plans_of, read_stored
from gridops.cli.requests import Desk, desk
from gridops.model.plan import Plan, ReadSet
from gridops.planner.diff import decisions_digest
from gridops.planner.render_words import headline
from gridops.trust.approval import Approval, seal_approval
from gridops.trust.approved import tree_of
from gridops.trust.envelope import open_envelope

APPROVAL_MS = 1_800_000
"""Life of an approval until the target is set, where the controller says nothing of `policies/approvals.yaml`."""
POLL_S = 0.3
PATIENCE_MS = 1_800_000
_NAME = re.compile(r"(sha256:)?[0-9A-Za-z-]+")
"""What may name a plan: it becomes part of an address, so nothing else does."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The flags of one call."""

    confirm: tuple[str, ...]
    resume: bool
    detach: bool
    approvals: tuple[Path, ...]
    approve_only: Path | None


@dataclass(frozen=True, slots=True)
class Offer:
    """A plan as the controller offers it: verified, with what an approval has to bind now."""

    plan: Plan
    reads: ReadSet
    digest: str
    last_replicas: tuple[ProfileName, ...]
    needs: tuple[dict[str, Any], ...]
    tree: Digest | None = None
    """The root over its decisions, for a controller that knows of it."""
    waits_ms: int = APPROVAL_MS
    """So long an approval of it may wait."""


def register(app: typer.Typer) -> None:
    app.command("apply")(apply)


def apply(
    ctx: typer.Context,
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="A plan's id, or the first digits of its decisions.")],
    confirm: Annotated[
        list[str] | None,
        typer.Option("--confirm", metavar="PROFILE", help="Type the name of a profile whose last replica goes."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Try the failed steps of this plan again.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the end.")] = False,
    approval: Annotated[
        list[Path] | None,
        typer.Option("--approval", metavar="FILE", help="Another person's approval; may be repeated."),
    ] = None,
    approve_only: Annotated[
        Path | None, typer.Option("--approve-only", metavar="FILE", help="Write my approval to FILE; apply nothing.")
    ] = None,
    who: As = None,
    controller: Controller = None,
) -> int:
    """Carry out one stored plan, with an approval signed by you.

    The controller plans again first. Same decisions: it goes on. Different: it refuses and prints both.

    \b
    Examples:
      gridops apply 7f3a2c19
      gridops apply 7f3a2c19 --confirm bge-m3
      gridops apply 7f3a2c19 --resume
    """
    context = context_of(ctx)
    context.check(("text", "json", "jsonl"))
    asked = Asked(tuple(confirm or ()), resume, detach, tuple(approval or ()), approve_only)
    return run(context, desk(context, who, controller), plan, asked)


def run(context: Context, at: Desk, wanted: str, asked: Asked) -> int:
    """The command, with a person at the desk."""
    offer = _offer(at, wanted)
    _as_reviewed(context, offer)
    context.say(f"Plan {short(offer.digest)}  {offer.plan.scope}   {headline(offer.plan)}")
    if asked.resume:
        answer = _handed_over(at, offer, resume=True)
        return _follow(context, at, answer, asked)
    others = tuple(_read(path) for path in asked.approvals)
    names = _typed(context, offer, asked)
    mine = _approve(at, offer, names)
    if asked.approve_only is not None:
        asked.approve_only.write_text(mine + "\n", "utf-8")
        context.emit(
            {
                "text": lambda: f"Wrote {asked.approve_only}; hand it to whoever applies.",
                "json": lambda: dump_json({"approval": mine}),
            }
        )
        return exits.OK
    answer = _handed_over(at, offer, approvals=(mine, *others), last_replicas=names)
    for note in answer.get("notes", ()):
        context.say(str(note))
    return _follow(context, at, answer, asked)


def _offer(at: Desk, wanted: str) -> Offer:
    if _NAME.fullmatch(wanted) is None:
        hints = ("gridops plans list",)
        raise Usage(f"`{wanted}` is not a plan: expected its id, or the first digits of its decisions", hints=hints)
    document = at.client.get(f"/v1/plans/{wanted}")
    opened = open_envelope(
        document["envelope"], kind="plan", keys=at.chain.plan_keys(), limit=len(document["envelope"])
    )
    plan = from_bytes(Plan, opened.payload)
    if plan.fleet != at.chain.fleet:
        raise Refusal(WRONG_FLEET.code, f"plan {plan.id} is of another fleet ({short(plan.fleet)})", subject=plan.id)
    if decisions_digest(plan.decisions) != plan.decisions_digest:
        # What is signed is a digest: it has to be the one of what was shown.
        raise Refusal(
            PLAN_EDITED.code, f"plan {plan.id}, as the controller offers it, decides other things than it is named for"
        )
    return Offer(
        plan=plan,
        reads=from_data(ReadSet, document["binding"]["reads"]),
        digest=plan.decisions_digest,
        last_replicas=tuple(document.get("last_replicas", ())),
        needs=tuple(document.get("needs", ())),
        tree=tree_of(plan) if document["binding"].get("decisions_tree") is not None else None,
        waits_ms=_waits_ms(document.get("approval_ms")),
    )


def _waits_ms(told: object) -> int:
    return min(told, limits.APPROVAL_VALID_MS) if isinstance(told, int) and told > 0 else APPROVAL_MS


def _as_reviewed(context: Context, offer: Offer) -> None:
    """What lies in git under this plan's name is what people reviewed; it must be what is about to be signed.

    Raises Refusal GO415 for a document that was edited by hand. A checkout that has not fetched it is only told so.
    """
    place = place_of(context)
    if place.checkout is None:
        return
    branch = plans_of(place)
    if not any(p.id == offer.plan.id for p in branch.places()):
        context.say(f"note: plan {offer.plan.id} is not on branch {branch.branch.name} here; fetch it to read it there")
        return
    stored = read_stored(place, branch, offer.plan.id, offer.plan.scope)
    if stored.decisions_digest != offer.plan.decisions_digest:
        raise Refusal(
            PLAN_EDITED.code,
            f"plan {offer.plan.id} in git decides other things than the plan that the controller offers",
            subject=offer.plan.id,
        )


def _typed(context: Context, offer: Offer, asked: Asked) -> tuple[ProfileName, ...]:
    """Names of profiles whose last replica goes, as a person typed them."""
    typed = []
    for name in offer.last_replicas:
        if name in asked.confirm:
            typed.append(name)
            continue
        replica = next((d.replica for d in offer.plan.to_do if d.last_replica and d.profile == name), name)
        question = f"{replica} is the last replica of {name}. Type {name} to remove it"
        if context.ask(question, f"--confirm {name}") != name:
            raise Refusal(GO422.code, f"the name of {name} was not typed. Nothing was changed.", subject=name)
        typed.append(name)
    return tuple(sorted(typed))


def _approve(at: Desk, offer: Offer, names: tuple[ProfileName, ...]) -> str:
    now_ms = int(time.time() * 1000)
    return seal_approval(
        Approval(
            fleet=at.chain.fleet,
            scope=offer.plan.scope,
            decisions_digest=offer.plan.decisions_digest,
            reads=offer.reads,
            decision="approve",
            approver=PersonName(at.person),
            last_replicas=names,
            issued_ms=now_ms,
            not_after_ms=now_ms + offer.waits_ms,
            decisions_tree=offer.tree,
        ),
        at.signer,
    )


def _read(path: Path) -> str:
    """Another person's approval. Nothing else is handed on: somebody may have named the file of a key."""
    expected = "expected the file that `--approve-only` wrote"
    try:
        text = text_at(path).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{path}: cannot be read: {error}", hints=(expected,)) from error
    kind = kind_at(path, text)
    if kind != "approval":
        raise Refusal(WRONG_KIND.code, f"{path}: a signed {kind}, and no approval", hints=(expected,))
    return text


def _follow(context: Context, at: Desk, answer: Any, asked: Asked) -> int:
    """Show the steps as they go; the exit code is that of the apply."""
    plan = str(answer["plan"])
    if asked.detach:
        context.emit(
            {
                "text": lambda: f"Applying {plan}. Look: gridops status",
                "json": lambda: dump_json(answer),
                "jsonl": lambda: dump_line(answer),
            }
        )
        return exits.OK
    began, last = time.monotonic(), None
    try:
        for last in _watch(at, plan, context):
            if last.get("outcome") is not None:
                break
            if (time.monotonic() - began) * 1000 > (context.timeout_ms or PATIENCE_MS):
                context.say("still under way; it goes on without me. Look: gridops status")
                return exits.INCOMPLETE
    except Unreachable as silence:
        raise Unreachable(
            f"{silence.message}, but plan {plan} was taken over and goes on without me",
            hints=(*_looks(plan), *silence.hints),
        ) from silence
    if last is None:
        raise Bug(f"the controller accepted {plan} and then knew no apply of it")
    return _ended(context, plan, last, int((time.monotonic() - began) * 1000))


def _handed_over(at: Desk, offer: Offer, **fields: Any) -> Any:
    """The controller's answer to the signed request. Raises Unreachable where nobody knows whether it arrived."""
    try:
        return at.ask("apply", plan=offer.plan.id, scope=offer.plan.scope, **fields)
    except Unreachable as silence:
        raise Unreachable(
            f"{silence.message}, so it is not known whether plan {offer.plan.id} is being applied; if it is, it goes "
            "on without me",
            hints=(*_looks(offer.plan.id), *silence.hints),
        ) from silence


def _looks(plan: str) -> tuple[str, ...]:
    """How to see, once the controller answers, what became of an apply, and how to go on."""
    return (
        "see whether it is in force, when the controller answers: gridops plans list",
        f"try again what failed of it: gridops apply {plan} --resume",
    )


def _watch(at: Desk, plan: str, context: Context) -> Iterator[dict[str, Any]]:
    """The newest state of an apply, again and again; talks about each step that changed."""
    told: dict[int, str] = {}
    while True:
        found = at.client.get(f"/v1/plans/{plan}").get("apply")
        if found is not None:
            for step in found["steps"]:
                line = _step(step)
                if told.get(step["n"]) != line:
                    told[step["n"]] = line
                    context.say(line)
            yield found
        time.sleep(POLL_S)


def _step(step: dict[str, Any]) -> str:
    word = {"done": "ok  ", "failed": "FAIL", "running": "... ", "waiting": "    "}.get(step["state"], step["state"])
    said = ": ".join(str(step[key]) for key in ("code", "detail") if step.get(key))
    why = f": {said}" if said else ""
    return (
        f"{word} {step['action']:<7} {step['replica']:<18} {step.get('host') or '':<14} {step['phase']}{why}".rstrip()
    )


def _ended(context: Context, plan: str, last: dict[str, Any], took_ms: int) -> int:
    code = int(last.get("exit_code") or exits.OK)
    done = sum(step["state"] == "done" for step in last["steps"])
    document = {"schema": "gridops.apply/1", "plan": plan, "exit_code": code, "took_ms": took_ms, **last}

    def text() -> str:
        line = f"Applied {done} of {counted(len(last['steps']), 'decision')} in {render_ms(took_ms)}."
        if code == exits.OK:
            return line
        again = f"  try the rest   gridops apply {plan} --resume\n  look           gridops status"
        return f"{line} Outcome: {last['outcome']}.\n{again}"

    context.emit(
        {"text": text, "json": lambda: dump_json(document), "jsonl": lambda: dump_line({"type": "result", **document})}
    )
    return code
