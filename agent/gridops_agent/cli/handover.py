"""Engines change hands by a person's word at the host: the commands takeover and release."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from gridops_agent.cli.options import State, config_of, examples
from gridops_agent.cli.report import Usage


def add(app: typer.Typer) -> None:
    """Put the two commands into the program."""
    app.command(
        epilog=examples(
            "gridops-agent takeover 48213",
            "gridops-agent takeover llama-70b.service --yes",
            "gridops-agent takeover vllm-a --key-file ~/.config/vllm.key",
        )
    )(takeover)
    app.command(
        epilog=examples(
            "gridops-agent release coder/1 --keep-running",
            "gridops-agent release 48213 --keep-running",
            "gridops-agent status",
        )
    )(release)


def takeover(
    target: Annotated[str, typer.Argument(help="A pid, a unit (X.service) or a container.")],
    key_file: Annotated[
        str, typer.Option("--key-file", help="Where the key lies that it asks its callers for.", metavar="FILE")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    state: State = None,
) -> None:
    """Hand an engine that runs here over to gridops, without a restart. Plans may then use it, and end it."""
    from gridops_agent import takeover as handing
    from gridops_agent.clock import SystemClock

    config = config_of(state)
    one = asyncio.run(handing.found(config, handing.Wish(target, key_file)))
    print(f"{one.called}: {one.engine} at port {one.handle.port}, lists {', '.join(one.lists)}")
    print(f"  {' '.join(one.words)[:200]}")
    unsaid = asyncio.run(handing.unsaid(config, one))
    if unsaid:
        print(f"note: {unsaid}", file=sys.stderr)
    if not yes:
        if not sys.stdin.isatty():
            raise Usage("nobody can be asked here whether it is handed over", hints=("say so: --yes",))
        typer.confirm("From now on plans may use it, drain it and end it. Hand it over?", abort=True)
    handing.keep(config, one, SystemClock().wall_ms())
    print("Handed over. It becomes a residency when a plan wants this model, file and engine on this host.")


def release(
    target: Annotated[str, typer.Argument(help="A replica, its incarnation, or what was taken over.")],
    keep_running: Annotated[
        bool, typer.Option("--keep-running", help="It is left running; say so, since nothing else is done.")
    ] = False,
    state: State = None,
) -> None:
    """Give an engine back to people: it runs on, neither counted nor touched any more."""
    from gridops_agent import takeover as handing
    from gridops_agent.clock import SystemClock
    from gridops_agent.statefolder import is_running

    if not keep_running:
        raise Usage("release stops nothing: say --keep-running", hints=("to end an engine, drain and unload it",))
    config = config_of(state)
    called = handing.give_back(config, target, SystemClock().wall_ms())
    when = "within seconds" if is_running(config) else "when the agent starts"
    print(f"{called} is given back {when}; it runs on and is external from then on.")
