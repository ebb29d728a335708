"""The commands around the agent's life on a machine: runtime, doctor and leave, and what `join` says at its end."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from gridops import __version__
from gridops.base.errors import GridopsError
from gridops_agent.account import step_down
from gridops_agent.cli.options import State, config_of, examples, folder
from gridops_agent.cli.report import Usage
from gridops_agent.config import Config, default_state, read_config


def add(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.command(
        epilog=examples(
            "gridops-agent runtime",
            "gridops-agent runtime --state /tmp/a",
            "gridops-agent runtime && systemctl restart gridops-agent",
        )
    )(runtime)
    app.command(
        epilog=examples(
            "gridops-agent leave", "gridops-agent leave --force", "gridops-agent leave --state /tmp/a --yes"
        )
    )(leave)
    app.command(
        epilog=examples(
            "gridops-agent rekey",
            "gridops-agent rekey --state /var/lib/gridops-agent/forge",
            "gridops-agent rekey --state /tmp/a && gridops-agent status --state /tmp/a",
        )
    )(rekey)
    app.command(
        epilog=examples(
            "gridops-agent repin sha256:4ab1...",
            "gridops-agent repin sha256:4ab1... --controller https://gridops.office.example:7443",
            "gridops-agent repin sha256:4ab1... --roots /media/usb/policies/trust/root --yes",
        )
    )(repin)
    app.command(
        epilog=examples("gridops-agent doctor", "gridops-agent doctor --state /tmp/a", "gridops-agent doctor -o json")
    )(doctor)


def runtime(state: State = None) -> None:
    """Install the pinned llama.cpp runtime into the state folder, or renew it after an upgrade."""
    from gridops_agent.life.runtime import install_runtime

    config = config_of(state)
    print(install_runtime(config))
    print("A running agent finds it when it starts again; engines go on meanwhile.")


def install_found(config: Config) -> str:
    """Nothing was found: install what is pinned. In words, also when it fails, since the host has joined."""
    from gridops_agent.life.runtime import install_runtime

    print("Engines:   none found; installing the pinned llama.cpp runtime ...", file=sys.stderr, flush=True)
    try:
        return install_runtime(config)
    except GridopsError as error:
        return "\n           ".join(("none. " + error.message, *error.hints))


def tell_start(config: Config, no_service: bool) -> bool:
    """Install the service, or say how to start by hand. False when a service should be there and is not."""
    from gridops_agent.life.install import Machine, Way, install, place

    machine, program = Machine(), _program()
    where = place(config, machine)
    by_hand = f"  {program.name} run --state {config.state}"
    if no_service:
        print(f"Start it:\n{by_hand}")
        return True
    try:
        print("\n".join(install(where, config, program, machine)))
    except GridopsError as error:
        print("\n".join((f"No service: {error.message}", *(f"  hint: {h}" for h in error.hints))))
        print(f"The host has joined all the same. Start it by hand:\n{by_hand}")
        return False
    if where.way is Way.NONE:
        print(by_hand)
    return True


def _program() -> Path:
    """The program as a service starts it: by its whole path, also when it was called by its name alone."""
    called = Path(sys.argv[0])
    found = shutil.which(called.name) if called.parent == Path() else None
    return Path(found or called).absolute()


def leave(
    force: Annotated[bool, typer.Option("--force", help="Cut work, and go also as the last to serve.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the host's name.")] = False,
    state: State = None,
) -> None:
    """Take this host out of its fleet: drain, unload, say goodbye, remove the service. Call it again to go on.

    Asks for the host's name first. Where nobody can be asked, say --yes.
    """
    from gridops_agent.cli.consent import ask_name
    from gridops_agent.life.install import Machine
    from gridops_agent.life.leave import Wishes
    from gridops_agent.life.leave import leave as leave_fleet
    from gridops_agent.life.left import has_left

    here = (state or default_state()).absolute()
    step_down(here, for_good=False)
    config = read_config(here)
    if has_left(config) is None:
        work = "work in flight is cut" if force else "work in flight is waited for"
        deed = f"{config.host} leaves its fleet: {work}, its engines end and its service is removed"
        ask_name(config.host, deed, yes)
    wishes = Wishes(force, __version__, Machine(), lambda line: print(line, flush=True))
    asyncio.run(leave_fleet(config, wishes))


def rekey(state: State = None) -> None:
    """Give this host another key: made here, signed over to by the present one, and taken when people commit it.

    The agent may run; it goes on with the present key until the commit is in force, and changes by itself.
    """
    from gridops_agent.joining import facts_of
    from gridops_agent.ledger import Ledger
    from gridops_agent.rekeying import request

    config = config_of(state)
    ledger = Ledger.look(config.ledger)
    try:
        chain = ledger.load("").chain
    finally:
        ledger.close()
    coming = asyncio.run(request(config, chain, facts_of(config, __version__)))
    print(f"Next key:  {coming.text}")
    print(f"           {coming.key_id}")
    print("\nCompare the key with what the controller shows, then admit it by a commit:")
    print(f"  gridops host admit {config.host}")


def repin(
    digest: Annotated[str, typer.Argument(metavar="DIGEST", help="Of the fleet's first root document; see below.")],
    controller: Annotated[
        str | None, typer.Option(help="That fleet's controller, where it has another address.", metavar="URL")
    ] = None,
    roots: Annotated[
        Path | None, typer.Option(help="A folder with its roots: nobody is asked.", metavar="DIR", parser=folder)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the host's name.")] = False,
    state: State = None,
) -> None:
    """Believe another first root document from now on: for when too few root keys are left. Stop the agent first.

    The digest is the fleet that `gridops trust verify` names where it was founded anew; have it read to you. Engines
    go on, and what this host had promised to the former fleet is void.
    """
    from gridops.base.ids import Digest, is_digest
    from gridops_agent.cli.consent import ask_name
    from gridops_agent.config import check_controller
    from gridops_agent.life.repin import Pin
    from gridops_agent.life.repin import repin as pin_anew

    if not is_digest(digest):
        raise Usage(f"`{digest[:80]}` is no digest: sha256: and 64 hex digits, all of them")
    try:
        url = check_controller(controller) if controller is not None else None
    except ValueError as error:
        raise Usage(str(error)) from error
    config = config_of(state)
    ask_name(config.host, f"{config.host} obeys whoever holds the keys of fleet {digest}, and nobody else", yes)
    asyncio.run(pin_anew(config, Pin(Digest(digest), url, roots), lambda line: print(line, flush=True)))
    print("Start the agent again; its key has to stand in that fleet's fleet.d/keys.")


def doctor(
    state: State = None,
    output: Annotated[str, typer.Option("-o", "--output", help="text or json.")] = "text",
) -> None:
    """Look at everything that can be wrong on this host, and say what to do. Exit 1 if something is bad."""
    from gridops_agent.life import finding
    from gridops_agent.life.doctor import examine
    from gridops_agent.life.install import Machine

    if output not in ("text", "json"):
        raise Usage(f"`{output}` is not an output format", hints=("there are: text, json",))
    here = (state or default_state()).absolute()
    step_down(here)
    host, found = asyncio.run(examine(here, Machine()))
    if output == "json":
        print(json.dumps(finding.document(host, found), indent=2, sort_keys=True))
    else:
        print(finding.render(found), end="")
    if finding.is_bad(found):
        raise typer.Exit(1)
