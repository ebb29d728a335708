"""Rules: mode, budgets, planning thresholds, approvals and host protection (`policies/`)."""

from __future__ import annotations

from enum import StrEnum

from gridops.base.ids import PersonName, ProfileName, ScopeName
from gridops.base.record import record
from gridops.model.profile import FootprintSource


class Mode(StrEnum):
    """What gridops may do by itself; strictness falls in this order."""

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    AUTOMATIC = "automatic"

    @property
    def looseness(self) -> int:
        return (Mode.OBSERVE, Mode.RECOMMEND, Mode.AUTOMATIC).index(self)


class ActionClass(StrEnum):
    """Classes of change that `automatic.allow` names."""

    REPAIR = "repair"
    SCALE_UP = "scale_up"
    SCALE_DOWN = "scale_down"
    ROLLOUT = "rollout"
    REBALANCE = "rebalance"
    REMOVE = "remove"


class Risk(StrEnum):
    """What an approval must answer for; need rises in this order."""

    ROUTINE = "routine"
    DISRUPTIVE = "disruptive"
    DESTRUCTIVE = "destructive"
    TRUST = "trust"


@record
class Automatic:
    """What `automatic` mode may do by itself. Nothing named means nothing allowed."""

    allow: tuple[ActionClass, ...] = ()
    allow_displace: tuple[ProfileName, ...] = ()
    last_replica: tuple[ProfileName, ...] = ()
    """Profiles whose last replica may be removed without its name being typed. Empty: never."""


@record
class ScopeMode:
    scope: ScopeName
    mode: Mode = Mode.RECOMMEND
    reason: str | None = None
    until_ms: int | None = None
    after: Mode | None = None
    """Holds from `until_ms` on."""
    automatic: Automatic = Automatic()


@record
class ModePolicy:
    """`policies/mode.yaml`."""

    scopes: tuple[ScopeMode, ...] = ()
    default: Mode = Mode.RECOMMEND

    def of(self, scope: ScopeName) -> ScopeMode:
        """The entry of a scope, or one with the default mode."""
        found = next((s for s in self.scopes if s.scope == scope), None)
        return found if found is not None else ScopeMode(scope=scope, mode=self.default)


@record
class ActionLimits:
    concurrent: int = 4
    per_device: int = 1
    transfers_per_host: int = 1
    loads_per_artifact: int = 2
    cooldown_ms: int = 60_000


@record
class DisruptionBudget:
    """At most `max_count` or `max_ppm` of the scope's wanted replicas at once, for `reasons`, `during` a window."""

    reasons: tuple[ActionClass, ...]
    max_count: int | None = None
    max_ppm: int | None = None
    during: str | None = None


@record
class MoveLimits:
    per_plan: int = 4
    per_hour: int = 12


@record
class PriceCeiling:
    max_per_hour_micro: int
    unknown: str = "refuse"
    """`refuse` or `allow` hosts without a price."""


@record
class Window:
    """A time in which nothing but `exclude` is done by itself; `deny` is like `Fri 15:00 - Mon 06:00 Europe/Paris`."""

    deny: str
    exclude: tuple[ActionClass, ...] = ()


@record
class ScopeBudgets:
    scope: ScopeName
    actions: ActionLimits = ActionLimits()
    disruptions: tuple[DisruptionBudget, ...] = ()
    moves: MoveLimits = MoveLimits()
    price: PriceCeiling | None = None
    windows: tuple[Window, ...] = ()
    plan_file_every_ms: int = 1_800_000


@record
class BudgetPolicy:
    """`policies/budgets.yaml`."""

    scopes: tuple[ScopeBudgets, ...] = ()

    def of(self, scope: ScopeName) -> ScopeBudgets:
        found = next((s for s in self.scopes if s.scope == scope), None)
        return found if found is not None else ScopeBudgets(scope=scope)


@record
class MassStale:
    """When so many dedicated hosts go stale within the window, nothing destructive is planned."""

    share_ppm: int = 300_000
    at_least: int = 3
    within_ms: int = 60_000


@record
class Heartbeat:
    every_ms: int = 10_000
    stale_after_ms: int = 90_000
    future_skew_ms: int = 30_000
    recovery_grace_ms: int = 90_000
    mass_stale: MassStale = MassStale()


@record
class Headroom:
    memory_ppm: int = 50_000
    demand_ppm: int = 200_000


@record
class FootprintMinima:
    minimum_for_spare: FootprintSource = FootprintSource.DERIVED
    minimum_for_displacement: FootprintSource = FootprintSource.DECLARED


@record
class LookAhead:
    max_ms: int = 300_000
    growth_ppm: int = 2_000_000


@record
class Prefetch:
    keep_free_bytes: int = 10 << 30
    per_plan: int = 1
    ttl_ms: int = 21_600_000


@record
class Search:
    """Counts, never seconds: the same inputs give the same plan on any machine."""

    moves: int = 2_000
    portfolios: int = 64


@record
class PlanningPolicy:
    """`policies/planning.yaml`; everything may be left out."""

    headroom: Headroom = Headroom()
    heartbeat: Heartbeat = Heartbeat()
    footprint: FootprintMinima = FootprintMinima()
    tiers: tuple[str, ...] = ("public", "internal", "confidential")
    """Ordered, least demanding first."""
    workloads: tuple[str, ...] = ()
    look_ahead: LookAhead = LookAhead()
    prefetch: Prefetch = Prefetch()
    search: Search = Search()


