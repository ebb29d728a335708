"""Replay, for rows about plans: proposals, targets, applies by people, and what is written of them into git.

Part of `fold`, which calls each by the kind of its row; nothing here decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gridops.base import limits
from gridops.base.ids import ProfileName, ReplicaId, ScopeName
from gridops.base.record import digest_of
from gridops.controller.core import rows as r
from gridops.controller.core.learned import count_again, trim
from gridops.controller.core.state import (
    Apply,
    Failure,
    Proposal,
    ScopeBook,
    State,
    Warrant,
    now_called,
    plan_digest,
    profile_of,
)
from gridops.model.plan import Decision, DecisionKind, Plan
from gridops.model.policy import ActionClass
from gridops.planner.authority import change_sets, displacing
from gridops.protocol.messages import AuthorityKind
from gridops.trust.approved import ApprovedDecision, approved_decisions, ended_processes, leaves_of

APPLIES_KEPT = 20
HOUR_MS = 3_600_000
REJECTED_KEPT = 50
UNNEEDED = "nothing is to be done any more"
"""Why a proposal is closed whose every difference went away by itself."""


def _target_restored(state: State, row: r.TargetRestored, at_ms: int) -> None:
    book = book_of(state, row.plan.scope)
    _remember(state, row.plan)
    book.target, book.target_digest, book.target_ms = row.plan, plan_digest(row.plan), row.applied_ms
    book.restored = row.plan.terms
    book.carried_out = {a.replica: (a.seat, a.launch) for a in row.plan.placement}
    state.written[row.plan.id] = None
    state.results[row.plan.id] = True


def _proposed(state: State, row: r.Proposed, at_ms: int) -> None:
    _remember(state, row.plan)
    book_of(state, row.plan.scope).proposal = Proposal(row.plan, row.cause, at_ms)


def _proposal_closed(state: State, row: r.ProposalClosed, at_ms: int) -> None:
    book = book_of(state, row.scope)
    if book.proposal is not None and book.proposal.plan.id == row.plan:
        if row.why == "rejected" and row.by is not None:
            book.rejected[book.proposal.plan.decisions_digest] = row.by
            trim(book.rejected, REJECTED_KEPT)
        if row.why == UNNEEDED and book.target is not None:
            # What comes and goes by itself is asked less and less often.
            count_again(book, book.target, book.proposal.plan, at_ms)
        book.proposal = None


def _target_set(state: State, row: r.TargetSet, at_ms: int) -> None:
    book, plan = book_of(state, row.plan.scope), row.plan
    _remember(state, plan)
    before = {a.replica for a in book.target.placement} if book.target is not None else set()
    if book.target is not None:
        count_again(book, book.target, plan, at_ms)
    # Whoever said no to these decisions once has been answered by this yes.
    book.rejected.pop(plan.decisions_digest, None)
    book.target, book.target_digest, book.target_ms = plan, plan_digest(plan), at_ms
    # A warrant outlives the target it came with as long as its replica is still meant, or still going.
    stay = before | {a.replica for a in plan.placement} | {d.replica for d in plan.to_do}
    book.warrants = {k: w for k, w in book.warrants.items() if k in stay or at_ms < w.until_ms}
    book.ends = {k: w for k, w in book.ends.items() if at_ms < w.until_ms}
    sets = change_sets(plan.to_do)
    shown = approved_decisions(plan) if row.kind is AuthorityKind.APPROVAL else (None,) * len(plan.to_do)
    for decision, one in zip(plan.to_do, shown, strict=True):
        warrant = replace(_warrant(row, book, decision, displacing(sets[decision.change_set])), decision=one)
        beside = ended_processes(decision)
        if beside:
            book.ends |= dict.fromkeys(beside, warrant)
        else:
            book.warrants[decision.replica] = warrant
        book.retry.add(decision.replica)
    _plant(book, tuple(one for one in shown if one is not None))
    meant = {a.replica for a in plan.placement}
    book.retry &= meant
    book.again = {k: streak for k, streak in book.again.items() if k in meant}
    book.carried_out = {k: done for k, done in book.carried_out.items() if k in meant}
    moves = sum(1 for d in plan.to_do if d.kind is DecisionKind.MOVE and d.action_class is not ActionClass.REPAIR)
    book.moves = [at for at in book.moves if at_ms - at < HOUR_MS] + [at_ms] * moves
    if row.kind is AuthorityKind.APPROVAL:
        running = book.under_way  # asked once: it is under way only as long as it has no outcome
        if running is not None:
            running.outcome, running.ended_ms = "superseded", at_ms
        book.applies.append(Apply(plan, row.by, row.approvers, at_ms, at_ms, row.approvals, row.proposal))
        del book.applies[:-APPLIES_KEPT]
        return
    book.batch.plans.append(plan.id)
    book.batch.since_ms = book.batch.since_ms or at_ms
    book.batch.repair = book.batch.repair or any(d.action_class is ActionClass.REPAIR for d in plan.to_do)
    del book.batch.plans[: -limits.PLANS_IN_MEMORY]


def _plant(book: ScopeBook, decisions: tuple[ApprovedDecision, ...]) -> None:
    """Keep the tree of the plan that is now in force, and of each that a warrant still rests on."""
    if decisions and book.target_digest is not None:
        book.leaves[book.target_digest] = leaves_of(decisions)
    named = {w.plan for w in (*book.warrants.values(), *book.ends.values()) if w.decision is not None}
    book.leaves = {plan: leaves for plan, leaves in book.leaves.items() if plan in named}


def _apply_ended(state: State, row: r.ApplyEnded, at_ms: int) -> None:
    apply = book_of(state, row.scope).under_way
    if apply is not None and row.plan in apply.names:
        apply.outcome, apply.ended_ms = row.outcome, at_ms
        for one in row.gave_up:
            apply.failures[one.replica] = Failure(one.host, one.kind, one.outcome, None, one.detail, at_ms)


def _resumed(state: State, row: r.Resumed, at_ms: int) -> None:
    book = book_of(state, row.scope)
    if not book.applies:
        return
    apply = book.applies[-1]
    for replica, failure in apply.failures.items():
        host, profile = state.hosts.get(failure.host), profile_of(now_called(apply.plan, replica))
        # Nobody asked to try anything else again: other profiles on that host go on waiting.
        for key in list(host.attempts) if host is not None else ():
            if host is not None and _called(apply.plan, key[1]) == profile:
                del host.attempts[key]
    book.retry.update(apply.failures)
    apply.failures.clear()
    apply.outcome, apply.ended_ms, apply.moved_ms, apply.written = None, None, at_ms, False


def _unlocked(state: State, row: r.Unlocked, at_ms: int) -> None:
    apply = book_of(state, row.scope).under_way
    if apply is not None:
        apply.outcome, apply.ended_ms = "unlocked", at_ms


def _plan_written(state: State, row: r.PlanWritten, at_ms: int) -> None:
    state.written[row.plan] = row.commit
    trim(state.written, limits.PLANS_IN_MEMORY)
    if row.batch:
        batch = book_of(state, row.scope).batch
        batch.plans.clear()
        batch.since_ms, batch.repair, batch.written_ms = 0, False, at_ms


def _result_written(state: State, row: r.ResultWritten, at_ms: int) -> None:
    state.results[row.plan] = row.final
    trim(state.results, limits.PLANS_IN_MEMORY)
    for apply in book_of(state, row.scope).applies:
        if row.final and row.plan in apply.names:
            apply.written = True


def book_of(state: State, scope: ScopeName) -> ScopeBook:
    return state.scopes.setdefault(scope, ScopeBook())


def _remember(state: State, plan: Plan) -> None:
    state.plans.pop(plan.id, None)
    state.plans[plan.id] = plan
    trim(state.plans, limits.PLANS_IN_MEMORY)


def _warrant(row: r.TargetSet, book: ScopeBook, decision: Decision, displaced: tuple[ProfileName, ...]) -> Warrant:
    return Warrant(
        kind=row.kind,
        plan=book.target_digest or digest_of(row.plan),
        action_class=decision.action_class,
        until_ms=row.until_ms,
        approvals=row.approvals,
        last_replica=decision.last_replica and decision.profile in row.last_replicas,
        displacing=displaced,
    )


def moved(state: State, scope: ScopeName, replica: ReplicaId, at_ms: int) -> None:
    apply = book_of(state, scope).under_way
    if apply is not None and is_of(apply.plan, replica):
        apply.moved_ms = at_ms


def _called(plan: Plan, profile: ProfileName) -> ProfileName:
    """A profile by the name that a plan has for it."""
    return profile_of(now_called(plan, ReplicaId(f"{profile}/1")))


def is_of(plan: Plan, replica: ReplicaId) -> bool:
    now = now_called(plan, replica)
    return any(now_called(plan, d.replica) == now and d.kind is not DecisionKind.CANNOT_PLACE for d in plan.decisions)


STEPS: dict[type[Any], Callable[[State, Any, int], None]] = {
    r.TargetRestored: _target_restored,
    r.Proposed: _proposed,
    r.ProposalClosed: _proposal_closed,
    r.TargetSet: _target_set,
    r.ApplyEnded: _apply_ended,
    r.Resumed: _resumed,
    r.Unlocked: _unlocked,
    r.PlanWritten: _plan_written,
    r.ResultWritten: _result_written,
}
