"""How far an apply is, decision by decision, and when it is over.

Computed after the rows of a pass were folded, so that what the pass queued counts as running.

A decision is done when nothing remains to be done for its replica: no step, no command under way, no success that the
host has yet to show. That is the same computation that makes the commands, so the two cannot disagree. Called after
each pass and by the status view.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gridops.base.ids import HostId
from gridops.controller.core import rows as r
from gridops.controller.core.given_up import given_up
from gridops.controller.core.observe import fresh, unseen_success
from gridops.controller.core.parted import parted
from gridops.controller.core.reconcile import PATIENCE_MS, Outcome
from gridops.controller.core.rights import Rights, may_end
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Soft
from gridops.controller.core.state import Apply, Failure, ScopeBook
from gridops.model.action import Action, Drain, Unload
from gridops.model.plan import Decision, DecisionKind
from gridops.planner.actions import Step
from gridops.planner.world import GivenUp
from gridops.protocol import outbox as ob
from gridops.trust.approved import ended_processes, process_name

LOCK_IDLE_MS = 900_000
"""An apply for which nothing moved for so long is dead: its lock expires. Longer than any single load is quiet,
because each receipt counts as movement; a transfer that takes longer than this holds no lock, only its own command."""
_PHASES = {"load": "copying", "warm": "starting", "drain": "draining", "unload": "stopping", "operate": "changing"}


class StepState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """One decision of an apply."""

    decision: Decision
    state: StepState
    phase: str
    host: HostId | None
    failure: Failure | None = None


def progress(apply: Apply, rights: Rights, view: tuple[Soft, Roster], outcome: Outcome) -> tuple[Progress, ...]:
    """Every decision of an apply that does something, in order."""
    down = {g.replica: g for g in given_up(rights, *view)}
    found = []
    for decision in apply.plan.decisions:
        if decision.kind is DecisionKind.CANNOT_PLACE:
            continue
        lost = down.get(rights.now_called(decision.replica))
        found.append(_one(decision, apply, rights, view, outcome) if lost is None else _lost(decision, apply, lost))
    return tuple(found)


def settled(book: ScopeBook, lines: tuple[Progress, ...] | None) -> bool:
    """Nothing more is to be told of the newest apply of a scope. One whose lock went while something was under way is
    followed as long as its plan is in force: what runs on ends, and nobody is told for ever that it runs."""
    apply = book.applies[-1]
    if apply.outcome is None or lines is None:
        return False
    open_still = any(line.state in (StepState.RUNNING, StepState.WAITING) for line in lines)
    return not (open_still and book.target is not None and book.target.id == apply.plan.id)


def ended(apply: Apply, rights: Rights, lines: tuple[Progress, ...]) -> r.ApplyEnded | None:
    """The row that ends an apply, if it is over. A failure ends it once nothing else of it is moving."""
    states = [line.state for line in lines]
    over: str | None = None
    if all(s is StepState.DONE for s in states):
        over = "done"
    elif StepState.FAILED in states and StepState.RUNNING not in states:
        over = "failed"
    elif rights.now_ms - apply.moved_ms >= LOCK_IDLE_MS:
        over = "expired"
    if over is None:
        return None
    return r.ApplyEnded(scope=rights.scope, plan=apply.plan.id, outcome=over, gave_up=_gave_up(lines, apply))


def _lost(decision: Decision, apply: Apply, lost: GivenUp) -> Progress:
    """Nobody starts it by itself any more: waiting would hold the lock for nothing."""
    host = _place(decision)
    known = apply.failures.get(decision.replica)
    if known is None and host is not None:
        known = Failure(host, "start", "given up", None, lost.cause.detail, apply.moved_ms)
    return Progress(decision, StepState.FAILED, "given up", host, known)


def _nowhere(decision: Decision, apply: Apply, host: HostId) -> Progress:
    """Where it was to stand is no host of ours any more: whatever waits for it there would wait for ever."""
    lost = Failure(host, "start", "given up", None, f"{host} was taken out of the fleet or written off", apply.moved_ms)
    return Progress(decision, StepState.FAILED, "given up", host, lost)


def _gave_up(lines: tuple[Progress, ...], apply: Apply) -> tuple[r.GaveUp, ...]:
    """What failed without a command that did: not among the failures of the apply yet."""
    return tuple(
        r.GaveUp(
            replica=line.decision.replica,
            host=line.failure.host,
            kind=line.failure.kind,
            outcome=line.failure.outcome,
            detail=line.failure.detail or "",
        )
        for line in lines
        if line.state is StepState.FAILED and line.failure is not None and line.decision.replica not in apply.failures
    )


def _one(decision: Decision, apply: Apply, rights: Rights, view: tuple[Soft, Roster], outcome: Outcome) -> Progress:
    replica = rights.now_called(decision.replica)
    going = _under_way(rights, decision)
    failure = apply.failures.get(decision.replica) or apply.failures.get(replica)
    if going is not None:
        return Progress(decision, StepState.RUNNING, _PHASES[going.body.action.kind], going.body.host)
    if failure is not None:
        return Progress(decision, StepState.FAILED, f"{failure.kind} {failure.outcome}", failure.host, failure)
    if decision.target is not None and parted(rights.state, decision.target.host):
        return _nowhere(decision, apply, decision.target.host)
    rest = [s for s in outcome.steps if _is_of(rights, decision, s.action)]
    if rest and (gone := _never_comes(rest[0], apply, rights)) is not None:
        return _nowhere(decision, apply, gone)
    action = rest[0].action if rest else None
    no = may_end(rights, action, view[0].report(action.host)) if isinstance(action, Drain | Unload) else None
    if action is not None and no is not None:
        # The plan in force is not the one that people applied any more, and nobody may go on with it by itself.
        halted = Failure(action.host, action.kind, "refused", None, no.detail, apply.moved_ms)
        return Progress(decision, StepState.FAILED, f"{action.kind} refused", action.host, halted)
    if rest and (why := _hopeless(rest[0], rights, view, outcome)) is not None:
        kept = Failure(rest[0].action.host, rest[0].action.kind, "refused", None, why, apply.moved_ms)
        return Progress(decision, StepState.FAILED, f"{kept.kind} refused", kept.host, kept)
    if rest:
        return Progress(decision, StepState.WAITING, _why(rest[0], outcome), rest[0].action.host)
    host = _place(decision)
    silent = _unsettled(decision, rights, view)
    if silent is not None:
        return Progress(decision, StepState.WAITING, silent, host)
    return Progress(decision, StepState.DONE, "stopped" if decision.kind is DecisionKind.REMOVE else "ready", host)


def _never_comes(step: Step, apply: Apply, rights: Rights) -> HostId | None:
    """Where the one that an end waits for was to stand, if that is no host of ours any more: nobody ever serves there,
    and the end would wait for it until the lock is dead."""
    if not isinstance(step.action, Drain) or step.waits_for is None:
        return None
    profile = rights.now_called(step.replica).rpartition("/")[0]
    seats = (a.seat.host for a in apply.plan.placement if a.profile == profile)
    return next((host for host in seats if parted(rights.state, host)), None)


def _hopeless(step: Step, rights: Rights, view: tuple[Soft, Roster], outcome: Outcome) -> str | None:
    """Why a start waits for room that never comes by this plan: nobody may end any of those who hold it, beside its
    own former self, which waits for the start. Where the reconciler decides by itself it will be decided, so there it
    waits."""
    if not step.room or rights.permitted.automatic:
        return None
    host = step.action.host
    book = rights.state.hosts.get(host)
    if book is None or any(ob.open_entries(book.outbox)):
        return None
    refused = [
        may_end(rights, s.action, view[0].report(host))
        for s in outcome.steps
        if s.action.host == host and isinstance(s.action, Drain | Unload)
        if s.replica != step.replica or s.waits_for is None
    ]
    whys = [no.detail for no in refused if no is not None]
    return f"{step.waits_for}; {whys[0]}" if whys and len(whys) == len(refused) else None


def _is_of(rights: Rights, decision: Decision, action: Action) -> bool:
    """A command carries a decision out: it is about the same replica, as the target calls it, whatever its host calls
    it; or about the very processes that the decision ends beside the target."""
    beside = ended_processes(decision)
    if beside:
        return isinstance(action, Drain | Unload) and process_name(action.host, action.incarnation) in beside
    return rights.now_called(action.replica) == rights.now_called(decision.replica)


def _under_way(rights: Rights, decision: Decision) -> ob.Entry | None:
    """The open command that carries a decision out, on a host that may still answer."""
    for host, book in sorted(rights.state.hosts.items()):
        for entry in ob.open_entries(book.outbox):
            mine = entry.body.scope == rights.scope and _is_of(rights, decision, entry.body.action)
            if mine and not parted(rights.state, host):
                return entry
    return None


def _unsettled(decision: Decision, rights: Rights, view: tuple[Soft, Roster]) -> str | None:
    """Why nothing can be concluded yet from what the hosts of this decision report."""
    soft, roster = view
    replica = rights.now_called(decision.replica)
    for seat in (decision.source, decision.target):
        if seat is None or roster.admitted(seat.host) is None:
            continue
        book = rights.state.hosts.get(seat.host)
        gone = book is not None and book.written_off_ms is not None
        if seat.host == _place(decision) and not gone and not fresh(soft, roster, seat.host, rights.now_ms):
            return f"{seat.host} is silent"
        unseen = unseen_success(book, soft, seat.host, rights.now_ms, PATIENCE_MS) if book is not None else frozenset()
        if replica in {rights.now_called(name) for name in unseen}:
            return f"{seat.host} has not yet reported it"
    return None


def _why(step: Step, outcome: Outcome) -> str:
    mine = (line for line in outcome.held if line.startswith(f"{step.replica}:"))
    return next(mine, step.waits_for or "next in line")


def _place(decision: Decision) -> HostId | None:
    seat = decision.target or decision.source
    return seat.host if seat is not None else None
