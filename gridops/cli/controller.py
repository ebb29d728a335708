"""`gridops controller rebuild`: make a controller's memory anew from git; its hosts tell the rest when they speak."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gridops.base.units import counted
from gridops.cli.output import context_of, dump_json

EXAMPLES = """\b
Examples:
  gridops controller rebuild
  gridops controller rebuild --state /var/lib/gridops/office
  gridops -C /srv/fleet controller rebuild -o json
"""
NOT_RECOVERED = "Freezes, invitations, waiting proposals and locks lived in the journal only: give them again."


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Rebuild a controller's memory from git and its hosts.", no_args_is_help=True)
    group.callback()(_group)
    group.command("rebuild", help="Make the journal anew; no engine restarts.", epilog=EXAMPLES)(rebuild)
    app.add_typer(group, name="controller")


def _group() -> None:
    """Keeps `rebuild` a command of its own while it is the only one."""


def rebuild(
    ctx: typer.Context,
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="DIR", envvar="GRIDOPS_STATE", help="The controller's state folder."),
    ] = None,
) -> None:
    from gridops.controller.rebuild import Memory
    from gridops.controller.rebuild import rebuild as make
    from gridops.controller.start import ground, opening

    context = context_of(ctx)
    context.check(("text", "json"))
    found = ground(context.directory)
    memory = make(found, opening(found, state))

    def text(memory: Memory = memory) -> str:
        lines = [f"Rebuilt the controller's journal from commit {memory.commit[:7]}."]
        lines += [f"  {scope:<12} plan {plan}, {counted(count, 'replica')}" for scope, plan, count in memory.targets]
        if not memory.targets:
            lines.append("  no plan was ever applied, so nothing is in force")
        if memory.kept is not None:
            lines.append(f"The old journal is kept as {memory.kept}")
        lines += [NOT_RECOVERED, "Start it: gridops watch. Hosts are taken over as they report; no engine restarts."]
        return "\n".join(lines)

    context.emit({"text": text, "json": lambda: dump_json(_document(memory))})


def _document(memory: object) -> dict[str, object]:
    from gridops.controller.rebuild import Memory

    assert isinstance(memory, Memory)
    return {
        "schema": "gridops.rebuild/1",
        "commit": memory.commit,
        "targets": [{"scope": s, "plan": p, "replicas": n} for s, p, n in memory.targets],
        "kept": str(memory.kept) if memory.kept is not None else None,
        "rows": memory.rows,
    }
