"""Did the memory come back? What a stopped engine held on a card must be measured to be free before anything starts.

A stop is done when the process group is gone; on host RAM that is all. On a card the driver frees later, or never. So
what the group held is remembered before the first signal, and nine tenths of it must come back per device. The
reading that counts is what is used there less what other processes are listed to hold: others may start and end
meanwhile. Pure; `releases` reads and waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from gridops.base.ids import DeviceId
from gridops.base.record import record
from gridops.base.units import PPM

BACK_PPM = 900_000
"""Of what the group held: the rest may be the driver's own, which comes and goes by itself."""
MOVED_PPM = PPM - BACK_PPM
"""A change of what is held that is smaller is not worth a write: it cannot turn the answer."""


@record
class Owed:
    """What one group of processes held on one device when it was stopped."""

    device: DeviceId
    pids: tuple[int, ...] = ()
    held_bytes: int | None = None
    """None: the driver did not tell."""
    rest_bytes: int | None = None
    """Used on the device then, less what processes outside the group were listed to hold."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A device now. `gone`: it was lost with its memory, and nothing can be asked of it or started on it."""

    used_bytes: int | None = None
    by_pid: Mapping[int, int | None] | None = None
    gone: bool = False


class Back(Enum):
    """What can be said of one device."""

    YES = "yes"
    NO = "no"
    UNREAD = "unread"
    """It cannot be read now."""
    GONE = "gone"
    """The device itself is gone."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a start may go on. `remark`: on which devices it goes on without having been seen."""

    back: bool
    missing: tuple[Owed, ...] = ()
    unread: tuple[DeviceId, ...] = ()
    remark: str = ""


def owe(device: DeviceId, reading: Reading, pids: Iterable[int]) -> Owed:
    """What a group holds on a device by this reading, and against what its return is measured."""
    group = frozenset(pids)
    held: int | None = None
    if reading.by_pid is not None:
        mine = [used for pid, used in sorted(reading.by_pid.items()) if pid in group]
        held = None if None in mine else sum(used or 0 for used in mine)
    return Owed(device=device, pids=tuple(sorted(group)), held_bytes=held, rest_bytes=_rest(reading, group))


def came_back(owed: Owed, now: Reading) -> Back:
    """Whether what was held on one device is free again."""
    if now.gone:
        return Back.GONE
    if now.used_bytes is None or now.by_pid is None:
        return Back.UNREAD
    if owed.held_bytes is None or owed.rest_bytes is None:
        # Nothing to measure against: then at least none of the group may be listed there any more.
        return Back.NO if any(pid in now.by_pid for pid in owed.pids) else Back.YES
    rest = _rest(now, frozenset(owed.pids))
    returned = owed.rest_bytes - (rest if rest is not None else owed.rest_bytes)
    return Back.YES if returned * PPM >= owed.held_bytes * BACK_PPM else Back.NO


def moved(known: tuple[Owed, ...], now: tuple[Owed, ...]) -> bool:
    """Whether what a living group holds is something else than what is remembered of it."""
    before = {one.device: one for one in known}
    if before.keys() != {one.device for one in now}:
        return True
    return any(_apart(before[one.device], one) for one in now)


def _apart(old: Owed, new: Owed) -> bool:
    if old.pids != new.pids or (old.held_bytes is None) != (new.held_bytes is None):
        return True
    if old.held_bytes is None or new.held_bytes is None:
        return False
    if old.rest_bytes is None or new.rest_bytes is None:
        return old.rest_bytes != new.rest_bytes
    most = max(abs(new.held_bytes - old.held_bytes), abs(new.rest_bytes - old.rest_bytes))
    return most * PPM > old.held_bytes * MOVED_PPM


def unlisted_bytes(owed: Owed, now: Reading, planned_bytes: int) -> int:
    """What of it has not come back and stands under no process: a card keeps it for an engine that is gone.

    It is counted once, as planned for the residency that owes it. Never more than is planned there, or what others
    use would be hidden behind it.
    """
    rest = _rest(now, frozenset(owed.pids))
    if now.gone or rest is None or now.by_pid is None or owed.held_bytes is None or owed.rest_bytes is None:
        return 0
    missing = min(owed.held_bytes, owed.held_bytes - owed.rest_bytes + rest)
    listed = sum(now.by_pid[pid] or 0 for pid in owed.pids if pid in now.by_pid)
    return max(0, min(missing, planned_bytes) - listed)


def verdict(owed: Iterable[Owed], now: Mapping[DeviceId, Reading]) -> Verdict:
    """All devices of one group together. Some unread: the others decide and it is said. All unread: not back."""
    missing: list[Owed] = []
    unread: list[DeviceId] = []
    gone: list[DeviceId] = []
    known = 0
    for one in owed:
        match came_back(one, now.get(one.device, Reading())):
            case Back.NO:
                missing.append(one)
            case Back.UNREAD:
                unread.append(one.device)
            case Back.GONE:
                gone.append(one.device)
                known += 1
            case Back.YES:
                known += 1
    words = [f"{device} could not be read: that its memory came back was not seen" for device in unread]
    words += [f"{device} is lost: nothing can be asked of its memory, and nothing starts there" for device in gone]
    back = not missing and (known > 0 or not unread)
    return Verdict(back, tuple(missing), tuple(unread), "; ".join(words))


def _rest(reading: Reading, group: frozenset[int]) -> int | None:
    if reading.used_bytes is None or reading.by_pid is None:
        return None
    return reading.used_bytes - sum(used or 0 for pid, used in sorted(reading.by_pid.items()) if pid not in group)
