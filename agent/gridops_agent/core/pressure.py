"""Memory pressure: how much of what the planned models leave of a device others use.

What is planned counts whether it is loaded or not. If a paused host counted only what is loaded, giving memory back
would end the pressure, taking it again would begin it anew, and a host that is full by plan would never work. A
twentieth of a device always counts as left to others, so that a full plan alone presses nobody.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base.units import PPM
from gridops.model.fleet import DeviceKind
from gridops.model.snapshot import DeviceReport
from gridops_agent.core.local import planned_bytes
from gridops_agent.core.protection import Sample
from gridops_agent.core.state import Host

LEAST_LEFT = 20
"""One part in so many."""


def pressed(host: Host, sample: Sample) -> Sample:
    """The sample with RAM and GPU memory as pressure. Before the devices are measured nobody knows it."""
    ram = [d for d in host.measured if d.kind in (DeviceKind.CPU, DeviceKind.UNIFIED)]
    gpus = [d for d in host.measured if d.kind is DeviceKind.GPU]
    ram_id = ram[0].id if ram else None
    if not host.measured:
        return replace(sample, ram_ppm=None, gpu_memory_ppm=None)
    of_ram, of_gpus = sample.ram_ppm, sample.gpu_memory_ppm
    if ram and sample.ram_ppm is not None:
        of_ram = _pressure(ram[0], planned_bytes(host, ram[0].id, ram_id), sample.ram_ppm)
    # What others use of a card that never told is reported as all of it, so that nothing is planned there. That is no
    # reading: as pressure it would pause the host, and hidden behind the fullest card it would be taken for well.
    told = [d for d in gpus if d.external_ms is not None]
    if gpus and sample.gpu_memory_ppm is not None:
        of_gpus = max((_pressure(d, planned_bytes(host, d.id, ram_id), 0) for d in told), default=None)
    untold = tuple(sorted({*sample.gpu_memory_untold, *(d.id for d in gpus if d.external_ms is None)}))
    return replace(sample, ram_ppm=of_ram, gpu_memory_ppm=of_gpus, gpu_memory_untold=untold)


def _pressure(device: DeviceReport, planned: int, used_ppm: int) -> int:
    """`used_ppm` is everybody's: what of it is more than our plan counts as others' too, so that a leak is seen."""
    left = max(device.total_bytes - planned, device.total_bytes // LEAST_LEFT, 1)
    others = max(device.external_bytes, used_ppm * device.total_bytes // PPM - planned, 0)
    return min(others * PPM // left, PPM)
