"""`gridops schema [KIND]`: print the JSON Schema of a kind of file, or write all of them for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gridops.cli.output import Usage, context_of, dump_json
from gridops.cli.tables import table
from gridops.files.export import file_name, render, write_schemas
from gridops.files.kinds import KINDS
from gridops.files.near import nearest


def register(app: typer.Typer) -> None:
    app.command("schema")(run)


def run(
    ctx: typer.Context,
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="A kind, such as Profile; none lists all.")
    ] = None,
    write: Annotated[Path | None, typer.Option("--write", metavar="DIR", help="Write all schemas into DIR.")] = None,
) -> None:
    """Print the JSON Schema (draft-07) of a kind of file.

    \b
    Examples:
      gridops schema
      gridops schema Profile > profile.json
      gridops schema --write .gridops/schemas/v1
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    if write is not None:
        for path in write_schemas(context.directory / write):
            context.say(f"wrote {path}")
        return
    if kind is None:
        rows = [(k.name, file_name(k.name), k.home) for k in KINDS.values()]
        lines = table(("KIND", "SCHEMA", "STANDS IN"), rows)
        listed = [{"kind": name, "schema": file, "stands_in": home} for name, file, home in rows]
        context.emit(
            {
                "text": lambda: "\n".join(lines),
                "json": lambda: dump_json({"schema": "gridops.kinds/1", "kinds": listed}),
            }
        )
        return
    name = next((k for k in KINDS if k.lower() == kind.lower()), None)
    if name is None:
        close = nearest(kind, KINDS)
        hint = f"did you mean `{close}`?" if close else f"kinds: {', '.join(KINDS)}"
        raise Usage(f"unknown kind `{kind}`", hints=(hint,))
    context.emit({"text": lambda: render(name), "json": lambda: render(name)})
