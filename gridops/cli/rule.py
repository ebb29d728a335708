"""`gridops rule [CODE]`: explain a code that stands in a message, such as GO203 or replayed."""

from __future__ import annotations

import textwrap
from typing import Annotated, Any

import typer

from gridops.base.codes import Code, registry
from gridops.cli.output import Usage, context_of, dump_json
from gridops.cli.tables import table
from gridops.files.near import nearest

WIDTH = 78


def register(app: typer.Typer) -> None:
    app.command("rule")(run)


def run(
    ctx: typer.Context,
    code: Annotated[str | None, typer.Argument(metavar="[CODE]", help="A code, such as GO203; none lists all.")] = None,
) -> None:
    """Explain a code: what it means and what to do.

    \b
    Examples:
      gridops rule GO203
      gridops rule replayed
      gridops rule -o json
    """
    context = context_of(ctx)
    codes = registry()
    if code is None:
        lines = table(("CODE", "TITLE"), [(c.code, c.title) for c in codes.values()])
        document = {"schema": "gridops.rules/1", "rules": [_data(c) for c in codes.values()]}
        context.emit({"text": lambda: "\n".join(lines), "json": lambda: dump_json(document)})
        return
    found = codes.get(code) or codes.get(code.upper()) or codes.get(code.lower())
    if found is None:
        close = nearest(code, codes)
        raise Usage(
            f"unknown code `{code}`", hints=(f"did you mean `{close}`?" if close else "all codes: gridops rule",)
        )
    context.emit({"text": lambda: page(found), "json": lambda: dump_json({"schema": "gridops.rule/1", **_data(found)})})


def page(code: Code) -> str:
    """One code as a page of text."""
    meaning, remedy = (
        textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ") for text in (code.meaning, code.remedy)
    )
    return f"{code.code}: {code.title}\n\nWhat it means\n{meaning}\n\nWhat to do\n{remedy}\n"


def _data(code: Code) -> dict[str, Any]:
    return {"code": code.code, "title": code.title, "meaning": code.meaning, "remedy": code.remedy}
