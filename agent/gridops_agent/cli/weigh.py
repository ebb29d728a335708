"""`gridops-agent weigh`: what a running, idle model really holds here, as the lines that a profile takes."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from gridops.base.units import render_bytes
from gridops_agent.cli.options import State, config_of, examples


def add(app: typer.Typer) -> None:
    """Put the command into the program."""
    app.command(
        epilog=examples(
            "gridops-agent weigh coder/1",
            "gridops-agent weigh coder/1 --state /tmp/a",
            "gridops-agent status",
        )
    )(weigh)


def weigh(
    replica: Annotated[str, typer.Argument(help="The replica, as `gridops-agent status` names it.")],
    state: State = None,
) -> None:
    """Measure the memory of a model that runs here and is idle. Prints its footprint; changes nothing."""
    from gridops_agent.weighing import weigh_replica

    seen = asyncio.run(weigh_replica(config_of(state), replica))
    weight = seen.weight
    mib = 1 << 20
    device, host = -(-weight.device_bytes // mib), -(-weight.host_bytes // mib)
    on = ", ".join(f"{name} {render_bytes(held)}" for name, held in weight.by_device) or "host memory alone"
    print(f"# {seen.held.replica} by {weight.looks} looks: {on}")
    for rest in weight.reserves:
        print(f"# {rest.device}: {render_bytes(rest.bytes_)} are used by nobody that is listed as an engine here")
    more = f", host: {host}MiB" if weight.by_device else ""
    print(f"footprint: {{source: measured, device: {device}MiB{more}}}")
