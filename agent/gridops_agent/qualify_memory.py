"""What an engine's processes use of each device once it has settled: several looks, weighed. Used by `qualify`.

What may be called measured is decided in `core.weigh`; here is only what it stood on. On the host's RAM mapped files
count: weights that are only mapped are needed all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gridops.base.ids import DeviceId
from gridops.protocol.qualification import DeviceReading
from gridops_agent import facts
from gridops_agent.clock import SystemClock
from gridops_agent.core.weigh import LOOKS, CardLook, GroupLook, Weight, weigh
from gridops_agent.platform.base import Platform
from gridops_agent.sensors.cards import Cards
from gridops_agent.sensors.senses import CardSense
from gridops_agent.weighing import resident_bytes

Pids = Callable[[], Awaitable[tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Memories:
    """The devices of one qualification."""

    platform: Platform
    cards: CardSense
    devices: tuple[DeviceId, ...]
    apart_s: float = 2.0

    async def weighed(self, pids: Pids, in_flight: int | None) -> tuple[tuple[DeviceReading, ...], int, int]:
        """Each device, the host's memory beside them, and how many processes. Raises Refusal for every doubt."""
        looks: list[GroupLook] = []
        seen, group = Cards(), frozenset[int]()
        for number in range(LOOKS):
            if number:
                await asyncio.sleep(self.apart_s)
            seen, group = await asyncio.to_thread(self.cards.look), frozenset(await pids())
            looks.append(
                GroupLook(
                    at_ms=SystemClock().wall_ms(),
                    pids=group,
                    others=frozenset(),
                    in_flight=in_flight,
                    cards={c.id: CardLook(c.total_bytes or 0, c.used_bytes, c.by_pid) for c in seen.cards},
                    resident_bytes=await asyncio.to_thread(resident_bytes, group),
                )
            )
        ram = facts.ram(self.platform, ())
        weight = weigh(looks, [device for device in self.devices if device != ram.id])
        return self._readings(weight, seen, ram), weight.host_bytes, len(group)

    def _readings(self, weight: Weight, seen: Cards, ram: facts.Fact) -> tuple[DeviceReading, ...]:
        if not weight.by_device:
            total, used = ram.total_bytes or 0, ram.external_bytes or 0
            return (
                DeviceReading(
                    device=ram.id, kind=ram.kind, total_bytes=total, used_bytes=used, own_bytes=weight.device_bytes
                ),
            )
        cards, own = {card.id: card for card in seen.cards}, dict(weight.by_device)
        return tuple(
            DeviceReading(
                device=device,
                kind=cards[device].kind,
                model=cards[device].model,
                total_bytes=cards[device].total_bytes or 0,
                used_bytes=cards[device].used_bytes or 0,
                own_bytes=own[device],
            )
            for device in self.devices
        )
