"""A snapshot made of declarations alone: every declared host as if it stood there empty and well. Pure.

For planning before any host has reported, and in CI without access. A plan made from it is hypothetical and can never
be applied, because nobody was asked.
"""

from __future__ import annotations

from gridops.model.fleet import Host, HostClass
from gridops.model.intent import Desired
from gridops.model.snapshot import DeviceReport, HostReport, Snapshot, SnapshotSource


def declared_snapshot(desired: Desired, now_ms: int) -> Snapshot:
    """All managed hosts as declared, observed now."""
    hosts = sorted((h for h in desired.hosts if h.host_class is not HostClass.EXTERNAL), key=lambda h: h.id)
    return Snapshot(
        source=SnapshotSource.DECLARED, observed_ms=now_ms, hosts=tuple(_report(host, now_ms) for host in hosts)
    )


def _report(host: Host, now_ms: int) -> HostReport:
    devices = tuple(
        DeviceReport(id=d.id, kind=d.kind, total_bytes=d.memory_bytes, model=d.model)
        for d in sorted(host.devices, key=lambda d: d.id)
    )
    free = None if host.disk is None else max(0, host.disk.artifacts_bytes)
    return HostReport(host=host.id, observed_ms=now_ms, devices=devices, runtimes=host.runtimes, disk_free_bytes=free)
