"""Generations: one counter for the host and one for each device. What raises them, and nothing else does.

A device's counter rises by one when a residency on it begins, starts to drain, changes by `operate`, is given up or
goes, and when its capacity changes; the host's counter rises with each of these and with the host's state. A reading,
a restart by keep-alive and a model becoming ready raise nothing: the first two are not change, and the third is the
end of a change that was counted when it began.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gridops.base.ids import DeviceId
from gridops.model.snapshot import DeviceReport
from gridops_agent.core.protection import Verdict
from gridops_agent.core.state import HOST, Count, Host, put


def touch(host: Host, devices: Iterable[DeviceId]) -> Host:
    """Something on these devices has changed."""
    counts = host.counts
    for device in (HOST, *sorted(set(devices))):
        old = counts.get(device, Count(generation=0))
        counts = put(counts, device, replace(old, generation=old.generation + 1))
    return replace(host, counts=counts)


def capacity(host: Host, devices: tuple[DeviceReport, ...], whole: bool = True) -> Host:
    """Take a measurement. A device that came, went or changed its size raises its counter; use does not.

    `whole`: a device that is not listed is not there. Otherwise nobody knows, and nothing has changed.
    """
    sizes = {d.id: d.total_bytes for d in devices}
    known = {d: c.total_bytes for d, c in host.counts.items() if d != HOST and (whole or d in sizes)}
    changed = sorted(d for d in sizes.keys() | known.keys() if sizes.get(d, 0) != known.get(d, -1))
    host = replace(host, measured=devices)
    if not changed:
        return host
    host = touch(host, changed)
    counts = host.counts
    for device in changed:
        counts = put(counts, device, replace(counts[device], total_bytes=sizes.get(device, 0)))
    return replace(host, counts=counts)


def host_state(host: Host, verdict: Verdict) -> Host:
    """The host's own word about itself."""
    moved = replace(host, verdict=verdict)
    return moved if verdict.state is host.state else touch(moved, ())
