"""A plan: the complete intended placement of one scope, immutable, with its parent, its decisions and its report.

A plan leaves no choice to execution but the port. Everything needed to start a replica stands in `launches` and
`terms`, so that a plan can be carried out, and undone, after the profile it came from has been removed.
"""

from __future__ import annotations

from enum import StrEnum

from gridops.base.ids import (
    CommitId,
    ConfigName,
    DeviceId,
    Digest,
    EngineName,
    HostId,
    PlanId,
    ProfileName,
    ReplicaId,
    ScopeName,
)
from gridops.base.record import record
from gridops.model.advice import Advice
from gridops.model.policy import ActionClass, Risk
from gridops.model.profile import Artifact, DeviceNeed, Downtime, EngineArg, Restart, Timing
from gridops.model.snapshot import SnapshotSource


@record
class Launch:
    """How a config is started. Its digest (`identity`) is the restart identity: equal launches are the same process.

    Engine, backend, artifact, arguments, context, lanes and devices; `restart`, `timing` and `serves` stand in
    `Terms`, because they change without a restart.
    """

    profile: ProfileName
    config: ConfigName
    engine: EngineName
    backend: str
    artifact: Artifact
    context: int
    lanes: int
    devices: DeviceNeed = DeviceNeed()
    args: tuple[EngineArg, ...] = ()


@record
class Terms:
    """What holds for every replica of a profile and may change while it runs."""

    profile: ProfileName
    serves: tuple[str, ...]
    """Every id that the front answers to, the profile's name first."""
    replicas_min: int
    priority: int
    timing: Timing = Timing()
    restart: Restart = Restart()
    downtime: Downtime = Downtime.ALLOWED
    idle_unload_ms: int | None = None
    renamed_from: ProfileName | None = None
    """Its former name, by which hosts may still call its replicas."""


@record
class Seat:
    """Where a replica stands: one host and a set of its devices (sorted)."""

    host: HostId
    devices: tuple[DeviceId, ...]


@record
class Assignment:
    """One replica in the intended placement."""

    replica: ReplicaId
    profile: ProfileName
    seat: Seat
    launch: Digest
    """Identity of one of the plan's launches."""
    device_bytes: int
    """On each device of the seat."""
    host_bytes: int
    """On the host's RAM, on top (0 when the device is the RAM)."""


class DecisionKind(StrEnum):
    PLACE = "place"
    MOVE = "move"
    CHANGE = "change"
    REMOVE = "remove"
    CANNOT_PLACE = "cannot_place"


class CauseKind(StrEnum):
    INTENT = "intent"
    DRAIN = "drain"
    HOST_LOST = "host_lost"
    UNHEALTHY = "unhealthy"
    FAILED_START = "failed_start"
    """It never came up where it stands, and another host is tried."""
    DEMAND = "demand"
    POLICY = "policy"
    REBALANCE = "rebalance"
    DISPLACED = "displaced"
    RENAMED = "renamed"


@record
class Cause:
    """Why a decision was taken. `at` is a place in a file (`profiles.d/coder.yaml:8:11`) or an event id."""

    kind: CauseKind
    detail: str
    at: str | None = None


@record
class Cost:
    """What a decision costs. `dip` counts replicas that are missing while it is carried out."""

    copy_bytes: int = 0
    start_ms: int = 0
    dip: int = 0
    learned: bool | None = None
    """True: the time rests on what fetches and starts took on that host. None: on its link, or the profile's guess."""


@record
class Change:
    """One changed value, as text."""

    field: str
    old: str
    new: str


@record
class Decision:
    """One difference a person reviews."""

    n: int
    """From 1, in the order shown."""
    kind: DecisionKind
    replica: ReplicaId
    profile: ProfileName
    action_class: ActionClass
    risk: Risk
    cause: Cause
    change_set: int
    """Decisions with the same number stand or fall together."""
    source: Seat | None = None
    target: Seat | None = None
    changes: tuple[Change, ...] = ()
    last_replica: bool = False
    """After this removal and those in its change set the profile has no replica left: each of them is marked."""
    cost: Cost = Cost()
    launch: Digest | None = None
    """Identity of what runs at the target afterwards, so that an approval binds to the artifact and arguments too."""


@record
class Retirement:
    """A profile that was removed: its target is zero until somebody declares it again."""

    profile: ProfileName
    since_ms: int
    commit: CommitId | None = None


