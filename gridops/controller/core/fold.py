"""Replay: how each kind of row changes the state. One function per kind, found by type; nothing here decides.

Called for every row of the journal at start and for every new row by `writer`. A function must depend on nothing but
the state, the row and the row's own time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gridops.base import limits
from gridops.base.errors import Bug
from gridops.base.ids import ProfileName, ReplicaId, ScopeName
from gridops.base.record import digest_of
from gridops.controller.core import rows as r
from gridops.controller.core.learned import count_again, counts, failed, learn_terms, trim
from gridops.controller.core.lessons import learn
from gridops.controller.core.state import (
    Accepted,
    Apply,
    Attempt,
    Failure,
    Freeze,
    HostBook,
    Invite,
    Pending,
    Proposal,
    Refused,
    ScopeBook,
    StandingAlarm,
    State,
    Success,
    Warrant,
    now_called,
    plan_digest,
    profile_of,
)
from gridops.footprint.need import identity
from gridops.model.action import Warm
from gridops.model.plan import Decision, DecisionKind, Plan, Seat
from gridops.model.policy import ActionClass
from gridops.planner.authority import change_sets, displacing
from gridops.protocol import outbox as ob
from gridops.protocol.messages import AuthorityKind, Outcome, Term

APPLIES_KEPT = 20
HOUR_MS = 3_600_000
REJECTED_KEPT = 50
UNNEEDED = "nothing is to be done any more"
"""Why a proposal is closed whose every difference went away by itself."""


def fold(state: State, row: r.Row, at_ms: int, term: Term) -> None:
    """Let one row have happened."""
    state.term = term
    step = _STEPS.get(type(row))
    if step is None:
        raise Bug(f"no fold for a row of kind {type(row).__name__}")
    step(state, row, at_ms)


def _started(state: State, row: r.Started, at_ms: int) -> None:
    state.starts += 1


def _clock_leapt(state: State, row: r.ClockLeapt, at_ms: int) -> None:
    """Its time is all there is to it."""


def _rebuilt(state: State, row: r.Rebuilt, at_ms: int) -> None:
    state.rebuilt_ms = at_ms
    state.distrust = None


def _target_restored(state: State, row: r.TargetRestored, at_ms: int) -> None:
    book = _book(state, row.plan.scope)
    _remember(state, row.plan)
    book.target, book.target_digest, book.target_ms = row.plan, plan_digest(row.plan), row.applied_ms
    book.restored = row.plan.terms
    book.carried_out = {a.replica: (a.seat, a.launch) for a in row.plan.placement}
    state.written[row.plan.id] = None
    state.results[row.plan.id] = True


def _distrusted(state: State, row: r.Distrusted, at_ms: int) -> None:
    state.distrust = row.reason


def _root_taken(state: State, row: r.RootTaken, at_ms: int) -> None:
    state.roots.append(row.text)


def _intent_accepted(state: State, row: r.IntentAccepted, at_ms: int) -> None:
    desired = row.desired
    if desired is None:
        if state.accepted is None:
            raise Bug("a commit means the same as the one before it, and there is none")
        desired = state.accepted.desired
    else:
        # People ask for something else now: what was answered with no before may be asked again.
        for book in state.scopes.values():
            book.rejected.clear()
    state.accepted = Accepted(row.commit, row.subject, desired, at_ms, row.mode_missing)
    state.refused = None
    if not row.mode_missing:
        state.last_mode = desired.mode


def _intent_refused(state: State, row: r.IntentRefused, at_ms: int) -> None:
    state.refused = Refused(row.commit, row.subject, row.problems, row.count, row.mode, row.drains, at_ms)


def _proposed(state: State, row: r.Proposed, at_ms: int) -> None:
    _remember(state, row.plan)
    _book(state, row.plan.scope).proposal = Proposal(row.plan, row.cause, at_ms)


def _proposal_closed(state: State, row: r.ProposalClosed, at_ms: int) -> None:
    book = _book(state, row.scope)
    if book.proposal is not None and book.proposal.plan.id == row.plan:
        if row.why == "rejected" and row.by is not None:
            book.rejected[book.proposal.plan.decisions_digest] = row.by
            trim(book.rejected, REJECTED_KEPT)
        if row.why == UNNEEDED and book.target is not None:
            # What comes and goes by itself is asked less and less often.
            count_again(book, book.target, book.proposal.plan, at_ms)
        book.proposal = None


def _target_set(state: State, row: r.TargetSet, at_ms: int) -> None:
    book, plan = _book(state, row.plan.scope), row.plan
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
    sets = change_sets(plan.to_do)
    for decision in plan.to_do:
        book.warrants[decision.replica] = _warrant(row, book, decision, displacing(sets[decision.change_set]))
        book.retry.add(decision.replica)
    meant = {a.replica for a in plan.placement}
    book.retry &= meant
    book.again = {k: streak for k, streak in book.again.items() if k in meant}
    book.carried_out = {k: done for k, done in book.carried_out.items() if k in meant}
    moves = sum(1 for d in plan.to_do if d.kind is DecisionKind.MOVE and d.action_class is not ActionClass.REPAIR)
    book.moves = [at for at in book.moves if at_ms - at < HOUR_MS] + [at_ms] * moves
    if row.kind is AuthorityKind.APPROVAL:
        if book.under_way is not None:
            book.under_way.outcome, book.under_way.ended_ms = "superseded", at_ms
        book.applies.append(Apply(plan, row.by, row.approvers, at_ms, at_ms, row.approvals, row.proposal))
        del book.applies[:-APPLIES_KEPT]
        return
    book.batch.plans.append(plan.id)
    book.batch.since_ms = book.batch.since_ms or at_ms
    book.batch.repair = book.batch.repair or any(d.action_class is ActionClass.REPAIR for d in plan.to_do)
    del book.batch.plans[: -limits.PLANS_IN_MEMORY]


def _apply_ended(state: State, row: r.ApplyEnded, at_ms: int) -> None:
    apply = _book(state, row.scope).under_way
    if apply is not None and row.plan in apply.names:
        apply.outcome, apply.ended_ms = row.outcome, at_ms


def _resumed(state: State, row: r.Resumed, at_ms: int) -> None:
    book = _book(state, row.scope)
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
    apply = _book(state, row.scope).under_way
    if apply is not None:
        apply.outcome, apply.ended_ms = "unlocked", at_ms


def _host_seen(state: State, row: r.HostSeen, at_ms: int) -> None:
    state.hosts[row.host] = HostBook(ob.new_outbox(row.fleet, row.host, row.host_key), at_ms)
    state.pending.pop(row.host, None)
    # A new key is a new counterparty: what stopped the old one says nothing about it.
    for key in [k for k in state.alarms if k.endswith(f":{row.host}")]:
        del state.alarms[key]


def _head_seen(state: State, row: r.HeadSeen, at_ms: int) -> None:
    book = state.hosts[row.host]
    book.outbox = ob.mark_delivered(replace(book.outbox, obeyed=row.obeyed), row.seq)


def _outbox_set(state: State, row: r.OutboxSet, at_ms: int) -> None:
    state.hosts[row.outbox.host].outbox = ob.clear_alarms(row.outbox)


def _term_seen(state: State, row: r.TermSeen, at_ms: int) -> None:
    state.floor = max(state.floor, row.counter)


def _body_queued(state: State, row: r.BodyQueued, at_ms: int) -> None:
    book = state.hosts[row.body.host]
    book.outbox = ob.adopt_body(book.outbox, row.body, row.authority, at_ms)
    _moved(state, row.body.scope, row.body.action.replica, at_ms)


def _body_voided(state: State, row: r.BodyVoided, at_ms: int) -> None:
    book = state.hosts[row.host]
    book.outbox = ob.void(book.outbox, row.seq)


def _receipt_taken(state: State, row: r.ReceiptTaken, at_ms: int) -> None:
    book, receipt = state.hosts[row.receipt.host], row.receipt
    entry = next((e for e in book.outbox.entries if e.body.seq == receipt.seq), None)
    book.outbox = ob.clear_alarms(ob.settle(book.outbox, receipt))
    if entry is None or not entry.open or not receipt.final or entry.digest != receipt.body:
        return
    action = entry.body.action
    key = (action.kind, action.profile)
    apply = _book(state, entry.body.scope).under_way
    _moved(state, entry.body.scope, action.replica, at_ms)
    if isinstance(action, Warm):
        _book(state, entry.body.scope).retry.discard(action.replica)
    if receipt.outcome is Outcome.SUCCEEDED:
        learn(book, action, receipt, None, at_ms)
        learn_terms(book, action, entry.digest)
        if isinstance(action, Warm):
            started = Seat(host=action.host, devices=action.devices), identity(action.launch)
            _book(state, entry.body.scope).carried_out[action.replica] = started
            trim(_book(state, entry.body.scope).carried_out, limits.REPLICAS)
        book.attempts.pop(key, None)
        book.cooled[(action.kind, action.replica)] = at_ms
        trim(book.cooled, limits.RESIDENCIES_PER_HOST * 4)
        book.successes[action.replica] = Success(receipt.rseq, at_ms, action, entry.digest)
        trim(book.successes, limits.RESIDENCIES_PER_HOST)
        if apply is not None:
            apply.failures.pop(now_called(apply.plan, action.replica), None)
    elif receipt.outcome is not Outcome.VOIDED:
        before = book.attempts.get(key, Attempt())
        book.attempts[key] = failed(before, action, receipt, at_ms)
        learn(book, action, receipt, book.attempts[key], at_ms)
        if apply is not None and counts(book.attempts[key], receipt) and _of(apply.plan, action.replica):
            apply.failures[now_called(apply.plan, action.replica)] = Failure(
                receipt.host, action.kind, receipt.outcome.value, receipt.code, receipt.detail, at_ms
            )


def _written_off(state: State, row: r.WrittenOff, at_ms: int) -> None:
    book = state.hosts[row.host]
    book.written_off_ms = at_ms
    book.attempts.clear()


def _host_back(state: State, row: r.HostBack, at_ms: int) -> None:
    state.hosts[row.host].written_off_ms = None


def _invited(state: State, row: r.Invited, at_ms: int) -> None:
    state.invites[row.host] = Invite(row.by, at_ms, row.expires_ms)
    for host in [h for h, i in state.invites.items() if i.expires_ms < at_ms]:
        del state.invites[host]


def _join_pending(state: State, row: r.JoinPending, at_ms: int) -> None:
    state.pending[row.host] = Pending(row.host_key, row.facts, at_ms)
    trim(state.pending, limits.PENDING_HOSTS)


def _join_settled(state: State, row: r.JoinSettled, at_ms: int) -> None:
    state.pending.pop(row.host, None)
    state.invites.pop(row.host, None)


def _frozen(state: State, row: r.Frozen, at_ms: int) -> None:
    state.freezes[row.scope] = Freeze(row.by, row.reason, row.until_ms, at_ms)


def _thawed(state: State, row: r.Thawed, at_ms: int) -> None:
    state.freezes.pop(row.scope, None)
    if row.scope is None:
        state.freezes.clear()


def _alarm_raised(state: State, row: r.AlarmRaised, at_ms: int) -> None:
    state.alarms[row.key] = StandingAlarm(row.text, row.host, at_ms)


def _alarm_cleared(state: State, row: r.AlarmCleared, at_ms: int) -> None:
    state.alarms.pop(row.key, None)


def _nonce_used(state: State, row: r.NonceUsed, at_ms: int) -> None:
    state.nonces[row.nonce] = row.until_ms
    for nonce in [n for n, until in state.nonces.items() if until < at_ms]:
        del state.nonces[nonce]


def _plan_written(state: State, row: r.PlanWritten, at_ms: int) -> None:
    state.written[row.plan] = row.commit
    trim(state.written, limits.PLANS_IN_MEMORY)
    if row.batch:
        batch = _book(state, row.scope).batch
        batch.plans.clear()
        batch.since_ms, batch.repair, batch.written_ms = 0, False, at_ms


def _result_written(state: State, row: r.ResultWritten, at_ms: int) -> None:
    state.results[row.plan] = row.final
    trim(state.results, limits.PLANS_IN_MEMORY)
    for apply in _book(state, row.scope).applies:
        if row.final and row.plan in apply.names:
            apply.written = True


def _state_written(state: State, row: r.StateWritten, at_ms: int) -> None:
    _book(state, row.scope).state_digest = row.digest


def _book(state: State, scope: ScopeName) -> ScopeBook:
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


def _moved(state: State, scope: ScopeName, replica: ReplicaId, at_ms: int) -> None:
    apply = _book(state, scope).under_way
    if apply is not None and _of(apply.plan, replica):
        apply.moved_ms = at_ms


def _called(plan: Plan, profile: ProfileName) -> ProfileName:
    """A profile by the name that a plan has for it."""
    return profile_of(now_called(plan, ReplicaId(f"{profile}/1")))


def _of(plan: Plan, replica: ReplicaId) -> bool:
    now = now_called(plan, replica)
    return any(now_called(plan, d.replica) == now and d.kind is not DecisionKind.CANNOT_PLACE for d in plan.decisions)


_STEPS: dict[type[Any], Callable[[State, Any, int], None]] = {
    r.Started: _started,
    r.ClockLeapt: _clock_leapt,
    r.Rebuilt: _rebuilt,
    r.TargetRestored: _target_restored,
    r.Distrusted: _distrusted,
    r.RootTaken: _root_taken,
    r.IntentAccepted: _intent_accepted,
    r.IntentRefused: _intent_refused,
    r.Proposed: _proposed,
    r.ProposalClosed: _proposal_closed,
    r.TargetSet: _target_set,
    r.ApplyEnded: _apply_ended,
    r.Resumed: _resumed,
    r.Unlocked: _unlocked,
    r.HostSeen: _host_seen,
    r.HeadSeen: _head_seen,
    r.OutboxSet: _outbox_set,
    r.TermSeen: _term_seen,
    r.BodyQueued: _body_queued,
    r.BodyVoided: _body_voided,
    r.ReceiptTaken: _receipt_taken,
    r.WrittenOff: _written_off,
    r.HostBack: _host_back,
    r.Invited: _invited,
    r.JoinPending: _join_pending,
    r.JoinSettled: _join_settled,
    r.Frozen: _frozen,
    r.Thawed: _thawed,
    r.AlarmRaised: _alarm_raised,
    r.AlarmCleared: _alarm_cleared,
    r.NonceUsed: _nonce_used,
    r.PlanWritten: _plan_written,
    r.ResultWritten: _result_written,
    r.StateWritten: _state_written,
}
