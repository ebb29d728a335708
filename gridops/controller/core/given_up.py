"""What nobody starts again by itself: replicas of the target that are down, and that need a new decision.

A host gives a process up when its restart policy is used up; the authority of a plan ends after a day; a process is
drained by a plan that another one takes back. Then nothing differs from the target, so no comparison of plans would
ever say it: this does, and the planner makes a decision of it that people see and approve, or that automatic mode
carries out. `propose` asks it for every plan and every look at whether a plan is needed. It must never name what is
being started, what is silent, what may be ended and then started, or what nobody can vouch for; and what was started
again just now waits longer each time, by a streak that a restart does not forget.
"""

from __future__ import annotations

from collections.abc import Mapping

from gridops.base.ids import ProfileName, ReplicaId, short
from gridops.base.units import counted
from gridops.controller.core.observe import fresh, unseen_success
from gridops.controller.core.parted import parted
from gridops.controller.core.reconcile import PATIENCE_MS
from gridops.controller.core.rights import Rights, may_end, may_start
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Soft
from gridops.controller.core.state import Attempt, HostBook
from gridops.model.action import Unload
from gridops.model.plan import Assignment, Cause, CauseKind, Change
from gridops.model.snapshot import LIVE_STATES, HostReport, Ownership, Residency, ResidencyState
from gridops.planner.world import GivenUp
from gridops.protocol import outbox as ob

AGAIN = "started again"
DOWN = (ResidencyState.FAILED, ResidencyState.DRAINING)
"""What does not serve on its seat, and will not by itself."""


def given_up(rights: Rights, soft: Soft, roster: Roster) -> tuple[GivenUp, ...]:
    """Replicas of the scope's target that stay down unless somebody decides otherwise, in the target's order."""
    book = rights.book
    if book.target is None:
        return ()
    going = _under_way(rights)
    found: list[GivenUp] = []
    for a in book.target.placement:
        host = a.seat.host
        held, heard = rights.state.hosts.get(host), soft.hosts.get(host)
        if held is None or heard is None or a.replica in going or not fresh(soft, roster, host, rights.now_ms):
            continue
        here = _here(rights, heard.report, a)
        if any(r.state not in DOWN for r in here) or _unseen(rights, soft, held, a):
            continue
        leaving = [r for r in here if r.state is ResidencyState.DRAINING]
        if leaving and all(_goes(rights, heard.report, r) for r in leaving):
            continue
        failed = next((r for r in here if r in leaving or a.replica not in book.retry), None)
        if (failed is None and may_start(rights, a) is None) or _too_soon(rights, a.replica):
            continue
        found.append(GivenUp(a.replica, *_words(rights, held, a, next(iter(leaving or here), None))))
    return tuple(found)


def _goes(rights: Rights, report: HostReport, r: Residency) -> bool:
    """It is on its way out, and may be ended: what takes its place starts then."""
    if r.replica is None or r.incarnation is None:
        return False
    end = Unload(host=report.host, replica=r.replica, profile=r.profile, incarnation=r.incarnation)
    return may_end(rights, end, report) is None


def _under_way(rights: Rights) -> frozenset[ReplicaId]:
    return frozenset(
        rights.now_called(entry.body.action.replica)
        for host, held in sorted(rights.state.hosts.items())
        for entry in ob.open_entries(held.outbox)
        if entry.body.scope == rights.scope and not parted(rights.state, host)
    )


def _here(rights: Rights, report: HostReport, a: Assignment) -> list[Residency]:
    """Processes of the replica on its seat, whatever became of them."""
    return [
        r
        for r in report.residencies
        if r.ownership is Ownership.MANAGED and r.state in LIVE_STATES and r.replica is not None
        if rights.now_called(r.replica) == a.replica and r.identity == a.launch
    ]


def _unseen(rights: Rights, soft: Soft, held: HostBook, a: Assignment) -> bool:
    unseen = unseen_success(held, soft, a.seat.host, rights.now_ms, PATIENCE_MS)
    return a.replica in {rights.now_called(name) for name in unseen}


def _too_soon(rights: Rights, replica: ReplicaId) -> bool:
    """It was started again, or came back by itself, a short while ago."""
    return rights.now_ms < rights.book.again.get(replica, Attempt()).wait_until_ms


def _words(rights: Rights, held: HostBook, a: Assignment, failed: Residency | None) -> tuple[Cause, Change]:
    """Why, in words, and what became of the process: its incarnation tells one failure from the next."""
    host = a.seat.host
    if failed is not None and failed.state is ResidencyState.DRAINING:
        detail = f"restart on {host}: it was drained there, and nobody may end it any more"
        return Cause(kind=CauseKind.UNHEALTHY, detail=detail), Change(field="process", old=_which(failed), new=AGAIN)
    if failed is not None:
        times = f"{failed.restarts + 1} times" if failed.restarts else "once"
        detail = f"restart on {host}: failed {times}, last: {failed.detail or 'no reason given'}"
        return Cause(kind=CauseKind.UNHEALTHY, detail=detail), Change(field="process", old=_which(failed), new=AGAIN)
    tried = _tried(held.attempts, a)
    if rights.book.carried_out.get(a.replica) == (a.seat, a.launch):
        detail = f"restart on {host}: nothing of it runs there any more, and nobody may start it by itself{tried}"
        return Cause(kind=CauseKind.UNHEALTHY, detail=detail), Change(field="process", old="gone", new=AGAIN)
    detail = f"start on {host}: it was decided and never done, and the authority for it has ended{tried}"
    return Cause(kind=CauseKind.INTENT, detail=detail), Change(field="process", old="never started", new=AGAIN)


def _which(r: Residency) -> str:
    return f"{r.state.value} {short(r.incarnation)}" if r.incarnation is not None else r.state.value


def _tried(attempts: Mapping[tuple[str, ProfileName], Attempt], a: Assignment) -> str:
    for kind in ("warm", "load"):
        tried = attempts.get((kind, a.profile))
        if tried is not None and tried.failures:
            return f"; {kind} failed {counted(tried.failures, 'time')}, last: {tried.code or 'no code'}"
    return ""
