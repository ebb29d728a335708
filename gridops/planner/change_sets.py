"""Which decisions stand or fall together. Everything else may be carried out, held back or refused by itself.

Decisions are tied when one needs what another gives up (memory, a slot, company, the price of a host), when they speak
about one renamed or removed profile or its last old replica, or when they carry one profile's changed terms. Whatever
subset of change sets is then chosen, the placement it leads to keeps every hard rule (a property test tries them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from gridops.base.ids import HostId, ProfileName, ReplicaId
from gridops.base.record import with_one
from gridops.model.plan import Assignment, CauseKind, Decision, DecisionKind
from gridops.model.policy import ActionClass
from gridops.planner.capacity import admits
from gridops.planner.diff import carries_terms, ends_stray, is_term
from gridops.planner.draft import Draft
from gridops.planner.host_board import Claim, HostBoard
from gridops.planner.incumbents import Incumbent, Verdict
from gridops.planner.targets import Targets


def tie(draft: Draft, targets: Targets, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """The decisions with their change sets, numbered in the order of their first decision."""
    knots = _Knots(len(decisions))
    _tie_profiles(knots, decisions)
    _tie_successors(knots, draft, decisions)
    _tie_old_names(knots, draft, decisions)
    arriving, leaving = _by_host(decisions)
    busy = arriving.keys() & leaving.keys() & draft.board.hosts.keys()
    standing, placed = _standing(targets, busy), _placed(draft, busy)
    for host in sorted(busy):
        everybody = _as_it_was(draft, standing[host], placed, host)
        _tie_host(knots, draft, _Traffic(everybody, decisions, arriving[host], leaving[host]))
    _tie_price(knots, draft, targets, decisions)
    numbers: dict[int, int] = {}
    sets = [numbers.setdefault(knots.root(n), len(numbers) + 1) for n in range(len(decisions))]
    # Most decisions are tied to no other and have their number already: a record is not copied for nothing.
    return tuple(d if d.change_set == m else with_one(d, "change_set", m) for d, m in zip(decisions, sets, strict=True))


class _Knots:
    """Union-find over positions; the smallest position is the root."""

    def __init__(self, size: int) -> None:
        self._up = list(range(size))

    def root(self, n: int) -> int:
        while self._up[n] != n:
            self._up[n] = self._up[self._up[n]]
            n = self._up[n]
        return n

    def tie(self, members: Sequence[int]) -> None:
        for other in members[1:]:
            a, b = sorted((self.root(members[0]), self.root(other)))
            self._up[b] = a


def _tie_profiles(knots: _Knots, decisions: Sequence[Decision]) -> None:
    ends: dict[str, list[int]] = {}
    names: dict[str, list[int]] = {}
    terms: dict[str, list[int]] = {}
    carrying = {d.profile for d in decisions if carries_terms(d)}
    renamed = {c.old: c.new for d in decisions for c in d.changes if c.field == "profile"}
    for n, decision in enumerate(decisions):
        # Which one is the last is a matter of all of them together. Of those who give way one always stays, whichever
        # of them go, so that each is tied only to whom it gives way to.
        gives_way = decision.cause.kind is CauseKind.DISPLACED
        final = decision.last_replica or (decision.action_class is ActionClass.REMOVE and not gives_way)
        if decision.kind is DecisionKind.REMOVE and final:
            ends.setdefault(decision.profile, []).append(n)
        # A rename is one step: half of it would leave two profiles with one history.
        name = renamed.get(decision.profile, decision.profile)
        if name in renamed.values():
            names.setdefault(name, []).append(n)
        # New terms hold for all of a profile's replicas, also for one whose removal would be held back.
        if decision.profile in carrying and decision.source is not None:
            terms.setdefault(decision.profile, []).append(n)
    for groups in (ends, names, terms):
        for members in groups.values():
            knots.tie(members)


def _tie_successors(knots: _Knots, draft: Draft, decisions: Sequence[Decision]) -> None:
    """Where only newcomers are left of a profile, the old ones go with the first of them: else the last would go."""
    leaving: dict[ProfileName, list[int]] = {}
    coming: dict[ProfileName, int] = {}
    for n, decision in enumerate(decisions):
        stands = decision.kind is DecisionKind.REMOVE and not ends_stray(decision)
        if stands and decision.cause.kind is not CauseKind.HOST_LOST:
            leaving.setdefault(decision.profile, []).append(n)
        elif decision.kind is DecisionKind.PLACE:
            coming.setdefault(decision.profile, n)
    if not leaving:
        return
    stays = {s.origin.former.rpartition("/")[0] for s in draft.seats.values() if s.origin and not s.origin.adopted}
    for name, members in leaving.items():
        if name in coming and name not in stays:
            knots.tie([*members, coming[name]])


def _tie_old_names(knots: _Knots, draft: Draft, decisions: Sequence[Decision]) -> None:
    """Whoever would not share a host with a profile's old name comes only with the new name."""
    renaming: dict[tuple[HostId, str], list[int]] = {}
    for n, decision in enumerate(decisions):
        for change in decision.changes:
            if change.field == "profile" and decision.source is not None:
                renaming.setdefault((decision.source.host, change.old), []).append(n)
    if not renaming:
        return
    for n, decision in enumerate(decisions):
        profile = draft.world.profiles.get(decision.profile)
        if profile is None or decision.target is None or not _occupies(decision):
            continue
        for old in profile.colocation.exclude:
            knots.tie([n, *renaming.get((decision.target.host, old), ())])


