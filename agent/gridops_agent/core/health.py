"""Devices that go and come back: what stood on a lost one has failed with its reason, and lives again when it is back.

Entered by every measurement. A device that is merely silent changes nothing. Whatever drains goes on draining, whatever
starts tells its own end, and what failed for another reason keeps that reason.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base.codes.devices import DEVICE_LOST
from gridops.base.ids import DeviceId, Digest
from gridops.model.snapshot import ResidencyState
from gridops_agent.core.commands import Answer
from gridops_agent.core.events import BeatSoon, Died, Effect, Measured, Proved
from gridops_agent.core.generations import capacity, touch
from gridops_agent.core.lives import died, proved
from gridops_agent.core.state import Held, Host, put, told


def measured(host: Host, event: Measured, now_ms: int) -> Answer:
    """Take a measurement, and let each residency feel what became of its devices."""
    host = capacity(host, event.devices, whole=event.absent is not None)
    there = {device.id for device in event.devices}
    effects: list[Effect] = []
    for body in sorted(host.held):
        held = host.held[body]
        missing = _missing(held, event, there)
        if missing is not None and _falls(host, held):
            host = _withdrawn(host, held, *missing, now_ms)
            effects.append(BeatSoon())
        elif held.code == DEVICE_LOST.code and there.issuperset(held.warm.devices):
            host, more = _returned(host, body, now_ms)
            effects += more
    return host, tuple(effects)


def _missing(held: Held, event: Measured, there: set[DeviceId]) -> tuple[DeviceId, str] | None:
    """The first of its devices that is gone, and why; None while all are there or nobody knows."""
    reasons = dict(event.lost)
    for device in held.warm.devices:
        why = reasons.get(device, event.absent)
        if device not in there and why is not None:
            return device, why
    return None


def _falls(host: Host, held: Held) -> bool:
    return held.state in (ResidencyState.WARMING, ResidencyState.READY) and held.body not in host.commands


def _withdrawn(host: Host, held: Held, device: DeviceId, why: str, now_ms: int) -> Host:
    failed = replace(
        held,
        state=ResidencyState.FAILED,
        since_ms=now_ms,
        retry_at_ms=None,
        code=DEVICE_LOST.code,
        detail=told(f"{device} is withdrawn: {why}"),
    )
    return touch(replace(host, held=put(host.held, held.body, failed)), held.warm.devices)


def _returned(host: Host, body: Digest, now_ms: int) -> Answer:
    """All its devices are back. What still lives is asked again; what is dead is kept alive from here on."""
    held = host.held[body]
    if held.handle is not None:
        return proved(host, Proved(body), now_ms)
    host = replace(host, held=put(host.held, body, replace(held, code=None)))
    return died(host, Died(body, "its device is back"), now_ms)
