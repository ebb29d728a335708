"""`gridops controller rebuild`: make a controller's memory anew from git; its hosts tell the rest when they speak."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from gridops.base.errors import BadSetup
from gridops.base.units import counted
from gridops.cli.output import Context, context_of, dump_json
from gridops.cli.tables import fitted
from gridops.controller.statedir import SEED, StateDir

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
    begun = opening(found, state)
    with keys_wanted(begun.state.path):
        memory = make(found, begun)

    def text(memory: Memory = memory) -> str:
        lines = [f"Rebuilt the controller's journal from commit {memory.commit[:7]}."]
        lines += [f"  {scope:<12} plan {plan}, {counted(count, 'replica')}" for scope, plan, count in memory.targets]
        if not memory.targets:
            lines.append("  no plan was ever applied, so nothing is in force")
        if memory.kept is not None:
            lines.append(f"The old journal is kept as {memory.kept}")
        lines += [NOT_RECOVERED, "Hosts are taken over as they report; no engine restarts."]
        # A command is copied, so it is never broken.
        return "\n".join((*fitted(lines, context.columns()), f"Start it: {_watch(context, state)}"))

    context.emit({"text": text, "json": lambda: dump_json(_document(memory))})


def _watch(context: Context, state: Path | None) -> str:
    """The command that starts exactly the controller that was rebuilt."""
    where = () if context.directory == Path() else ("-C", str(context.directory))
    folder = () if state is None else ("--state", str(state))
    return shlex.join(("gridops", *where, "watch", *folder))


@contextlib.contextmanager
def keys_wanted(folder: Path) -> Iterator[None]:
    """A fleet that has a root document has keys already: where they are missing here, a copy of them is wanted."""
    try:
        yield
    except BadSetup as error:
        if StateDir(folder).whole:
            raise
        hints = (
            f"put your copy of the controller's `keys` folder there: {(folder / SEED).parent}",
            "or name the folder that holds them: --state DIR",
        )
        raise BadSetup(error.message, hints=hints) from error


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
