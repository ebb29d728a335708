"""`gridops help [TOPIC]`: help on a command, or on something that is no command, such as the exit codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from gridops.cli import exits
from gridops.cli.output import FORMATS, context_of, dump_json
from gridops.cli.table import available
from gridops.cli.tables import table


def register(app: typer.Typer) -> None:
    app.command("help")(show)


def show(
    ctx: typer.Context,
    topic: Annotated[list[str] | None, typer.Argument(help="A command, or one of: exit-codes, formats.")] = None,
) -> None:
    """Show help on a command or a topic.

    \b
    Examples:
      gridops help plan
      gridops help exit-codes
      gridops help exit-codes -o json
    """
    context = context_of(ctx)
    words = topic or []
    if words and words[0] in TOPICS:
        text, data = TOPICS[words[0]]
        context.emit({"text": text, "json": lambda: dump_json(data())})
        return
    context.check(("text",))
    context.emit({"text": lambda: _command_help(ctx.find_root(), words)})


def exit_codes_text() -> str:
    rows = [(str(row.code), row.name, row.meaning, row.script) for row in exits.TABLE]
    order = ", ".join(str(code) for code in exits.PRECEDENCE)
    lines = table(("CODE", "NAME", "MEANING", "WHAT A SCRIPT DOES"), rows)
    return "\n".join([*lines, "", f"When several apply, the first of these wins: {order}."]) + "\n"


def exit_codes_data() -> dict[str, Any]:
    rows = [{"code": r.code, "name": r.name, "meaning": r.meaning, "script": r.script} for r in exits.TABLE]
    return {"schema": "gridops.exit-codes/1", "exit_codes": rows, "precedence": list(exits.PRECEDENCE)}


def formats_text() -> str:
    lines = table(("FORMAT", "WHAT IT IS"), list(_FORMATS.items()))
    tail = "-o FORMAT=FILE writes to a file; -o may be repeated. stdout is the answer, stderr is talk."
    return "\n".join([*lines, "", tail]) + "\n"


def formats_data() -> dict[str, Any]:
    return {"schema": "gridops.formats/1", "formats": [{"name": n, "meaning": m} for n, m in _FORMATS.items()]}


_MEANINGS = (
    "for people, fits the terminal",
    "for people, with more columns",
    "one JSON document, also for errors",
    "one JSON object a line; the last one is `result`",
    "the document as it is signed and stored",
    "a pull-request comment",
    "annotations for a GitHub workflow",
)
_FORMATS = dict(zip(FORMATS, _MEANINGS, strict=True))
TOPICS: dict[str, tuple[Callable[[], str], Callable[[], dict[str, Any]]]] = {
    "exit-codes": (exit_codes_text, exit_codes_data),
    "formats": (formats_text, formats_data),
}


def _command_help(root: Any, words: list[str]) -> str:
    ctx, command = root, root.command
    for word in words:
        below = command.get_command(ctx, word) if hasattr(command, "get_command") else None
        if below is None:
            from gridops.cli.main import unknown

            raise unknown("topic", word, [*available(), *TOPICS] if ctx is root else sorted(command.commands))
        ctx = type(ctx)(below, info_name=word, parent=ctx)
        command = below
    return str(command.get_help(ctx)) + "\n"
