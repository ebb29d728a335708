"""One idempotent step on one host. Recomputed from (target, snapshot) at every pass and never stored as truth."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator

from gridops.base.ids import DeviceId, Digest, HostId, ProfileName, ReplicaId
from gridops.base.record import record
from gridops.model.plan import Launch
from gridops.model.profile import Artifact, Restart


@record
class Load:
    """Make the artifact's files present and proved on the host."""

    host: HostId
    replica: ReplicaId
    profile: ProfileName
    artifact: Artifact
    guess: bool | None = None
    """True: nobody needs it yet, and `replica` is nobody. The host remembers so, and may be told to delete it again."""
    kind: Literal["load"] = "load"


@record
class DeviceShare:
    """How much of a device an engine may take that takes a share of it, in parts per million of its whole memory."""

    device: DeviceId
    ppm: int


@record
class Warm:
    """Start the process, wait until the model is listed, and keep it alive by `restart` from then on."""

    host: HostId
    replica: ReplicaId
    profile: ProfileName
    launch: Launch
    devices: tuple[DeviceId, ...]
    device_bytes: int
    host_bytes: int
    serves: tuple[str, ...]
    restart: Restart
    drain_ms: int
    warm_ms: int
    """How long readiness may take before the start counts as failed is a multiple of this (agent's limits)."""
    shares: tuple[DeviceShare, ...] | None = None
    """One for each device, for engines that take a share (`footprint.share`). None: the engine takes what it needs."""
    kind: Literal["warm"] = "warm"


@record
class Drain:
    """Stop admitting at the front; done when nothing is in flight or the grace is over."""

    host: HostId
    replica: ReplicaId
    profile: ProfileName
    incarnation: Digest
    grace_ms: int
    kind: Literal["drain"] = "drain"


@record
class Unload:
    """Stop a drained, idle process and prove that its group is gone. `force` cuts work short and needs an approval."""

    host: HostId
    replica: ReplicaId
    profile: ProfileName
    incarnation: Digest
    force: bool = False
    kind: Literal["unload"] = "unload"


@record
class Operate:
    """Change what may change within an incarnation: served ids, restart policy, drain grace."""

    host: HostId
    replica: ReplicaId
    profile: ProfileName
    incarnation: Digest
    serves: tuple[str, ...]
    restart: Restart
    drain_ms: int
    kind: Literal["operate"] = "operate"


@record
class Evict:
    """Delete exactly these files, which the host fetched on a guess and which nothing uses. `replica` is nobody."""

    host: HostId
    replica: ReplicaId
    profile: ProfileName
    files: tuple[Digest, ...]
    """By SHA-256, sorted."""
    kind: Literal["evict"] = "evict"


Action = Annotated[Load | Warm | Drain | Unload | Operate | Evict, Discriminator("kind")]


@record
class DeviceGeneration:
    """A precondition: the generation a device must have when the effect starts."""

    device: DeviceId
    generation: int
