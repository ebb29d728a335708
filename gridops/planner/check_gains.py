"""The checker's rules about who gives way, and for whom: those who come have to matter more, and to use the place.

Part of `check`, which says what may be imported here. `displaced` asks whether there is anybody at all who may take
what was given up; `gainers` whether those are meant that a cause names.
"""

from __future__ import annotations

from collections.abc import Iterator

from gridops.base.ids import DeviceId, HostId, ProfileName, ReplicaId
from gridops.model.plan import Assignment, CauseKind, Decision, DecisionKind
from gridops.planner.check_places import crowded
from gridops.planner.check_seats import ram_of
from gridops.planner.check_view import NAMES, View

WORDS = {CauseKind.REBALANCE: "makes room for ", CauseKind.DISPLACED: "gives way to "}


def displaced(view: View) -> Iterator[str]:
    """Whoever gives way does so for somebody who matters more and came to a place that its profile left."""
    gone: dict[ProfileName, list[Decision]] = {}
    for d in view.plan.decisions:
        if d.kind is DecisionKind.REMOVE and d.cause.kind is CauseKind.DISPLACED:
            gone.setdefault(d.profile, []).append(d)
    if not gone:
        return
    stays = {old.replica: a.seat for a in view.plan.placement if (old := view.former(a)) is not None}
    for name, given in sorted(gone.items()):
        mine = view.profiles.get(next((new for new, old in view.names.items() if old == name), name))
        left = [a for a in view.before.values() if a.profile == name and stays.get(a.replica) != a.seat]
        excused = sum(1 for a in left if mine is not None and _came(view, a, mine.priority))
        for d in given[excused:]:
            yield f"{d.replica} gives way, and nobody who matters more comes to a place that {name} left"


def _came(view: View, left: Assignment, priority: int) -> bool:
    """Somebody new of a higher priority came there, or to a host that others of a higher priority left for it.

    On its own host it must have taken a device that was left; who only makes room is not who others give way to.
    """
    hosts, wanted = [left.seat.host], _left_devices(view, left)
    for host in hosts:
        for a in view.arriving.get(host, []):
            profile, old = view.profiles.get(a.profile), view.former(a)
            if profile is None or profile.priority <= priority:
                continue
            elsewhere = old is None or old.seat.host != host
            if not elsewhere and host == left.seat.host and not _devices(view, a) & wanted:
                continue
            if a.replica not in view.passing:
                return True
            if elsewhere and old is not None and old.seat.host not in hosts:
                hosts.append(old.seat.host)
    return False


def _left_devices(view: View, left: Assignment) -> set[DeviceId]:
    """Devices that it left, and those that others of its host left for these."""
    found, host = _devices(view, left), left.seat.host
    moved = [(a, old) for a in view.arriving.get(host, []) if (old := view.former(a)) is not None]
    inside = [(a, old) for a, old in moved if old.seat.host == host]
    for _ in inside:
        found |= {d for a, old in inside if _devices(view, a) & found for d in _devices(view, old)}
    return found


def _devices(view: View, a: Assignment) -> set[DeviceId]:
    ram = ram_of(view, a.seat.host) if a.host_bytes else None
    return {*a.seat.devices, *([ram] if ram is not None else [])}


def gainers(view: View, d: Decision, host: HostId) -> str | None:
    """What is known against those for whom it goes: each has to come, to the host or to one that others left for it."""
    named = [ReplicaId(n) for n in NAMES.findall(d.cause.detail)]
    coming = _coming(view, host)
    if coming and view.desired.budgets.of(view.plan.scope).price is not None:
        # It may have given up its host, so that they could open another one.
        coming |= {x.replica for x in view.plan.decisions if x.change_set == d.change_set and x.target is not None}
    if not d.cause.detail.startswith(WORDS[d.cause.kind]):
        return "its words are those of another reason"
    if not named:
        return "it names nobody"
    if view.partial and d.kind is not DecisionKind.REMOVE:
        return None  # a move that nothing is tied to may be carried out without those for whom it was thought of
    taken_up = {x.replica for x in view.plan.decisions if _goes(x)}
    for replica in named:
        if replica != d.replica and _may_remain(view, d, replica):
            continue
        if replica not in view.fresh | taken_up or replica == d.replica:
            return f"{replica} comes nowhere"
        if coming and replica not in coming:
            return f"{replica} does not come to what it leaves"
    return None


def _may_remain(view: View, d: Decision, replica: ReplicaId) -> bool:
    """It stays on a host that had too little memory for all, and somebody who moves with the other one leaves it."""
    a = view.placed.get(replica)
    if d.kind is DecisionKind.REMOVE or a is None or replica in view.fresh or not crowded(view, a.seat.host):
        return False
    moved = (x for x in view.plan.decisions if x.change_set == d.change_set and x.replica != replica)
    return any(x.source is not None and x.source.host == a.seat.host for x in moved)


def _coming(view: View, host: HostId) -> set[ReplicaId]:
    """Who comes to the host, or to one that somebody left for it, and so on."""
    hosts, found = [host], set[ReplicaId]()
    for one in hosts:
        found |= {x.replica for x in view.plan.decisions if _goes(x, one)} - view.passing
        for a in view.arriving.get(one, []):
            found |= {a.replica} - view.passing
            old = view.former(a)
            if old is not None and old.seat.host not in hosts:
                hosts.append(old.seat.host)
    return found


def _goes(d: Decision, host: HostId | None = None) -> bool:
    """It goes to another host (to this one), though it may run there from before the plan in force sent it away."""
    if d.source is None or d.target is None or d.source.host == d.target.host:
        return False
    return host is None or d.target.host == host