@record
class RiskNeed:
    """How many approvals a risk needs and from which roles; `root` asks for the root threshold."""

    risk: Risk
    need: int = 1
    roles: tuple[str, ...] = ()
    root: bool = False


@record
class RoleMembers:
    role: str
    people: tuple[PersonName, ...]


@record
class ApprovalPolicy:
    """`policies/approvals.yaml`."""

    risks: tuple[RiskNeed, ...] = (
        RiskNeed(risk=Risk.ROUTINE, roles=("oncall",)),
        RiskNeed(risk=Risk.DISRUPTIVE, roles=("oncall",)),
        RiskNeed(risk=Risk.DESTRUCTIVE, roles=("oncall",)),
        RiskNeed(risk=Risk.TRUST, root=True),
    )
    roles: tuple[RoleMembers, ...] = ()
    expire_ms: int = 1_800_000
    execute_within_ms: int = 86_400_000
    author_may_approve: bool = True
    accept: tuple[str, ...] = ("signature",)

    def need(self, risk: Risk) -> RiskNeed:
        return next((r for r in self.risks if r.risk is risk), RiskNeed(risk=risk, roles=("oncall",)))

    def members(self, role: str) -> tuple[PersonName, ...]:
        return next((r.people for r in self.roles if r.role == role), ())


class Sensor(StrEnum):
    """What a host looks at to protect itself. What each read may be known, unknown or absent."""

    ACTIVITY = "activity"
    BATTERY = "battery"
    CPU = "cpu"
    DISK = "disk"
    GPU_HEALTH = "gpu_health"
    GPU_MEMORY = "gpu_memory"
    GPU_TEMPERATURE = "gpu_temperature"
    LOAD = "load"
    MEMORY = "memory"
    NETWORK = "network"
    TEMPERATURE = "temperature"
    THERMAL_THROTTLING = "thermal_throttling"


@record
class Thermal:
    """Degrees Celsius."""

    throttle: int
    pause: int
    recover: int


@record
class Levels:
    """Thresholds in parts per million."""

    throttle_ppm: int
    pause_ppm: int
    recover_ppm: int | None = None
    """Where it is well again. None: a tenth better than `throttle_ppm`."""


@record
class ClassProtection:
    """When hosts of a class yield (acted on by the host itself).

    A sensor counts as bad once it was beyond its threshold for its debounce, and as well once it was on the good side
    of its recovery threshold for its recovery. Half a debounce: a spike fences a host; twice: an owner waits longer.
    Half a recovery: a host that is just too hot goes to and fro; twice: it serves less than it could.
    """

    host_class: str
    idle_ms: int = 60_000
    activity_debounce_ms: int = 10_000
    thermal: Thermal = Thermal(throttle=80, pause=95, recover=72)
    memory: Levels = Levels(throttle_ppm=850_000, pause_ppm=950_000)
    battery: Levels = Levels(throttle_ppm=300_000, pause_ppm=120_000)
    unknown_sensor: str = "throttle"
    """`throttle` or `ignore`."""
    recovery_ms: int = 60_000
    activity: str = "pause"
    """What the owner's activity does: `pause` or `throttle`."""
    activity_recovery_ms: int | None = None
    """None: `recovery_ms`."""
    thermal_debounce_ms: int = 5_000
    thermal_recovery_ms: int | None = None
    """None: `recovery_ms`."""
    gpu_thermal: Thermal = Thermal(throttle=87, pause=95, recover=78)
    gpu_memory: Levels = Levels(throttle_ppm=920_000, pause_ppm=980_000)
    cpu_ppm: int = 900_000
    load_ppm: int = 1_250_000
    """For each CPU."""
    disk_bytes: int = 1 << 30
    """Free space below which it takes less work."""
    debounce_ms: int = 5_000
    """Of every sensor that has none of its own."""
    drain_grace_ms: int = 30_000
    """What is in flight has so long before a host that wants to pause is paused."""
    throttled_ppm: int = 500_000
    """Share of the lanes of a throttled host that new requests may use, and of its memory that new work may take."""
    unknown_ppm: int = 750_000
    """The same where it is throttled only because a sensor cannot be read."""
    retry_after_ms: int = 30_000
    ignore: tuple[Sensor, ...] = ()
    """Sensors that say nothing about hosts of this class."""


DEDICATED_IGNORES = (Sensor.ACTIVITY, Sensor.BATTERY, Sensor.CPU, Sensor.LOAD)
"""Nobody sits at a server, and its processors are there to be busy."""


def protection_default(host_class: str) -> ClassProtection:
    """What holds for a class where `policies/protection.yaml` says nothing. Everything that is not dedicated yields."""
    if host_class != "dedicated":
        return ClassProtection(host_class=host_class)
    return ClassProtection(
        host_class=host_class,
        thermal=Thermal(throttle=85, pause=95, recover=75),
        unknown_sensor="ignore",
        ignore=DEDICATED_IGNORES,
    )


@record
class ProtectionPolicy:
    """`policies/protection.yaml`, carried to hosts inside signed directives."""

    classes: tuple[ClassProtection, ...] = ()

    def of(self, host_class: str) -> ClassProtection:
        """When hosts of a class yield: what the files say, else the default of the class."""
        return next((c for c in self.classes if c.host_class == host_class), protection_default(host_class))
