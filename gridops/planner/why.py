"""Why a replica does not fit: one coded line per declared host, and of all lines exactly one headline.

The headline is what a person has to change: a structural reason if the rules alone leave no host, else what the hosts
lack, else what they wait for. Called while placing (for small fleets), for every unplaced replica, and by `explain`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId
from gridops.base.units import render_lack
from gridops.footprint.need import UnknownNeed, need
from gridops.model.plan import HostLine, Unplaced
from gridops.model.profile import Profile
from gridops.planner.capacity import Ask, Offer
from gridops.planner.draft import Draft, Item
from gridops.planner.eligible import Way, open_way

STRUCTURAL, CAPACITY, WAITING = range(3)
EXPLAINED_HOSTS = 16
"""Choices carry why other hosts were rejected in fleets up to this size; beyond, `explain` makes it on demand."""


def stage(code: str) -> int:
    """Which kind of reason a placement code is, by its range."""
    return STRUCTURAL if code < "GO520" else CAPACITY if code < "GO540" else WAITING


def lines_for(draft: Draft, item: Item) -> tuple[HostLine, ...]:
    """Why the replica does not fit, one line per declared host in order; of several configs the closest one."""
    found = []
    for host in draft.world.hosts:
        options = [line for c in range(len(item.profile.configs)) if (line := _line(draft, item, c, host)) is not None]
        if options:
            # Later stages came further; of two short of memory, the one less short; then the preferred config.
            found.append(max(options, key=lambda line: (_progress(line), -(short(line) or 0))))
    return tuple(found)


def short(line: HostLine) -> int | None:
    """By how many bytes a line misses; None when it is not about bytes."""
    return line.need - line.have if line.unit == "bytes" and line.need is not None and line.have is not None else None


def unplaced(draft: Draft, item: Item) -> Unplaced:
    """The headline and the lines of one replica that found no seat."""
    lines = lines_for(draft, item)
    code, detail = _headline(draft, item, lines)
    near = [(amount, line.host) for line in lines if (amount := short(line)) is not None and _memory(line)]
    amount, nearest = min(near) if near else (None, None)
    return Unplaced(replica=item.replica, code=code, detail=detail, hosts=lines, nearest=nearest, short_bytes=amount)


def _line(draft: Draft, item: Item, position: int, host: HostId) -> HostLine | None:
    profile, view = item.profile, draft.world.hosts[host]
    if item.pin is not None and item.pin != host:
        return HostLine(host=host, code=codes.PINNED_ELSEWHERE.code, detail=f"the replica is pinned to {item.pin}")
    way = open_way(profile, profile.configs[position], view, draft.world.planning)
    if isinstance(way, Way):
        answer = draft.board.offer(host, Ask(item.replica, profile, way))
        return None if isinstance(answer, Offer) else answer
    return way


def _progress(line: HostLine) -> int:
    """How far a host came: capacity is nearer than waiting, and both nearer than a rule that forbids for good."""
    return {STRUCTURAL: 0, WAITING: 1, CAPACITY: 2}[stage(line.code)] + int(_memory(line))


def _memory(line: HostLine) -> bool:
    return line.code in (codes.INSUFFICIENT_DEVICE_MEMORY.code, codes.INSUFFICIENT_HOST_MEMORY.code)


def _headline(draft: Draft, item: Item, lines: Sequence[HostLine]) -> tuple[str, str]:
    if not lines:
        return codes.NO_DEVICES.code, "no host is declared"
    reasons = [need(c, draft.world.planning) for c in item.profile.configs]
    if reasons and all(isinstance(r, UnknownNeed) for r in reasons):
        first = next(r for r in reasons if isinstance(r, UnknownNeed))
        return codes.FOOTPRINT_UNKNOWN.code, first.reason
    if (spanning := _spans_hosts(draft, item.profile, lines)) is not None:
        return codes.MULTI_HOST_UNSUPPORTED.code, spanning
    relevant = [line for line in lines if line.code != codes.PINNED_ELSEWHERE.code] or list(lines)
    stages = {stage(line.code) for line in relevant}
    chosen = CAPACITY if CAPACITY in stages else WAITING if WAITING in stages else STRUCTURAL
    of_stage = [line for line in relevant if stage(line.code) == chosen]
    return _summary(of_stage, len(lines))


def _summary(lines: Sequence[HostLine], hosts: int) -> tuple[str, str]:
    """The most frequent code (of equals the first), told by the host that is nearest.

    That a host has its share of the profile already is nobody's shortage while others lack something.
    """
    counts = Counter(line.code for line in lines)
    code = min(counts, key=lambda c: (c == codes.MAX_PER_HOST.code, -counts[c], c))
    nearest = min((line for line in lines if line.code == code), key=lambda line: (short(line) or 0, line.host))
    if nearest.unit == "bytes" and nearest.need is not None and nearest.have is not None:
        _, _, missing = render_lack(nearest.need, nearest.have)
        return code, f"fits on none of {hosts} hosts; nearest: {nearest.host} is {missing} short"
    return code, f"fits on none of {hosts} hosts; {nearest.host}: {nearest.detail}"


def _spans_hosts(draft: Draft, profile: Profile, lines: Sequence[HostLine]) -> str | None:
    """The sentence for a replica that would need several hosts: each lacks devices, together they would not."""
    lacking = [line for line in lines if line.code == codes.NO_DEVICES.code]
    others = [line for line in lines if line.code != codes.NO_DEVICES.code and stage(line.code) != STRUCTURAL]
    if not lacking or others:
        return None
    wanted = min(c.devices.count for c in profile.configs)
    have = [line.have or 0 for line in lacking]
    if wanted < 2 or max(have) == 0 or sum(have) < wanted:
        return None
    return f"needs {wanted} devices, the largest host has {max(have)}, and one replica never spans hosts"


def rejected(draft: Draft, item: Item) -> tuple[HostLine, ...]:
    """Lines for a choice, where the fleet is small enough to carry them."""
    return lines_for(draft, item) if len(draft.world.hosts) <= EXPLAINED_HOSTS else ()
