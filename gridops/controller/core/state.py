"""What the controller remembers: the fold of its journal, and nothing that a restart may forget.

`fold` is called for every row, at replay and when it is made, so both ways lead to the same state (a test compares).
It never refuses: a row is history. Passes read a state and return rows; only `writer` folds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gridops.base.ids import CommitId, Digest, HostId, PersonName, PlanId, ProfileName, ReplicaId, ScopeName
from gridops.base.record import digest_of
from gridops.model.action import Action
from gridops.model.fleet import Drain
from gridops.model.intent import Desired
from gridops.model.plan import Plan, Seat, Terms
from gridops.model.policy import ActionClass, ModePolicy
from gridops.protocol.messages import AuthorityKind, Facts, Term
from gridops.protocol.outbox import Outbox
from gridops.trust.approved import ApprovedDecision

BACKOFF_MS = 30_000
"""First wait after a failure of (kind, host, profile); doubles each time (A-324)."""
BACKOFF_CAP_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Accepted:
    """The commit in force."""

    commit: CommitId
    subject: str
    desired: Desired
    at_ms: int
    mode_missing: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    """The catalog in force, as people signed it."""

    version: int
    text: str
    """Its envelope."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The tip that does not validate, and what it tightens nevertheless."""

    commit: CommitId
    subject: str
    problems: tuple[str, ...]
    count: int
    mode: ModePolicy | None
    drains: tuple[Drain, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that waits for people."""

    plan: Plan
    cause: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Yes:
    """One person's word for one advised step on a host's disk."""

    by: PersonName
    envelope: str
    need: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Warrant:
    """By what right commands for one replica may be given, and until when."""

    kind: AuthorityKind
    plan: Digest
    action_class: ActionClass
    until_ms: int
    approvals: tuple[str, ...] = ()
    last_replica: bool = False
    """The last replica of its profile may go: its name was typed, or the mode allows it."""
    displacing: tuple[ProfileName, ...] = ()
    """Profiles that are loaded in place of others by its change set: each needs `allow_displace` while it stands."""
    decision: ApprovedDecision | None = None
    """What people approved: a host is shown it, and its place among the `leaves` of its plan."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a step of an apply did not succeed."""

    host: HostId
    kind: str
    outcome: str
    code: str | None
    detail: str | None
    at_ms: int


@dataclass(slots=True)
class Apply:
    """One apply by people: what they applied, and how it went. Holds the scope's lock while it has no outcome."""

    plan: Plan
    by: str
    approvers: tuple[PersonName, ...]
    began_ms: int
    moved_ms: int
    """When anything last happened for it; a lock that moved nothing for long enough is dead."""
    approvals: tuple[str, ...] = ()
    proposal: PlanId | None = None
    outcome: str | None = None
    ended_ms: int | None = None
    failures: dict[ReplicaId, Failure] = field(default_factory=dict)
    written: bool = False

    @property
    def names(self) -> tuple[PlanId, ...]:
        """Every id under which people know it."""
        return tuple(dict.fromkeys((self.plan.id, self.proposal or self.plan.id)))


@dataclass(slots=True)
class Batch:
    """What automatic mode did in a scope since it was last written to git."""

    plans: list[PlanId] = field(default_factory=list)
    since_ms: int = 0
    repair: bool = False
    written_ms: int | None = None
    """When a batch was last written; the next waits for `plan_file_every`."""


@dataclass(slots=True)
class ScopeBook:
    """One scope: its target, by whose word, and what waits."""

    target: Plan | None = None
    target_digest: Digest | None = None
    target_ms: int = 0
    warrants: dict[ReplicaId, Warrant] = field(default_factory=dict)
    ends: dict[str, Warrant] = field(default_factory=dict)
    """By process (`trust.approved.process_name`): by what right it is ended beside the target, whatever its replica
    is called and wherever that stands. Its replica's own warrant says nothing of this and is not replaced by it."""
    leaves: dict[Digest, tuple[Digest, ...]] = field(default_factory=dict)
    """Of each plan by whose approvals a warrant speaks: the tree that they signed (`trust.approved`)."""
    proposal: Proposal | None = None
    rejected: dict[Digest, PersonName] = field(default_factory=dict)
    """Decisions that a person said no to: not proposed again while they stay the same."""
    applies: list[Apply] = field(default_factory=list)
    batch: Batch = field(default_factory=Batch)
    retry: set[ReplicaId] = field(default_factory=set)
    """Replicas whose failed process somebody decided to clear away for another attempt."""
    moves: list[int] = field(default_factory=list)
    """When replicas were moved lately, one entry a move; what `moves.per_hour` counts."""
    state_digest: Digest | None = None
    carried_out: dict[ReplicaId, tuple[Seat, Digest]] = field(default_factory=dict)
    """Seat and launch on which a replica of the target was started once: starting it there again is repair."""
    again: dict[ReplicaId, Attempt] = field(default_factory=dict)
    """How often lately somebody decided to start a replica again on its seat: the next decision waits longer."""
    errands: dict[Digest, tuple[Yes, ...]] = field(default_factory=dict)
    """Advised steps on disks that people let be done, by the step's name, until they were."""
    restored: tuple[Terms, ...] = ()
    """Terms of the plan that a rebuild found in force: what a process that was found running is taken to act by."""

    @property
    def under_way(self) -> Apply | None:
        """The apply that holds the lock."""
        return self.applies[-1] if self.applies and self.applies[-1].outcome is None else None


@dataclass(frozen=True, slots=True)
class Attempt:
    """History of one (kind, profile) on a host: what back-off and cooldown are judged by."""

    failures: int = 0
    last_ms: int = 0
    code: str | None = None
    of: Digest | None = None
    """What was tried: the files of a load, the command of a start. None: nothing but its kind."""

    @property
    def wait_until_ms(self) -> int:
        """No earlier than this may it be tried again."""
        if self.failures == 0:
            return 0
        return self.last_ms + min(BACKOFF_MS << min(self.failures - 1, 12), BACKOFF_CAP_MS)


@dataclass(frozen=True, slots=True)
class Success:
    """A step that succeeded and that the host's reports have to show before the next look counts."""

    rseq: int
    at_ms: int
    action: Action
    body: Digest


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one kind of step has taught about one artifact revision on one host. Counts and times alone."""

    count: int = 0
    """Durations that the mean is made of, as far as they are counted."""
    mean_ms: int = 0
    """Exponentially weighted."""
    last_ms: int = 0
    """Controller time of the newest duration."""
    failures: int = 0
    """In a row, since the last success."""
    failed_ms: int = 0
    """Controller time of the newest of them."""
    code: str | None = None
    """What the host said about it."""


LessonKey = tuple[str, str, str, Digest]
"""What was done (`fetch` or `warm`), profile, config, revision. A fetch is of files alone: no profile and no config."""


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A command whose host cannot say what became of it. It holds its turn and its memory until that is known."""

    body: Digest
    seq: int
    rseq: int
    """Of the receipt that says so: only what the host said after it proves anything."""
    scope: ScopeName
    action: Action
    action_class: ActionClass
    at_ms: int
    code: str | None = None
    detail: str | None = None


@dataclass(slots=True)
class HostBook:
    """One host as a counterparty: its chain of commands and what came of them."""

    outbox: Outbox
    seen_ms: int
    attempts: dict[tuple[str, ProfileName], Attempt] = field(default_factory=dict)
    cooled: dict[tuple[str, ReplicaId], int] = field(default_factory=dict)
    """When a (kind, replica) last ended well."""
    successes: dict[ReplicaId, Success] = field(default_factory=dict)
    terms: dict[Digest, Terms] = field(default_factory=dict)
    """By incarnation: what its host is known to act by."""
    written_off_ms: int | None = None
    lessons: dict[LessonKey, Lesson] = field(default_factory=dict)
    """What receipts taught, the newest last; bounded by `limits.LESSONS_PER_HOST`."""
    uncertain: dict[Digest, Uncertain] = field(default_factory=dict)
    """By command. None is ever forgotten for its age; the bound is `limits.OPEN_BODIES_PER_HOST`."""


@dataclass(frozen=True, slots=True)
class Invite:
    by: PersonName
    made_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Pending:
    """A host that proved its token and waits for a commit with its key."""

    host_key: str
    facts: Facts
    at_ms: int
    former: str | None = None
    """The host's present key, where that signed over to this one."""


@dataclass(frozen=True, slots=True)
class Freeze:
    by: PersonName
    reason: str
    until_ms: int | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class StandingAlarm:
    text: str
    host: HostId | None
    at_ms: int


@dataclass(slots=True)
class State:
    """All of it. Two states with equal contents are equal."""

    term: Term | None = None
    floor: int = 0
    """Highest counter that any host was seen to obey; the write authority has to stand above it."""
    starts: int = 0
    rebuilt_ms: int | None = None
    distrust: str | None = None
    roots: list[str] = field(default_factory=list)
    catalog: Released | None = None
    accepted: Accepted | None = None
    last_mode: ModePolicy | None = None
    """Of the newest accepted commit whose mode file was readable."""
    refused: Refused | None = None
    off_line: Refused | None = None
    """A tip that is not believed: apart from the one above, so that nobody without a key loosens what that tightens."""
    signed: dict[PersonName, int] = field(default_factory=dict)
    """When each person last signed a commit that changed what is meant, where commits are signed."""
    scopes: dict[ScopeName, ScopeBook] = field(default_factory=dict)
    hosts: dict[HostId, HostBook] = field(default_factory=dict)
    plans: dict[PlanId, Plan] = field(default_factory=dict)
    """The newest plans by id, bounded by `limits.PLANS_IN_MEMORY`."""
    written: dict[PlanId, CommitId | None] = field(default_factory=dict)
    """Which of them stand on the plans branch."""
    results: dict[PlanId, bool] = field(default_factory=dict)
    """For which of them a result stands there, and whether it is final."""
    ended: dict[str, HostId] = field(default_factory=dict)
    """Host keys that never speak again, and whose they were: expunged, or signed over from."""
    invites: dict[HostId, Invite] = field(default_factory=dict)
    pending: dict[HostId, Pending] = field(default_factory=dict)
    freezes: dict[ScopeName | None, Freeze] = field(default_factory=dict)
    alarms: dict[str, StandingAlarm] = field(default_factory=dict)
    nonces: dict[str, int] = field(default_factory=dict)

    @property
    def newest_refused(self) -> Refused | None:
        """The newest commit that is not in force because something is wrong with it."""
        return self.off_line or self.refused

    def scope(self, name: ScopeName) -> ScopeBook:
        """The book of a scope; an empty one if nothing ever happened there (not remembered by asking)."""
        return self.scopes.get(name) or ScopeBook()

    def held(self, host: HostId) -> str | None:
        """Why commands to a host are stopped, if they are."""
        return next((a.text for _, a in sorted(self.alarms.items()) if a.host == host), None)


def known_plan(state: State, wanted: str) -> tuple[Plan, ...]:
    """Plans whose id is `wanted`, or whose short digest begins with it; newest last."""
    exact = state.plans.get(PlanId(wanted))
    if exact is not None:
        return (exact,)
    if len(wanted) < 4:
        return ()
    return tuple(p for p in state.plans.values() if p.id.rpartition("-")[2].startswith(wanted))


def now_called(plan: Plan | None, replica: ReplicaId) -> ReplicaId:
    """A replica as a plan calls it: hosts know a renamed one by its old name until it is relabelled or gone."""
    name, _, number = replica.rpartition("/")
    terms = plan.terms if plan is not None else ()
    new = next((t.profile for t in terms if t.renamed_from == name), None)
    return replica if new is None or any(t.profile == name for t in terms) else ReplicaId(f"{new}/{number}")


def profile_of(replica: ReplicaId) -> ProfileName:
    return ProfileName(replica.rpartition("/")[0])


def plan_digest(plan: Plan) -> Digest:
    """Identity of a plan: what `parent` and `Body.plan` name."""
    return digest_of(plan)
