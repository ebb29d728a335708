"""All senses of one host behind one door: the cards of every driver, and one sample for the host's protection.

Made once by the shell, asked from threads. A source that fails or hangs costs its own reading and a reason, never
another reading and never the loop; `why` says what could not be read the last time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gridops.base import limits
from gridops.base.units import PPM
from gridops.model.fleet import DeviceKind
from gridops.model.policy import Sensor
from gridops_agent import facts
from gridops_agent.core.protection import CardSaid, GpuFault, GpuTrouble, Sample
from gridops_agent.platform.base import Platform
from gridops_agent.platform.table import Mechanisms, mechanisms
from gridops_agent.sensors import host
from gridops_agent.sensors.amd import Amd
from gridops_agent.sensors.bounded import Bounded
from gridops_agent.sensors.cards import Card, Cards, Condition
from gridops_agent.sensors.host import Battery
from gridops_agent.sensors.nvml import Nvml
from gridops_agent.sensors.said import Ask, Said, ask

T = TypeVar("T")

PATIENCE_S = 2.0
"""NVML answers in milliseconds; with a card that wakes up, in a second. All sources together stay below what the
protection loop waits."""
HOST_PATIENCE_S = 1.0
IDLE_EVERY_S = 2.0
"""Idle time costs two processes to ask; two seconds late is early enough for whoever comes back."""
FRESH_S = 0.2
"""Readings this old are handed out again: protection, gauge and releases look at the same cards."""


class CardSense:
    """The cards of every driver on this machine, together."""

    def __init__(self, drivers: Iterable[Bounded[Cards]] | None = None) -> None:
        self._drivers = tuple(drivers) if drivers is not None else _drivers()
        self._turn = threading.Lock()
        self._last: tuple[float, Cards] | None = None

    def look(self) -> Cards:
        """Every card now, or as of a moment ago."""
        with self._turn:
            now_s = time.monotonic()
            if self._last is None or now_s - self._last[0] > FRESH_S:
                self._last = (time.monotonic(), together(self._ask(driver) for driver in self._drivers))
            return self._last[1]

    def _ask(self, driver: Bounded[Cards]) -> Cards:
        answer, why = driver.ask()
        return answer if answer is not None else Cards(known=False, why=(why,))


def _drivers() -> tuple[Bounded[Cards], ...]:
    return (Bounded("nvml", Nvml().read, PATIENCE_S), Bounded("amdgpu", Amd().read, HOST_PATIENCE_S))


def together(looks: Iterable[Cards]) -> Cards:
    """Several drivers as one: what one of them does not know is not known."""
    all_looks = tuple(looks)
    return Cards(
        cards=tuple(card for look in all_looks for card in look.cards),
        known=all(look.known for look in all_looks),
        absent=next((look.absent for look in all_looks if look.absent is not None), None),
        why=tuple(why for look in all_looks for why in look.why)[: limits.SENSOR_REASONS],
    )


@dataclass(frozen=True, slots=True)
class HostSaid:
    """What the machine itself said in one look."""

    idle: Said[int]
    battery: Said[Battery]
    temperature: Said[int]
    throttling: Said[bool]
    cpu: Said[int]
    load: Said[int]
    network: Said[bool]
    ram_ppm: Said[int]
    disk_free: Said[int]


@dataclass(frozen=True, slots=True)
class Told:
    """Cards that have told something since the agent started, by what they told."""

    heat: frozenset[str] = frozenset()
    memory: frozenset[str] = frozenset()

    def also(self, cards: Cards) -> Told:
        """With what they tell now."""
        return Told(
            self.heat | {card.id for card in cards.cards if card.temperature_c is not None},
            self.memory | {card.id for card in cards.cards if _fullness(card) is not None},
        )


class HostSense:
    """One sample for the protection loop. `ours` are the processes whose work is not somebody else's."""

    def __init__(self, platform: Platform, cards: CardSense, cache: Path, ours: Callable[[], tuple[int, ...]]) -> None:
        self._platform = platform
        self._cards = cards
        self._cache = cache
        self._ours = ours
        self._table: Mechanisms = mechanisms()
        self._ask: Ask = ask
        self._cpu = host.CpuShare()
        self._throttling = self._table.throttling(self._ask)
        self._idle: tuple[float, Said[int]] | None = None
        self._host = Bounded("the machine's own sensors", self._look, HOST_PATIENCE_S)
        self._told = Told()
        self.why: tuple[str, ...] = ()
        """What the newest sample could not read, and why."""

    def read(self) -> Sample:
        """The machine now. Never waits longer than the protection loop does; whatever failed is None."""
        cards = self._cards.look()
        readings, why = self._host.ask()
        self.why = tuple(w for w in (why, *_whys(readings)) if w)[: limits.SENSOR_REASONS]
        self._told = self._told.also(cards)
        return sample(_boottime_ms(), cards, readings, self._told)

    def _look(self) -> HostSaid:
        return HostSaid(
            idle=self._idle_now(),
            battery=_told("battery", lambda: self._table.battery(self._ask)),
            temperature=_told("temperature", host.temperature),
            throttling=_told("throttling", self._throttling),
            cpu=_told("cpu", lambda: self._cpu.look(self._ours())),
            load=_told("load", host.load),
            network=_told("network", host.network),
            ram_ppm=_told("memory", self._ram),
            disk_free=_told("disk", self._disk),
        )

    def _idle_now(self) -> Said[int]:
        now_s = time.monotonic()
        if self._idle is None or now_s - self._idle[0] >= IDLE_EVERY_S:
            said = _told("idle", lambda: self._table.idle_ms(self._ask, int(time.monotonic() * 1_000)))
            self._idle = (time.monotonic(), said)
            return said
        at_s, said = self._idle
        return Said(said.value + round((now_s - at_s) * 1_000)) if said.value is not None else said

    def _ram(self) -> Said[int]:
        memory = self._platform.memory()
        return Said(memory.used_bytes * PPM // memory.total_bytes) if memory.total_bytes else Said(why="no RAM is seen")

    def _disk(self) -> Said[int]:
        free = facts.disk_free_bytes(self._cache)
        return Said(free, "" if free is not None else f"{self._cache} cannot be looked at")


_NOTHING = HostSaid(Said(), Said(), Said(), Said(), Said(), Said(), Said(), Said(), Said())


def sample(mono_ms: int, cards: Cards, seen: HostSaid | None, told: Told = Told()) -> Sample:
    """Readings as protection takes them. Nothing from the machine itself is nothing known. `told`: by which cards."""
    known = seen if seen is not None else _NOTHING
    power = known.battery.value
    wells = [card for card in cards.cards if card.condition is Condition.WELL]
    hot = [card.temperature_c for card in wells if card.temperature_c is not None]
    full = [share for card in wells if card.kind is DeviceKind.GPU and (share := _fullness(card)) is not None]
    mute, vague = _untold(cards, lambda card: card.temperature_c), _untold(_gpus(cards), _fullness)
    return Sample(
        mono_ms=mono_ms,
        idle_ms=known.idle.value,
        on_battery=False if known.battery.absent else power.on_battery if power is not None else None,
        charging=power.charging if power is not None else None,
        battery_ppm=power.charge_ppm if power is not None else None,
        temperature_c=known.temperature.value,
        gpu_temperature_c=max(hot, default=None),
        gpu_heat_untold=mute,
        gpu_heat_ceased=not told.heat.isdisjoint(mute),
        thermal_throttling=_throttled(known.throttling, wells),
        ram_ppm=known.ram_ppm.value,
        gpu_memory_ppm=max(full, default=None),
        gpu_memory_untold=vague,
        gpu_memory_ceased=not told.memory.isdisjoint(vague),
        cpu_ppm=known.cpu.value,
        load_ppm=known.load.value,
        disk_free_bytes=known.disk_free.value,
        network_up=known.network.value,
        gpu_faults=faults(cards),
        gpus=len({card.parent or card.id for card in cards.cards}),
        cards=tuple(_said(card) for card in cards.cards),
        absent=_absent(known, cards, wells),
    )


def faults(cards: Cards) -> tuple[GpuFault, ...] | None:
    """Cards in trouble; None when nobody could be asked."""
    found: list[GpuFault] = []
    if cards.absent is not None:
        found += [GpuFault(GpuTrouble.MISMATCH, card.id) for card in cards.cards] or [GpuFault(GpuTrouble.MISMATCH)]
    for card in cards.cards:
        if card.condition is Condition.LOST and cards.absent is None:
            found.append(GpuFault(GpuTrouble.LOST, card.id))
        elif card.ecc_uncorrected:
            found.append(GpuFault(GpuTrouble.ECC, card.id))
    unknown = not cards.known or any(card.condition is Condition.SILENT for card in cards.cards)
    return None if unknown and not found else tuple(found)


def _untold(cards: Cards, reading: Callable[[Card], int | None]) -> tuple[str, ...]:
    """Cards that are here and do not tell; of one that is lost its fault is told."""
    return tuple(
        card.id
        for card in cards.cards
        if card.condition is not Condition.LOST and (card.condition is Condition.SILENT or reading(card) is None)
    )


def _said(card: Card) -> CardSaid:
    """One card for people. What a card that does not answer said before is no reading of now."""
    well = card.condition is Condition.WELL
    heat, full = (card.temperature_c, _fullness(card)) if well else (None, None)
    return CardSaid(card.id, heat, full, own_memory=card.kind is DeviceKind.GPU)


def _gpus(cards: Cards) -> Cards:
    """Those with memory of their own."""
    return replace(cards, cards=tuple(card for card in cards.cards if card.kind is DeviceKind.GPU))


def _fullness(card: Card) -> int | None:
    """Used share of its memory."""
    return card.used_bytes * PPM // card.total_bytes if card.used_bytes is not None and card.total_bytes else None


def _throttled(cpu: Said[bool], wells: list[Card]) -> bool | None:
    """Heat slows the CPU or a card down; unknown only where nobody at all can tell."""
    by_card = [any("thermal" in reason for reason in card.throttle) for card in wells if card.throttle is not None]
    known = [*by_card, *([cpu.value] if cpu.value is not None else [])]
    return any(known) if known else None


def _absent(known: HostSaid, cards: Cards, wells: list[Card]) -> frozenset[Sensor]:
    found = set()
    if known.idle.absent:
        found.add(Sensor.ACTIVITY)
    if known.battery.absent:
        found.add(Sensor.BATTERY)
    if known.temperature.absent:
        found.add(Sensor.TEMPERATURE)
    if known.throttling.absent and cards.known and not any(card.throttle is not None for card in wells):
        found.add(Sensor.THERMAL_THROTTLING)
    if cards.known and not cards.cards and cards.absent is None:
        found |= {Sensor.GPU_TEMPERATURE, Sensor.GPU_MEMORY, Sensor.GPU_HEALTH}
    return frozenset(found)


def _told(what: str, read: Callable[[], Said[T]]) -> Said[T]:
    """A reading that fails in any way is unknown, with its reason."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - sensors of other people's machines fail in every way there is
        return Said(why=f"{what}: {type(error).__name__}: {error}"[:200])


def _whys(readings: HostSaid | None) -> list[str]:
    names = HostSaid.__slots__ if readings is not None else ()
    said = [(name, getattr(readings, name)) for name in names]
    return [f"{name}: {one.why}" for name, one in said if one.value is None and one.why and not one.absent]


def _boottime_ms() -> int:
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000
