"""Commands of both programs as a tree: for the reference page, and for the test of commands that pages show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import typer
import typer.main

from gridops.cli.main import root
from gridops_agent.cli.main import app

WIDTH = 100


def programs() -> dict[str, Any]:
    """The root command of each program that is installed, by the name people type."""
    return {"gridops": root(), "gridops-agent": typer.main.get_command(app)}


def context_of(command: Any, name: str, parent: Any = None) -> Any:
    """A parsing context that asks nothing of the terminal."""
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    return command.context_class(command, info_name=name, parent=parent, **settings)


def below(command: Any, ctx: Any) -> list[tuple[str, Any]]:
    """Sub-commands in the order of the program's own help."""
    if not hasattr(command, "list_commands"):
        return []
    return [(name, command.get_command(ctx, name)) for name in command.list_commands(ctx)]


def every(name: str, command: Any, parent: Any = None) -> Iterator[tuple[str, Any, Any]]:
    """(path, command, context) of a command and of all below it."""
    ctx = context_of(command, name, parent)
    yield ctx.command_path, command, ctx
    for word, sub in below(command, ctx):
        yield from every(word, sub, ctx)


def help_text(command: Any, ctx: Any) -> str:
    """What `--help` prints, without blanks at line ends."""
    lines = [line.rstrip() for line in command.get_help(ctx).splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def split(line: str) -> list[str]:
    """The words of one command of a shell line: no prompt, nothing from a pipe, a redirection or a comment on."""
    text = re.split(r"\s(?:\||&&|;|>|2>|<|#)", line.strip().removeprefix("$ ").removeprefix("# "), maxsplit=1)[0]
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def fault(words: list[str], trees: dict[str, Any], *, whole: bool = False) -> str | None:
    """What is wrong with a command as written, or None: commands and flags that are not there. A `whole` one is there
    to be copied, and has every argument and option without which it would only complain."""
    program = words[0]
    command, ctx = trees[program], context_of(trees[program], program)
    flags = _flags(command)
    waiting, said, given = iter(words[1:]), set[str](), 0
    for word in waiting:
        if word.startswith("-") and word != "-":
            flag, equals, _ = word.partition("=")
            if flag not in flags:
                return f"{ctx.command_path} has no {flag}"
            said.add(flag)
            if flags[flag] and not equals:
                next(waiting, None)
        elif hasattr(command, "list_commands"):
            if word not in command.list_commands(ctx):
                return f"{ctx.command_path} has no command {word}"
            command = command.get_command(ctx, word)
            ctx = context_of(command, word, ctx)
            flags |= _flags(command)
        else:
            given += 1
    if not whole or said & {"-h", "--help"}:
        return None
    wanted = [param for param in command.params if param.required]
    options = [param.opts[0] for param in wanted if param.opts[0].startswith("-") and not said & set(param.opts)]
    arguments = [(param.metavar or param.name).upper() for param in wanted if not param.opts[0].startswith("-")]
    missing = [*options, *arguments[given:]]
    return f"{ctx.command_path} wants {missing[0]}" if missing else None


def _flags(command: Any) -> dict[str, bool]:
    """Every flag of a command, and whether the next word is its value."""
    found = {"-h": False, "--help": False}
    for param in command.params:
        for name in (*param.opts, *param.secondary_opts):
            if name.startswith("-"):
                found[name] = not (getattr(param, "is_flag", False) or getattr(param, "count", False))
    return found
