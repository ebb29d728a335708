"""Whoever was moved for others and need not have been goes back: nobody moves for nothing.

Room is made in several searches. What one of them frees, another may leave empty after all, or give to a newcomer of
the same profile. In the first case the one that stood there stays; in the second it stays, too, and the newcomer takes
the seat that was found for it. Those who went in a circle, each to a place that another one left, go back together if
nobody else needs what they left. Whoever gave way stays, too, if those it gave way to went on elsewhere. Never at the
cost of a count, of company, memory, price or a failure domain. Called by `room` at the end, and by its search for who
finds its seat on the very host that it was to give up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gridops.base.ids import HostId, ProfileName, ReplicaId, replica_key
from gridops.footprint.ledger import Answer, Use, fits
from gridops.model.plan import Cause, CauseKind
from gridops.planner.capacity import admits
from gridops.planner.draft import Draft, Item, Seated
from gridops.planner.host_board import Claim, part_of
from gridops.planner.incumbents import Incumbent, Verdict
from gridops.planner.targets import domain


def send_home(draft: Draft) -> None:
    """Let those who were moved stay where they stood, or where one of their like would come, until nothing changes."""
    gone = {ReplicaId("")}
    while gone:
        moved = sorted((r for r, s in draft.seats.items() if _was_moved(s)), key=replica_key)
        gone = {r for r in moved if _was_moved(draft.seats[r]) and (_return(draft, [r]) or _swaps(draft, r))}
        gone = gone or {r for r in moved if _was_moved(draft.seats[r]) and _return(draft, _circle(draft, r))}


def stay_after_all(draft: Draft, left: Sequence[Item]) -> tuple[Item, ...]:
    """Of those without a seat, let who gave way stay where nobody came after all, or only one of its like. Returns the
    others, and who is without a seat in its stead."""
    others = list[Item]()
    for item in left:
        if not gave_way(item.origin, item.cause):
            others.append(item)
        elif not comes_back(draft, item.origin):
            others.append(_instead_of(draft, item) or item)
    return tuple(others)


def _instead_of(draft: Draft, item: Item) -> Item | None:
    """Nobody gives way to its own like: it stays, the one that was moved to its home takes the seat of one that is new,
    and that one looks for a seat. None where there are no such two, or where its home has no room for it."""
    assert item.origin is not None, "who gave way stood somewhere"
    home, launch, board = item.origin.host, item.origin.launch, draft.board
    alike = sorted((s for s in draft.of(item.profile.name) if s.launch == launch), key=_by_name)
    pinned = {i.replica for i in draft.items if i.pin is not None}
    new = next((s for s in alike if s.origin is None and s.cause and s.assignment.replica not in pinned), None)
    came = next((s for s in alike if _was_moved(s) and s.assignment.seat.host == home), None)
    here = new if new is not None and new.assignment.seat.host == home else came
    if new is None or here is None or (here.origin is not None and here.origin.host == new.assignment.seat.host):
        return None
    name, at = here.assignment.replica, new.assignment.seat.host
    mine, theirs = board.hosts[home].desired[name], board.hosts[at].desired[new.assignment.replica]
    draft.lift(name, comes=True)
    if not comes_back(draft, item.origin):
        board.put(home, mine)
        draft.give(here)
        return None
    if here is not new:
        draft.lift(new.assignment.replica)
        board.put(at, theirs._replace(replica=name))
        draft.give(Seated(replace(new.assignment, replica=name), new.launch, here.origin, here.cause))
    draft.choices = [c for c in draft.choices if c.replica not in (name, new.assignment.replica)]
    assert new.cause is not None, "it is new"
    return Item(new.assignment.replica, item.profile, new.cause)


def _by_name(seated: Seated) -> tuple[object, ...]:
    return replica_key(seated.assignment.replica)


def comes_back(draft: Draft, origin: Incumbent | None) -> bool:
    """Who has no seat stands where it stood, as before, if there is room."""
    if origin is None:
        return False
    mine = origin._replace(verdict=Verdict.STAY, cause=None)
    if not _is_welcome(draft, mine) or _is_too_dear(draft, mine):
        return False
    draft.stay(mine)
    return True


def _is_welcome(draft: Draft, origin: Incumbent) -> bool:
    """Its home has room for it, also while others there that change in place run twice: they did not count on it."""
    board, claim = draft.board.hosts[origin.host], origin.claim
    if not admits(board, claim, draft.world):
        return False
    here = [draft.seats[r] for r in board.desired if r != origin.replica and r in draft.seats]
    for other in here:
        former = other.origin
        if other.dip or other.cause is None or former is None or former.host != origin.host or not former.runs:
            continue
        for room in board.view.rooms:
            mine, twin = part_of(claim, room.id, board.view), part_of(former.claim, room.id, board.view)
            use = board.use(room.id, live=False)
            both = Use(use.all_bytes + twin, use.gpu_bytes + (twin if former.claim.gpu else 0))
            if mine and fits(room, both, mine, gpu=claim.gpu, new=True).answer is not Answer.FITS:
                return False
    return True


def gave_way(origin: Incumbent | None, cause: Cause | None) -> bool:
    """It runs, and lost its place to somebody who matters more."""
    if origin is None or cause is None or not origin.runs:
        return False
    return cause.kind is CauseKind.DISPLACED and origin.verdict is Verdict.RELEASE


def _was_moved(seated: Seated) -> bool:
    origin, cause = seated.origin, seated.cause
    if origin is None or cause is None or origin.only_to is not None:
        return False
    return cause.kind is CauseKind.REBALANCE and origin.verdict is Verdict.LEAVE


def _origin(seated: Seated) -> Incumbent:
    assert seated.origin is not None, "it was moved from somewhere"
    return seated.origin._replace(verdict=Verdict.STAY, cause=None)


def _circle(draft: Draft, replica: ReplicaId) -> list[ReplicaId]:
    """The replica, those who were moved to its home, those who were moved to theirs, and so on."""
    here = dict[HostId, list[ReplicaId]]()
    for name, seated in draft.seats.items():
        if _was_moved(seated):
            here.setdefault(seated.assignment.seat.host, []).append(name)
    found = [replica]
    for name in found:
        found += [r for r in here.get(_origin(draft.seats[name]).host, ()) if r not in found]
    return found


def _return(draft: Draft, group: Sequence[ReplicaId]) -> bool:
    """There is still room at home for all of them, once they have left where they are; else all stay there."""
    seats = [draft.seats[r] for r in group]
    claims = [draft.board.hosts[s.assignment.seat.host].desired[s.assignment.replica] for s in seats]
    origins, profiles = [_origin(s) for s in seats], sorted({s.assignment.profile for s in seats})
    before = [_domains_met(draft, p) for p in profiles]
    for name in group:
        draft.lift(name, comes=True)
    for n, origin in enumerate(origins):
        if not comes_back(draft, origin):
            return _leave_again(draft, seats, claims, n)
    if any(_domains_met(draft, p) < met for p, met in zip(profiles, before, strict=True)):
        return _leave_again(draft, seats, claims, len(seats))
    return True


def _leave_again(draft: Draft, seats: Sequence[Seated], claims: Sequence[Claim], back: int) -> bool:
    """The first so many of them went home in vain: all have the seats again that were found for them."""
    for seated in seats[:back]:
        draft.lift(seated.assignment.replica)
    for seated, claim in zip(seats, claims, strict=True):
        draft.board.put(seated.assignment.seat.host, claim)
        draft.give(seated)
    return False


def _domains_met(draft: Draft, profile: ProfileName) -> int:
    """In how many failure domains it stands, up to as many as it asks for."""
    spread = draft.world.profiles[profile].spread
    if spread is None:
        return 0
    found = {domain(draft.world, s.assignment.seat.host, spread.by) for s in draft.of(profile)} - {None}
    return min(spread.min, len(found))


def _swaps(draft: Draft, replica: ReplicaId) -> bool:
    """One of its like comes to its home: that one takes its seat."""
    seated = draft.seats[replica]
    origin, board, there = _origin(seated), draft.board, seated.assignment.seat.host
    new = [s for s in draft.of(seated.assignment.profile) if s.origin is None and s.cause is not None]
    like = [s for s in new if s.assignment.seat.host == origin.host and s.launch == origin.launch]
    if not like or there == origin.host:
        return False
    newcomer = min(like, key=lambda s: replica_key(s.assignment.replica))
    name = newcomer.assignment.replica
    theirs, claim = board.hosts[origin.host].desired[name], board.hosts[there].desired[replica]
    draft.lift(name)
    if not _is_welcome(draft, origin):
        board.put(origin.host, theirs)
        draft.give(newcomer)
        return False
    draft.lift(replica)
    draft.stay(origin)
    board.put(there, claim._replace(replica=name))
    draft.give(Seated(replace(seated.assignment, replica=name), seated.launch, None, newcomer.cause))
    draft.choices = [c for c in draft.choices if c.replica not in (name, replica)]
    return True


def _is_too_dear(draft: Draft, origin: Incumbent) -> bool:
    """Its home was given up, and is not to be paid again."""
    ceiling, board = draft.world.budgets.price, draft.board.hosts[origin.host]
    return ceiling is not None and not board.is_paid() and bool(board.view.host.price_per_hour_micro)
