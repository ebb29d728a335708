"""The checker's rules about what is carried out together, and about what people read of a changed command.

Part of `check`: limits and approvals take change sets one by one, so none may live on what another gives up; and a line
such as `context 4096 => 8192` is what somebody agrees to. Nothing of the planner. Each rule yields notes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gridops.base.ids import HostId, ReplicaId
from gridops.model.plan import Assignment, DecisionKind, Launch
from gridops.planner.check_places import process
from gridops.planner.check_seats import known_needs
from gridops.planner.check_view import View

COMMAND = ("config", "engine", "backend", "context", "lanes")
"""Parts of a command that a change names as they stand in it."""


def changes(view: View) -> Iterator[str]:
    """What people read of a new command is what differs between the one that ran and the one that will."""
    for d in view.plan.decisions:
        placed = view.placed.get(d.replica)
        former = view.former(placed) if placed is not None else None
        if d.source is None or d.target is None or placed is None or former is None:
            continue
        old, new = view.old_launches.get(former.launch), view.launches.get(placed.launch)
        if old is None or new is None:
            continue
        differ = former.launch != placed.launch
        true = {n: (a, b) for n, a, b in _command(old, new) if a != b} if differ else {}
        said = {c.field: (c.old, c.new) for c in d.changes if c.field in COMMAND or c.field.startswith("args.")}
        for name in sorted(true.keys() | said.keys()):
            if true.get(name) != said.get(name):
                yield f"decision {d.kind.value} {d.replica} says of {name} what is not in the commands"
        files = [[f.sha256 for f in launch.artifact.files] for launch in (old, new)]
        shown = any(c.field == "artifact" for c in d.changes)
        if shown != (differ and files[0] != files[1]) and (true or not shown or not differ):
            yield f"decision {d.kind.value} {d.replica} says of its files what is not in the commands"


def change_sets(view: View) -> Iterator[str]:
    """A change set can be carried out alone: what it needs on a host is free, or given up by itself.

    A rename and new terms are one set for all of the profile. Whatever broke a limit before is no set's fault, and what
    runs where it is placed needs nothing.
    """
    one: dict[tuple[str, str], set[int]] = {}
    for d in view.plan.decisions:
        fields = {c.field for c in d.changes}
        if "profile" in fields:
            one.setdefault((d.profile, "its new name"), set()).add(d.change_set)
        if any(f == "serves" or f.startswith(("restart.", "timing.")) for f in fields):
            one.setdefault((d.profile, "its new terms"), set()).add(d.change_set)
    for (name, what), sets in sorted(one.items()):
        if len(sets) > 1:
            yield f"{name} gets {what} in {len(sets)} change sets"
    stood: dict[HostId, list[Assignment]] = {}
    for a in view.before.values():
        stood.setdefault(a.seat.host, []).append(a)
    comes: dict[tuple[HostId, int], list[Assignment]] = {}
    goes: dict[int, set[ReplicaId]] = {}
    for d in view.plan.decisions:
        placed = view.placed.get(d.replica) if d.target is not None else None
        if placed is not None and d.replica in view.fresh:
            comes.setdefault((placed.seat.host, d.change_set), []).append(placed)
        old = view.former(placed) if placed is not None else None
        if old is not None or (d.kind is DecisionKind.REMOVE and d.replica in view.before):
            goes.setdefault(d.change_set, set()).add(old.replica if old is not None else d.replica)
    for (host, number), arrivals in sorted(comes.items()):
        before, gone = stood.get(host, []), goes.get(number, set())
        stays = [a for a in before if a.replica not in gone]
        if (lacks := _no_room(view, host, _Traffic(before, stays, arrivals))) is not None:
            yield f"change set {number} alone would leave {host} without {lacks}: another one gives it up"


@dataclass(frozen=True, slots=True)
class _Traffic:
    """One host and one change set: who stood there, who of them does not leave with it, and who comes with it."""

    before: Sequence[Assignment]
    stays: Sequence[Assignment]
    comes: Sequence[Assignment]


def _no_room(view: View, host: HostId, traffic: _Traffic) -> str | None:
    """What is lacking for certain; None where it may suffice."""
    declared = view.hosts.get(host)
    if declared is None:
        return None
    most = declared.max_replicas
    if most is not None and len(traffic.stays) + len(traffic.comes) > max(most, len(traffic.before)):
        return "a slot"
    for device in declared.devices:
        was = sum(_bytes(view, a)[1] for a in traffic.before if device.id in a.seat.devices)
        now = sum(_bytes(view, a)[0] for a in traffic.stays if device.id in a.seat.devices)
        now += sum(a.device_bytes for a in traffic.comes if device.id in a.seat.devices)
        if now > max(device.memory_bytes, was):
            return f"room on {device.id}"
    return None


def _bytes(view: View, a: Assignment) -> tuple[int, int]:
    """The least and the most that a seat of the parent may be counted with: as it was, or as its config is known today,
    whatever that is called by now."""
    was, name = a.device_bytes, next((new for new, old in view.names.items() if old == a.profile), a.profile)
    launch = process(view.profiles.get(name), view.old_launches.get(a.launch))
    known = known_needs(view, replace(a, profile=name), launch) if launch is not None else []
    least = min(was, *(device for device, _ in known), was)
    return least, max(was + a.host_bytes, *(device + beside for device, beside in known), 0)


def _command(old: Launch, new: Launch) -> Iterator[tuple[str, str, str]]:
    for name in COMMAND:
        yield name, str(getattr(old, name)), str(getattr(new, name))
    before, after = ({a.name: a.value for a in launch.args} for launch in (old, new))
    for name in before.keys() | after.keys():
        yield f"args.{name}", before.get(name, ""), after.get(name, "")
