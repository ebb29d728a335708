"""What an engine really holds: a footprint that may be called measured, or the reason why what was read is none.

Pure arithmetic over several looks at one whole group of processes (its leader may be only a wrapper), idle and settled.
Device memory is what the driver lists for the group, host memory what its processes keep resident. A look that cannot
be this engine's memory alone refuses everything: an error is never a small number. Called by `weighing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gridops.base import limits
from gridops.base.codes.devices import FOOTPRINT_UNMEASURED
from gridops.base.errors import Refusal
from gridops.base.ids import DeviceId
from gridops.base.units import PPM, counted, render_bytes

LOOKS = 3
"""Fewer say nothing about whether it has settled."""
HOST_FLOOR_BYTES = 1 << 20
SETTLED_PPM = 20_000
SETTLED_BYTES = 64 << 20
"""Looks may differ by the larger of both: allocators breathe."""


@dataclass(frozen=True, slots=True)
class CardLook:
    """One card: everything used on it, and by process."""

    total_bytes: int
    used_bytes: int | None
    by_pid: Mapping[int, int | None] | None


@dataclass(frozen=True, slots=True)
class GroupLook:
    """One look at one engine."""

    at_ms: int
    pids: frozenset[int]
    """Every process of its group, control group or container."""
    others: frozenset[int]
    """Processes of the other engines of this host."""
    in_flight: int | None
    cards: Mapping[DeviceId, CardLook]
    resident_bytes: int | None
    """Host memory that the group keeps, mapped files of its model included."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """The unattributed rest of a device at its highest: used by nobody that the driver lists as an engine of ours."""

    device: DeviceId
    bytes_: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Weight:
    """A measured footprint: the largest of the looks, per device."""

    device_bytes: int
    by_device: tuple[tuple[DeviceId, int], ...]
    host_bytes: int
    reserves: tuple[Reserve, ...]
    looks: int


def weigh(looks: Sequence[GroupLook], devices: Sequence[DeviceId]) -> Weight:
    """The footprint by these looks on these cards; no card for an engine on the CPU. Raises Refusal."""
    if len(looks) < LOOKS:
        raise _no(f"{len(looks)} looks were taken, and {LOOKS} are the fewest that show whether it has settled")
    names = sorted(set(devices))
    for look in looks:
        _sane(look)
    by_device = tuple((name, _most([_held(look, name) for look in looks], str(name))) for name in names)
    host = _most([_resident(look) for look in looks], "host memory")
    largest = max((held for _, held in by_device), default=host)
    return Weight(
        device_bytes=largest,
        by_device=by_device,
        host_bytes=host if by_device else 0,
        reserves=tuple(_reserve(looks, name) for name in names),
        looks=len(looks),
    )


def _sane(look: GroupLook) -> None:
    if not look.pids:
        raise _no("no process of this engine was found")
    if look.in_flight is None:
        raise _no("nobody knows whether the engine is idle, and one that may work is not measured")
    if look.in_flight:
        raise _no(f"{counted(look.in_flight, 'request')} in flight: measure it idle")
    shared = sorted(look.pids & look.others)
    if shared:
        raise _no(f"process {shared[0]} belongs to another engine too: the reading would hold both")


def _held(look: GroupLook, name: DeviceId) -> int:
    """What the group holds on one card."""
    card = look.cards.get(name)
    if card is None or card.used_bytes is None or card.by_pid is None:
        raise _no(f"{name} could not be read")
    mine = {pid: used for pid, used in sorted(card.by_pid.items()) if pid in look.pids}
    untold = [pid for pid, used in mine.items() if used is None]
    if untold:
        raise _no(f"the driver does not tell what process {untold[0]} holds on {name}")
    held = sum(used or 0 for used in mine.values())
    if not held:
        raise _no(f"no memory of {name} is attributed to this engine: that is an error of the reading, not a zero")
    if held < limits.MEASURED_LEAST_BYTES:
        raise _no(f"{render_bytes(held)} on {name} are less than any model holds: read too early, or the wrong process")
    if held > card.used_bytes or held > card.total_bytes:
        raise _no(f"{render_bytes(held)} are attributed on {name}, more than is used there at all")
    return held


def _resident(look: GroupLook) -> int:
    if look.resident_bytes is None:
        raise _no("its host memory could not be read")
    if look.resident_bytes < HOST_FLOOR_BYTES:
        raise _no(f"{render_bytes(look.resident_bytes)} of host memory are less than any program holds")
    return look.resident_bytes


def _most(values: Sequence[int], what: str) -> int:
    """The largest, if all are about the same."""
    least, most = min(values), max(values)
    if most - least > max(SETTLED_BYTES, most * SETTLED_PPM // PPM):
        raise _no(f"{what} went from {render_bytes(least)} to {render_bytes(most)} between looks: it has not settled")
    return most


def _reserve(looks: Sequence[GroupLook], name: DeviceId) -> Reserve:
    """What is used and attributed to no engine of ours, at its highest: listings do not see graphics reliably."""
    found: list[tuple[int, int]] = []
    for look in looks:
        card = look.cards[name]
        engines = look.pids | look.others
        known = sum(used or 0 for pid, used in sorted((card.by_pid or {}).items()) if pid in engines)
        rest = (card.used_bytes or 0) - known
        if not 0 <= rest <= card.total_bytes:
            raise _no(f"the rest of {name} would be {rest} bytes of {card.total_bytes}: these do not fit together")
        found.append((rest, look.at_ms))
    most, at_ms = max(found)
    return Reserve(name, most, at_ms)


def _no(why: str) -> Refusal:
    return Refusal(FOOTPRINT_UNMEASURED.code, f"this is no measurement: {why}")
