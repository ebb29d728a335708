"""The documents that the read-only endpoints answer with: records, so that their schema is published by itself.

Times are RFC 3339 in UTC, ids are never shortened, lists are sorted. Within a major of `schema` fields are only added.
"""

from __future__ import annotations

from gridops.base.ids import CommitId, Digest, HostId, KeyId, PersonName, PlanId, ProfileName, ReplicaId, ScopeName
from gridops.base.record import record
from gridops.model.learned import Learned
from gridops.model.plan import Cause, Change, Decision, Plan, ReadSet, Retirement, Seat, Unplaced
from gridops.model.policy import ActionClass
from gridops.model.snapshot import Residency, Snapshot
from gridops.protocol.messages import Facts, Transfer


@record
class RefusedDoc:
    commit: CommitId
    subject: str
    problems: tuple[str, ...]
    count: int
    since: str


@record
class IntentDoc:
    """What is in force, and what is refused."""

    branch: str
    commit: CommitId | None = None
    subject: str = ""
    accepted: str | None = None
    tip: CommitId | None = None
    checked: str | None = None
    error: str | None = None
    """Why the last look at the repository failed."""
    refused: RefusedDoc | None = None


@record
class TrustDoc:
    """Which documents of trust are in force, and what they ask for beyond keys and approvals."""

    root: int
    expires: str
    expired: bool = False
    """True: nothing may change, and what runs keeps running."""
    soon: bool = False
    """Two thirds of its life are over."""
    signed_commits: bool = False
    catalog: int | None = None
    """Version of the catalog that everything new is held against; null: none is."""


@record
class FreezeDoc:
    by: PersonName
    reason: str
    since: str
    until: str | None = None
    overdue: bool = False


@record
class ModeDoc:
    effective: str
    configured: str
    allow: tuple[ActionClass, ...] = ()
    reason: str | None = None
    until: str | None = None
    because: tuple[str, ...] = ()
    freeze: FreezeDoc | None = None


@record
class NeedDoc:
    """What an apply has to bring for one risk."""

    risk: str
    need: int
    people: tuple[PersonName, ...]


@record
class ProposalDoc:
    id: PlanId
    decisions_digest: Digest
    headline: str
    cause: str
    since: str
    written: bool
    needs: tuple[NeedDoc, ...]
    last_replicas: tuple[ProfileName, ...] = ()
    """Names that have to be typed."""


@record
class TargetDoc:
    id: PlanId
    digest: Digest
    decisions_digest: Digest
    since: str
    replicas: int


@record
class StepDoc:
    """One decision of an apply and how far it is."""

    n: int
    action: str
    replica: ReplicaId
    state: str
    phase: str
    host: HostId | None = None
    code: str | None = None
    detail: str | None = None


@record
class ApplyDoc:
    id: PlanId
    proposal: PlanId | None = None
    by: str
    approved_by: tuple[PersonName, ...]
    began: str
    ended: str | None = None
    outcome: str | None = None
    """None while it is under way; then done, failed, superseded, expired or unlocked."""
    exit_code: int | None = None
    steps: tuple[StepDoc, ...] = ()


@record
class LockDoc:
    holder: str
    plan: PlanId
    since: str
    expires: str


@record
class ModelDoc:
    profile: ProfileName
    want: int
    ready: int
    state: str
    """Ready, Progressing, Degraded, Unplaced, Idle or Retired."""
    note: str = ""
    command: str = ""
    """What to type next, where a person has to; empty where nobody has to."""
    hosts: tuple[HostId, ...] = ()


@record
class ErrandDoc:
    """One step on a host's disk that the newest plan advises: a fetch ahead of demand, or the way back."""

    errand: Digest
    """What a person signs: the name of the step, by its host and files."""
    kind: str
    host: HostId
    profile: ProfileName
    size_bytes: int
    detail: str
    by_itself: bool
    """The mode does it; nobody has to say so."""
    need: int
    people: tuple[PersonName, ...] = ()
    """Who may let it be done."""
    approved_by: tuple[PersonName, ...] = ()


