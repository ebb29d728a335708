"""The global flags: understood before and after the verb, in one place, so that no command declares them again.

`attach` adds them to a command; `context` builds the `Context` of a call from what was given on any level.
`outputs_of` finds `-o` in raw arguments, so that even a wrong call can answer in the format it asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main

from gridops.base.ids import ScopeName
from gridops.base.units import parse_ms
from gridops.cli.output import FORMATS, Context, Output, Usage

_KEY = "gridops.globals"
_PREFIX = "global_"
_LISTS = ("scope", "output")
_TEXTS = tuple(_PREFIX + name for name in ("directory", "scope", "output", "color", "timeout"))
"""Flags whose text `context` reads and judges by itself."""


def _flags(
    directory: Annotated[
        Path, typer.Option("-C", "--directory", metavar="DIR", envvar="GRIDOPS_DIRECTORY", help="Work in DIR.")
    ] = Path(),
    scope: Annotated[
        list[str] | None, typer.Option("--scope", metavar="SCOPE", help="Only this scope; may be repeated.")
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option("-o", "--output", metavar="FORMAT[=FILE]", help="Answer in FORMAT, to FILE; may be repeated."),
    ] = None,
    color: Annotated[
        str, typer.Option("--color", metavar="auto|always|never", envvar="GRIDOPS_COLOR", help="When to use colour.")
    ] = "auto",
    plain: Annotated[bool, typer.Option("--ascii", envvar="GRIDOPS_ASCII", help="No signs beyond ASCII.")] = False,
    no_input: Annotated[bool, typer.Option("--no-input", envvar="GRIDOPS_NO_INPUT", help="Never ask.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No talk on stderr.")] = False,
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="More talk; -vv for most.")] = 0,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DUR", envvar="GRIDOPS_TIMEOUT", help="Stop waiting after DUR, as 30s.")
    ] = "",
) -> None:
    """Declares the flags; never called."""


def attach(command: Any, *, hidden: bool) -> Any:
    """Give a command (and every command below it) the global flags and its `Context`."""
    command.rich_markup_mode = None
    taken = {name for param in command.params for name in param.opts}
    for param in command.params:
        _spare(param)
    help_option = command.get_help_option
    command.get_help_option = lambda ctx: _spare(help_option(ctx))
    for param in _fresh():
        if not taken.intersection(param.opts):
            param.hidden = hidden
            command.params.append(param)
    run = command.invoke

    def invoke(ctx: Any) -> Any:
        ctx.obj = context(ctx)
        return run(ctx)

    command.invoke = invoke
    for below in getattr(command, "commands", {}).values():
        attach(below, hidden=True)
    return command


def context(ctx: Any) -> Context:
    """The Context of a call. Raises Usage for values that mean nothing."""
    given: dict[str, Any] = ctx.meta.get(_KEY, {})
    color = given.get("color", "auto")
    if color not in ("auto", "always", "never"):
        raise Usage(f"--color {color}: expected auto, always or never")
    directory = Path(given.get("directory", Path()))
    if not directory.is_dir():
        raise Usage(f"-C {directory}: no such folder")
    return Context(
        directory=directory,
        scopes=tuple(ScopeName(s) for s in given.get("scope", ())),
        outputs=tuple(_output(text) for text in given.get("output", ())) or (Output("text"),),
        color=color,
        ascii=given.get("plain", False),
        no_input=given.get("no_input", False),
        verbosity=-1 if given.get("quiet") else given.get("verbose", 0),
        timeout_ms=_duration(given.get("timeout", "")),
        command=ctx.command_path.removeprefix("gridops").strip() or "gridops",
    )


def outputs_of(args: Sequence[str]) -> tuple[Output, ...]:
    """The outputs asked for in raw arguments, leniently: what is not understood is left out."""
    found: list[Output] = []
    for at, arg in enumerate(args):
        if arg == "--":
            break
        text = None
        if arg in ("-o", "--output"):
            text = args[at + 1] if at + 1 < len(args) else None
        elif arg.startswith("--output="):
            text = arg.removeprefix("--output=")
        elif arg.startswith("-o") and not arg.startswith("--"):
            text = arg[2:].removeprefix("=")
        if text is not None and text.partition("=")[0] in FORMATS:
            found.append(_output(text))
    return tuple(found)


def verb_of(args: Sequence[str]) -> str | None:
    """The command in raw arguments: the first word that is neither a flag nor the value of a global one."""
    valued = {name for param in _fresh() if not (param.is_flag or param.count) for name in param.opts}
    words = iter(args)
    for word in words:
        if not word.startswith("-"):
            return word
        if word in valued:
            next(words, None)
    return None


def _fresh() -> list[Any]:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(_flags)
    params: list[Any] = typer.main.get_command(app).params
    for param in params:
        # A command may have an argument of the same name, such as SCOPE; the two must not meet.
        param.name = _PREFIX + param.name
        param.expose_value = False
        param.callback = _keep
        _spare(param)
    return params


def _spare(param: Any) -> Any:
    """Keep the parser from checking what needs no check: its checker takes 80 ms to import, at every call."""
    if "process_value" in vars(param):
        return param
    check = param.process_value
    ours = param.name in _TEXTS

    def process(ctx: Any, value: Any) -> Any:
        source = ctx.get_parameter_source(param.name)
        default = source is not None and source.name == "DEFAULT" and not param.required
        if not (ours or default):
            return check(ctx, value)
        if value is None and (param.multiple or param.nargs == -1):
            value = ()
        return value if param.callback is None else param.callback(ctx, param, value)

    param.process_value = process
    return param


def _keep(ctx: Any, param: Any, value: Any) -> Any:
    source, name = ctx.get_parameter_source(param.name), param.name.removeprefix(_PREFIX)
    if source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT"):
        given = ctx.meta.setdefault(_KEY, {})
        if name in _LISTS:
            given[name] = (*given.get(name, ()), *value)
        else:
            given[name] = value
    return value


def _output(text: str) -> Output:
    form, equals, file = text.partition("=")
    if form not in FORMATS:
        raise Usage(f"-o {text}: unknown format `{form}`", hints=(f"formats: {', '.join(FORMATS)}",))
    if equals and not file:
        raise Usage(f"-o {text}: a file name is missing after `=`")
    return Output(form, Path(file) if file else None)


def _duration(text: str) -> int | None:
    if not text:
        return None
    try:
        return parse_ms(text)
    except ValueError as error:
        raise Usage(f"--timeout {text}: {error}") from error
