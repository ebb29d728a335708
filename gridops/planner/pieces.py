"""The nouns of the puzzle: pieces (replicas), kinds (profiles), the options and spots they have, and the ground.

Numbers stand for names: pieces, kinds and hosts count from 0. Made by `movers`, moved by `puzzle`, never changed by
anybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from gridops.planner.grid import ENDLESS


@dataclass(frozen=True, slots=True)
class Option:
    """One way in which a kind runs on a host."""

    config: int
    columns: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    count: int
    need: int
    """Bytes on each pool of the seat."""
    ram: int
    """Bytes on the host's RAM on top."""
    gpu: bool
    """It also counts against what the host gives to GPU work."""
    start_ms: int
    missing: int
    """Bytes to fetch."""
    aside: bool = False
    """It takes the RAM although the host has other pools."""
    firm: bool = True
    """Its footprint is known well enough for others to give way."""


Options = Mapping[int, tuple[Option, ...]]


@dataclass(eq=False)
class Kind:
    """A profile: where its pieces may stand, and what it promises."""

    weight: int
    find: Callable[[], Options]
    """Asked once, and only if somebody of the kind looks for a seat."""
    least: int = 0
    """Bytes it takes at least on a pool, known without its options; 0 where it may be any number."""
    most_here: int = ENDLESS
    domains: tuple[int, ...] | None = None
    """Failure domain of each host (-1: none); None where there is no rule."""
    spread: int = 0
    shuns: frozenset[int] = frozenset()
    company: int = ENDLESS
    """At most so many kinds on its host, itself included."""

    @cached_property
    def options(self) -> Options:
        """Per host, in the order of configs. A host that is not there is not allowed."""
        return self.find()

    @cached_property
    def hosts(self) -> list[int]:
        return sorted(self.options)

    @cached_property
    def soonest(self) -> int:
        """How soon it starts at best."""
        return min((o.start_ms for options in self.options.values() for o in options), default=0)

    @cached_property
    def on_ram(self) -> bool:
        """It may run on the RAM of a host that has other pools as well."""
        return any(o.aside for options in self.options.values() for o in options)

    @cached_property
    def size(self) -> int:
        """Bytes it takes at least on a pool."""
        return max(1, min((o.need for options in self.options.values() for o in options), default=1))


class Spot(NamedTuple):
    """A seat: host, how, and on which pools. Two seats are the same only if they are one object."""

    host: int
    option: Option
    pools: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A replica that may be moved. `home` is where it stands now, if it does."""

    kind: int
    home: Spot | None = None
    claim: int = 1
    """How much it matters that it stands, among pieces of equal weight."""
    stake: int = 1
    """What of this outweighs a sooner start: its urgency, work in hand and measured harm."""
    meek: bool = False
    """Nobody gives way to it."""
    serves: bool = False
    """It runs and is ready now."""
    back_ms: int = 0
    """What it takes to bring it back to where it stands, once it has gone: the longer, and the more important it is."""


@dataclass(slots=True)
class Ground:
    """What the hosts have left beside everything that is not a piece."""

    free: list[list[int]]
    """Open bytes per pool; may be negative."""
    slack: list[list[int]]
    """What a piece may take on top where it stood before and nobody new does: the headroom."""
    gpu: list[list[int]]
    """Bytes per pool that GPU work may still take where it has a share of its own; ENDLESS elsewhere."""
    ram: list[int]
    """Column of the RAM, -1 where there is none."""
    slots: list[int]
    """Residencies that a host may still hold."""
    disk: list[int]
    """Bytes for files to come."""
    counts: list[dict[int, int]]
    """Per host: fixed residencies by kind (kinds of other plans count from -2 downwards)."""
    price: list[int]
    """What a host adds while it holds nothing. One that may not be opened at all is no option of any kind."""
    held: list[int]
    """Assignments on each host, fixed ones included."""
    money: int = ENDLESS
    """What more hosts may cost."""


def lacking_at_home(kinds: Sequence[Kind], pieces: Sequence[Piece], ground: Ground) -> list[tuple[int, int]]:
    """Of each kind that lacks failure domains where it stands: how many it should have there, and how many it has."""
    hosts: list[list[int]] = [[] for _ in kinds]
    for host, counts in enumerate(ground.counts):
        for kind, many in counts.items():
            if kind >= 0:
                hosts[kind] += [host] * many
    for piece in pieces:
        if piece.home is not None:
            hosts[piece.kind].append(piece.home.host)
    found = []
    for rules, here in zip(kinds, hosts, strict=True):
        used = {rules.domains[h] for h in here} - {-1} if rules.domains is not None else set()
        owed = min(rules.spread, len(here))
        found.append((owed, len(used)) if owed > len(used) else (0, 0))
    return found
