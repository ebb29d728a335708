"""Advice about disks: what would be worth fetching ahead of demand, and what was fetched so and may go again.

Part of a plan's report and never a decision: it takes no memory, starts and stops nothing, and whoever ignores it
loses only time. `Prefetched` is what hosts tell about files that came by such advice; all else on a disk is not ours.
"""

from __future__ import annotations

from enum import StrEnum

from gridops.base.ids import ConfigName, Digest, HostId, ProfileName, ReplicaId
from gridops.base.record import record


@record
class Prefetched:
    """Files that a host fetched only because it was advised to."""

    host: HostId
    profile: ProfileName
    files: tuple[Digest, ...]
    """By SHA-256, sorted."""
    size_bytes: int
    since_ms: int
    used: bool = False
    """A process has been started from them: they are files like any other now."""


@record
class Prefetch:
    """Fetch these files to this host, and nothing else."""

    host: HostId
    profile: ProfileName
    config: ConfigName
    files: tuple[Digest, ...]
    """Those that are not there yet, sorted."""
    size_bytes: int
    detail: str
    """What it is for."""
    fetch_ms: int
    """How long it takes, by what is known of the host and its link."""
    value: int = 0
    """Request-milliseconds that it is expected to save."""
    per_gib: int = 0
    """The same for each GiB that it takes."""
    deadline_ms: int | None = None
    """When demand is expected. None: nobody knows."""
    expires_ms: int | None = None
    """When it may go again if nothing was started from it. None: it is no guess."""
    replica: ReplicaId | None = None
    """The replica that will stand there once others have left. None: none yet."""


class EvictCause(StrEnum):
    EXPIRED = "expired"
    REPLACED = "replaced"


@record
class Evict:
    """Delete exactly these files, which were fetched on advice and never used."""

    host: HostId
    profile: ProfileName
    files: tuple[Digest, ...]
    size_bytes: int
    cause: EvictCause
    detail: str
    instead: ProfileName | None = None
    """What is worth more there. It is fetched by a later plan, once the host reports the room."""


@record
class Advice:
    """All of it, for one plan."""

    prefetch: tuple[Prefetch, ...] = ()
    evict: tuple[Evict, ...] = ()
