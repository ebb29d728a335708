"""The table of commands: name, module, one line of help, group. A module is imported only when its command is used.

Each module has `register(app: typer.Typer) -> None`, which adds one command (or one sub-app) of that name.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass

DAILY = "Every day"
ACTING = "Acting"
SETUP = "Setting up"
REFERENCE = "Reference"
GROUPS = (DAILY, ACTING, SETUP, REFERENCE)


@dataclass(frozen=True, slots=True)
class Row:
    """One command."""

    name: str
    module: str
    help: str
    group: str

    @property
    def present(self) -> bool:
        return importlib.util.find_spec(self.module) is not None


def _row(name: str, line: str, group: str, module: str = "") -> Row:
    return Row(name, f"gridops.cli.{module or name}", line, group)


COMMANDS: dict[str, Row] = {
    row.name: row
    for row in (
        _row("validate", "Check the files of a repository; needs no state.", DAILY),
        _row("plan", "Show what would happen; changes nothing.", DAILY),
        _row("status", "Show what is, per scope and model.", DAILY),
        _row("explain", "Say why a replica is where it is, or why it is nowhere.", DAILY),
        _row("plans", "List, show and compare stored plans.", DAILY),
        _row("fmt", "Lay files out the one canonical way; comments are kept.", DAILY),
        _row("apply", "Carry out one stored plan, with an approval.", ACTING),
        _row("drain", "Ask that a host be emptied.", ACTING),
        _row("undrain", "Use a drained host again.", ACTING, "drain"),
        _row("freeze", "Stop all acting in a scope, at once.", ACTING),
        _row("advice", "What plans advise for disks; let one of it be done.", ACTING),
        _row("unlock", "Take the lock of a scope away from a dead apply.", ACTING),
        _row("reconcile-outcome", "Say how a command ended whose host cannot tell.", ACTING, "reconcile_outcome"),
        _row("thaw", "End a freeze.", ACTING, "freeze"),
        _row("init", "Write a working skeleton; commits nothing.", SETUP),
        _row("trust", "Make and show keys and root documents.", SETUP),
        _row("host", "Invite, admit and write off hosts.", SETUP),
        _row("watch", "Run the reconciler in the foreground.", SETUP),
        _row("controller", "Rebuild a controller's memory from git and its hosts.", SETUP),
        _row("doctor", "Check the set-up and print what to fix.", SETUP),
        _row("schema", "Print the JSON Schema of a kind of file.", REFERENCE),
        _row("rule", "Explain a code such as GO203.", REFERENCE),
        _row("completion", "Print the completion script of a shell.", REFERENCE),
        _row("help", "Show help on a command or a topic.", REFERENCE, "helptopics"),
    )
}


@functools.cache
def available() -> dict[str, Row]:
    """The commands whose modules are installed, in the order of the table."""
    return {name: row for name, row in COMMANDS.items() if row.present}
