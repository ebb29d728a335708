"""Facts: devices and their memory as measured on this machine at one moment, never as wished.

External use is what is used minus what our own engines are measured to use themselves: on host RAM their anonymous
and shared memory, on a card what the driver says of their processes. What could not be read is None, so that `gauge`
can go by what it saw before. Called every few seconds; decides nothing.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from gridops.base.ids import DeviceId
from gridops.model.fleet import DeviceKind
from gridops_agent.core.release import Owed, Reading, unlisted_bytes
from gridops_agent.platform.base import Platform
from gridops_agent.sensors.cards import Card, Condition

CPU = DeviceId("cpu0")
UNIFIED = DeviceId("unified0")
NOT_TOLD = "the driver does not tell what our engines hold: what is planned for them is taken instead"


@dataclass(frozen=True, slots=True)
class Fact:
    """One device of the whole machine now."""

    id: DeviceId
    kind: DeviceKind
    total_bytes: int | None
    external_bytes: int | None
    """Used by others. None: not known this time."""
    uuid: str | None = None
    model: str | None = None
    parent: DeviceId | None = None
    graphics_bytes: int | None = None
    """How much of unified memory graphics may take."""
    why: tuple[str, ...] = ()
    """What could not be read, and why."""


def ram(platform: Platform, ours: Iterable[int]) -> Fact:
    """Host RAM. A process of ours that ended between two looks makes the difference untrue: then it is not known."""
    memory = platform.memory()
    own, ended = 0, False
    for pid in ours:
        own += platform.own_memory_bytes(pid)
        ended = ended or platform.process(pid) is None
    kind = DeviceKind.UNIFIED if memory.unified else DeviceKind.CPU
    return Fact(
        id=UNIFIED if memory.unified else CPU,
        kind=kind,
        total_bytes=memory.total_bytes or None,
        external_bytes=None if ended else max(0, memory.used_bytes - own),
        graphics_bytes=memory.graphics_bytes,
        why=("a process of ours ended while its memory was added up",) if ended else (),
    )


@dataclass(frozen=True, slots=True)
class Ours:
    """What on cards is ours: by process, by plan, and by what ended engines owe."""

    pids: frozenset[int] = frozenset()
    planned: Mapping[DeviceId, int] = field(default_factory=lambda: MappingProxyType({}))
    """What our living engines may hold, for drivers that do not tell."""
    owed: tuple[tuple[Owed, int], ...] = ()
    """What has not come back of engines that are gone, each with what is planned for them there."""


def gpus(cards: Iterable[Card], ours: Ours) -> Iterator[Fact]:
    """Every card that answers."""
    for card in cards:
        if card.condition is not Condition.WELL:
            continue
        own, why = _own(card, ours.pids, ours.planned.get(card.id, 0))
        now = Reading(card.used_bytes, card.by_pid)
        own += sum(unlisted_bytes(owed, now, planned) for owed, planned in ours.owed if owed.device == card.id)
        yield Fact(
            id=card.id,
            kind=card.kind,
            total_bytes=card.total_bytes,
            external_bytes=None if card.used_bytes is None else max(0, card.used_bytes - own),
            uuid=card.uuid,
            model=card.model,
            parent=card.parent,
            why=(*card.why, *why),
        )


def _own(card: Card, ours: frozenset[int], planned: int) -> tuple[int, tuple[str, ...]]:
    """What our processes hold on a card: measured, or else what is planned there, since they count only once."""
    if not ours:
        return 0, ()
    known = card.by_pid if card.by_pid is not None else dict.fromkeys(sorted(ours))
    mine = [known[pid] for pid in sorted(ours) if pid in known]
    if None not in mine:
        return sum(used or 0 for used in mine), ()
    return planned, (NOT_TOLD,)


def disk_free_bytes(folder: Path) -> int | None:
    """Free bytes where artifacts would be put."""
    with contextlib.suppress(OSError):
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(folder).free
    return None
