"""The gauge: memory truth over time. Capacity is stable, others' use is the most of a while, a lost card is withdrawn.

Asked by the shell every few seconds, off its loop. It remembers what each device was when it last answered: a driver
that is silent changes nothing that is planned, a card that is lost takes its device away with the reason. A logical
host (a share below one) reports its share of each device, and the same share of what others use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from gridops.base.codes import devices as codes
from gridops.base.ids import DeviceId
from gridops.model.snapshot import DeviceReport
from gridops_agent import facts
from gridops_agent.core.events import GONE, Measured
from gridops_agent.core.external import Sample, Window, seen
from gridops_agent.facts import Fact, Ours
from gridops_agent.platform.base import Platform
from gridops_agent.sensors.cards import Cards, Condition


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something about a device that a person should see."""

    code: str
    text: str
    device: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found: for the heart, for people, and for whoever watches releases."""

    measured: Measured
    alarms: tuple[Alarm, ...]
    cards: Cards
    why: tuple[str, ...]
    """What could not be read, and why."""


class Gauge:
    """The devices of one agent. `clock` gives controller time and monotonic time, both in ms."""

    def __init__(
        self, platform: Platform, share: Fraction, look: Callable[[], Cards], clock: Callable[[], tuple[int, int]]
    ) -> None:
        self._platform = platform
        self._share = share
        self._look = look
        self._clock = clock
        self._turn = threading.Lock()
        self._known: dict[DeviceId, DeviceReport] = {}
        """By device: what it was when it last answered, of the whole machine."""
        self._windows: dict[DeviceId, Window] = {}

    def measure(self, living: tuple[int, ...], ours: Ours) -> Look:
        """Every device now. `living` are the processes proved to be our engines'; `ours` knows of ended ones too, whose
        memory on a card is not others' use."""
        with self._turn:
            cards = self._look()
            found = [facts.ram(self._platform, living), *facts.gpus(cards.cards, ours)]
            lost = self._lost(cards)
            self._remember(found, cards, lost)
            devices = tuple(self._report(device) for device in sorted(self._known))
            why = tuple(f"{fact.id}: {reason}" for fact in found for reason in fact.why)
            quiet = [card for card in cards.cards if card.condition is Condition.SILENT]
            silent = tuple(f"{card.id}: {reason}" for card in quiet for reason in card.why)
            absent = cards.absent if cards.absent is not None else GONE
            return Look(
                measured=Measured(devices, lost=lost, absent=absent if cards.known else None),
                alarms=_alarms(cards, lost),
                cards=cards,
                why=(*cards.why, *why, *silent),
            )

    def _lost(self, cards: Cards) -> tuple[tuple[DeviceId, str], ...]:
        """What was known and is withdrawn now, with the reason. A lost card takes its instances along."""
        reasons = {card.id: "; ".join(card.why) for card in cards.cards if card.condition is Condition.LOST}
        for device, report in self._known.items():
            if report.parent in reasons:
                reasons[device] = reasons[report.parent]
        return tuple(sorted(reasons.items()))

    def _remember(self, found: list[Fact], cards: Cards, lost: tuple[tuple[DeviceId, str], ...]) -> None:
        at_ms, mono_ms = self._clock()
        listed = {fact.id for fact in found} | {c.id for c in cards.cards if c.condition is Condition.SILENT}
        parents = {c.id for c in cards.cards if c.condition is Condition.SILENT}
        for device in sorted(self._known):
            gone = cards.known and device not in listed and self._known[device].parent not in parents
            if gone or any(device == name for name, _ in lost):
                del self._known[device]
                self._windows.pop(device, None)
        for fact in found:
            if fact.total_bytes is not None:
                self._known[fact.id] = DeviceReport(
                    id=fact.id,
                    kind=fact.kind,
                    total_bytes=fact.total_bytes,
                    uuid=fact.uuid,
                    model=fact.model,
                    parent=fact.parent,
                    graphics_bytes=fact.graphics_bytes,
                )
            used = fact.external_bytes
            sample = Sample(mono_ms, at_ms, used) if used is not None else None
            self._windows[fact.id] = seen(self._windows.get(fact.id, Window()), sample, mono_ms)

    def _report(self, device: DeviceId) -> DeviceReport:
        report, most = self._known[device], self._windows.get(device, Window()).most()
        total = self._part(report.total_bytes)
        return DeviceReport(
            id=device,
            kind=report.kind,
            total_bytes=total,
            # What others use was never read: unknown is not zero, so nothing is promised there.
            external_bytes=self._part(most.used_bytes) if most is not None else total,
            uuid=report.uuid,
            model=report.model,
            parent=report.parent,
            external_ms=most.at_ms if most is not None else None,
            graphics_bytes=self._part(report.graphics_bytes) if report.graphics_bytes is not None else None,
        )

    def _part(self, value: int) -> int:
        return value * self._share.numerator // self._share.denominator


def _alarms(cards: Cards, lost: tuple[tuple[DeviceId, str], ...]) -> tuple[Alarm, ...]:
    """What is wrong with cards that are there, and drivers that do not answer."""
    found = [Alarm(codes.SENSOR_SILENT.code, why, "driver") for why in cards.why if not cards.known]
    if cards.absent is not None:
        found.append(Alarm(codes.DEVICE_LOST.code, f"no card can be used: {cards.absent}"))
    found += [Alarm(codes.DEVICE_LOST.code, f"{device} is withdrawn: {why}", device) for device, why in lost]
    for card in cards.cards:
        if card.ecc_uncorrected:
            text = f"{card.id} counted {card.ecc_uncorrected} errors in its memory that could not be mended"
            found.append(Alarm(codes.DEVICE_AILING.code, text, card.id))
        if card.condition is Condition.SILENT:
            text = f"{card.id} does not answer: {'; '.join(card.why)}"
            found.append(Alarm(codes.SENSOR_SILENT.code, text, card.id))
    return tuple(found)
