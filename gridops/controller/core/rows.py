"""What the controller can ever remember: one record per kind of journal row.

`fold` replays them, `row_kinds` names them, every pass returns them; nothing else reaches the journal. A row says what
happened, never what to do next: what to do is computed again from the state. A new field must be optional, because old
journals are replayed by new programs; a kind is never renamed.
"""

from __future__ import annotations

from gridops.base.ids import CommitId, Digest, HostId, PersonName, PlanId, ProfileName, ReplicaId, ScopeName
from gridops.base.record import record
from gridops.model.fleet import Drain
from gridops.model.intent import Desired
from gridops.model.plan import Plan
from gridops.model.policy import ModePolicy
from gridops.protocol.messages import Authority, AuthorityKind, Body, Facts, Outcome, Receipt, Term
from gridops.protocol.outbox import Outbox


@record
class Started:
    """A process took the write authority."""

    version: str


@record
class ClockLeapt:
    """The machine's clock leapt forwards. Written so that time does not go back behind it after a restart.

    By nothing: it is behind, and time has gone on without it.
    """

    by_ms: int


@record
class Rebuilt:
    """The journal was made anew from git and from what hosts remember; `plans` became the targets."""

    plans: tuple[PlanId, ...] = ()


@record
class TargetRestored:
    """A plan document of git is in force again, without anybody's authority: what it lacks needs a new plan."""

    plan: Plan
    applied_ms: int


@record
class Distrusted:
    """The journal was damaged, or is new although the fleet has a past: recommend only, no commands."""

    reason: str


@record
class RootTaken:
    """One more root document of the chain."""

    version: int
    text: str


@record
class CatalogTaken:
    """What people signed may run at all, from the commit that follows. Without a text: no catalog is asked for."""

    version: int
    text: str | None = None


@record
class IntentAccepted:
    """A commit is in force. `mode_missing`: it has no readable mode file, so the last valid one still bounds it."""

    commit: CommitId
    subject: str
    desired: Desired | None = None
    """None: means the same as the commit before it (a commit that touched other files)."""
    mode_missing: bool = False
    signers: tuple[PersonName, ...] | None = None
    """Who signed the commits since the one accepted before, where commits must be signed."""


@record
class IntentRefused:
    """The tip does not validate. Its mode and drains count where they are tighter (`mode` None: unreadable)."""

    commit: CommitId
    subject: str
    problems: tuple[str, ...]
    count: int
    mode: ModePolicy | None = None
    drains: tuple[Drain, ...] = ()
    off_line: str | None = None
    """The code by which it is not believed at all: then it has no drains, and replaces no commit that was believed."""


@record
class Proposed:
    """A plan waits for people."""

    plan: Plan
    cause: str


@record
class ProposalClosed:
    """Why the open proposal of a scope is no longer open: applied, replaced, withdrawn or rejected."""

    scope: ScopeName
    plan: PlanId
    why: str
    by: PersonName | None = None


@record
class TargetSet:
    """A plan is in force. People's word is kept with it, because every grant repeats it until `until_ms`."""

    plan: Plan
    kind: AuthorityKind
    by: str
    until_ms: int
    approvals: tuple[str, ...] = ()
    approvers: tuple[PersonName, ...] = ()
    last_replicas: tuple[ProfileName, ...] = ()
    proposal: PlanId | None = None
    """The id under which people know it, when planning again gave the same decisions."""


@record
class ErrandApproved:
    """A person let one advised step on a host's disk be done. The envelope goes with its grant."""

    scope: ScopeName
    errand: Digest
    """Name of the step: its host and files."""
    what: str
    by: PersonName
    envelope: str
    need: int
    """So many people have to say so."""
    until_ms: int


@record
class GaveUp:
    """A step of an apply that nobody carries out any more, although no command of it failed: its host has given the
    replica up, or the word that its next command would need holds no longer."""

    replica: ReplicaId
    host: HostId
    kind: str
    outcome: str
    detail: str


@record
class ApplyEnded:
    """An apply by people is over: done, failed, superseded or expired. Releases the scope's lock."""

    scope: ScopeName
    plan: PlanId
    outcome: str
    gave_up: tuple[GaveUp, ...] = ()
    """What failed without any command of the apply having failed; commands that failed are known by their receipts."""


