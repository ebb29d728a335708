"""The world as the planner may see it: each host of the fleet with its standing, its rooms and what it holds.

The nouns that every step reads, and the moment that ages are judged at. Made once per plan by `views.look`, in which
`standing` says how silence is read; then only read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from gridops.base.ids import Digest, HostId, ProfileName, ReplicaId, ScopeName
from gridops.footprint.ledger import DeviceRoom
from gridops.model.advice import Prefetched
from gridops.model.fleet import DeviceKind, Drain, Host, Runtime
from gridops.model.forecast import Forecast
from gridops.model.intent import Intent
from gridops.model.learned import Learned
from gridops.model.measured import Measured
from gridops.model.plan import Cause, Change, HostLine, Plan, Seat
from gridops.model.policy import PlanningPolicy, ScopeBudgets
from gridops.model.profile import Profile
from gridops.model.snapshot import (
    HostReport,
    Residency,
    Snapshot,
    SnapshotSource,
)
from gridops.planner.recall import Recall
from gridops.planner.signed import Signed


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A replica of the parent of which nothing runs on its seat, and that nobody starts there unless it is decided."""

    replica: ReplicaId
    """As the parent calls it."""
    cause: Cause
    was: Change
    """What became of its process: part of the decision's name, so that another failure is another question."""


@dataclass(frozen=True, slots=True)
class Stray:
    """A replica of which processes run where the parent does not want them, and that nobody may end undecided."""

    replica: ReplicaId
    """As the parent calls it, or would."""
    profile: ProfileName
    seat: Seat
    """Where the first of them runs."""
    cause: Cause
    was: tuple[Change, ...]
    """The processes, part of the decision's name: another one is another question."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything a plan is made from. `watching_since_ms`: when whoever made the snapshot began to listen."""

    intent: Intent
    scope: ScopeName
    fleet: Digest
    snapshot: Snapshot
    parent: Plan | None
    now_ms: int
    version: str
    watching_since_ms: int | None = None
    waiting: Plan | None = None
    """The proposal that people are looking at, if there is one."""
    written_off: frozenset[HostId] = frozenset()
    """Silent hosts that a person has given up: nothing is waited for any more."""
    forecast: Forecast | None = None
    """Demand to be expected. None: every profile's target is what its file says."""
    given_up: tuple[GivenUp, ...] | None = None
    """What whoever carries plans out has given up. None: nobody knows, so what the proposal that waits says counts."""
    strays: tuple[Stray, ...] | None = None
    """What runs beside the parent, as whoever carries plans out knows it. None: as with `given_up`."""
    learned: Learned | None = None
    """What starts and answers have taught. None: every time is the link's or the profile's own guess."""
    prefetched: tuple[Prefetched, ...] = ()
    """What hosts fetched on advice and still hold."""
    under_way: frozenset[ReplicaId] = frozenset()
    """Replicas of the parent whose load or start on their seat is commanded and has not ended."""
    agents_from: str | None = None
    """The oldest version of an agent that the trusted root lets be driven. None: any."""


class Standing(IntEnum):
    """What a host is good for, best first."""

    OPEN = 0
    THROTTLED = 1
    """Takes new work with the share of its memory that its protection leaves (`standing.throttled_ppm`)."""
    SILENT = 2
    """No news, but not for long enough to conclude anything: keeps what it has, gets nothing new."""
    NOT_SERVING = 3
    """Says itself that it cannot serve, for longer than the grace."""
    DRAINING = 4
    LOST = 5
    """Silent for so long that its replicas count as zero; it still holds its own memory."""
    RELEASED = 6
    """Undeclared, expunged, external now, or of another scope: nothing of it is in our hands."""


@dataclass(frozen=True, slots=True)
class HostView:
    """One declared host. `closed` says why it takes nothing new (None: it does)."""

    host: Host
    report: HostReport | None
    standing: Standing
    closed: HostLine | None
    drain: Drain | None
    """A person's wish to empty it, in force now."""
    rooms: tuple[DeviceRoom, ...]
    ram: DeviceRoom | None
    runtimes: tuple[Runtime, ...]
    cached: frozenset[Digest]
    disk_bytes: int | None
    external: tuple[Residency, ...]
    """Live residencies that are not ours."""
    stuck: tuple[Residency, ...]
    """Ours, in a state that nobody can vouch for: they hold what they hold until somebody resolves them."""
    ours: tuple[Residency, ...]
    """Managed live residencies that can be moved or stopped."""
    measured: tuple[Measured, ...]
    """What was measured on this host, or on the same kind of card elsewhere."""
    signed: Signed | None
    """What people signed may run. None: whatever a profile asks for."""
    traits: object
    """The same object in every view of the host for as long as nothing is new but the time of its report."""

    def places(self, rooms: Iterable[DeviceRoom]) -> tuple[tuple[DeviceKind, str | None], ...]:
        """What these devices are, as the host reports them."""
        models = {d.id: d.model for d in self.report.devices} if self.report is not None else {}
        return tuple((room.kind, models.get(room.id)) for room in rooms)


@dataclass(frozen=True, slots=True)
class World:
    inputs: Inputs
    profiles: Mapping[ProfileName, Profile]
    """Declared profiles of the scope, by name in order."""
    hosts: Mapping[HostId, HostView]
    """Every declared host of the fleet, by id in order; `Standing.RELEASED` for those of other scopes."""
    planning: PlanningPolicy
    budgets: ScopeBudgets
    returning: tuple[HostView, ...]
    """Open hosts whose owners want the oldest copy kept when they come back."""
    proposed: Mapping[ReplicaId, HostId]
    """Where the proposal that waits would put replicas."""
    given_up: Mapping[ReplicaId, GivenUp]
    """By the parent's name."""
    mass_stale: tuple[HostId, ...]
    """Hosts that fell silent at once. Not empty: nothing may be taken away by this plan."""
    signed: Signed | None
    """What people signed may run, as in every view."""
    recall: Recall
    """What is known from planning the scope before."""

    @property
    def hypothetical(self) -> bool:
        return self.inputs.snapshot.source is SnapshotSource.DECLARED


def supposing(inputs: Inputs, parent: Plan | None) -> Inputs:
    """The question as it would be if another plan were in force.

    What waits, was given up or runs beside is so by the plan that is in force now. The other one has decided about it
    already, or wants it: asked again, its decisions would have no difference behind them. What is being started is
    started for the other plan too where it leaves the replica on its host.
    """
    going = inputs.under_way & {replica for replica, _ in _hosts(inputs.parent) & _hosts(parent)}
    return replace(inputs, parent=parent, waiting=None, given_up=(), strays=(), under_way=going)


def clock(inputs: Inputs) -> int:
    """The moment that ages are judged at: stored state is taken at the age of its observation."""
    return inputs.snapshot.observed_ms if inputs.snapshot.source is SnapshotSource.STATE else inputs.now_ms


def _hosts(plan: Plan | None) -> set[tuple[ReplicaId, HostId]]:
    return {(a.replica, a.seat.host) for a in plan.placement} if plan is not None else set()
