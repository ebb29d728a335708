"""Room on devices: what may be planned on each memory pool of a host. Residency is decided by this sum alone.

    planned <= total - reserve - external            (raw: what is kept)
    planned <= total - reserve - external - headroom (what is new or grows)

`total` is the smaller of the declared ceiling and what the host reports; `external` is what others use. Host RAM is
a device too: its first `cpu` or `unified` device. A device that is declared but not reported does not exist today;
one that is reported but not declared is not ours to fill. A card that is cut into instances (MIG) is no room: its
instances are. Called by the planner; reads nothing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from gridops.base.ids import DeviceId
from gridops.base.units import PPM
from gridops.model.fleet import Device, DeviceKind, Host
from gridops.model.snapshot import HostReport, Ownership


class Answer(StrEnum):
    """The three answers to "does it fit?"."""

    FITS = "fits"
    SHORT = "short"
    UNKNOWN = "unknown"


class Fit(NamedTuple):
    """An answer. `short_bytes` is by how much it does not fit (0 unless SHORT); `free_bytes` what there was."""

    answer: Answer
    free_bytes: int = 0
    short_bytes: int = 0

    def __bool__(self) -> bool:
        raise TypeError("a fit has three answers: compare `.answer`")


@dataclass(frozen=True, slots=True)
class DeviceRoom:
    """One memory pool of a host with everything that bounds it."""

    id: DeviceId
    kind: DeviceKind
    model: str | None
    peers: tuple[DeviceId, ...]
    total_bytes: int
    reserve_bytes: int
    external_bytes: int
    headroom_bytes: int
    backend: str | None = None
    """The only backend that can use it; None: any."""
    numa: int | None = None
    pcie_bps: int | None = None
    parent: DeviceId | None = None
    """The card that it is an instance of."""
    gpu_bytes: int | None = None
    """On unified memory: the most that GPU work may use. None: no limit of its own."""

    @property
    def raw_bytes(self) -> int:
        """What planned residencies may use together, those already there included."""
        return self.total_bytes - self.reserve_bytes - self.external_bytes

    @property
    def open_bytes(self) -> int:
        """What planned residencies may use together where one of them is new or grows."""
        return left_of(self, 0)


class Use(NamedTuple):
    """What is planned on a device: all of it, and the part of it that is GPU work."""

    all_bytes: int = 0
    gpu_bytes: int = 0


def left_of(room: DeviceRoom, used: int) -> int:
    """What is left of a device for what is new or grows, where GPU work has no limit of its own."""
    return room.total_bytes - room.reserve_bytes - room.external_bytes - room.headroom_bytes - used


def fits(room: DeviceRoom | None, use: Use, need_bytes: int | None, *, gpu: bool, new: bool) -> Fit:
    """Does it fit beside `use`? `new` keeps the headroom free; `gpu` counts toward a unified device's share."""
    if room is None or need_bytes is None:
        return Fit(Answer.UNKNOWN)
    free = left_of(room, use.all_bytes) if new else room.raw_bytes - use.all_bytes
    if gpu and room.gpu_bytes is not None:
        free = min(free, room.gpu_bytes - use.gpu_bytes)
    if need_bytes <= free:
        return Fit(Answer.FITS, free)
    return Fit(Answer.SHORT, free, need_bytes - free)


def rooms(host: Host, report: HostReport | None, headroom_ppm: int) -> tuple[DeviceRoom, ...]:
    """Every usable device of a host, in declared order. Without a report, what is declared is taken at its word."""
    found = []
    cut = _cut(host, report)
    for device in host.devices:
        total, external, parent = device.memory_bytes, 0, device.parent
        if device.id in cut:
            continue
        if report is not None:
            seen = report.device(device.id)
            if seen is None or seen.kind is not device.kind:
                continue
            total = min(total, seen.total_bytes)
            external = max(seen.external_bytes, _external_claims(report, device.id))
            parent = parent or seen.parent
        known = device if parent == device.parent else replace(device, parent=parent)
        found.append(_room(known, total, external, headroom_ppm))
    return tuple(found)


def _cut(host: Host, report: HostReport | None) -> set[DeviceId]:
    """Cards of which somebody, the file or the host, knows instances: their memory is counted there."""
    known = [d.parent for d in host.devices] + [d.parent for d in (report.devices if report is not None else ())]
    return {parent for parent in known if parent is not None}


def ram_of(found: tuple[DeviceRoom, ...]) -> DeviceRoom | None:
    """The device that is the host's RAM: the first by name of kind cpu, else of kind unified."""
    pools = [r for r in found if r.kind is not DeviceKind.GPU]
    return min(pools, key=lambda r: (r.kind is DeviceKind.UNIFIED, r.id)) if pools else None


def _room(device: Device, total: int, external: int, headroom_ppm: int) -> DeviceRoom:
    shared = device.kind is DeviceKind.UNIFIED and device.gpu_share_ppm < PPM
    return DeviceRoom(
        id=device.id,
        kind=device.kind,
        model=device.model,
        peers=device.peers,
        total_bytes=total,
        reserve_bytes=device.reserve_bytes,
        external_bytes=external,
        headroom_bytes=-(-total * headroom_ppm // PPM),
        backend=device.backend,
        numa=device.numa,
        pcie_bps=device.pcie_bps,
        parent=device.parent,
        gpu_bytes=total * device.gpu_share_ppm // PPM if shared else None,
    )


def _external_claims(report: HostReport, device: DeviceId) -> int:
    """What external residencies are said to hold. Their use is normally inside `external_bytes`; the larger counts."""
    return sum(r.device_bytes for r in report.residencies if r.ownership is Ownership.EXTERNAL and device in r.devices)
