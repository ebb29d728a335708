"""Looks at one running engine several times and weighs it: for `gridops-agent weigh` and for qualifying engines.

Reads only: the ledger for what runs, the driver and the process table for what it holds, the running agent's note for
what is in flight. What may be called measured is decided in `core.weigh`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from gridops.base.errors import Failed
from gridops_agent.clock import SystemClock
from gridops_agent.config import Config
from gridops_agent.core.state import Held, Host
from gridops_agent.core.weigh import LOOKS, CardLook, GroupLook, Weight, weigh
from gridops_agent.keep.keepers import Keepers
from gridops_agent.keep.setup import keepers_of
from gridops_agent.ledger import Ledger
from gridops_agent.live_note import noted
from gridops_agent.sensors.cards import Cards
from gridops_agent.sensors.senses import CardSense
from gridops_agent.statefolder import is_running

APART_S = 2.0


@dataclass(frozen=True, slots=True)
class Weighed:
    """What was weighed: the residency, and its footprint."""

    held: Held
    weight: Weight


async def weigh_replica(config: Config, replica: str, apart_s: float = APART_S) -> Weighed:
    """Weigh one residency of this host. Raises Refusal when what was read is no measurement, Failed without one."""
    ledger = Ledger.look(config.ledger)
    try:
        host = ledger.load("")
    finally:
        ledger.close()
    held = next((h for h in host.held.values() if h.replica == replica), None)
    if held is None:
        names = ", ".join(sorted(h.replica for h in host.held.values())) or "none"
        raise Failed(f"this host holds no `{replica}`", hints=(f"it holds: {names}",))
    keepers, sense, cards = keepers_of(config), CardSense(), Cards()
    found = []
    try:
        for number in range(LOOKS):
            if number:
                await asyncio.sleep(apart_s)
            cards = await asyncio.to_thread(sense.look)
            found.append(await _look(config, host, held, keepers, cards))
    finally:
        await keepers.close()
    known = {card.id for card in cards.cards}
    return Weighed(held, weigh(found, [device for device in held.warm.devices if device in known or "gpu" in device]))


async def _look(config: Config, host: Host, held: Held, keepers: Keepers, cards: Cards) -> GroupLook:
    others = {body: h.handle for body, h in host.held.items() if h.handle is not None and body != held.body}
    pids = await keepers.processes_of({held.body: held.handle}) if held.handle is not None else ()
    return GroupLook(
        at_ms=SystemClock().wall_ms(),
        pids=frozenset(pids),
        others=frozenset(await keepers.processes_of(others)),
        in_flight=_in_flight(config, held),
        cards={c.id: CardLook(c.total_bytes or 0, c.used_bytes, c.by_pid) for c in cards.cards},
        resident_bytes=resident_bytes(pids),
    )


def _in_flight(config: Config, held: Held) -> int | None:
    """Requests at the front by the running agent's note; None when no agent runs to know."""
    if not is_running(config):
        return None
    flights = noted(config.status).get("in_flight")
    count = flights.get(held.body) if isinstance(flights, dict) else None
    return count if isinstance(count, int) else None


def resident_bytes(pids: Iterable[int]) -> int | None:
    """Host memory of a group, shared pages divided among those that share them; None when a process cannot be read."""
    total = 0
    for pid in pids:
        try:
            seen = psutil.Process(pid).memory_full_info()
        except (psutil.Error, OSError):
            return None
        total += int(getattr(seen, "pss", 0) or seen.rss)
    return total
