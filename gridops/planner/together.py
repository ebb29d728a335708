"""Which devices of a host may work together for one replica: equal, linked, on one NUMA domain, fast enough.

What a host does not say does not hold: a config that asks for a link, a NUMA domain or a PCIe rate is refused where
that is unknown. Asked by `eligible` (can it ever run there), `capacity` (on which devices) and `openings` (on all hosts
at once). Knows nothing of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from gridops.base import limits
from gridops.base.codes import Code
from gridops.base.codes import placement as codes
from gridops.footprint.ledger import DeviceRoom
from gridops.model.profile import DeviceNeed

PEER_LINK = "peer"
"""The one link that can be asked for; `any` asks for none, and any other word is unknown, which fails closed."""
ANY_LINK = "any"
SAME_NUMA = "same"

Rooms: TypeAlias = tuple[DeviceRoom, ...]


@dataclass(frozen=True, slots=True)
class Lack:
    """Why too few devices may work together; `have` is how many do."""

    code: Code
    detail: str
    have: int


def usable(rooms: Rooms, wanted: DeviceNeed) -> Rooms | Lack:
    """Those of the devices (all of one kind) that the config may use, or the first rule that leaves too few.

    Whole cards only where several work together: instances of cards (MIG) do not reach each other.
    """
    if wanted.count > 1:
        rooms, parts = tuple(r for r in rooms if r.parent is None), len(rooms)
        if len(rooms) < wanted.count:
            detail = f"{parts - len(rooms)} of its devices are parts of cards, and parts do not work together"
            return Lack(codes.NO_DEVICES, detail, len(rooms))
    if wanted.pcie_bps is not None:
        known = sum(1 for r in rooms if r.pcie_bps is not None)
        rooms = tuple(r for r in rooms if r.pcie_bps is not None and r.pcie_bps >= wanted.pcie_bps)
        if len(rooms) < wanted.count:
            detail = "it does not say at which rate its devices reach its memory"
            detail = detail if not known else f"{len(rooms)} of its devices are known to be that fast over PCIe"
            return Lack(codes.PCIE_TOO_SLOW, detail, len(rooms))
    return _apart(rooms, wanted) or rooms


def sets(rooms: Rooms, wanted: DeviceNeed) -> tuple[Rooms, ...]:
    """The largest sets of these devices of which any `count` may work together, each in the order given."""
    if wanted.count == 1:
        return (rooms,)
    found = (rooms,) if wanted.uneven else equal(rooms)
    if wanted.numa is not None:
        found = tuple(part for group in found for part in on_one_numa(group))
    if wanted.link not in (None, ANY_LINK):
        found = tuple(part for group in found for part in linked(group)) if wanted.link == PEER_LINK else ()
    return found


def _apart(rooms: Rooms, wanted: DeviceNeed) -> Lack | None:
    """The rule that keeps so many devices from working together: each rule by itself, then all at once."""
    count = wanted.count
    if count == 1:
        return None
    if wanted.link not in (None, ANY_LINK):
        if wanted.link != PEER_LINK or not any(r.peers for r in rooms):
            return Lack(codes.LINK_UNKNOWN, f"it does not say which devices are linked by {wanted.link}", 0)
        if (most := _most(linked(rooms))) < count:
            return Lack(codes.LINK_UNKNOWN, f"at most {most} of its devices are peers", most)
    if wanted.numa is not None:
        most = _most(on_one_numa(rooms)) if wanted.numa == SAME_NUMA else 0
        if not most:
            return Lack(codes.NUMA_APART, "it does not say on which NUMA domain its devices hang", 0)
        if most < count:
            return Lack(codes.NUMA_APART, f"at most {most} of its devices share a NUMA domain", most)
    if not wanted.uneven and (most := _most(equal(rooms))) < count:
        return Lack(codes.UNEQUAL_DEVICES, f"only {most} of its devices are equal", most)
    if (most := _most(sets(rooms, wanted))) < count:
        code = codes.LINK_UNKNOWN if wanted.link == PEER_LINK else codes.NUMA_APART
        return Lack(code, f"at most {most} of its devices are all of what is asked at once", most)
    return None


def _most(groups: tuple[Rooms, ...]) -> int:
    return max((len(group) for group in groups), default=0)


def equal(rooms: Rooms) -> tuple[Rooms, ...]:
    """Devices grouped by model and size."""
    return _by(rooms, lambda r: (r.model or "", r.total_bytes))


def on_one_numa(rooms: Rooms) -> tuple[Rooms, ...]:
    """Devices grouped by NUMA domain; those that do not say theirs are in no group."""
    return _by(tuple(r for r in rooms if r.numa is not None), lambda r: (r.numa or 0,))


def _by(rooms: Rooms, key: Callable[[DeviceRoom], tuple[str | int, ...]]) -> tuple[Rooms, ...]:
    groups: dict[tuple[str | int, ...], list[DeviceRoom]] = {}
    for room in rooms:
        groups.setdefault(key(room), []).append(room)
    return tuple(tuple(groups[k]) for k in sorted(groups))


def linked(rooms: Rooms) -> tuple[Rooms, ...]:
    """Every set of mutual peers that no other device could join; at most `LINK_SETS`, more are left out."""
    near = {n: {m for m in range(len(rooms)) if m != n and _peers(rooms[n], rooms[m])} for n in range(len(rooms))}
    found: list[tuple[int, ...]] = []

    def grow(chosen: tuple[int, ...], able: set[int], done: set[int]) -> None:
        """Bron and Kerbosch (1973), with the pivot that leaves the fewest branches."""
        if len(found) >= limits.LINK_SETS:
            return
        if not able and not done:
            found.append(tuple(sorted(chosen)))
            return
        pivot = max(sorted(able | done), key=lambda n: len(near[n] & able))
        for n in sorted(able - near[pivot]):
            grow((*chosen, n), able & near[n], done & near[n])
            able, done = able - {n}, done | {n}

    if rooms:
        grow((), set(near), set())
    return tuple(tuple(rooms[n] for n in group) for group in sorted(found))


def _peers(one: DeviceRoom, other: DeviceRoom) -> bool:
    return other.id in one.peers and one.id in other.peers
