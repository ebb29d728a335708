"""Asks engines that are waited for in silence how they are, and tells people when what waited was ended.

Run by the shell as a loop. `front_flights` decides; here are the question, which any sign of life answers, and the
words.
"""

from __future__ import annotations

import asyncio
from functools import partial

from gridops.base.codes.host import ENGINE_SILENT
from gridops.base.units import counted, render_ms
from gridops_agent.front import Route
from gridops_agent.front_flights import LOOK_S
from gridops_agent.tools import Alerts, Tools


async def watch_silence(tools: Tools, warn: Alerts) -> None:
    """Look for ever."""
    while True:
        await look(tools, warn)
        await asyncio.sleep(LOOK_S)


async def look(tools: Tools, warn: Alerts) -> None:
    """One look at every engine that is waited for in silence."""
    for route, ended in await tools.front.flights.look(partial(_lives, tools)):
        ms = render_ms(route.patience_ms or 0)
        words = f"{route.profile}: its engine answered nothing for {ms}; {counted(ended, 'request')} that waited ended"
        warn(ENGINE_SILENT.code, words, route.profile)


async def _lives(tools: Tools, route: Route) -> bool:
    """Whether an engine says anything at all. One that nobody here can ask is taken to live."""
    adapter = tools.adapter(route.door.launch.engine) if route.door.launch is not None else None
    if adapter is None or await adapter.listed(tools.http, route.door):
        return True
    return await adapter.busy(tools.http, route.door) is not None
