"""What is being tried on the hosts now, and what has failed there so often that it has to be planned anew.

An attempt is under way from the moment its command is made until a receipt ends it: until then it may succeed, and it
keeps its replica's seat. Failures are those that receipts taught (`lessons`). `propose` hands both to the planner, and
asks here whether either is a reason to plan; `budgeting` asks before anything is done by itself.
"""

from __future__ import annotations

from gridops.base.ids import Digest, HostId, ReplicaId
from gridops.controller.core.parted import parted
from gridops.controller.core.rights import Rights
from gridops.controller.core.state import HostBook
from gridops.model.action import Load, Warm
from gridops.model.learned import TimeKind
from gridops.planner.learned import is_failing
from gridops.protocol import outbox as ob

Failing = tuple[HostId, str, str, str, Digest]
"""Host, and which of its lessons: kind, profile, config, revision."""


def under_way(rights: Rights) -> frozenset[ReplicaId]:
    """Replicas of the target whose load or start on their seat has been commanded and has not ended."""
    target = rights.book.target
    if target is None:
        return frozenset()
    found = set[ReplicaId]()
    for host, held in sorted(rights.state.hosts.items()):
        for entry in ob.open_entries(held.outbox):
            if entry.body.scope != rights.scope or not isinstance(entry.body.action, Load | Warm):
                continue
            a = target.assignment(rights.now_called(entry.body.action.replica))
            if a is not None and a.seat.host == host and not parted(rights.state, host):
                found.add(a.replica)
    return frozenset(found)


def failing(rights: Rights) -> tuple[tuple[Failing, ...], tuple[ReplicaId, ...]]:
    """What is failing where, and which replicas are being tried on such a host: what a plan goes by."""
    found = [(host, *key) for host, held in sorted(rights.state.hosts.items()) for key in _failing(held)]
    if not found:
        return (), ()
    hosts, target = {entry[0] for entry in found}, rights.book.target
    seats = {a.replica: a.seat.host for a in target.placement} if target is not None else {}
    return tuple(found), tuple(sorted(r for r in under_way(rights) if seats[r] in hosts))


def _failing(held: HostBook) -> list[tuple[str, str, str, Digest]]:
    """Lessons that say so; failed fetches of the same files count with failed starts."""
    if not any(lesson.failures for lesson in held.lessons.values()):
        return []
    fetches = {key[3]: lesson for key, lesson in held.lessons.items() if key[0] == TimeKind.FETCH and lesson.failures}
    found = []
    for key, lesson in sorted(held.lessons.items()):
        fetch = fetches.get(key[3]) if key[0] != TimeKind.FETCH else None
        count = lesson.failures + (fetch.failures if fetch is not None else 0)
        last = fetch if fetch is not None and fetch.failed_ms > lesson.failed_ms else lesson
        if is_failing(count, last.code):
            found.append(key)
    return found
