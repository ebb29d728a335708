"""What was observed: hosts as they reported themselves, with who said it and when. Never a forecast, never a wish."""

from __future__ import annotations

from enum import StrEnum

from gridops.base.ids import ConfigName, DeviceId, Digest, HostId, ProfileName, ReplicaId
from gridops.base.record import record
from gridops.model.advice import Prefetched
from gridops.model.fleet import DeviceKind, Runtime
from gridops.model.measured import Measured


class HostState(StrEnum):
    """State that a host claims for itself; its own decision outranks the controller."""

    ACCEPTING = "accepting"
    THROTTLED = "throttled"
    DRAINING = "draining"
    PAUSED = "paused"
    UNHEALTHY = "unhealthy"
    QUARANTINED = "quarantined"


class ResidencyState(StrEnum):
    ABSENT = "absent"
    CACHED = "cached"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    OFFLOADED = "offloaded"
    FAILED = "failed"
    UNKNOWN = "unknown"


LIVE_STATES = frozenset(
    {
        ResidencyState.LOADING,
        ResidencyState.WARMING,
        ResidencyState.READY,
        ResidencyState.DRAINING,
        ResidencyState.OFFLOADED,
        ResidencyState.FAILED,
        ResidencyState.UNKNOWN,
    }
)
"""States that may hold device memory. FAILED and UNKNOWN count: what cannot be proved gone holds its memory. OFFLOADED
counts: its host gave the memory back for a while and takes it again by itself, so its room is nobody else's."""


class Ownership(StrEnum):
    MANAGED = "managed"
    EXTERNAL = "external"


@record
class DeviceReport:
    """A device as its host sees it. `external_bytes` is what is used less what our processes use, at its highest."""

    id: DeviceId
    kind: DeviceKind
    total_bytes: int
    external_bytes: int = 0
    uuid: str | None = None
    model: str | None = None
    parent: DeviceId | None = None
    """The card that this is an instance of (MIG); the card itself is then not reported."""
    generation: int = 0
    external_ms: int | None = None
    """When others used that much, in controller time."""
    graphics_bytes: int | None = None
    """How much of unified memory graphics may take, where the system bounds it; the host holds GPU work to it."""


@record
class Residency:
    """One model instance on a host. Managed ones carry replica and incarnation; external ones have neither."""

    profile: ProfileName
    state: ResidencyState
    ownership: Ownership = Ownership.MANAGED
    replica: ReplicaId | None = None
    config: ConfigName | None = None
    incarnation: Digest | None = None
    """Digest of the command (body) that warmed it."""
    identity: Digest | None = None
    """Restart identity: engine, artifact, arguments, context, lanes, devices (`footprint.identity`)."""
    devices: tuple[DeviceId, ...] = ()
    device_bytes: int = 0
    """Per device, as planned when it was warmed."""
    host_bytes: int = 0
    in_flight: int = 0
    port: int | None = None
    since_ms: int | None = None
    """When it entered its state, in controller time."""
    restarts: int = 0
    detail: str | None = None


@record
class HostReport:
    """One host's newest accepted heartbeat, reduced to what decisions need. Tuples sorted by name."""

    host: HostId
    observed_ms: int
    """Controller time of arrival."""
    state: HostState = HostState.ACCEPTING
    since_ms: int | None = None
    """When it entered this state, as the controller saw it. None: long ago."""
    reasons: tuple[str, ...] = ()
    generation: int = 0
    devices: tuple[DeviceReport, ...] = ()
    residencies: tuple[Residency, ...] = ()
    runtimes: tuple[Runtime, ...] = ()
    cached: tuple[Digest, ...] = ()
    """Artifact files (by SHA-256) that the host holds and has proved."""
    disk_free_bytes: int | None = None
    goodbye: bool = False
    """The host said that it goes to sleep: disconnected, not lost."""
    agent_version: str | None = None
    endpoint: str | None = None
    """URL of the host's front."""
    measured: tuple[Measured, ...] | None = None
    """What its qualifications measured, sorted by evidence. None: nothing."""
    prefetched: tuple[Prefetched, ...] | None = None
    """What it fetched on a guess, still holds and has not used. None: nothing."""
    abilities: tuple[str, ...] | None = None
    """What its agent can do beyond the first version of the protocol (`protocol.messages.Ability`)."""
    left: bool | None = None
    """It has left its fleet, and said so with its goodbye. None: it has not."""

    def can(self, ability: str) -> bool:
        return self.abilities is not None and ability in self.abilities

    def device(self, device: DeviceId) -> DeviceReport | None:
        return next((d for d in self.devices if d.id == device), None)


class SnapshotSource(StrEnum):
    LIVE = "live"
    """From the controller."""
    STATE = "state"
    """From the branch `gridops/state`, taken at the age of its observation."""
    DECLARED = "declared"
    """From declared hosts alone: a plan from it is hypothetical and never appliable."""


@record
class Snapshot:
    source: SnapshotSource
    observed_ms: int
    hosts: tuple[HostReport, ...] = ()

    def host(self, host: HostId) -> HostReport | None:
        return next((h for h in self.hosts if h.host == host), None)
