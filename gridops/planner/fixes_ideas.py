"""One change of the files that might place a replica: what it is, how large it is, and the inputs as it leaves them.

The nouns of `fixes_memory` and `fixes_rules`, which have the ideas, and of `fixes`, which tries them. An idea is no
promise: it becomes one when a plan of the changed inputs has proven it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from gridops.base.ids import HostId, ProfileName, ReplicaId
from gridops.base.units import PPM
from gridops.model.fleet import Host
from gridops.model.intent import Desired
from gridops.model.plan import HostLine
from gridops.model.profile import Profile
from gridops.planner.draft import Draft, Item
from gridops.planner.explain import Walk
from gridops.planner.why import closest
from gridops.planner.world import Inputs

NEAR_HOSTS = 3
"""Hosts looked at for each kind of change, nearest first. More find no smaller change; fewer miss the one with room."""

WHOLE = PPM
"""Size of a change that is no matter of degree: a rule goes altogether, a drain ends, somebody moves."""
ENTRY = PPM // 2
"""Size of one name more or less in a list: a tag of one host, one host that is allowed."""

Change: TypeAlias = Callable[[Desired], Desired]
"""What people wrote, and what it would say then."""


class FixKind(StrEnum):
    """What is changed. Of equal size the one that stands higher here is shown first."""

    FOOTPRINT = "footprint"
    CONTEXT = "context"
    RESERVE = "reserve"
    CEILING = "ceiling"
    HEADROOM = "headroom"
    DISK = "disk"
    MAX_REPLICAS = "max_replicas"
    MAX_PER_HOST = "max_per_host"
    PRICE = "price"
    MOVE = "move"
    DRAIN = "drain"
    TAG = "tag"
    HOSTS = "hosts"
    COLOCATION = "colocation"
    PIN = "pin"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class Edit:
    """One value in one file: `old` empty where something is added, `new` empty where something goes."""

    field: str
    old: str
    new: str
    paths: tuple[str, ...]
    """Where it stands in the files, the exact place first."""
    of: str = ""
    """What it belongs to, where the file does not say it: `config q4`, `forge gpu0`."""


@dataclass(frozen=True, slots=True)
class Idea:
    kind: FixKind
    size_ppm: int
    edit: Edit
    change: Change
    moves: ReplicaId | None = None
    """Who may move because of it, and nobody else."""
    off: HostId | None = None
    """The host that `moves` leaves."""

    @property
    def order(self) -> tuple[int, int, str, str, str]:
        """Smallest first."""
        edit = self.edit
        return self.size_ppm, list(FixKind).index(self.kind), edit.of, edit.field, f"{edit.old} {edit.new}"

    @property
    def value(self) -> tuple[str, str, str] | None:
        """The number that it changes: who changes it less has the better idea. None where it is no number."""
        edit = self.edit
        return (edit.field, edit.of, edit.old) if edit.old and edit.new else None

    def applied(self, inputs: Inputs) -> Inputs:
        """The inputs as they would be."""
        return replace(inputs, intent=replace(inputs.intent, desired=self.change(inputs.intent.desired)))


@dataclass(frozen=True, slots=True)
class Question:
    """A replica that stands nowhere, on the finished draft, with its line on each declared host."""

    walk: Walk
    item: Item
    lines: tuple[HostLine, ...]
    turn: int
    """How many replicas of its profile are served first by whatever makes room: 0 for the first of them."""

    @property
    def draft(self) -> Draft:
        return self.walk.seats.draft

    @property
    def profile(self) -> Profile:
        return self.item.profile

    def of(self, *codes: str) -> list[HostLine]:
        """The lines of some reasons, nearest first."""
        found = [line for line in self.lines if line.code in codes]
        return sorted(found, key=lambda line: ((line.need or 0) - (line.have or 0), line.host))

    def fits_as(self, profile: Profile, pin: HostId | None) -> bool:
        """Would any host have room for it now, were its profile like this?"""
        item = self.item._replace(profile=profile, pin=pin)
        return any(closest(self.draft, item, host) is None for host in self.draft.world.hosts if pin in (None, host))


def profile_is(new: Profile) -> Change:
    """A change of one profile."""

    def change(desired: Desired) -> Desired:
        return replace(desired, profiles=tuple(new if p.name == new.name else p for p in desired.profiles))

    return change


def host_is(new: Host) -> Change:
    """A change of one declared host."""

    def change(desired: Desired) -> Desired:
        return replace(desired, hosts=tuple(new if h.id == new.id else h for h in desired.hosts))

    return change


def profile_paths(name: ProfileName, field: str) -> tuple[str, ...]:
    return f"profiles/{name}/{field}", f"profiles/{name}"


def host_paths(host: HostId, field: str) -> tuple[str, ...]:
    return f"hosts/{host}/{field}", f"hosts/{host}"


def share(part: int, whole: int) -> int:
    """How large a change of a number is: the part of it that changes."""
    return min(WHOLE, -(-part * PPM // max(1, whole)))


def smallest(ideas: Sequence[Idea], each: int) -> list[Idea]:
    """At most so many of each kind, all in order of size."""
    found: list[Idea] = []
    for kind in FixKind:
        found += sorted((i for i in ideas if i.kind is kind), key=lambda i: i.order)[:each]
    return sorted(found, key=lambda i: i.order)