@record
class Resumed:
    """Somebody asked to try the failed steps of the target again."""

    scope: ScopeName
    plan: PlanId
    by: PersonName


@record
class Unlocked:
    """Somebody broke the lock of an apply."""

    scope: ScopeName
    by: PersonName
    reason: str


@record
class HostSeen:
    """First accepted heartbeat under this key: the host's chain of commands begins."""

    fleet: Digest
    host: HostId
    host_key: str


@record
class HeadSeen:
    """The host has said that it decided every command up to `seq`, and which term it obeys."""

    host: HostId
    seq: int
    obeyed: Term


@record
class OutboxSet:
    """The host's account was adopted as a whole (it knew more than this journal), or its chain is held."""

    outbox: Outbox
    why: str


@record
class TermSeen:
    """A host has obeyed a controller with this counter: ours has to rise above it."""

    counter: int


@record
class BodyQueued:
    """A command exists from now on, before it was ever sent."""

    body: Body
    authority: Authority


@record
class BodyVoided:
    """From now on this command is only ever granted as void."""

    host: HostId
    seq: int
    why: str


@record
class ReceiptTaken:
    """A host's signed statement. `envelope` is kept as the proof."""

    receipt: Receipt
    envelope: str


@record
class OutcomeProved:
    """It is known now what became of a command whose host could not say: by its heartbeat, or by a person's word."""

    host: HostId
    seq: int
    body: Digest
    outcome: Outcome
    """Succeeded or failed."""
    evidence: str
    by: PersonName | None = None
    """None: the host's own inventory shows it."""


@record
class WrittenOff:
    """An approved act released what a silent host holds."""

    host: HostId
    by: PersonName
    reason: str


@record
class HostBack:
    """A host that was written off spoke again."""

    host: HostId


@record
class Invited:
    """A join token was made; the MAC key lies in the keyring, never here."""

    host: HostId
    by: PersonName
    expires_ms: int


@record
class JoinPending:
    """A host proved its token and waits for people to commit its key."""

    host: HostId
    host_key: str
    facts: Facts
    former: str | None = None
    """The host's present key, which signed over to that one. None: it proved a token."""


@record
class JoinSettled:
    """A pending host was admitted, rejected or expired."""

    host: HostId
    why: str
    by: PersonName | None = None


@record
class Frozen:
    """The kill switch without git. No scope: every scope."""

    by: PersonName
    reason: str
    scope: ScopeName | None = None
    until_ms: int | None = None


@record
class Thawed:
    by: PersonName
    scope: ScopeName | None = None


@record
class AlarmRaised:
    """Something a person has to look at; it stays until cleared. `key` is stable, so that it is raised once."""

    key: str
    text: str
    host: HostId | None = None
    """Commands to this host are stopped while the alarm stands."""


@record
class AlarmCleared:
    key: str


@record
class NonceUsed:
    nonce: str
    until_ms: int


@record
class PlanWritten:
    """The plan document stands on the plans branch."""

    plan: PlanId
    scope: ScopeName
    commit: CommitId | None = None
    batch: bool = False
    """A record of what automatic mode did, not a proposal."""


@record
class ResultWritten:
    """What became of a plan stands beside it; `final` once that does not change any more."""

    plan: PlanId
    scope: ScopeName
    final: bool


@record
class StateWritten:
    """The material snapshot stands on the state branch."""

    scope: ScopeName
    digest: Digest


Row = (
    Started
    | ClockLeapt
    | Rebuilt
    | TargetRestored
    | Distrusted
    | RootTaken
    | CatalogTaken
    | IntentAccepted
    | IntentRefused
    | Proposed
    | ProposalClosed
    | TargetSet
    | ErrandApproved
    | ApplyEnded
    | Resumed
    | Unlocked
    | HostSeen
    | HeadSeen
    | OutboxSet
    | TermSeen
    | BodyQueued
    | BodyVoided
    | ReceiptTaken
    | OutcomeProved
    | WrittenOff
    | HostBack
    | Invited
    | JoinPending
    | JoinSettled
    | Frozen
    | Thawed
    | AlarmRaised
    | AlarmCleared
    | NonceUsed
    | PlanWritten
    | ResultWritten
    | StateWritten
)
