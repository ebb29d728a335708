"""`gridops unlock`: take the lock of a scope away from an apply that nothing moves any more."""

from __future__ import annotations

from typing import Annotated

import typer

from gridops.base.ids import ScopeName
from gridops.cli.host import As, Controller
from gridops.cli.output import context_of, dump_json
from gridops.cli.requests import desk


def register(app: typer.Typer) -> None:
    app.command("unlock")(unlock)


def unlock(
    ctx: typer.Context,
    scope: Annotated[str, typer.Argument(metavar="SCOPE", help="The scope whose lock shall go.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; recorded.")],
    who: As = None,
    controller: Controller = None,
) -> None:
    """End the lock of a dead apply. What it set going goes on; only the next apply need not wait for it.

    \b
    Examples:
      gridops unlock default --reason "jon's laptop is closed"
      gridops unlock default --reason "stuck transfer" --as mira
      gridops unlock default --reason "stuck transfer" -o json
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    answer = desk(context, who, controller).ask("unlock", scope=ScopeName(scope), reason=reason)
    context.emit(
        {
            "text": lambda: f"{scope} is unlocked; the apply of {answer['plan']} by {answer['was']} held it.",
            "json": lambda: dump_json({"schema": "gridops.unlock/1", **answer}),
        }
    )
