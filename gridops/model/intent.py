"""Intent: everything people committed, at one commit, typed. Produced by `files`, read by everyone above."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gridops.base.ids import CommitId, HostId, ProfileName, ScopeName
from gridops.base.record import record
from gridops.model.catalog import Catalog
from gridops.model.fleet import Drain, FleetSettings, Host, HostKey
from gridops.model.policy import ApprovalPolicy, BudgetPolicy, ModePolicy, PlanningPolicy, ProtectionPolicy
from gridops.model.profile import Profile


@record
class Desired:
    """The meaning of a commit without its positions; its digest is what a plan binds to. All tuples sorted by name."""

    fleet: FleetSettings = FleetSettings()
    hosts: tuple[Host, ...] = ()
    keys: tuple[HostKey, ...] = ()
    drains: tuple[Drain, ...] = ()
    profiles: tuple[Profile, ...] = ()
    mode: ModePolicy = ModePolicy()
    budgets: BudgetPolicy = BudgetPolicy()
    planning: PlanningPolicy = PlanningPolicy()
    approvals: ApprovalPolicy = ApprovalPolicy()
    protection: ProtectionPolicy = ProtectionPolicy()
    catalog: Catalog | None = None
    """What may run at all. None: whatever a profile asks for."""

    @property
    def scopes(self) -> tuple[ScopeName, ...]:
        """Every scope that a host, a profile or the mode file names, sorted; never empty."""
        named = {h.scope for h in self.hosts} | {p.scope for p in self.profiles} | {s.scope for s in self.mode.scopes}
        return tuple(sorted(named)) or (ScopeName("default"),)

    def host(self, host: HostId) -> Host | None:
        return next((h for h in self.hosts if h.id == host), None)

    def profile(self, name: ProfileName) -> Profile | None:
        return next((p for p in self.profiles if p.name == name), None)

    def key(self, host: HostId) -> HostKey | None:
        return next((k for k in self.keys if k.host == host), None)


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a file: line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Intent:
    """`desired` plus where each thing stands.

    `commit` is None for a working tree. `dirty` says that the tree differs from the commit it stands on.
    `marks` maps a path such as `profiles/coder/replicas` or `hosts/forge` or `drains/forge` to its place.
    """

    desired: Desired
    commit: CommitId | None = None
    subject: str = ""
    dirty: bool = False
    marks: Mapping[str, Where] = field(default_factory=lambda: MappingProxyType({}))

    def where(self, *paths: str) -> Where | None:
        """The first known place among paths, so that a caller can fall back from a field to its object."""
        for path in paths:
            if (found := self.marks.get(path)) is not None:
                return found
        return None
