"""Asks the person at the host before what cannot be taken back: the host's name is typed, or `--yes` was written.

Called by `leave`. Where nobody can be asked it refuses and changes nothing: a script says `--yes`, and means it.
"""

from __future__ import annotations

import sys

from gridops.base.errors import Failed
from gridops_agent.cli.report import Usage


def ask_name(host: str, deed: str, yes: bool) -> None:
    """Return when the person means it. Raises Usage where nobody can be asked, Failed when something else was typed."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Usage(f"nobody can be asked here whether {deed}", hints=("say so: --yes",))
    print(f"If you go on, {deed}.", file=sys.stderr)
    print(f"Type the host's name ({host}) to go on: ", end="", file=sys.stderr, flush=True)
    typed = sys.stdin.readline().strip()
    if typed != host:
        said = f"`{typed}` is not {host}" if typed else "no name was typed"
        raise Failed(f"{said}: nothing was changed")
