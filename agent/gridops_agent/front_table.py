"""What the front goes by, made anew from a host's memory: who serves what, who is away, whose keys count.

Called by the shell with each new memory. A residency whose key cannot be read is no route: nothing can be asked of it.
"""

from __future__ import annotations

from collections.abc import Callable

from gridops.base.codes import host as codes
from gridops.base.errors import GridopsError
from gridops.model.snapshot import ResidencyState
from gridops_agent.alarms import Alarms
from gridops_agent.core.state import Held, Host
from gridops_agent.doors import Doors
from gridops_agent.engines.base import Door
from gridops_agent.front import Away, Route, Table
from gridops_agent.hands import Hands

_SERVING = (ResidencyState.READY, ResidencyState.DRAINING)
_AWAY = (ResidencyState.OFFLOADED, ResidencyState.WARMING)


def table_of(host: Host, doors: Doors, hands: Hands, alarms: Alarms) -> Table:
    """The whole table."""

    def door(held: Held) -> Door | None:
        try:
            return doors.door(held)
        except GridopsError as error:  # somebody changed the key file: nothing can be asked of this engine any more
            alarms.warn(codes.NOT_OURS.code, error.message, about=held.replica)
            return None

    routes = ways(host, door)
    return table(host, routes + hands.routes(routes))


def table(host: Host, routes: tuple[Route, ...]) -> Table:
    """The table with these routes."""
    away = tuple(Away(h.profile, h.serves) for h in host.held.values() if h.applied and h.state in _AWAY)
    return Table(routes=routes, away=away, keys=host.last_word.keys)


def ways(host: Host, door_of: Callable[[Held], Door | None]) -> tuple[Route, ...]:
    """A route to each residency that serves, or is being drained, and has a door."""
    return tuple(r for held in host.held.values() if (r := _route(held, door_of)) is not None)


def _route(held: Held, door_of: Callable[[Held], Door | None]) -> Route | None:
    door = door_of(held) if held.state in _SERVING else None
    if door is None:
        return None
    return Route(
        body=held.body,
        profile=held.profile,
        serves=held.serves,
        door=door,
        admitting=held.state is ResidencyState.READY and not held.offload,
        lanes=held.warm.launch.lanes,
        patience_ms=held.drain_ms,
    )
