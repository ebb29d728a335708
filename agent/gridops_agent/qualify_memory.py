"""What an engine's processes use of each device, read before it starts and once it has settled. Used by `qualify`.

On cards it is what the driver says of each process, and a driver that does not say is no reading. On the host's RAM it
is each process's proportional share, mapped files included: weights that are only mapped are needed all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil

from gridops.base.ids import DeviceId
from gridops.model.fleet import DeviceKind
from gridops.protocol.qualification import DeviceReading
from gridops_agent import facts
from gridops_agent.platform.base import Platform
from gridops_agent.sensors.cards import Card
from gridops_agent.sensors.senses import CardSense


@dataclass(slots=True)
class Memories:
    """The devices of one qualification."""

    platform: Platform
    cards: CardSense
    devices: tuple[DeviceId, ...]
    _before: dict[DeviceId, int] = field(default_factory=dict)

    async def before(self) -> None:
        """What is in use before anything of ours runs."""
        self._before = await asyncio.to_thread(self._used)

    def _used(self) -> dict[DeviceId, int]:
        ram = facts.ram(self.platform, ())
        found = {ram.id: ram.external_bytes or 0}
        for card in self.cards.look().cards:
            found[card.id] = card.used_bytes or 0
        return found

    async def read(self, pids: Sequence[int]) -> tuple[list[DeviceReading | None], int]:
        """Each device, None for one that does not tell; and what the processes use of the host's RAM beside them."""
        return await asyncio.to_thread(self._read, tuple(pids))

    def _read(self, pids: tuple[int, ...]) -> tuple[list[DeviceReading | None], int]:
        ram = facts.ram(self.platform, ())
        cards = {card.id: card for card in self.cards.look().cards}
        found: list[DeviceReading | None] = []
        for device in self.devices:
            if device == ram.id and ram.total_bytes is not None:
                own, used = sum(_whole_bytes(pid) for pid in pids), ram.external_bytes or 0
                found.append(self._reading(device, ram.kind, None, (ram.total_bytes, used, own)))
            else:
                found.append(self._card(cards.get(device), pids))
        on_ram = ram.id in self.devices
        return found, 0 if on_ram else sum(self.platform.own_memory_bytes(pid) for pid in pids)

    def _card(self, card: Card | None, pids: tuple[int, ...]) -> DeviceReading | None:
        if card is None or card.by_pid is None or card.total_bytes is None:
            return None
        mine = [card.by_pid[pid] for pid in pids if pid in card.by_pid]
        if None in mine:
            return None
        own = sum(used or 0 for used in mine)
        return self._reading(card.id, card.kind, card.model, (card.total_bytes, card.used_bytes or own, own))

    def _reading(
        self, device: DeviceId, kind: DeviceKind, model: str | None, sizes: tuple[int, int, int]
    ) -> DeviceReading:
        total, used, own = sizes
        return DeviceReading(
            device=device,
            kind=kind,
            model=model,
            total_bytes=total,
            used_before_bytes=self._before.get(device, 0),
            used_bytes=used,
            own_bytes=own,
        )


def _whole_bytes(pid: int) -> int:
    """A process's share of memory, mapped files included; 0 when it is gone."""
    try:
        seen = psutil.Process(pid).memory_full_info()
    except (psutil.Error, OSError):
        return 0
    return int(getattr(seen, "pss", 0) or getattr(seen, "uss", 0) or seen.rss)
