"""One call from arguments to exit code: lazy commands, one way out for every error.

Called by `cli.entry`. Commands are imported only when used (`cli.table`), take their `Context` by `context_of(ctx)`,
return nothing or an exit code, and raise the errors of `base.errors`; nothing else leaves this module but a number.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, cast

import typer
import typer.completion
import typer.core
import typer.main

from gridops import __version__
from gridops.base.errors import Failed, GridopsError
from gridops.cli import exits
from gridops.cli.completion import VARIABLE
from gridops.cli.errors import report, report_bug
from gridops.cli.globals import attach, outputs_of, verb_of
from gridops.cli.output import Context, Output, ReaderGone, Usage
from gridops.cli.table import GROUPS, available
from gridops.files.near import nearest

# The library's usage errors share one base, which it does not export by name.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class Terminated(BaseException):
    """SIGTERM arrived."""


class Lazy(typer.core.TyperGroup):
    """The command group that imports a command when it is called, and no sooner."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(available())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        row = available().get(cmd_name)
        if row is None:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = load(row.module, cmd_name)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not ctx.resilient_parsing and not args[0].startswith("-") and args[0] not in available():
            raise unknown("command", args[0], list(available()))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for group in GROUPS:
            rows = [(row.name, row.help) for row in available().values() if row.group == group]
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        item = cast(Any, typer.completion).shell_completion.CompletionItem
        names = [item(r.name, help=r.help) for r in available().values() if r.name.startswith(incomplete)]
        return [*names, *super(typer.core.TyperGroup, self).shell_complete(ctx, incomplete)]


def load(module: str, name: str) -> Any:
    """The command `name` of a module, with the global flags."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    importlib.import_module(module).register(app)
    return attach(typer.main.get_group(app).commands[name], hidden=True)


def root() -> Any:
    """The whole program as one command."""
    app = typer.Typer(
        cls=Lazy,
        name="gridops",
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        help="Decides which AI models are resident on which machines, and makes it so.",
        epilog="Exit codes: gridops help exit-codes. All of a command: gridops help COMMAND.",
        invoke_without_command=True,
    )

    @app.callback()
    def start(
        ctx: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version and exit.")
    ) -> None:
        if version:
            print(f"gridops {__version__}")
            raise typer.Exit
        if ctx.invoked_subcommand is None:
            print(ctx.get_help())

    return attach(typer.main.get_group(app), hidden=False)


def run(args: Sequence[str]) -> int:
    """Run one call. Whatever happens becomes an exit code, told about in the format asked for."""
    _prepare_streams()
    context = _context_for_errors(args)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        code = _call(args)
        sys.stdout.flush()
        return code
    except GridopsError as error:
        return _tell(error, context)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return exits.INTERRUPTED
    except Terminated:
        return exits.TERMINATED
    except (ReaderGone, BrokenPipeError):
        return _hush()
    except Exception as fault:  # noqa: BLE001 - the one place where a fault of ours becomes an exit code
        if isinstance(fault, OSError) and (fault.filename is not None or fault.errno in _FULL):
            # A folder that cannot be written, or a full disk behind stdout: the world's fault, not ours.
            return _tell(Failed(f"{fault.filename or 'the answer'}: {fault.strerror}"), context)
        with contextlib.suppress(OSError):
            report_bug(fault, args, context)
        _hush()
        return exits.BUG


def _tell(error: GridopsError, context: Context) -> int:
    """Tell about an expected error; where nobody can be told any more the exit code still says it."""
    with contextlib.suppress(OSError):
        report(error, context)
    _hush()
    return error.exit_code


def _call(args: Sequence[str]) -> int:
    if VARIABLE in os.environ:
        cast(Any, typer.completion).completion_init()
    try:
        answer = root().main(list(args), prog_name="gridops", standalone_mode=False)
    except _UsageError as error:
        raise _usage(error, args) from error
    if answer == exits.INTERRUPTED:
        # The argument parser turns Ctrl-C into this number without a word.
        raise KeyboardInterrupt
    return answer if isinstance(answer, int) else exits.OK


def unknown(what: str, word: str, known: list[str]) -> Usage:
    """`word` is not one of `known`; suggests the one that was probably meant."""
    near = nearest(word, known)
    hints = (f"did you mean `{near}`?",) if near is not None else ("see what there is: gridops --help",)
    return Usage(f"unknown {what} `{word}`", hints=hints)


def _usage(error: Any, args: Sequence[str]) -> Usage:
    """An error of the argument parser in our words."""
    path = error.ctx.command_path if error.ctx is not None else _spoken(args)
    kind = type(error).__name__
    if kind == "NoSuchOption":
        return _unknown_option(error, path)
    if kind == "NoArgsIsHelpError":
        below = ", ".join(sorted(error.ctx.command.commands))
        return Usage("a command is missing", hints=(f"there are: {below}", f"see: {path} --help"))
    if error.ctx is not None and hasattr(error.ctx.command, "commands") and "command" in error.message.lower():
        word = _quoted(error.message)
        if word:
            return _unknown_below(error.ctx.command, path, word)
    # The parser lists choices one to a line; an error's first line says all of it.
    message = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    return Usage(message[:1].lower() + message[1:], hints=(f"see: {path} --help",))


def _spoken(args: Sequence[str]) -> str:
    """The program and the command that was called, for errors that do not know theirs."""
    verb = verb_of(args)
    return f"gridops {verb}" if verb in available() else "gridops"


def _unknown_option(error: Any, path: str) -> Usage:
    options = {name for p in error.ctx.command.params for name in (*p.opts, *p.secondary_opts)}
    known = [name[2:] for name in sorted({*options, *error.ctx.help_option_names}) if name.startswith("--")]
    near = nearest(error.option_name.lstrip("-"), known)
    hint = f"did you mean `--{near}`?" if near is not None else f"see: {path} --help"
    return Usage(f"unknown option `{error.option_name}`", hints=(hint,))


def _unknown_below(group: Any, path: str, word: str) -> Usage:
    known = sorted(group.commands)
    near = nearest(word, known)
    hint = f"did you mean `{near}`?" if near is not None else f"there are: {', '.join(known)}"
    return Usage(f"unknown command `{path.removeprefix('gridops ')} {word}`", hints=(hint,))


def _quoted(message: str) -> str:
    parts = message.split("'")
    return parts[1] if len(parts) > 2 else ""


def _context_for_errors(args: Sequence[str]) -> Context:
    with contextlib.suppress(Usage):
        verb = verb_of(args) or "gridops"
        return Context(directory=Path(), outputs=outputs_of(args) or (Output("text"),), command=verb)
    return Context()


def _prepare_streams() -> None:
    """Answers are UTF-8 wherever they go; a terminal that cannot show a sign gets it escaped, never an exception.

    A stream that the caller closed leads nowhere: without one, talk would be printed among the answers.
    """
    for name, how in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, how, encoding="utf-8"))  # noqa: SIM115 - open until the process ends
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            if stream.isatty():
                reconfigure(errors="backslashreplace")
            else:
                reconfigure(encoding="utf-8", errors="backslashreplace")


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _hush() -> int:
    """The reader of our pipe went away (`| head`): not an error, and no message at exit either."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                os.dup2(nowhere, cast(int, stream.fileno()))
    return exits.OK
