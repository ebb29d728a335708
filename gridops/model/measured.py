"""A measured footprint: what one configuration was found to use on one kind of hardware, and which evidence says so.

Made by `gridops-agent qualify` on a host, reported in its heartbeats, and read by `footprint.need`, which says when it
may be used: the same engine, files, arguments and hardware, and no more context or lanes than were measured.
"""

from __future__ import annotations

from gridops.base import canon
from gridops.base.ids import Digest, EngineName
from gridops.base.record import record, to_data
from gridops.model.fleet import DeviceKind
from gridops.model.profile import Artifact, DeviceNeed, EngineArg


@record
class Measured:
    """One measurement. Sizes are per device, as in a footprint."""

    engine: EngineName
    backend: str
    revision: Digest
    """What the artifact's files are (`revision`), wherever they came from."""
    settings: Digest
    """Arguments and devices (`settings`): other ones are another configuration."""
    context: int
    lanes: int
    kind: DeviceKind
    """Of the devices it stood on; `device` and `total_bytes` say which model and size they were of."""
    total_bytes: int
    device_bytes: int
    host_bytes: int
    at_ms: int
    evidence: Digest
    """Payload digest of the signed qualification on its host."""
    device: str | None = None
    """Model of the card. None: the host's RAM."""


def revision(artifact: Artifact) -> Digest:
    """Digest of what the files are, wherever they come from and whatever they are called."""
    return canon.digest(sorted(f.sha256 for f in artifact.files))


def settings(args: tuple[EngineArg, ...], devices: DeviceNeed) -> Digest:
    """Digest of what makes one configuration of the same files another one, beside context and lanes."""
    return canon.digest([sorted([a.name, a.value] for a in args), to_data(devices)])
