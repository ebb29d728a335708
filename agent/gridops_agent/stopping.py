"""Ends the engines of a host while its agent does not run: for taking a machine down, and for demos that clean up.

Only what can be proved is signalled, and only when the engine says that it is idle, or with force. The ledger is not
touched: the residencies stay wanted, and an agent that comes back keeps them alive again.
"""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp

from gridops.base.ids import EngineName, short
from gridops.base.units import counted
from gridops_agent.config import Config
from gridops_agent.core.state import Held
from gridops_agent.doors import Doors
from gridops_agent.engines import engines, services
from gridops_agent.engines.base import Adapter
from gridops_agent.keep import taken
from gridops_agent.keep.base import FORCE_STEPS, STOP_STEPS
from gridops_agent.keep.setup import keepers_of
from gridops_agent.ledger import Ledger
from gridops_agent.statefolder import only_one

CUT = "--force ends it all the same: what it works on is cut, and its callers lose their answers"
SILENT = (
    f"it runs and does not say whether it is idle: it hangs, or works too hard to answer. Ask again in a while; {CUT}"
)


async def stop_engines(config: Config, force: bool) -> tuple[tuple[str, ...], bool]:
    """One line for each engine, and whether any is left. Raises Busy while an agent runs."""
    keepers, doors = keepers_of(config), Doors(config.engines)
    known: Mapping[EngineName, Adapter] = {
        **services(config.ways.services),
        **engines(config.engine_command, config.runtime),
    }
    lines: list[str] = []
    left = False
    with only_one(config):
        ledger = Ledger.look(config.ledger)
        try:
            residencies = sorted(ledger.load("").held.values(), key=lambda h: (h.replica, h.body))
        finally:
            ledger.close()
        keepers.know({h.body: h.warm.launch for h in residencies}.get)
        given = frozenset(one.body for one in taken.read(config.hands).given)
        async with aiohttp.ClientSession(trust_env=False) as http:
            for held in residencies:
                if await keepers.absent(held):
                    continue
                if held.body in given:  # a person took it back: it is no engine of this host any more
                    lines.append(f"{held.replica}  left running: it was given back")
                    continue
                busy = None if force else await _busy(known, http, doors, held)
                if busy is not None:
                    lines.append(f"{held.replica}  left alone: {busy}")
                    left = True
                    continue
                steps = FORCE_STEPS if force else STOP_STEPS
                if held.handle is not None:
                    stopped = await keepers.stop(held.body, held.handle, steps)
                else:
                    stopped = await keepers.sweep(held.body, held, steps)
                lines.append(f"{held.replica}  {'stopped' if stopped.gone else stopped.detail}")
                left = left or not stopped.gone
        for what, body in await keepers.strangers(frozenset(h.body for h in residencies) | given):
            lines.append(f"{what}  left alone: it carries the command {short(body)}, which this host does not know")
            left = True
    await keepers.close()
    return tuple(lines), left


async def _busy(
    known: Mapping[EngineName, Adapter], http: aiohttp.ClientSession, doors: Doors, held: Held
) -> str | None:
    """Why it may not be stopped gently; None when it is idle or was never ready."""
    door = doors.door(held)
    engine = known.get(held.warm.launch.engine)
    if door is None or engine is None or not held.applied or not engine.abilities.counts_work:
        return None  # what does not count its work is idle by the front's count, and the front is not there
    count = await engine.busy(http, door)
    if count is None:
        return SILENT
    return f"{counted(count, 'generation')} running; {CUT}" if count else None
