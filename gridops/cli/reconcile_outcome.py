"""`gridops reconcile-outcome`: a person who has looked says how a command ended whose host cannot tell."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gridops.base.errors import Failed
from gridops.base.ids import Digest
from gridops.cli.client import connect
from gridops.cli.host import As, Controller
from gridops.cli.output import Usage, context_of, dump_json
from gridops.cli.requests import desk

SHORTEST = 6
"""Fewer characters of an id could mean another command by chance."""


def register(app: typer.Typer) -> None:
    app.command("reconcile-outcome")(reconcile_outcome)


def reconcile_outcome(
    ctx: typer.Context,
    command: Annotated[str, typer.Argument(metavar="ID", help="The command's id, as `gridops status` names it.")],
    outcome: Annotated[str, typer.Option("--outcome", metavar="succeeded|failed", help="How it ended.")],
    evidence: Annotated[str, typer.Option("--evidence", metavar="TEXT", help="What you saw, and where; recorded.")],
    who: As = None,
    controller: Controller = None,
) -> None:
    """Release what an uncertain command holds: its turn, its memory and its replica, which nothing is begun for.

    Look at the machine first. Mostly nobody has to: the host's next heartbeat shows how it ended.

    \b
    Examples:
      gridops reconcile-outcome 4ab19c02de77 --outcome failed --evidence "no process on gpu0, seen with nvidia-smi"
      gridops reconcile-outcome 4ab19c02de77 --outcome succeeded --evidence "it answers on its port"
      gridops reconcile-outcome 4ab19c02de77 --outcome failed --evidence "rebooted" --as mira
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    if outcome not in ("succeeded", "failed"):
        raise Usage(f"--outcome {outcome}: expected succeeded or failed")
    found = _named(connect(context, controller).get("/v1/status"), command)
    fields = {"command": Digest(found["command"]), "outcome": outcome, "reason": evidence}
    answer = desk(context, who, controller).ask("reconcile_outcome", **fields)
    context.emit(
        {
            "text": lambda: f"{answer['what']} {answer['outcome']}, by your word; what it held is free.",
            "json": lambda: dump_json({"schema": "gridops.reconcile-outcome/1", **answer}),
        }
    )


def _named(status: Any, typed: str) -> Any:
    """The uncertain command that an id means. Raises Failed where none does, or more than one."""
    start = typed.strip().removeprefix("sha256:").removesuffix("...")
    known = [one for host in status["hosts"] for one in host.get("uncertain", [])]
    found = [one for one in known if one["command"].removeprefix("sha256:").startswith(start)]
    if len(start) >= SHORTEST and len(found) == 1:
        return found[0]
    what = "is short for more than one" if len(found) > 1 else "names none"
    ids = ", ".join(f"{one['command'].removeprefix('sha256:')[:12]} ({one['what']})" for one in known[:8]) or "none"
    raise Failed(f"`{typed}` {what} of the commands whose outcome is not known", hints=(f"uncertain: {ids}",))
