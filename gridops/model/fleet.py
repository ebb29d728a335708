"""Machines: hosts, their devices and ceilings, and what is declared about them in `fleet.d/`."""

from __future__ import annotations

from enum import StrEnum

from gridops.base.ids import DeviceId, EngineName, HostId, PersonName, ScopeName
from gridops.base.record import record
from gridops.base.units import PPM


class HostClass(StrEnum):
    """How a host may be treated."""

    DEDICATED = "dedicated"
    OPPORTUNISTIC = "opportunistic"
    """A person's machine: yields to its owner; absence is normal."""
    EXTERNAL = "external"
    """Used, never actuated."""


class DeviceKind(StrEnum):
    """One memory pool of a host."""

    GPU = "gpu"
    CPU = "cpu"
    UNIFIED = "unified"


@record
class Device:
    """A declared device. Values are ceilings: a host may report less and is believed, never more."""

    id: DeviceId
    kind: DeviceKind
    memory_bytes: int
    reserve_bytes: int = 0
    model: str | None = None
    backend: str | None = None
    """The only backend that can use it. None: any that uses devices of its kind."""
    numa: int | None = None
    pcie_bps: int | None = None
    """Rate to the host's memory. None: unknown."""
    parent: DeviceId | None = None
    """The card that this is an instance of (MIG). A card that is cut up is itself no place for anybody."""
    peers: tuple[DeviceId, ...] = ()
    gpu_share_ppm: int = PPM
    """On `unified` memory: the share that GPU work may use."""


@record
class Domain:
    """Membership of one failure domain: `level` is rack, room, floor or person."""

    level: str
    value: str


@record
class Runtime:
    """An engine that a host can run, and the backend it was built for (cuda, metal, rocm, cpu)."""

    engine: EngineName
    backend: str


@record
class Disk:
    """Room for artifacts on a host."""

    artifacts_bytes: int
    keep_free_bytes: int = 0


class OnReturn(StrEnum):
    """Who yields when an absent host comes back with a replica that was replaced meanwhile."""

    KEEP_NEWEST = "keep_newest"
    KEEP_OLDEST = "keep_oldest"


@record
class Absence:
    """What an opportunistic host's absence means."""

    replace_after_ms: int
    on_return: OnReturn = OnReturn.KEEP_NEWEST


@record
class Link:
    """Known rate of a link, for start-up estimates; `name` is `download` or a peer host."""

    name: str
    rate_bps: int


@record
class Host:
    """One declared machine. All tuples are sorted by name."""

    id: HostId
    scope: ScopeName
    host_class: HostClass = HostClass.DEDICATED
    domains: tuple[Domain, ...] = ()
    devices: tuple[Device, ...] = ()
    disk: Disk | None = None
    runtimes: tuple[Runtime, ...] = ()
    tags: tuple[str, ...] = ()
    tier: str | None = None
    max_replicas: int | None = None
    """Live residencies on this host, external ones included. None: no limit."""
    price_per_hour_micro: int | None = None
    """None: unknown."""
    links: tuple[Link, ...] = ()
    owner: PersonName | None = None
    absence: Absence | None = None
    endpoint: str | None = None
    models: tuple[str, ...] = ()
    """Ids that an external endpoint serves."""
    credential: str | None = None
    """Name of a secret that lies on the host that uses it; never the value."""

    def device(self, device: DeviceId) -> Device | None:
        return next((d for d in self.devices if d.id == device), None)

    def domain(self, level: str) -> str | None:
        return next((d.value for d in self.domains if d.level == level), None)


@record
class HostKey:
    """Admission of a host: written by `gridops host admit`, effective once committed."""

    host: HostId
    key: str
    """`ed25519:<64 hex digits>`, the raw public key."""
    previous: tuple[str, ...] = ()
    expunged: bool = False
    """True releases what the host held, for ever."""
    admitted_by: PersonName | None = None
    admitted_at_ms: int | None = None

    @property
    def over(self) -> tuple[str, ...]:
        """The keys that never speak for this host again, nor for another."""
        return (*self.previous, self.key) if self.expunged else self.previous


@record
class Drain:
    """A request to empty a host, until a moment or until the file is removed."""

    host: HostId
    reason: str
    by: PersonName | None = None
    until_ms: int | None = None


@record
class FleetSettings:
    """`policies/fleet.yaml`."""

    controller: str | None = None
    remote_url: str | None = None
    """None: the checkout itself is the remote."""
    remote_branch: str = "main"
    fetch_every_ms: int = 30_000
    plans_branch: str = "gridops/plans"
    """`same` puts the plans under `plans_path` on the watched branch."""
    plans_path: str = "plans"
    currency: str = "EUR"
