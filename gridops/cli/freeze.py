"""`gridops freeze` and `gridops thaw`: the kill switch that needs no git, and its end."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from gridops.base.ids import ScopeName
from gridops.cli.host import As, Controller
from gridops.cli.moments import until_ms
from gridops.cli.output import context_of, dump_json
from gridops.cli.requests import desk
from gridops.trust.root import RoleName


def register(app: typer.Typer) -> None:
    app.command("freeze")(freeze)
    app.command("thaw")(thaw)


def freeze(
    ctx: typer.Context,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; shown until it ends.")],
    scope: Annotated[str | None, typer.Argument(metavar="[SCOPE]", help="Left out: every scope.")] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME|DUR", help="End: 2026-11-30T08:00:00Z, or 8h from now.")
    ] = None,
    who: As = None,
    controller: Controller = None,
) -> None:
    """Stop all acting at once: the scope behaves as in mode observe, and undelivered commands are taken back.

    Works without git. What runs keeps running and is kept alive by its hosts.

    \b
    Examples:
      gridops freeze --reason "smoke in the server room"
      gridops freeze default --reason "audit" --until 2026-11-30T08:00:00Z
      gridops freeze default --reason "audit" --as mira
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    end_ms = until_ms(until, int(time.time() * 1000))
    caller = desk(context, who, controller, (RoleName.CHANGE,))  # to stop needs no rank
    answer = caller.ask("freeze", scope=_scope(scope), reason=reason, until_ms=end_ms)
    end = f" until {answer['until']}" if answer.get("until") else " until `gridops thaw`"
    context.emit(
        {
            "text": lambda: f"{scope or 'Every scope'} is frozen{end}: {reason}",
            "json": lambda: dump_json({"schema": "gridops.freeze/1", **answer}),
        }
    )


def thaw(
    ctx: typer.Context,
    scope: Annotated[str | None, typer.Argument(metavar="[SCOPE]", help="As it was frozen.")] = None,
    who: As = None,
    controller: Controller = None,
) -> None:
    """End a freeze. The mode of the accepted commit holds again, nothing looser.

    \b
    Examples:
      gridops thaw
      gridops thaw default
      gridops thaw default --as mira
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    answer = desk(context, who, controller).ask("thaw", scope=_scope(scope))
    context.emit(
        {
            "text": lambda: f"{scope or 'Every scope'} is thawed.",
            "json": lambda: dump_json({"schema": "gridops.freeze/1", **answer}),
        }
    )


def _scope(scope: str | None) -> ScopeName | None:
    return ScopeName(scope) if scope is not None else None
