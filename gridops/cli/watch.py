"""`gridops watch`: run the reconciler in the foreground, until a signal. A service manager runs exactly this.

Talks on stderr: text on a terminal, JSON lines otherwise. Decides nothing; `gridops.controller` does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from gridops.base.errors import BadSetup, DiskFault, Failed, NoRoom
from gridops.base.units import parse_ms
from gridops.cli.controller import keys_wanted
from gridops.cli.output import Usage, context_of

EXAMPLES = """\b
Examples:
  gridops watch
  gridops -C /srv/fleet watch --state /var/lib/gridops/office
  gridops watch --once -o json
"""


def register(app: typer.Typer) -> None:
    app.command("watch", help="Run the reconciler in the foreground.", epilog=EXAMPLES)(run)


def run(
    ctx: typer.Context,
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="DIR", envvar="GRIDOPS_STATE", help="The controller's state folder."),
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="Listen here instead of policies/fleet.yaml.")
    ] = None,
    interval: Annotated[
        str | None, typer.Option("--interval", metavar="DUR", help="Look at the branch this often, as 30s.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, plan once, write, and end.")] = False,
) -> int:
    from gridops.controller import log
    from gridops.controller.service import Controller
    from gridops.controller.shell import Options, Shell
    from gridops.controller.shell_full import lasting
    from gridops.controller.start import ground, listen_on, opening

    context = context_of(ctx)
    context.check(("text", "json", "jsonl"))
    every_s = _seconds(interval)
    log.begin(verbosity=context.verbosity, plain=False if context.machine else None)
    with _settled():
        found = ground(context.directory)
        address = None if once else listen_on(listen, found.settings)
        begun = opening(found, state)

    def begin() -> Shell:
        with _settled(), keys_wanted(begun.state.path):
            return Shell(Controller(begun), found.checkout, Options(address, every_s, once))

    return lasting(begin, begun.state, address)


@contextlib.contextmanager
def _settled() -> Iterator[None]:
    """What no restart would repair is a BadSetup: a service manager must not try for ever."""
    try:
        yield
    except (NoRoom, DiskFault):
        raise  # it passes, or may
    except Failed as error:
        raise BadSetup(error.message, hints=error.hints) from error


def _seconds(interval: str | None) -> float | None:
    if interval is None:
        return None
    try:
        every_ms = parse_ms(interval)
    except ValueError as error:
        raise Usage(f"--interval {interval}: {error}") from error
    if every_ms < 100:
        raise Usage(f"--interval {interval}: at least 100ms")
    return every_ms / 1000
