"""Replay: how each kind of row changes the state. One function per kind, found by type; nothing here decides.

Called for every row of the journal at start and for every new row by `writer`; rows about plans are `fold_plans`'. A
function must depend on nothing but the state, the row and the row's own time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gridops.base import limits
from gridops.base.errors import Bug
from gridops.base.ids import Digest
from gridops.controller.core import rows as r
from gridops.controller.core.fold_plans import STEPS, book_of, is_of, moved
from gridops.controller.core.learned import counts, failed, kind_of, learn_terms, settled_by, trim
from gridops.controller.core.lessons import learn
from gridops.controller.core.state import (
    Accepted,
    Attempt,
    Failure,
    Freeze,
    HostBook,
    Invite,
    Pending,
    Refused,
    Released,
    StandingAlarm,
    State,
    Success,
    Uncertain,
    Yes,
    now_called,
)
from gridops.footprint.need import identity
from gridops.model.action import Warm
from gridops.model.plan import Seat
from gridops.protocol import outbox as ob
from gridops.protocol.messages import Outcome, Receipt, Term


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


def _distrusted(state: State, row: r.Distrusted, at_ms: int) -> None:
    state.distrust = row.reason


def _root_taken(state: State, row: r.RootTaken, at_ms: int) -> None:
    state.roots.append(row.text)


def _catalog_taken(state: State, row: r.CatalogTaken, at_ms: int) -> None:
    state.catalog = Released(row.version, row.text) if row.text is not None else None


def _intent_accepted(state: State, row: r.IntentAccepted, at_ms: int) -> None:
    desired = row.desired
    if desired is None:
        if state.accepted is None:
            raise Bug("a commit means the same as the one before it, and there is none")
        desired = state.accepted.desired
    else:
        state.signed.update(dict.fromkeys(row.signers or (), at_ms))
        for key in desired.keys:
            state.ended.update(dict.fromkeys(key.over, key.host))
        trim(state.ended, limits.ENDED_KEYS)
        # People ask for something else now: what was answered with no before may be asked again.
        for book in state.scopes.values():
            book.rejected.clear()
    state.accepted = Accepted(row.commit, row.subject, desired, at_ms, row.mode_missing)
    state.refused = state.off_line = None
    if not row.mode_missing:
        state.last_mode = desired.mode


def _intent_refused(state: State, row: r.IntentRefused, at_ms: int) -> None:
    refused = Refused(row.commit, row.subject, row.problems, row.count, row.mode, row.drains, at_ms)
    if row.off_line is not None:
        state.off_line = refused
    else:
        state.refused, state.off_line = refused, None


def _host_seen(state: State, row: r.HostSeen, at_ms: int) -> None:
    known, new = state.hosts.get(row.host), ob.new_outbox(row.fleet, row.host, row.host_key)
    # Whoever people have written off is back by its own word of now (`HostBack`), under whichever key: not by this.
    off_ms = known.written_off_ms if known is not None else None
    state.hosts[row.host] = HostBook(new, at_ms, written_off_ms=off_ms)
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
    moved(state, row.body.scope, row.body.action.replica, at_ms)


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
    key = (kind_of(action), action.profile)
    apply = book_of(state, entry.body.scope).under_way
    moved(state, entry.body.scope, action.replica, at_ms)
    if isinstance(action, Warm):
        book_of(state, entry.body.scope).retry.discard(action.replica)
    if receipt.outcome is Outcome.SUCCEEDED:
        learn(book, action, receipt, None, at_ms)
        learn_terms(book, action, entry.digest)
        if isinstance(action, Warm):
            started = Seat(host=action.host, devices=action.devices), identity(action.launch)
            book_of(state, entry.body.scope).carried_out[action.replica] = started
            trim(book_of(state, entry.body.scope).carried_out, limits.REPLICAS)
        book_of(state, entry.body.scope).errands.pop(Digest(ob.action_key(action)), None)
        for kind in settled_by(action):
            book.attempts.pop((kind, action.profile), None)
        book.cooled[(action.kind, action.replica)] = at_ms
        trim(book.cooled, limits.RESIDENCIES_PER_HOST * 4)
        book.successes[action.replica] = Success(receipt.rseq, at_ms, action, entry.digest)
        trim(book.successes, limits.RESIDENCIES_PER_HOST)
        if apply is not None:
            apply.failures.pop(now_called(apply.plan, action.replica), None)
    elif receipt.outcome is not Outcome.VOIDED:
        if receipt.outcome is Outcome.UNKNOWN:
            _uncertain(book, entry, receipt, at_ms)
        before = book.attempts.get(key, Attempt())
        book.attempts[key] = failed(before, action, receipt, at_ms)
        learn(book, action, receipt, book.attempts[key], at_ms)
        if apply is not None and counts(book.attempts[key], receipt) and is_of(apply.plan, action.replica):
            apply.failures[now_called(apply.plan, action.replica)] = Failure(
                receipt.host, action.kind, receipt.outcome.value, receipt.code, receipt.detail, at_ms
            )


def _uncertain(book: HostBook, entry: ob.Entry, receipt: Receipt, at_ms: int) -> None:
    book.uncertain[entry.digest] = Uncertain(
        body=entry.digest,
        seq=receipt.seq,
        rseq=receipt.rseq,
        scope=entry.body.scope,
        action=entry.body.action,
        action_class=entry.authority.action_class,
        at_ms=at_ms,
        code=receipt.code,
        detail=receipt.detail,
    )
    trim(book.uncertain, limits.OPEN_BODIES_PER_HOST)


def _outcome_proved(state: State, row: r.OutcomeProved, at_ms: int) -> None:
    known = state.hosts[row.host].uncertain.pop(row.body, None)
    if known is None or row.outcome is not Outcome.SUCCEEDED:
        return
    # It was counted as a failure as long as nobody knew better.
    for kind in settled_by(known.action):
        state.hosts[row.host].attempts.pop((kind, known.action.profile), None)
    apply = book_of(state, known.scope).under_way
    if apply is not None:
        apply.failures.pop(now_called(apply.plan, known.action.replica), None)


def _errand_approved(state: State, row: r.ErrandApproved, at_ms: int) -> None:
    said = book_of(state, row.scope).errands
    others = tuple(yes for yes in said.pop(row.errand, ()) if yes.by != row.by and at_ms < yes.until_ms)
    said[row.errand] = (*others, Yes(row.by, row.envelope, row.need, row.until_ms))
    trim(said, limits.ERRANDS_APPROVED)


def _written_off(state: State, row: r.WrittenOff, at_ms: int) -> None:
    book = state.hosts[row.host]
    book.written_off_ms = at_ms
    book.uncertain.clear()
    book.attempts.clear()


def _host_back(state: State, row: r.HostBack, at_ms: int) -> None:
    state.hosts[row.host].written_off_ms = None


def _invited(state: State, row: r.Invited, at_ms: int) -> None:
    state.invites[row.host] = Invite(row.by, at_ms, row.expires_ms)
    for host in [h for h, i in state.invites.items() if i.expires_ms < at_ms]:
        del state.invites[host]


def _join_pending(state: State, row: r.JoinPending, at_ms: int) -> None:
    state.pending[row.host] = Pending(row.host_key, row.facts, at_ms, row.former)
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


def _state_written(state: State, row: r.StateWritten, at_ms: int) -> None:
    book_of(state, row.scope).state_digest = row.digest


_STEPS: dict[type[Any], Callable[[State, Any, int], None]] = {
    **STEPS,
    r.Started: _started,
    r.ClockLeapt: _clock_leapt,
    r.Rebuilt: _rebuilt,
    r.Distrusted: _distrusted,
    r.RootTaken: _root_taken,
    r.CatalogTaken: _catalog_taken,
    r.IntentAccepted: _intent_accepted,
    r.IntentRefused: _intent_refused,
    r.HostSeen: _host_seen,
    r.HeadSeen: _head_seen,
    r.OutboxSet: _outbox_set,
    r.TermSeen: _term_seen,
    r.BodyQueued: _body_queued,
    r.BodyVoided: _body_voided,
    r.ReceiptTaken: _receipt_taken,
    r.ErrandApproved: _errand_approved,
    r.OutcomeProved: _outcome_proved,
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
    r.StateWritten: _state_written,
}