@record
class HostLine:
    """Why one replica does not fit on one host: one coded line with need and have."""

    host: HostId
    code: str
    """A placement reason (`base.codes.placement`)."""
    detail: str
    need: int | None = None
    have: int | None = None
    unit: str | None = None
    """`bytes` or `count`."""


@record
class CodeCount:
    """On how many declared hosts this is the reason."""

    code: str
    hosts: int


@record
class Unplaced:
    """A wanted replica that stands nowhere: exactly one headline (structural before capacity before waiting)."""

    replica: ReplicaId
    code: str
    detail: str
    hosts: tuple[HostLine, ...]
    """One line per declared host. In a plan that would have more than `limits.HOST_LINES` of them, only the nearest."""
    nearest: HostId | None = None
    short_bytes: int | None = None
    counts: tuple[CodeCount, ...] | None = None
    """Where the lines are left out: declared hosts by reason."""


@record
class Term:
    """One term of a comparison between hosts, in its own unit; lower is better unless the name says otherwise."""

    name: str
    winner: int
    runner_up: int | None = None


class ChosenBy(StrEnum):
    """Why a seat may be the choice although another host compares better."""

    STAYS = "stays"
    """It stood there; what may stay, stays."""
    TOGETHER = "together"
    """Seated with others, so that more of them find a seat than if each took what is best for itself."""


@record
class Choice:
    """Why a replica stands where it stands: the winner, the best other host, and both by term."""

    replica: ReplicaId
    host: HostId
    runner_up: HostId | None = None
    terms: tuple[Term, ...]
    fits: int
    """Hosts that could hold it."""
    rejected: tuple[HostLine, ...] = ()
    by: ChosenBy | None = None
    """None: the first term that differs decided, and where none does, the name."""


@record
class Shortfall:
    """A promise the plan could not keep although every replica stands: e.g. fewer failure domains than wanted."""

    profile: ProfileName
    code: str
    detail: str
    want: int
    have: int


@record
class Report:
    """What the planner has to say about a plan. It is not the plan."""

    unplaced: tuple[Unplaced, ...] = ()
    choices: tuple[Choice, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()
    waiting: tuple[HostLine, ...] = ()
    """Decisions that were held back and for what (`host` names the host concerned)."""
    notes: tuple[str, ...] = ()
    unchanged: int = 0
    advice: Advice | None = None
    """What disks may fetch ahead and let go. None: nothing."""


@record
class IntentRef:
    digest: Digest
    """Digest of the canonical `Desired` restricted to the scope."""
    commit: CommitId | None = None
    subject: str = ""
    dirty: bool = False
    empty: tuple[str, ...] = ()
    """Sets that were empty in the scope: `hosts`, `profiles`. What follows from an empty set is always a proposal."""


@record
class Generation:
    host: HostId
    generation: int


@record
class SnapshotRef:
    source: SnapshotSource
    observed_ms: int
    digest: Digest


@record
class ProfileDigest:
    profile: ProfileName
    digest: Digest


@record
class ReadSet:
    """What the decisions touch: an approval binds to it (trust.md ruling 1)."""

    profiles: tuple[ProfileDigest, ...] = ()
    hosts: tuple[Generation, ...] = ()


@record
class PlannerRef:
    """Who made the plan and how much work it took (counts, never seconds)."""

    version: str
    evaluated: int = 0


@record
class Plan:
    """The document that is signed, reviewed, approved and carried out."""

    v: int = 1
    id: PlanId
    fleet: Digest
    scope: ScopeName
    created_ms: int
    parent: Digest | None = None
    """Digest of the plan this one is compared with: the scope's target when it was made. None: nothing yet."""
    intent: IntentRef
    snapshot: SnapshotRef
    planner: PlannerRef
    decisions_digest: Digest
    reads: ReadSet
    decisions: tuple[Decision, ...] = ()
    placement: tuple[Assignment, ...] = ()
    launches: tuple[Launch, ...] = ()
    terms: tuple[Terms, ...] = ()
    retirements: tuple[Retirement, ...] = ()
    report: Report = Report()

    @property
    def hypothetical(self) -> bool:
        """Made from declared hosts alone, or from an uncommitted tree: never appliable."""
        return self.snapshot.source is SnapshotSource.DECLARED or self.intent.commit is None or self.intent.dirty

    @property
    def to_do(self) -> tuple[Decision, ...]:
        """The decisions that do something."""
        return tuple(d for d in self.decisions if d.kind is not DecisionKind.CANNOT_PLACE)

    def assignment(self, replica: ReplicaId) -> Assignment | None:
        return next((a for a in self.placement if a.replica == replica), None)
