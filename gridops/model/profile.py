"""Models: what is wanted of each (profile) and the runnable variants of each (config)."""

from __future__ import annotations

from enum import StrEnum

from gridops.base.ids import ConfigName, Digest, EngineName, HostId, ProfileName, ScopeName
from gridops.base.record import record


class Modality(StrEnum):
    TEXT = "text"
    IMAGE = "image"
    VIDEO = "video"
    EMBEDDING = "embedding"
    SPEECH = "speech"


class FootprintSource(StrEnum):
    """Where a footprint comes from, best first."""

    MEASURED = "measured"
    DECLARED = "declared"
    DERIVED = "derived"
    PUBLISHED = "published"
    UNKNOWN = "unknown"


@record
class Footprint:
    """Memory of a config. `device_bytes` is per device; None means unknown, which is a refusal and never a zero."""

    source: FootprintSource
    device_bytes: int | None = None
    host_bytes: int | None = None
    kv_per_1k_bytes: int | None = None
    fixed_per_sequence_bytes: int | None = None
    spike_per_lane_bytes: int | None = None


@record
class ArtifactFile:
    """One file of an artifact: the path is relative, the digest is the identity."""

    path: str
    sha256: Digest
    size_bytes: int


@record
class Artifact:
    """The immutable files of a config. Without a source it is found by digest in the host's folders, or refused."""

    format: str
    files: tuple[ArtifactFile, ...]
    source: str | None = None
    credential: str | None = None


@record
class Heads:
    """What limits sharding; read from the artifact when absent."""

    attention: int | None = None
    kv: int | None = None
    vision: int | None = None
    vocabulary: int | None = None


@record
class DeviceNeed:
    """How many devices of one host a config uses, and how it shards over them."""

    count: int = 1
    shard: str | None = None
    uneven: bool = False
    link: str | None = None
    numa: str | None = None
    """`same`: all of them on one NUMA domain. None: wherever."""
    pcie_bps: int | None = None
    """Each of them reaches the host's memory at this rate at least. None: at any."""


@record
class EngineArg:
    """One engine argument by its portable name, such as `flash_attn`; the engine's adapter knows its flag."""

    name: str
    value: str


@record
class Config:
    """One runnable variant of a model. Order within the profile is preference."""

    name: ConfigName
    engine: EngineName
    backends: tuple[str, ...]
    artifact: Artifact
    context: int
    footprint: Footprint
    lanes: int = 1
    devices: DeviceNeed = DeviceNeed()
    heads: Heads = Heads()
    args: tuple[EngineArg, ...] = ()


@record
class Spread:
    """Replicas shall stand in at least `min` different domains of level `by`."""

    by: str
    min: int


class Fill(StrEnum):
    """Which of the hosts, and of their devices, that are equally good a replica takes."""

    TIGHT = "tight"
    """The fullest that still has room: large gaps stay large."""
    EVEN = "even"
    """The emptiest: replicas have as much as possible for themselves."""


@record
class PlacementRules:
    require_tags: tuple[str, ...] = ()
    forbid_tags: tuple[str, ...] = ()
    tier: str | None = None
    """Lowest data tier a host must have."""
    allow_hosts: tuple[HostId, ...] = ()
    """Empty: any."""
    deny_hosts: tuple[HostId, ...] = ()
    pins: tuple[HostId, ...] = ()
    """Each is a floor of one replica on exactly that host."""
    fill: Fill | None = None
    """None: tight."""

    @property
    def even(self) -> bool:
        return self.fill is Fill.EVEN


@record
class Colocation:
    """`max` counts distinct profiles on the host, itself included; `exclude` holds in both directions."""

    max: int | None = None
    exclude: tuple[ProfileName, ...] = ()


@record
class WorkloadScore:
    workload: str
    score_ppm: int


@record
class DemandRules:
    utilization_ppm: int = 700_000
    service_ms: int = 5_000
    latency_slo_ms: int = 5_000
    queue_per_replica: int = 2
    """Waiting requests for each lane that should stand; from so many on, one replica stands to spare. Of replicas with
    one lane it is what its name says: wider ones serve more of the queue each."""


@record
class Timing:
    load_ms: int = 30_000
    warm_ms: int = 5_000
    min_residency_ms: int = 300_000
    scale_down_after_ms: int = 900_000
    drain_ms: int = 120_000


@record
class Restart:
    """Keep-alive by the host itself: at most `max` starts per `per_ms`, waiting `backoff_ms`, doubled each time."""

    max: int = 5
    per_ms: int = 600_000
    backoff_ms: int = 2_000


class Downtime(StrEnum):
    ALLOWED = "allowed"
    NEVER = "never"
    """Refuses break-before-make."""


@record
class Profile:
    """What is wanted of one model."""

    name: ProfileName
    scope: ScopeName
    configs: tuple[Config, ...]
    serves: tuple[str, ...] = ()
    """Ids that clients may ask for besides the name, which is always one."""
    modality: Modality = Modality.TEXT
    replicas_min: int = 1
    replicas_max: int = 1
    priority: int = 100
    spread: Spread | None = None
    placement: PlacementRules = PlacementRules()
    max_per_host: int | None = 1
    colocation: Colocation = Colocation()
    workloads: tuple[WorkloadScore, ...] = ()
    demand: DemandRules = DemandRules()
    timing: Timing = Timing()
    restart: Restart = Restart()
    downtime: Downtime = Downtime.ALLOWED
    idle_unload_ms: int | None = None
    """None: never."""
    renamed_from: ProfileName | None = None

    def config(self, name: ConfigName) -> Config | None:
        return next((c for c in self.configs if c.name == name), None)

    @property
    def lanes(self) -> int:
        """Of the config that comes first; one where there is none, which no file may say."""
        return self.configs[0].lanes if self.configs else 1

    @property
    def model_ids(self) -> tuple[str, ...]:
        """Every id a client may ask for, the name first."""
        return (self.name, *(s for s in self.serves if s != self.name))
