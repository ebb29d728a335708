"""Whoever was moved for others and need not have been goes back: nobody moves for nothing.

Room is made in several searches. What one of them frees, another may leave empty after all, or give to a newcomer of
the same profile. In the first case the one that stood there stays; in the second it stays, too, and the newcomer takes
the seat that was found for it. Never at the cost of a count, of company, memory, price or a failure domain. Called by
`room` at the end.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base.ids import ReplicaId, replica_key
from gridops.model.plan import CauseKind
from gridops.planner.capacity import admits
from gridops.planner.draft import Draft, Seated
from gridops.planner.incumbents import Incumbent, Verdict
from gridops.planner.targets import domain


def send_home(draft: Draft) -> None:
    """Let those who were moved stay where they stood, or where one of their like would come, until nothing changes."""
    gone = {ReplicaId("")}
    while gone:
        moved = sorted((r for r, s in draft.seats.items() if _was_moved(s)), key=replica_key)
        gone = {r for r in moved if _returns(draft, r) or _swaps(draft, r)}


def _was_moved(seated: Seated) -> bool:
    origin, cause = seated.origin, seated.cause
    if origin is None or cause is None or cause.kind is not CauseKind.REBALANCE or origin.only_to is not None:
        return False
    return origin.verdict is Verdict.LEAVE


def _origin(seated: Seated) -> Incumbent:
    assert seated.origin is not None, "it was moved from somewhere"
    return seated.origin._replace(verdict=Verdict.STAY, cause=None)


def _returns(draft: Draft, replica: ReplicaId) -> bool:
    """There is still room at home."""
    seated = draft.seats[replica]
    origin, board, there = _origin(seated), draft.board, seated.assignment.seat.host
    if _spreads(draft, seated):
        return False
    claim = board.hosts[there].desired[replica]
    draft.lift(replica, comes=True)
    if not admits(board.hosts[origin.host], origin.claim, draft.world) or _is_too_dear(draft, origin):
        board.put(there, claim)
        draft.give(seated)
        return False
    draft.stay(origin)
    return True


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
    if not admits(board.hosts[origin.host], origin.claim, draft.world):
        board.put(origin.host, theirs)
        draft.give(newcomer)
        return False
    draft.lift(replica)
    draft.stay(origin)
    board.put(there, claim._replace(replica=name))
    draft.give(Seated(replace(seated.assignment, replica=name), seated.launch, None, newcomer.cause))
    draft.choices = [c for c in draft.choices if c.replica not in (name, replica)]
    return True


def _spreads(draft: Draft, seated: Seated) -> bool:
    """Its profile would stand in fewer failure domains if it went home, and asks for as many."""
    a, origin = seated.assignment, _origin(seated)
    spread = draft.world.profiles[a.profile].spread
    if spread is None:
        return False
    others = {domain(draft.world, s.assignment.seat.host, spread.by) for s in draft.of(a.profile) if s is not seated}
    here, home = domain(draft.world, a.seat.host, spread.by), domain(draft.world, origin.host, spread.by)
    return len((others | {home}) - {None}) < min(spread.min, len((others | {here}) - {None}))


def _is_too_dear(draft: Draft, origin: Incumbent) -> bool:
    """Its home was given up, and is not to be paid again."""
    ceiling, board = draft.world.budgets.price, draft.board.hosts[origin.host]
    return ceiling is not None and not board.is_paid() and bool(board.view.host.price_per_hour_micro)
