"""Why replicas stand where they stand: the winner, the best other host and both by term, on the finished draft.

`recorded` is called for every plan and keeps what `place` compared, as far as that still is what happened. `choice_of`
is called by `explain` for one replica and compares anew: its seat against all others, beside everything else that the
plan has. It takes the replica from the board and puts it back, so that the draft says the same afterwards.
"""

from __future__ import annotations

from gridops.base.ids import HostId, ReplicaId, replica_key
from gridops.model.plan import Cause, CauseKind, Choice, ChosenBy
from gridops.planner.draft import Draft, Item, Seated
from gridops.planner.rank import Rank, side_by_side
from gridops.planner.seats import Found, Seats

CONFIG = Rank._fields.index("config")
"""Where a choice that has terms says which config was compared."""

_ANY = Cause(kind=CauseKind.INTENT, detail="is asked for")


def recorded(draft: Draft) -> tuple[Choice, ...]:
    """What was compared for those who sit where it led, and not for whom others were seated together with later."""
    last = {c.replica: c for c in draft.choices}
    return tuple(last[r] for r in sorted(last, key=replica_key) if _stands(draft, last[r]))


def choice_of(seats: Seats, replica: ReplicaId) -> Choice | None:
    """The comparison for one replica of the finished draft; None for one without a seat or a declared profile."""
    draft = seats.draft
    seated = draft.seats.get(replica)
    if seated is None or seated.assignment.profile not in draft.world.profiles:
        return None
    known = next((c for c in reversed(draft.choices) if c.replica == replica), None)
    if known is not None and _stands(draft, known):
        return known
    host = seated.assignment.seat.host
    if host not in draft.board.hosts or (seated.origin is not None and seated.origin.host == host):
        return _of_standing(seats, seated)
    if any(r.replica == replica for r in draft.board.hosts[host].view.stuck):
        return _of_standing(seats, seated)
    return _of_new(seats, seated)


def _stands(draft: Draft, choice: Choice) -> bool:
    """It sits where this comparison led, in the config that was compared."""
    seated = draft.seats.get(choice.replica)
    if seated is None or seated.assignment.seat.host != choice.host:
        return False
    profile = draft.world.profiles[seated.assignment.profile]
    return bool(choice.terms) and profile.configs[choice.terms[CONFIG].winner].name == seated.launch.config


def _of_standing(seats: Seats, seated: Seated) -> Choice:
    """It stands there and nobody asked whether another host would be better; this does."""
    profile, origin = seats.draft.world.profiles[seated.assignment.profile], seated.origin
    if origin is None:
        return Choice(replica=seated.assignment.replica, host=seated.assignment.seat.host, terms=(), fits=1)
    away = Item(origin.replica, profile, _ANY, origin._replace(here_again=False))
    here = Item(origin.replica, profile, _ANY, origin._replace(here_again=True, ready=False), pin=origin.host)
    own, other = seats.find(here), seats.find(away)
    return _choice(seated, own, other, ChosenBy.STAYS)


def _of_new(seats: Seats, seated: Seated) -> Choice:
    """It was seated together with others. Would another host have been better for itself alone?"""
    draft, assignment = seats.draft, seated.assignment
    host, replica = assignment.seat.host, assignment.replica
    profile, claim = draft.world.profiles[assignment.profile], draft.board.hosts[host].desired[replica]
    draft.lift(replica)
    item = Item(replica, profile, _ANY, seated.origin)
    own, found = seats.find(item._replace(pin=host)), seats.find(item)
    draft.board.put(host, claim)
    draft.give(seated)
    return _choice(seated, own, found, ChosenBy.TOGETHER)


def _choice(seated: Seated, own: Found | None, found: Found | None, by: ChosenBy) -> Choice:
    """`by` is said for who stays, and where the other host is the better one."""
    host = seated.assignment.seat.host
    other = _other(found, host)
    mine = None if own is None else own.best.rank
    won = mine is not None and (other is None or (mine, host) < other)
    hosts = found.hosts if found is not None else 0
    return Choice(
        replica=seated.assignment.replica,
        host=host,
        runner_up=None if other is None else other[1],
        terms=() if mine is None else side_by_side(mine, None if other is None else other[0]),
        fits=max(1, hosts + int(by is ChosenBy.STAYS)),
        by=None if won and by is ChosenBy.TOGETHER else by,
    )


def _other(found: Found | None, host: HostId) -> tuple[Rank, HostId] | None:
    """The best that is not this host."""
    if found is None:
        return None
    return found.second if found.best.host == host else (found.best.rank, found.best.host)
