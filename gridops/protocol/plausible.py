"""What a host may say of itself at all: names that are names, and amounts that are not below nothing.

Asked of every heartbeat by `open`, and of every join request, before anything believes it. A host is distrusted upward
(never more than `fleet.d` declares); a negative amount would be the way around that, since what is subtracted would
add. What is merely wrong is not looked for here: that is the work of the snapshot and the planner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gridops.base.ids import is_name, is_replica, split_replica
from gridops.model.measured import Measured
from gridops.model.snapshot import DeviceReport, Ownership, Residency
from gridops.protocol.messages import Inventory


def flaw(inventory: Inventory) -> str | None:
    """The first thing that cannot be meant; None where there is none."""
    return next(_flaws(inventory), None)


def flaw_of_devices(devices: tuple[DeviceReport, ...]) -> str | None:
    """The same of devices alone, as a join request tells them."""
    return next(_devices(devices), None)


def _flaws(inventory: Inventory) -> Iterator[str]:
    yield from _devices(inventory.devices)
    for residency in inventory.residencies:
        yield from _residency(residency)
    yield from _below("it", (("generation", inventory.generation), ("free disk", inventory.disk_free_bytes)))
    for transfer in inventory.transfers or ():
        yield from _below("a transfer", (("bytes done", transfer.done_bytes), ("size", transfer.size_bytes)))
    for prefetched in inventory.prefetched or ():
        yield from _below("a prefetched artifact", (("size", prefetched.size_bytes),))
    for measured in inventory.measured or ():
        yield from _measured(measured)


def _devices(devices: tuple[DeviceReport, ...]) -> Iterator[str]:
    seen: set[str] = set()
    for device in devices:
        if not is_name(device.id) or (device.parent is not None and not is_name(device.parent)):
            yield "it speaks of a device by a name that is none"
        if device.id in seen:
            yield f"it lists {device.id} twice"
        seen.add(device.id)
        amounts = (
            ("size", device.total_bytes),
            ("use by others", device.external_bytes),
            ("share of graphics", device.graphics_bytes),
            ("generation", device.generation),
        )
        yield from _below(device.id, amounts)


def _residency(residency: Residency) -> Iterator[str]:
    if residency.replica is not None and not is_replica(residency.replica):
        yield "it speaks of a replica by a name that is none"
    # What somebody else's engine lists is shown as it stands there: those names are not ours to choose.
    if residency.ownership is Ownership.MANAGED:
        names = (residency.profile, *residency.devices, *((residency.config,) if residency.config is not None else ()))
        if not all(map(is_name, names)):
            yield "it speaks of a profile, a config or a device by a name that is none"
        if residency.replica is not None and split_replica(residency.replica)[0] != residency.profile:
            yield f"it counts {residency.replica} among another profile's replicas"
    if len(set(residency.devices)) != len(residency.devices):
        yield "one residency holds one device twice"
    amounts = (
        ("device memory", residency.device_bytes),
        ("host memory", residency.host_bytes),
        ("requests in flight", residency.in_flight),
        ("restarts", residency.restarts),
        ("port", residency.port),
    )
    yield from _below("a residency", amounts)


def _measured(measured: Measured) -> Iterator[str]:
    amounts = (
        ("device memory", measured.device_bytes),
        ("host memory", measured.host_bytes),
        ("device", measured.total_bytes),
        ("context", measured.context),
        ("lanes", measured.lanes),
    )
    yield from _below("a measured footprint", amounts)


def _below(what: str, amounts: Iterable[tuple[str, int | None]]) -> Iterator[str]:
    for name, amount in amounts:
        if amount is not None and amount < 0:
            yield f"{what} has a {name} of {amount}, expected nothing below 0"