@record
class ScopeDoc:
    scope: ScopeName
    mode: ModeDoc
    quiet: int
    """Plans since the start of this process that gave no new decisions and so wrote nothing."""
    models: tuple[ModelDoc, ...]
    target: TargetDoc | None = None
    proposal: ProposalDoc | None = None
    apply: ApplyDoc | None = None
    lock: LockDoc | None = None
    held: tuple[str, ...] = ()
    retirements: tuple[Retirement, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    drift: tuple[Decision, ...] = ()
    """What the newest plan would do and nobody decided yet."""
    errands: tuple[ErrandDoc, ...] = ()


@record
class UncertainDoc:
    """A command of which nobody knows what became of it."""

    command: Digest
    what: str
    since: str
    code: str | None = None
    detail: str | None = None


@record
class HostDoc:
    host: HostId
    scope: ScopeName
    admitted: bool
    heard: bool
    """Fresh: heard within the heartbeat's bound."""
    state: str
    seen: str | None = None
    reasons: tuple[str, ...] = ()
    generation: int = 0
    agent_version: str | None = None
    endpoint: str | None = None
    front_cert: str | None = None
    draining: bool = False
    written_off: bool = False
    open_commands: int = 0
    held: str | None = None
    alarms: tuple[str, ...] = ()
    residencies: tuple[Residency, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    """What it fetches now, as its newest heartbeat said."""
    disk_free_bytes: int | None = None
    uncertain: tuple[UncertainDoc, ...] | None = None
    """Commands that keep their turn and their memory until somebody says how they ended. Null: none."""
    outdated: str | None = None
    """Why the trusted root lets nobody drive its agent: nothing new is sent there. Null: it may be driven."""


@record
class FrontDoc:
    """Where a host's engines are reached, in the host's own words: whoever connects opens them with its key in git."""

    host: HostId
    endpoint: str
    binding: str
    """A signed `tls-binding`, as the host made it: it states the certificate to pin."""
    until: str


@record
class FrontsDoc:
    schema: str = "gridops.fronts/1"
    time: str
    fleet: Digest
    fronts: tuple[FrontDoc, ...]


@record
class AlarmDoc:
    key: str
    text: str
    since: str
    host: HostId | None = None


@record
class PendingDoc:
    host: HostId
    host_key: str
    fingerprint: KeyId
    since: str
    facts: Facts
    former: str | None = None
    """The host's present key, where that has signed over to this one. Null: the machine proved a token."""


@record
class ControllerDoc:
    version: str
    term: str
    started: str
    rows: int
    ready: bool
    trusted: bool
    """False: its journal cannot be trusted, it sends no commands."""
    project_error: str | None = None


@record
class StatusDoc:
    schema: str = "gridops.status/1"
    time: str
    fleet: Digest
    controller: ControllerDoc
    intent: IntentDoc
    scopes: tuple[ScopeDoc, ...]
    hosts: tuple[HostDoc, ...]
    pending: tuple[PendingDoc, ...] = ()
    alarms: tuple[AlarmDoc, ...] = ()
    trust: TrustDoc | None = None
    """Null: a controller that did not say."""


@record
class TargetPlanDoc:
    scope: ScopeName
    plan: Plan


@record
class GivenUpDoc:
    """A replica of the plan in force of which nothing runs on its seat, and that is started there only if decided."""

    replica: ReplicaId
    cause: Cause
    was: Change


@record
class StrayDoc:
    """Processes of a replica that run where the plan in force does not want them, and are ended only if decided."""

    replica: ReplicaId
    profile: ProfileName
    seat: Seat
    cause: Cause
    was: tuple[Change, ...]


@record
class CircumstancesDoc:
    """What the controller remembers of the plan in force and no host reports."""

    scope: ScopeName
    given_up: tuple[GivenUpDoc, ...] = ()
    strays: tuple[StrayDoc, ...] | None = None
    under_way: tuple[ReplicaId, ...] = ()
    """Replicas whose load or start is commanded and has not ended."""


@record
class SnapshotDoc:
    """The live snapshot with what a plan is compared with, so that anybody can plan as the controller does."""

    schema: str = "gridops.snapshot/1"
    time: str
    fleet: Digest
    watching_since_ms: int
    snapshot: Snapshot
    targets: tuple[TargetPlanDoc, ...]
    proposals: tuple[TargetPlanDoc, ...] = ()
    """What waits for people: a plan made now keeps to it where nothing speaks against it."""
    learned: Learned | None = None
    """How long fetches and starts took on each host, and how often they failed. None: nothing was learned yet."""
    written_off: tuple[HostId, ...] = ()
    """Silent hosts that people have given up."""
    circumstances: tuple[CircumstancesDoc, ...] = ()
    """Of every scope with a plan in force."""


@record
class PlanLineDoc:
    id: PlanId
    scope: ScopeName
    decisions_digest: Digest
    headline: str
    created: str
    state: str
    """waits, in force, applied, rejected, replaced."""


@record
class PlansDoc:
    schema: str = "gridops.plans/1"
    plans: tuple[PlanLineDoc, ...]


@record
class BindingDoc:
    """What an approval for this plan has to name now."""

    fleet: Digest
    scope: ScopeName
    decisions_digest: Digest
    reads: ReadSet
    decisions_tree: Digest | None = None
    """The root over the single decisions. None: the controller is of a time before hosts verified approvals."""


@record
class PlanDoc:
    schema: str = "gridops.plan/1"
    id: PlanId
    state: str
    plan: Plan
    envelope: str
    """The plan as signed by the controller."""
    binding: BindingDoc
    needs: tuple[NeedDoc, ...]
    last_replicas: tuple[ProfileName, ...] = ()
    apply: ApplyDoc | None = None
    approval_ms: int | None = None
    """So long an approval may wait (`expire` in policies/approvals.yaml). None: a controller that asked nobody."""


@record
class EventDoc:
    n: int
    time: str
    kind: str
    text: str


@record
class EventsDoc:
    schema: str = "gridops.events/1"
    events: tuple[EventDoc, ...]
    newest: int
    oldest: int
    """Events before this number are not kept in memory any more."""


@record
class PendingListDoc:
    schema: str = "gridops.pending/1"
    pending: tuple[PendingDoc, ...]


@record
class RootsDoc:
    roots: tuple[str, ...]


@record
class HealthDoc:
    status: str
    reasons: tuple[str, ...] = ()
