"""Commands on the host: from a directive's grants, through fence and local checks, to a final receipt.

A command is accepted (fence and intent durable), waits for its lanes, begins (local checks), acts, and ends with
exactly one final receipt. A void ends what has not begun, and asks a running transfer to stop; anything else runs to
its receipt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from gridops.base.errors import Bug, Refusal
from gridops.base.ids import Digest
from gridops.base.record import digest_of, known_digest
from gridops.model.action import Drain, Evict, Load, Operate, Unload, Warm
from gridops.model.snapshot import ResidencyState
from gridops.protocol import receipts
from gridops.protocol.alarm import Alarm
from gridops.protocol.covers import Running
from gridops.protocol.fence import Cancel, Execute, Reject, Repeat, Standing, Voided, examine, raise_term, settle
from gridops.protocol.messages import AuthorityKind, Body, Outcome, Term
from gridops.trust.release import take, walked
from gridops_agent.core import guesses, local
from gridops_agent.core.events import (
    Act,
    BeatSoon,
    Began,
    CancelTransfer,
    Effect,
    Ended,
    Enqueue,
    Heard,
    RootsCame,
    Warn,
)
from gridops_agent.core.generations import touch
from gridops_agent.core.state import Brake, Command, Held, Host, LastWord, drop, put, told

Answer = tuple[Host, tuple[Effect, ...]]


def roots_came(host: Host, event: RootsCame) -> Answer:
    """Walk the chain as far as it proves itself. One bad document stops the walk and is shown."""
    new = [text for text in event.roots if text not in host.roots]
    for text in new:
        try:
            chain, known = walked(host.chain, host.known, (text,))
        except Refusal as refusal:
            return host, (Warn(refusal.code, refusal.message),)
        if chain is not host.chain:
            host = replace(host, chain=chain, roots=(*host.roots, text), known=known)
    return host, ()


def heard(host: Host, event: Heard, now_ms: int) -> Answer:
    """Take a directive: term, acknowledgements, keys, catalog, then each grant in order."""
    directive = event.directive
    try:
        fence = raise_term(host.fence, directive.term, host.chain)
    except Refusal as refusal:
        return host, (Warn(refusal.code, refusal.message),)
    effects: list[Effect] = []
    acked = receipts.acknowledge(host.receipts, directive.acked_rseq)
    if isinstance(acked, Alarm):
        effects.append(Warn(acked.code, acked.detail))
        acked = host.receipts
    word = LastWord(keys=directive.keys, protection=directive.protection, floor_ms=event.floor_ms, epoch=event.epoch)
    host = replace(host, fence=fence, receipts=acked, last_word=word)
    if directive.catalog is not None:
        try:
            host = replace(host, known=take(host.known, host.chain, directive.catalog))
        except Refusal as refusal:
            effects.append(Warn(refusal.code, refusal.message))
    for grant in directive.grants:
        host, more = _granted(host, grant, now_ms)
        effects += more
    return host, tuple(effects)


def _runs(host: Host) -> dict[Digest, Running]:
    """What runs here, by incarnation: what an approval of an end or of new terms is judged by."""
    return {
        body: Running(held.replica, known_digest(held.warm.launch), held.warm.devices, held.state)
        for body, held in host.held.items()
    }


def _granted(host: Host, envelope: str, now_ms: int) -> Answer:
    standing = Standing(
        now_ms=now_ms,
        fresh=True,
        chain=host.chain,
        owed=receipts.owed_count(host.receipts),
        known=host.known,
        runs=_runs(host),
        agent=host.version,
    )
    ruling = examine(host.fence, envelope, standing)
    match ruling:
        case Execute(grant=grant, fence=fence):
            digest = digest_of(grant.body)
            alone = grant.authority.kind is AuthorityKind.STANDING
            command = Command(body=grant.body, term=grant.term, accepted_ms=now_ms, standing=alone)
            return replace(host, fence=fence, commands=put(host.commands, digest, command)), (Enqueue(digest),)
        case Voided(grant=grant, fence=fence):
            host = replace(host, fence=fence)
            return _receipt(host, grant.body, grant.term, now_ms, Ended(digest_of(grant.body), Outcome.VOIDED))
        case Repeat(body=body):
            # The stored receipt answers it; until the controller acknowledges it every heartbeat brings it along.
            stored = receipts.stored(host.receipts, body)
            return host, ((BeatSoon(),) if stored is not None and stored.rseq > host.receipts.acked else ())
        case Cancel(body=body):
            return _cancel(host, body, now_ms)
        case Reject(final=True, grant=grant, fence=fence, code=code, detail=detail):
            if grant is None:
                raise Bug("a final refusal names its command")
            ended = Ended(digest_of(grant.body), Outcome.REFUSED, code, detail)
            return _receipt(replace(host, fence=fence), grant.body, grant.term, now_ms, ended)
        case Reject(code=code, detail=detail):
            return host, (Warn(code, detail),)
        case _:
            assert_never(ruling)


def _cancel(host: Host, body: Digest, now_ms: int) -> Answer:
    command = host.commands.get(body)
    if command is None:
        return host, ()
    if command.began_ms is None:
        return ended(host, Ended(body, Outcome.VOIDED), now_ms)
    if isinstance(command.body.action, Load):
        return host, (CancelTransfer(body),)
    return host, ()


def began(host: Host, event: Began, now_ms: int) -> Answer:
    """The command has its lanes. Refuse it for good, or record that it acts and let it."""
    command = host.commands.get(event.body)
    if command is None:  # voided while it waited
        return host, ()
    no = local.objection(host, command, now_ms) or event.objection
    if no is not None:
        return ended(host, Ended(event.body, Outcome.REFUSED, *no), now_ms)
    host = replace(host, commands=put(host.commands, event.body, replace(command, began_ms=now_ms)))
    action = command.body.action
    match action:
        case Load() | Evict():
            return host, (Act(event.body),)
        case Warm():
            held = _new_residency(event.body, action, now_ms)
            host = replace(guesses.started(host, action), held=put(host.held, event.body, held))
            return touch(host, action.devices), (Act(event.body), BeatSoon())
        case Drain():
            return _drain(host, action, command, now_ms)
        case Unload():
            return _unload(host, action, now_ms), (Act(event.body),)
        case Operate():
            return _operate(host, action, command, now_ms)
        case _:
            assert_never(action)


def _new_residency(body: Digest, warm: Warm, now_ms: int) -> Held:
    return Held(
        body=body,
        warm=warm,
        state=ResidencyState.WARMING,
        since_ms=now_ms,
        serves=warm.serves,
        restart=warm.restart,
        drain_ms=warm.drain_ms,
    )


def _drain(host: Host, drain: Drain, command: Command, now_ms: int) -> Answer:
    held, body = host.held[drain.incarnation], digest_of(command.body)
    if held.state is not ResidencyState.DRAINING:
        # A drained residency is not kept alive any more: its retry is off.
        held = replace(held, state=ResidencyState.DRAINING, since_ms=now_ms, retry_at_ms=None, offload=False)
        host = touch(replace(host, held=put(host.held, held.body, held)), held.warm.devices)
        host = _counted(host, command, now_ms)
    return host, (Act(body), BeatSoon())


def _unload(host: Host, unload: Unload, now_ms: int) -> Host:
    """From here on it is told to end. One that failed stays failed for as long as its process lives: that is the
    evidence, and what lets it be stopped without waiting for work that it may never finish."""
    held = host.held.get(unload.incarnation)
    if held is None:
        return host
    ending = replace(held, to_end=True, retry_at_ms=None, offload=False)
    if held.state in (ResidencyState.DRAINING, ResidencyState.FAILED):
        return replace(host, held=put(host.held, held.body, ending))
    ending = replace(ending, state=ResidencyState.DRAINING, since_ms=now_ms)
    return touch(replace(host, held=put(host.held, held.body, ending)), held.warm.devices)


def _counted(host: Host, command: Command, now_ms: int) -> Host:
    """What standing permission takes out of service counts for the brake."""
    if not command.standing:
        return host
    return replace(host, brake=Brake(stops_ms=(*host.brake.within(now_ms), now_ms)))


def _operate(host: Host, operate: Operate, command: Command, now_ms: int) -> Answer:
    held, body = host.held[operate.incarnation], digest_of(command.body)
    if local.takes_away(held, operate):
        host = _counted(host, command, now_ms)
    called = (operate.replica, operate.profile)
    renamed = None if called == (held.warm.replica, held.warm.profile) else called
    new = replace(held, serves=operate.serves, restart=operate.restart, drain_ms=operate.drain_ms, renamed=renamed)
    if new != held:
        host = touch(replace(host, held=put(host.held, held.body, new)), held.warm.devices)
    return ended(host, Ended(body, Outcome.SUCCEEDED), now_ms)


def ended(host: Host, event: Ended, now_ms: int) -> Answer:
    """The command is over: its residency goes if it was unloaded, and the one final receipt is made."""
    command = host.commands.get(event.body)
    if command is None:
        raise Bug(f"the command {event.body} ended twice")
    action = command.body.action
    if isinstance(action, Unload) and event.outcome is Outcome.SUCCEEDED and action.incarnation in host.held:
        devices = host.held[action.incarnation].warm.devices
        host = touch(replace(host, held=drop(host.held, action.incarnation)), devices)
    if isinstance(action, Load) and event.outcome is Outcome.SUCCEEDED:
        host = guesses.came(host, action, event.fetched_bytes, now_ms)
    if isinstance(action, Evict) and event.outcome is Outcome.SUCCEEDED:
        host = guesses.gone(host, action)
    if isinstance(action, Warm) and event.outcome is Outcome.UNKNOWN and event.body in host.held:
        held = replace(host.held[event.body], state=ResidencyState.FAILED, since_ms=now_ms, code=event.code)
        host = replace(host, held=put(host.held, event.body, held))
    host = replace(host, commands=drop(host.commands, event.body))
    return _receipt(host, command.body, command.term, now_ms, event, command.began_ms or command.accepted_ms)


def _receipt(host: Host, body: Body, term: Term, now_ms: int, event: Ended, began_ms: int | None = None) -> Answer:
    statement = receipts.Statement(
        body=event.body,
        seq=body.seq,
        term=term,
        outcome=event.outcome,
        code=event.code,
        detail=told(event.detail) if event.detail is not None else None,
        began_ms=began_ms if began_ms is not None else now_ms,
        ended_ms=now_ms,
        fetched_bytes=event.fetched_bytes,
    )
    chain, receipt = receipts.state(host.receipts, host.boot, statement)
    return replace(host, receipts=chain, fence=settle(host.fence, event.body, receipt.rseq)), (BeatSoon(),)
