"""What several commands of the agent ask for: the state folder, and examples under their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gridops_agent.account import step_down
from gridops_agent.config import Config, default_state, read_config


def folder(text: str) -> Path:
    """A folder as it was written. An empty word is an unset variable of a script, and never the folder one is in."""
    if not text:
        raise typer.BadParameter("it is empty, and names no folder")
    return Path(text)


State = Annotated[
    Path | None,
    typer.Option("--state", help="State folder [default: the system's place, or yours].", metavar="DIR", parser=folder),
]


def examples(*lines: str) -> str:
    """The examples under a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def config_of(state: Path | None) -> Config:
    """The configuration of the given state folder, or of the default one. Root steps down to whose folder it is."""
    here = (state or default_state()).absolute()
    step_down(here)
    return read_config(here)
