"""In which order replicas are given seats. Scarce room goes to whom this order names first.

Changes in place come first (they take no new host), then pins (they have only one host), then priority classes, and in
each what is urgent (`harm`); then one replica per profile and round, constrained and large profiles first in each
round, and among equals whose requests suffer most. Names decide last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from gridops.base.ids import HostId, ProfileName, replica_key
from gridops.planner.draft import Draft, Item
from gridops.planner.harm import Needs, Urgency
from gridops.planner.incumbents import Verdict
from gridops.planner.targets import count, pins

Width = Callable[[ProfileName], tuple[int, int]]
"""Of a profile: how many hosts could hold it at all, and the bytes of its preferred config."""


def in_order(draft: Draft, items: Sequence[Item], width: Width) -> list[Item]:
    """The items, first served first."""
    pinned = _with_pins(draft, sorted(items, key=_within_profile))
    needs, baseline, seated = Needs(draft), dict[ProfileName, int](), _seated(draft, items)
    relief: dict[ProfileName, tuple[int, ...]] = {}
    rounds: dict[ProfileName, int] = {}
    keyed = []
    for item in pinned:
        profile, name = item.profile, item.profile.name
        if name not in baseline:
            baseline[name], relief[name] = count(profile, draft.world), needs.harm(profile).relief_first
        turn = rounds.get(name, 0)
        rounds[name] = turn + 1
        urgency = needs.urgency(profile, seated[name] + turn, baseline[name])
        # Beyond the baseline it is fair to count what a profile has already.
        share = turn if urgency is Urgency.BASELINE else seated[name] + turn
        hosts, size = width(name)
        stage = 0 if item.changes else 1 if item.pin is not None else 2
        fair = (-profile.priority, -urgency, share, hosts, -size, relief[name])
        keyed.append(((stage, *fair, name, replica_key(item.replica)), item))
    return [item for _, item in sorted(keyed, key=lambda pair: pair[0])]


def _seated(draft: Draft, items: Sequence[Item]) -> Counter[ProfileName]:
    """Replicas of each profile that do not look for a seat."""
    looking = {i.replica for i in items}
    return Counter(s.assignment.profile for r, s in draft.seats.items() if r not in looking)


def _within_profile(item: Item) -> tuple[str, int, tuple[str, int]]:
    """Replicas that have lost their host before those that still serve, and both before new ones; then by number."""
    if item.origin is None:
        return item.profile.name, 3, replica_key(item.replica)
    waits = {Verdict.RELEASE: 0, Verdict.LEAVE: 1 if not item.origin.ready else 2}.get(item.origin.verdict, 2)
    return item.profile.name, waits, replica_key(item.replica)


def _with_pins(draft: Draft, items: Sequence[Item]) -> list[Item]:
    """Give each pin that no replica holds yet to one that looks for a seat: a new one first, then a mover."""
    result = list(items)
    for name in sorted({i.profile.name for i in items}):
        for host in _open_pins(draft, name, items):
            free = [n for n, i in enumerate(result) if i.profile.name == name and i.pin is None and not i.changes]
            if free:
                best = max(free, key=lambda n: (result[n].origin is None, -n))
                result[best] = result[best]._replace(pin=host)
    return result


def _open_pins(draft: Draft, name: ProfileName, items: Sequence[Item]) -> list[HostId]:
    wished = pins(draft.world.profiles[name], draft.world)
    if not wished:
        return []
    leaving = {i.replica for i in items if not i.changes}
    held = {s.assignment.seat.host for s in draft.of(name) if s.assignment.replica not in leaving}
    promised = {i.pin for i in items if i.profile.name == name}
    return [h for h in wished if h not in held | promised]
