"""What the controller knows only while it lives: heartbeats, the newest plans, counters. A restart begins it anew.

Nothing here may decide whether something was already done (that is `state`), only what to do next. Heartbeats are
never made durable: the newest wins, and after a restart hosts are silent until they speak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gridops.base.ids import CommitId, Digest, HostId, ReplicaId, ScopeName
from gridops.base.record import digest_of
from gridops.base.windows import ZoneRules
from gridops.controller.core.roster import Roster
from gridops.model.intent import Desired, Intent
from gridops.model.plan import Plan
from gridops.model.policy import Automatic, Mode
from gridops.model.snapshot import HostReport
from gridops.planner.actions import Step
from gridops.protocol.binding import Bound
from gridops.protocol.messages import Heartbeat, Term
from gridops.protocol.pulse import Pulse
from gridops.trust.root import RootChain


@dataclass(frozen=True, slots=True)
class Heard:
    """One host's newest accepted heartbeat, without its inventory, which is in `report`."""

    report: HostReport
    boot: str
    receipt_head: int
    decided: int
    """The newest command number that the host has decided."""
    root_version: int
    clock_ms: int
    front_cert: str | None
    binding: Bound | None
    """The host's newest signed word on who answers there; None while it has said none that is about this front."""
    alarms: tuple[str, ...]
    heartbeat: Heartbeat
    """As it was verified: a person may accept the host's account of its commands."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """All that may make a plan necessary. Equal fingerprints, no new plan: a new reading is no trigger. What a
    qualification measured is none: it is a fact of a config from then on, by which footprints change."""

    desired: Digest
    drains: tuple[HostId, ...]
    parent: Digest | None
    mode: tuple[Mode, Automatic]
    """The mode and everything that it permits by itself."""
    hosts: tuple[tuple[str, str, str, int], ...]
    """Host, whether it is heard, its own state, its generation."""
    measured: tuple[tuple[HostId, Digest], ...]
    """Host and evidence of everything that was measured there: each is a trigger once, and so is what is taken back."""
    written_off: tuple[HostId, ...]
    given_up: tuple[tuple[ReplicaId, str], ...]
    """Replicas that nobody starts again by themselves, and what became of each."""
    strays: tuple[str, ...]
    """Processes beside the target that nobody may end undecided, by host and command."""
    failing: tuple[tuple[tuple[str, ...], ...], tuple[ReplicaId, ...]]
    """What has failed where so often that another host is worth a try, and who is being tried on such a host."""
    crowded: tuple[HostId, ...]
    """Where the proposal that waits for people has lost its room to others."""
    applying: bool
    """People's apply is under way: automatic mode waits for it, so its end is a trigger."""
    waiting: int
    """A coarse clock while the last plan waits for time to pass, or for room; else 0."""


@dataclass(slots=True)
class ScopeSoft:
    """One scope while this process lives."""

    seen: Fingerprint | None = None
    candidate: Plan | None = None
    """The newest plan, whether or not anything follows from it."""
    planned_ms: int = 0
    quiet: int = 0
    """Plans that gave no new decisions and so wrote nothing."""
    plans: int = 0
    auto: dict[Digest, int] = field(default_factory=dict)
    """Decisions that automatic mode carried out, and when: one attempt per digest and cooldown."""
    held: tuple[str, ...] = ()
    """Why decisions wait, for people; replaced with each plan."""
    errands: tuple[Step, ...] = ()
    """What the newest advice would have done on disks now; replaced at each pass."""
    waits: tuple[str, ...] = ()
    """Why steps wait, for people; replaced at each pass."""
    timed: bool = False
    """Something is held by a limit or a window that time alone ends."""
    unsafe: tuple[str, ...] = ()
    """What the independent checker has against the newest plan; such a plan is never used."""


@dataclass(slots=True)
class GitSoft:
    """What the last look at the repository gave."""

    branch: str = ""
    tip: CommitId | None = None
    checked_ms: int = 0
    error: str | None = None
    """Why the last look failed; what was accepted before stays in force."""
    author: str = ""


@dataclass(slots=True)
class Soft:
    started_ms: int
    chain: RootChain
    """The newest root of the chain in the state, verified once."""
    intent: Intent | None = None
    """The accepted intent with its positions; None until the commit was read again after a restart."""
    hosts: dict[HostId, Heard] = field(default_factory=dict)
    shown: dict[HostId, dict[ReplicaId, int]] = field(default_factory=dict)
    """Per host, which successes its reports have shown (`observe.now_shown`)."""
    joined: dict[HostId, int] = field(default_factory=dict)
    """Hosts that a commit admitted while this process ran, and when."""
    pulses: dict[HostId, Pulse] = field(default_factory=dict)
    terms: dict[HostId, Term] = field(default_factory=dict)
    """The term that each host said first since this process began or its epoch did (`terms`)."""
    quick: set[HostId] = field(default_factory=set)
    """Hosts that were told to ask again soon: they share one rate (`pace`)."""
    scopes: dict[ScopeName, ScopeSoft] = field(default_factory=dict)
    git: GitSoft = field(default_factory=GitSoft)
    listed: Roster | None = None
    zones: Mapping[str, ZoneRules] = field(default_factory=dict)
    """Rules of the time zones that the budgets name; the shell reads them with each new intent."""
    digested: tuple[Desired, Digest] | None = None
    project_error: str | None = None
    """Why writing to git failed last; never blocks anything."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Requests refused, by code."""

    def report(self, host: HostId) -> HostReport | None:
        """The newest word of a host since this process began."""
        heard = self.hosts.get(host)
        return heard.report if heard is not None else None

    def roster(self, desired: Desired) -> Roster:
        """Hosts and keys of the intent by name, indexed once per intent."""
        if self.listed is None or self.listed.desired is not desired:
            self.listed = Roster(desired)
        return self.listed

    def digest_of(self, desired: Desired) -> Digest:
        """Identity of an intent, computed once per intent."""
        if self.digested is None or self.digested[0] is not desired:
            self.digested = (desired, digest_of(desired))
        return self.digested[1]

    def scope(self, name: ScopeName) -> ScopeSoft:
        return self.scopes.setdefault(name, ScopeSoft())
