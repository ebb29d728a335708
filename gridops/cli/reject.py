"""`gridops plans reject` and `gridops host reject`: a person says no, signed; what was rejected is not asked again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gridops.base.ids import HostId, PlanId
from gridops.cli.host import As, Controller
from gridops.cli.output import context_of, dump_json
from gridops.cli.requests import desk

SCHEMA = "gridops.reject/1"


def reject_plan(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="PLAN", help="Id or short digest of a plan that waits.")],
    who: As = None,
    controller: Controller = None,
) -> None:
    """Say no to a plan that waits for people: nobody else applies it. The same decisions are not proposed again.

    It ends when the same person applies the plan, when a commit asks for something else, or with that person's key.
    What `automatic.allow` in policies/mode.yaml names needs no approval, so no rejection stops it.

    \b
    Examples:
      gridops plans reject 7f3a2c19
      gridops plans reject 7f3a2c19 --as mira
      gridops plans reject 7f3a2c19 -o json
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    answer = desk(context, who, controller).ask("reject", plan=PlanId(name))
    context.emit(
        {
            "text": lambda: _told(answer),
            "json": lambda: dump_json({"schema": SCHEMA, **answer}),
        }
    )


def _told(answer: dict[str, Any]) -> str:
    said = f"Plan {answer['plan']} of {answer['scope']} is rejected"
    if not answer.get("automatic"):
        return f"{said}; nothing of it is done."
    return (
        f"{said}: no approval carries it.\nWhat automatic.allow names ({', '.join(answer['automatic'])}) needs none "
        f"and goes on; to stop that too: gridops freeze {answer['scope']} --reason TEXT"
    )


def reject_host(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="HOST", help="A host that asks to join.")],
    who: As = None,
    controller: Controller = None,
) -> None:
    """Turn away a machine that asks to join. Its token is spent; invite it anew if this was a mistake.

    \b
    Examples:
      gridops host reject ana-mac
      gridops host reject ana-mac --as mira
      gridops host reject ana-mac -o json
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    answer = desk(context, who, controller).ask("reject", host=HostId(name))
    context.emit(
        {
            "text": lambda: f"{answer['host']} is turned away.",
            "json": lambda: dump_json({"schema": SCHEMA, **answer}),
        }
    )
