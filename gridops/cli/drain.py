"""`gridops drain` and `gridops undrain`: one file per drain in `fleet.d/drains/`; committing it starts or ends it."""

from __future__ import annotations

import shlex
import time
from typing import Annotated

import typer

from gridops.base.errors import Failed
from gridops.base.ids import HostId, PersonName, is_name
from gridops.cli.client import root_of
from gridops.cli.moments import until_ms
from gridops.cli.output import Context, Usage, context_of, dump_json
from gridops.cli.person import chain_of, signer_as
from gridops.cli.standing import holds_fleet, no_fleet
from gridops.files.load import load
from gridops.files.tree import WorkingTree
from gridops.files.write import write_drain
from gridops.model.fleet import Drain


def register(app: typer.Typer) -> None:
    app.command("drain")(drain)
    app.command("undrain")(undrain)


def drain(
    ctx: typer.Context,
    host: Annotated[str, typer.Argument(metavar="HOST", help="The host to empty.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; shown in every plan and status.")],
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME|DUR", help="End: 2026-11-30T08:00:00Z, or 8h from now.")
    ] = None,
    who: Annotated[str | None, typer.Option("--as", metavar="PERSON", help="Written down as who asked.")] = None,
) -> None:
    """Write the file that asks for a host to be emptied. Nothing happens before it is committed.

    What runs there is started elsewhere first; a pinned replica stays and is named in the plan.

    \b
    Examples:
      gridops drain forge --reason "fan alarm"
      gridops drain forge --reason "driver upgrade" --until 8h
      gridops drain forge --reason "fan alarm" && gridops plan
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    directory = root_of(context.directory)
    if not holds_fleet(directory):
        raise no_fleet(context.directory)
    known = load(WorkingTree(directory)).desired.hosts
    if not is_name(host) or not any(h.id == host for h in known):
        raise Usage(f"no host `{host}` in fleet.d", hints=(f"hosts: {', '.join(sorted(h.id for h in known)[:20])}",))
    end_ms = until_ms(until, int(time.time() * 1000))
    made = Drain(host=HostId(host), reason=reason, by=_who(context, who), until_ms=end_ms)
    path = write_drain(directory, made).relative_to(directory)
    context.emit(
        {
            "text": lambda: f"Wrote {path}",
            "json": lambda: dump_json({"schema": "gridops.drain/1", "host": host, "file": str(path)}),
        }
    )
    commit = f"git add {shlex.quote(str(path))} && git commit -m {shlex.quote(f'Drain {host}: {reason}')}"
    context.say("see the effect: gridops plan", f"then: {commit}")


def undrain(
    ctx: typer.Context,
    host: Annotated[str, typer.Argument(metavar="HOST", help="The host to use again.")],
) -> None:
    """Remove a host's drain file. Committing that ends the drain.

    \b
    Examples:
      gridops undrain forge
      gridops undrain forge && gridops plan
      gridops undrain forge && git commit -am "Use forge again"
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    directory = root_of(context.directory)
    path = directory / "fleet.d" / "drains" / f"{host}.yaml"
    if not is_name(host) or not path.is_file():
        raise Failed(f"{path}: there is no such drain", hints=("drains: ls fleet.d/drains",))
    path.unlink()
    shown = path.relative_to(directory)
    context.emit(
        {
            "text": lambda: f"Removed {shown}",
            "json": lambda: dump_json({"schema": "gridops.drain/1", "host": host, "removed": str(shown)}),
        }
    )


def _who(context: Context, who: str | None) -> PersonName | None:
    """Who asks, if it is clear; a drain needs no signature, so an unknown caller may write one too."""
    if who is not None:
        if not is_name(who):
            raise Usage(f"--as {who}: not a name")
        return PersonName(who)
    try:
        return signer_as(chain_of(root_of(context.directory)), None, context)[0]
    except (Failed, Usage):
        return None
