"""`gridops completion SHELL`: prints the script that lets a shell complete commands, flags and names."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
import typer.completion

from gridops.cli.output import context_of

VARIABLE = "_GRIDOPS_COMPLETE"
"""Set by the script when it asks for completions; the argument parser answers and exits."""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    app.command("completion")(completion)


def completion(ctx: typer.Context, shell: Annotated[Shell, typer.Argument(help="Which shell.")]) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      gridops completion bash > ~/.local/share/bash-completion/completions/gridops
      gridops completion zsh > ~/.zfunc/_gridops
      gridops completion fish > ~/.config/fish/completions/gridops.fish
    """
    made: Any = typer.completion
    script = made.get_completion_script(prog_name="gridops", complete_var=VARIABLE, shell=shell.value)
    context_of(ctx).emit({"text": lambda: script})
