"""Why a replica stands nowhere: one coded line per declared host, and of all reasons exactly one headline.

The headline is what a person has to change: a structural reason if the rules alone leave no host, else what the hosts
lack, else what they wait for. `unplaced` is called by `planner.plan` for whoever found no seat; a large plan carries
counts by reason instead of lines (`survey`). `lines_for` is for `explain` and for the choices of small fleets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gridops.base import limits
from gridops.base.codes import placement as codes
from gridops.base.ids import HostId, ProfileName, ReplicaId, replica_key
from gridops.base.record import with_one
from gridops.base.units import counted, render_bytes, render_lack
from gridops.footprint.need import Need, UnknownNeed, need
from gridops.model.plan import CauseKind, CodeCount, HostLine, Unplaced
from gridops.planner.capacity import Ask, Offer
from gridops.planner.draft import Draft, Item
from gridops.planner.eligible import Way, open_way
from gridops.planner.failing import bar_of
from gridops.planner.incumbents import Verdict
from gridops.planner.recall import Shelf
from gridops.planner.seats import Seats
from gridops.planner.survey import (
    CAPACITY,
    LACKS_CARDS,
    STRUCTURAL,
    WAITING,
    Survey,
    Tally,
    is_memory,
    missing_bytes,
    progress,
    stage,
    tally_of,
)

EXPLAINED_HOSTS = 16
"""Choices carry why other hosts were rejected in fleets up to this size; beyond, `explain` makes it on demand."""

NOTHING_TO_START = "the profile has no config, so there is nothing to start: give it one under `configs`"
"""Files refuse such a profile; whoever hands one over without a file is told here."""


def unplaced(seats: Seats, left: Sequence[Item]) -> tuple[Unplaced, ...]:
    """The headline of everybody who stands nowhere, in order. Replicas of one profile are told the same."""
    draft, items = seats.draft, homeless(left)
    whole = len(items) * len(draft.world.hosts) <= limits.HOST_LINES
    survey = None if whole or not items else Survey(seats)
    known: dict[tuple[ProfileName, HostId | None], Unplaced] = {}
    for item in items:
        key = item.profile.name, item.pin
        if key not in known:
            known[key] = in_lines(draft, item) if survey is None else in_counts(draft, item, survey)
    return tuple(with_one(known[i.profile.name, i.pin], "replica", i.replica) for i in items)


def homeless(left: Sequence[Item]) -> list[Item]:
    """Items that stand nowhere now, in order: new ones, and those whose host is no longer ours."""
    found = [i for i in left if i.origin is None or i.origin.verdict is Verdict.RELEASE]
    return sorted(found, key=lambda i: replica_key(i.replica))


def in_lines(draft: Draft, item: Item) -> Unplaced:
    """With one line per declared host."""
    lines = lines_for(draft, item)
    return replace(_headed(draft, item, tally_of(lines, draft.world.hosts)), hosts=lines)


def in_counts(draft: Draft, item: Item, survey: Survey) -> Unplaced:
    """With the declared hosts counted by reason, and the line of the nearest alone."""
    tally = survey.tally(item.profile, item.pin)
    found = _headed(draft, item, tally)
    counts = tuple(CodeCount(code=code, hosts=r.hosts) for code, r in sorted(tally.reasons.items()))
    near = () if found.nearest is None else (_line_at(draft, item, found.nearest),)
    return replace(found, hosts=tuple(n for n in near if n is not None), counts=counts)


def lines_for(draft: Draft, item: Item) -> tuple[HostLine, ...]:
    """Why the replica does not fit, one line per declared host in order; of several configs the closest one."""
    found = (_line_at(draft, item, host) for host in draft.world.hosts)
    return tuple(line for line in found if line is not None)


def rejected(draft: Draft, item: Item) -> tuple[HostLine, ...]:
    """Lines for a choice, at the moment of choosing, where they are recorded."""
    return lines_for(draft, item) if records_rejected(draft, item.replica) else ()


def records_rejected(draft: Draft, replica: ReplicaId) -> bool:
    """The choice of this replica carries why the others were out: the fleet is small enough, or somebody asks."""
    return len(draft.world.hosts) <= EXPLAINED_HOSTS or replica == draft.watched


def closest(draft: Draft, item: Item, host: HostId) -> tuple[int, HostLine] | None:
    """The config (by position) that comes closest on a host, with its line; None where one has room.

    Later stages came further; of two short of memory, the one less short; then the preferred config.
    """
    configs = range(len(item.profile.configs))
    options = [(n, line) for n in configs if (line := _line(draft, item, n, host)) is not None]
    return max(options, key=lambda o: (progress(o[1].code), -(missing_bytes(o[1]) or 0))) if options else None


def _line_at(draft: Draft, item: Item, host: HostId) -> HostLine | None:
    if not item.profile.configs:
        return HostLine(host=host, code=codes.FOOTPRINT_UNKNOWN.code, detail=NOTHING_TO_START)
    found = closest(draft, item, host)
    return None if found is None else found[1]


def _line(draft: Draft, item: Item, position: int, host: HostId) -> HostLine | None:
    profile, view = item.profile, draft.world.hosts[host]
    if item.pin is not None and item.pin != host:
        return HostLine(host=host, code=codes.PINNED_ELSEWHERE.code, detail=f"the replica is pinned to {item.pin}")
    ways: Shelf[Way | HostLine] = draft.world.recall.shelf("ways")
    name, config = (profile.name, position, host), profile.configs[position]
    # What rules say of a host does not change while a plan is made, nor while nothing is new of it.
    way = ways.of(name, (profile, view.traits), lambda: open_way(profile, config, view, draft.world.planning))
    if isinstance(way, Way):
        bar = bar_of(draft.world, item.cause, profile, config)
        if bar is not None and (line := bar.line(host)) is not None:
            return line
        answer = draft.board.offer(host, Ask(item.replica, profile, way, item.home))
        return _as_started(draft, item, host) if isinstance(answer, Offer) else answer
    return way


def _as_started(draft: Draft, item: Item, host: HostId) -> HostLine | None:
    """Where it gave way it would fit as its file says today; its process takes what it was started with."""
    origin, board = item.origin, draft.board.hosts.get(host)
    if origin is None or board is None or origin.host != host or item.cause.kind is not CauseKind.DISPLACED:
        return None
    need, rooms = origin.claim.device_bytes, {r.id: r for r in board.view.rooms}
    there = [rooms[d].raw_bytes - board.use(d, live=False).all_bytes for d in origin.claim.devices if d in rooms]
    have = max(0, min([need - 1, *there]))
    detail = "its process was started with more than fits beside who comes"
    code = codes.INSUFFICIENT_DEVICE_MEMORY.code
    return HostLine(host=host, code=code, detail=detail, need=need, have=have, unit="bytes")


def _headed(draft: Draft, item: Item, tally: Tally) -> Unplaced:
    """The headline and the nearest miss, without lines."""
    code, detail = _headline(draft, item, tally)
    near = [(r.short_bytes, r.nearest) for c, r in tally.reasons.items() if is_memory(c)]
    amount, nearest = min(near) if near else (None, None)
    replica: ReplicaId = item.replica
    return Unplaced(replica=replica, code=code, detail=detail, hosts=(), nearest=nearest, short_bytes=amount)


def _headline(draft: Draft, item: Item, tally: Tally) -> tuple[str, str]:
    if not tally.reasons:
        return codes.NO_DEVICES.code, "no host is declared"
    needs = [need(c, draft.world.planning) for c in item.profile.configs]
    if not needs:
        return codes.FOOTPRINT_UNKNOWN.code, NOTHING_TO_START
    if all(isinstance(r, UnknownNeed) for r in needs):
        first = next(r for r in needs if isinstance(r, UnknownNeed))
        return codes.FOOTPRINT_UNKNOWN.code, first.reason
    if (spanning := _spans_hosts(item, tally) or _spans_cards(item, needs, tally)) is not None:
        return codes.MULTI_HOST_UNSUPPORTED.code, spanning
    relevant = [c for c in tally.reasons if c != codes.PINNED_ELSEWHERE.code] or list(tally.reasons)
    stages = {stage(c) for c in relevant}
    chosen = CAPACITY if CAPACITY in stages else WAITING if WAITING in stages else STRUCTURAL
    # The most frequent code, of equals the first. That a host has its share of the profile already is nobody's
    # shortage while others lack something.
    of_stage = [c for c in relevant if stage(c) == chosen]
    code = min(of_stage, key=lambda c: (c == codes.MAX_PER_HOST.code, -tally.reasons[c].hosts, c))
    return code, _told(draft, item, tally, code)


def _told(draft: Draft, item: Item, tally: Tally, code: str) -> str:
    """The headline, told by the host that is nearest."""
    nearest = _line_at(draft, item, tally.reasons[code].nearest)
    assert nearest is not None, "a host that has a reason has a line"
    if nearest.unit == "bytes" and nearest.need is not None and nearest.have is not None:
        _, _, missing = render_lack(nearest.need, nearest.have)
        _, _, others = nearest.detail.partition(";")
        words = f", where{others}" if others else ""
        return f"fits on none of {counted(tally.hosts, 'host')}; nearest: {nearest.host} is {missing} short{words}"
    return f"fits on none of {counted(tally.hosts, 'host')}; {nearest.host}: {nearest.detail}"


def _spans_hosts(item: Item, tally: Tally) -> str | None:
    """The sentence for a replica that would need several hosts: each lacks devices, together they would not."""
    others = [c for c in tally.reasons if c != codes.NO_DEVICES.code and stage(c) != STRUCTURAL]
    if codes.NO_DEVICES.code not in tally.reasons or others:
        return None
    wanted = min(c.devices.count for c in item.profile.configs)
    most = tally.most_devices
    if wanted < 2 or most == 0 or tally.all_devices < wanted:
        return None
    return f"needs {wanted} devices, the largest host has {most}, and one replica never spans hosts"


def _spans_cards(item: Item, needs: Sequence[Need | UnknownNeed], tally: Tally) -> str | None:
    """The same by memory: no host's cards could hold it even if they were empty, those of all hosts together could.

    Said only of what may be cut over several cards, and only where nothing but cards is lacking anywhere.
    """
    lacking = LACKS_CARDS | {codes.PINNED_ELSEWHERE.code}
    if any(code not in lacking and stage(code) != STRUCTURAL for code in tally.reasons):
        return None
    counts = [c.devices.count for c in item.profile.configs]
    sizes = [n.device_bytes * count for n, count in zip(needs, counts, strict=True) if isinstance(n, Need)]
    if max(counts) == 1 or not sizes or not tally.most_bytes < min(sizes) <= tally.all_bytes:
        return None
    wanted, most, _ = render_lack(min(sizes), tally.most_bytes)
    return (
        f"needs {wanted} of cards, the host with most has {most}, all hosts together "
        f"{render_bytes(tally.all_bytes)}, and one replica never spans hosts"
    )
