"""Holds against the catalog what only this host can know of a start: its build, the variables it gets, its network.

Asked by `effects` when a command's effect is about to begin; everything else of the catalog is the fence's and the
heart's, which know no engine. What runs already was admitted when it was started: keep-alive is never asked.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from gridops.base.codes.protocol import NOT_IN_CATALOG
from gridops.base.ids import EngineName
from gridops.model.action import Action, Warm
from gridops.model.catalog import Network
from gridops.model.plan import Launch
from gridops.protocol.fence import start_of
from gridops.trust.catalog import Program, runs
from gridops.trust.release import demanded
from gridops_agent.core.state import Host
from gridops_agent.engines.base import Engine, Start
from gridops_agent.keep.base import Keeper
from gridops_agent.tools import Tools

SOMEWHERE = Path("/nowhere/model")
"""Which variables are set follows from a launch, and not from where its files lie."""


async def objection(host: Host, tools: Tools, action: Action) -> tuple[str, str] | None:
    """Why the catalog forbids how this host would start it; None when it does not, or when nobody asks for one."""
    catalog = host.known.catalog
    if not isinstance(action, Warm) or demanded(host.known, host.chain) == 0 or catalog is None:
        return None  # without a catalog that holds, the heart refuses every start by itself
    launch = action.launch
    if not launch.artifact.files:
        return NOT_IN_CATALOG.code, f"{action.replica} names no files at all"
    keeper = tools.keepers.of_launch(launch)
    program = Program(
        build=await _build(tools, keeper, launch),
        environment=_variables(tools.engines.get(launch.engine), keeper, action),
        network=Network.OWN if keeper.own_network else Network.HOST,
    )
    why = runs(catalog, start_of(action), program)
    return None if why is None else (NOT_IN_CATALOG.code, why)


async def _build(tools: Tools, keeper: Keeper, launch: Launch) -> str:
    said = keeper.build(launch)
    if said is not None:
        return said
    engine = tools.engines.get(EngineName(launch.engine))
    return await asyncio.to_thread(engine.build) if engine is not None else ""


def _variables(engine: Engine | None, keeper: Keeper, action: Warm) -> tuple[str, ...]:
    """Names alone. What a person set up (a unit, a service) gets none from us."""
    if engine is None or keeper.place(action.launch) is not None:
        return ()
    model = SOMEWHERE / action.launch.artifact.files[0].path
    start = Start(launch=action.launch, model=model, port=1, key_file=SOMEWHERE, shares=action.shares or ())
    return tuple(sorted(engine.environment(replace(keeper.inside(start), gpus=("any",) * len(action.devices)))))