@dataclass(frozen=True, slots=True)
class _Traffic:
    """One host: who stood there, and the positions of the decisions that take and that give up room on it."""

    everybody: HostBoard
    decisions: Sequence[Decision]
    arrivals: Sequence[int]
    leavers: Sequence[int]


def _by_host(decisions: Sequence[Decision]) -> tuple[dict[HostId, list[int]], dict[HostId, list[int]]]:
    """Arrivals and leavers of each host."""
    arriving: dict[HostId, list[int]] = {}
    leaving: dict[HostId, list[int]] = {}
    for n, decision in enumerate(decisions):
        if decision.target is not None and _occupies(decision):
            arriving.setdefault(decision.target.host, []).append(n)
        # What runs beside the placement was never counted as room of it.
        if decision.source is not None and _vacates(decision) and not ends_stray(decision):
            leaving.setdefault(decision.source.host, []).append(n)
    return arriving, leaving


def _standing(targets: Targets, hosts: Set[HostId]) -> dict[HostId, list[Incumbent]]:
    """Incumbents of each of these hosts."""
    found: dict[HostId, list[Incumbent]] = {host: [] for host in hosts}
    if found:
        for incumbent in (*targets.wanted, *targets.removed):
            if incumbent.verdict is not Verdict.RELEASE and incumbent.host in found:
                found[incumbent.host].append(incumbent)
    return found


def _tie_host(knots: _Knots, draft: Draft, traffic: _Traffic) -> None:
    """Arrivals that would not fit if nobody left are tied to everybody who leaves the host."""
    decisions, everybody = traffic.decisions, traffic.everybody
    # Repair first: what it can have without waiting for others, it has.
    for n in sorted(traffic.arrivals, key=lambda n: (decisions[n].action_class is not ActionClass.REPAIR, n)):
        claim = draft.board.hosts[everybody.view.host.id].desired[decisions[n].replica]
        former = everybody.desired.get(claim.replica)
        if former is not None:
            everybody.take(claim.replica, runs=False)
        if admits(everybody, claim, draft.world):
            everybody.put(claim)
            if former is not None and not _covers(claim, former):
                # What it gives up is free only if it goes: whoever counts on that is tied to it.
                everybody.hold(former, stuck=True)
            continue
        if former is not None:
            everybody.put(former)
        knots.tie([n, *traffic.leavers])


def _covers(new: Claim, old: Claim) -> bool:
    """The new seat takes all that the old one took."""
    less = new.device_bytes < old.device_bytes or new.host_bytes < old.host_bytes
    return set(old.devices) <= set(new.devices) and not less


def _placed(draft: Draft, hosts: Set[HostId]) -> dict[ReplicaId, Assignment]:
    """What the parent says of those who stand on these hosts."""
    parent = draft.world.inputs.parent
    if parent is None or not hosts:
        return {}
    return {a.replica: a for a in parent.placement if a.seat.host in hosts}


def _as_it_was(
    draft: Draft, standing: Sequence[Incumbent], placed: Mapping[ReplicaId, Assignment], host: HostId
) -> HostBoard:
    """The host with every incumbent where the parent put it."""
    board = HostBoard(draft.board.hosts[host].view)
    for claim in draft.board.hosts[host].kept:
        board.hold(claim, stuck=True)
    for incumbent in standing:
        board.put(_claim(draft, incumbent, placed.get(incumbent.former)))
    return board


def _claim(draft: Draft, incumbent: Incumbent, before: Assignment | None) -> Claim:
    """What an incumbent takes where it stood: as is known today, if it goes on as it is.

    Of one that leaves, the parent's word is taken again where its leaving is held back, and that may be more.
    """
    seat, was = draft.seats.get(incumbent.replica), incumbent.assignment
    claim = seat.origin.claim if seat is not None and seat.origin is not None else incumbent.claim
    stays = seat is not None and (seat.assignment.seat, seat.assignment.launch) == (was.seat, was.launch)
    if stays or before is None:
        return claim
    device, beside = max(claim.device_bytes, before.device_bytes), max(claim.host_bytes, before.host_bytes)
    return claim._replace(device_bytes=device, host_bytes=beside)


def _tie_price(knots: _Knots, draft: Draft, targets: Targets, decisions: Sequence[Decision]) -> None:
    """Under a price ceiling, hosts that are newly used may be affordable only because others are given up."""
    ceiling = draft.world.budgets.price
    if ceiling is None:
        return
    held = {i.host for i in (*targets.wanted, *targets.removed)}
    held |= {host for host, board in draft.board.hosts.items() if board.kept and board.is_paid()}
    arrivals = [n for n, d in enumerate(decisions) if d.target is not None and d.target.host not in held]
    hosts = held | {d.target.host for d in decisions if d.target is not None}
    views = draft.world.hosts
    total = sum(views[h].host.price_per_hour_micro or 0 for h in sorted(hosts) if h in views)
    if arrivals and total > ceiling.max_per_hour_micro:
        knots.tie([*arrivals, *(n for n, d in enumerate(decisions) if d.source is not None and _vacates(d))])


def _occupies(decision: Decision) -> bool:
    """It takes room that it does not take yet."""
    return (
        decision.kind in (DecisionKind.PLACE, DecisionKind.MOVE)
        or decision.source != decision.target
        or _restarts(decision)
    )


def _vacates(decision: Decision) -> bool:
    """It gives up room that it takes now."""
    return decision.kind in (DecisionKind.MOVE, DecisionKind.REMOVE) or (
        decision.kind is DecisionKind.CHANGE and (_restarts(decision) or decision.source != decision.target)
    )


def _restarts(decision: Decision) -> bool:
    return any(c.field != "profile" and not is_term(c) for c in decision.changes)
