"""The controller's outbox for one host: which body has which number, what is granted again, what is settled.

Called by the controller's core. `enqueue` and `settle` return values; the caller journals them before it sends or
acknowledges anything. There is never a second body for a number, a wish that is under way is never issued twice, and
what a body may hold on the host is given back only by its final receipt: not by time, not by asking to void it.

Where host and controller disagree the host's account wins, and `held` stops all grants until a person resolves it.
What must not be is kept in `alarms`; reading goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from gridops.base import limits
from gridops.base.canon import digest
from gridops.base.codes import Code
from gridops.base.codes import protocol as codes
from gridops.base.errors import Bug, Refusal
from gridops.base.ids import Digest, HostId, ScopeName
from gridops.base.record import digest_of, known_digest, record, to_data
from gridops.base.units import counted
from gridops.model.action import Action, DeviceGeneration, Drain, Evict, Load, Operate, Unload, Warm
from gridops.protocol.alarm import Alarm, alarm
from gridops.protocol.messages import Authority, Body, Grant, GrantMode, Head, Heartbeat, Receipt, Term, genesis

__all__ = ["Cause", "Entry", "Outbox", "Unknown", "action_key", "genesis"]


@record
class Cause:
    """Why a body is issued and what it is bound to."""

    plan: Digest
    scope: ScopeName
    authority: Authority
    precondition: tuple[DeviceGeneration, ...] = ()
    catalog: int | None = None
    """Version of the catalog that it is made under."""


@record
class Entry:
    """One body of ours. Open until `receipt` is final; `delivered` once the host has said that it decided it."""

    body: Body
    digest: Digest
    key: str
    authority: Authority
    wanted: GrantMode = GrantMode.EXECUTE
    delivered: bool = False
    receipt: Receipt | None = None
    created_ms: int

    @property
    def open(self) -> bool:
        return self.receipt is None or not self.receipt.final


@record
class Unknown:
    """A body that the host accepted and this controller has forgotten: it may hold memory until its final receipt."""

    seq: int
    body: Digest
    receipt: Receipt | None = None


@record
class Outbox:
    fleet: Digest
    host: HostId
    host_key: str
    head: Head
    """The newest body of ours, or the host's head where that was ahead."""
    heard_seq: int = 0
    """The host has said that it decided everything up to here."""
    obeyed: Term | None = None
    """The term in the newest heartbeat: which controller the host obeys."""
    acked_rseq: int
    """The newest receipt read; the directive says so to the host."""
    receipt_prev: Digest | None = None
    """Digest of that receipt; None when it is lost, so that the next one may name anything."""
    entries: tuple[Entry, ...] = ()
    """In order of their numbers: all open ones, and some settled ones to compare with."""
    unknown: tuple[Unknown, ...] = ()
    held: str | None = None
    """Code of the alarm that stops all grants to this host."""
    alarms: tuple[Alarm, ...] = ()


def new_outbox(fleet: Digest, host: HostId, host_key: str) -> Outbox:
    start = genesis(fleet, host_key)
    return Outbox(
        fleet=fleet, host=host, host_key=host_key, head=Head(seq=0, body=start), acked_rseq=0, receipt_prev=start
    )


@lru_cache(maxsize=limits.WISHES_KEPT)
def action_key(action: Action) -> str:
    """Two actions with the same key are the same wish, whatever plan or pass they come from. Each pass asks again."""
    wish: dict[str, object] = {"kind": action.kind, "host": action.host, "replica": action.replica}
    match action:
        case Load():
            wish["artifact"] = to_data(action.artifact)
        case Warm():
            wish["launch"] = known_digest(action.launch)
            wish["devices"] = sorted(action.devices)
        case Drain():
            wish["incarnation"] = action.incarnation
        case Unload():
            wish["incarnation"] = action.incarnation
            wish["force"] = action.force
        case Operate():
            wish["terms"] = to_data(action)
        case Evict():
            wish["files"] = sorted(action.files)
    return digest(wish)


def pending(outbox: Outbox, key: str) -> Entry | None:
    """The open entry with this key. One that is being voided counts: until its receipt nobody knows which won."""
    return next((e for e in outbox.entries if e.open and e.key == key), None)


def open_entries(outbox: Outbox) -> tuple[Entry, ...]:
    """Entries whose effect is not settled; with `unknown`, all that may hold something on the host by our will."""
    return tuple(e for e in outbox.entries if e.open)


def enqueue(outbox: Outbox, action: Action, cause: Cause, fleet: Digest, now_ms: int) -> tuple[Outbox, Body]:
    """Give an action the next number. Journal the body before the first grant of it is sent.

    Raises Refusal: `too_many_open`, or the code that holds this host.
    """
    key = action_key(action)
    if fleet != outbox.fleet or action.host != outbox.host:
        raise Bug(f"an action for {action.host} in the outbox of {outbox.host}")
    if pending(outbox, key) is not None:
        raise Bug(f"the same wish is under way on {outbox.host}: ask pending() before enqueue()")
    if outbox.held is not None:
        raise Refusal(outbox.held, f"nothing is sent to {outbox.host} until this is resolved", subject=outbox.host)
    unsettled = len(open_entries(outbox)) + len(outbox.unknown)
    if unsettled >= limits.OPEN_BODIES_PER_HOST:
        detail = f"{counted(unsettled, 'command')} to {outbox.host} unfinished"
        raise Refusal(codes.TOO_MANY_OPEN.code, detail, subject=outbox.host)
    body = Body(
        fleet=fleet,
        host=outbox.host,
        host_key=outbox.host_key,
        seq=outbox.head.seq + 1,
        prev=outbox.head.body,
        scope=cause.scope,
        plan=cause.plan,
        action=action,
        precondition=cause.precondition,
        catalog=cause.catalog,
    )
    return adopt_body(outbox, body, cause.authority, now_ms), body


def adopt_body(outbox: Outbox, body: Body, authority: Authority, now_ms: int) -> Outbox:
    """Put a journalled body behind the head; also how replay rebuilds an outbox. The same body twice is a fault."""
    if body.seq != outbox.head.seq + 1 or body.prev != outbox.head.body:
        raise Bug(f"body {body.seq} does not follow {outbox.head.seq} in the outbox of {outbox.host}")
    key, identity = action_key(body.action), digest_of(body)
    entry = Entry(body=body, digest=identity, key=key, authority=authority, created_ms=now_ms)
    return replace(outbox, head=Head(seq=body.seq, body=identity), entries=(*outbox.entries, entry))


def ready(outbox: Outbox, term: Term) -> bool:
    """May new bodies be enqueued? Only after a heartbeat under our own term.

    Until then a grant of a former controller may still be accepted, perhaps of a body that this one, restored from an
    old journal, no longer knows; its number must not be given away a second time.
    """
    return outbox.held is None and outbox.obeyed == term


def void(outbox: Outbox, seq: int) -> Outbox:
    """Want an open body not to happen. Never taken back; same object if there is nothing to void."""

    def mine(entry: Entry) -> bool:
        return entry.body.seq == seq and entry.open and entry.wanted is GrantMode.EXECUTE

    return _changed(outbox, mine, lambda entry: replace(entry, wanted=GrantMode.VOID))


def grants_due(outbox: Outbox, term: Term, now_ms: int) -> tuple[Grant, ...]:
    """What the next directive carries: everything the host has not decided, in order, with fresh validity.

    Nothing until the host obeys `term` (a fresh directive raises it, the next heartbeat says so). A void goes on being
    sent after the host has accepted the body, until the receipt: a transfer can still stop.
    """
    if not ready(outbox, term):
        return ()
    due = [e for e in outbox.entries if e.open and not e.delivered]
    due += [e for e in outbox.entries if e.open and e.delivered and e.wanted is GrantMode.VOID]
    return tuple(
        Grant(
            fleet=outbox.fleet,
            body=e.body,
            term=term,
            mode=e.wanted,
            issued_ms=now_ms,
            not_after_ms=now_ms + limits.GRANT_VALID_MS,
            authority=e.authority,
        )
        for e in due[: limits.GRANTS_PER_DIRECTIVE]
    )


def mark_delivered(outbox: Outbox, seq: int) -> Outbox:
    """The host has decided everything up to `seq`. Same object if that is no news."""
    heard = outbox if seq <= outbox.heard_seq else replace(outbox, heard_seq=seq)
    return _changed(heard, lambda e: e.body.seq <= seq and not e.delivered, lambda e: replace(e, delivered=True))


def settle(outbox: Outbox, receipt: Receipt) -> Outbox:
    """Take a verified receipt. Journal it before `acked_rseq` is sent. Idempotent; same object if it is no news.

    Read receipts only out of beats whose heartbeat is under our own term, after `relearn`: such a host has heard from
    us how far we have read, and repeats from there.
    """
    if receipt.fleet != outbox.fleet or receipt.host != outbox.host:
        detail = f"receipt {receipt.rseq} says it is from {receipt.host} of fleet {receipt.fleet}"
        return alarmed(outbox, codes.WRONG_HOST, detail)
    if receipt.rseq <= outbox.acked_rseq:
        return _read_again(outbox, receipt)
    expected = outbox.acked_rseq + 1
    if receipt.rseq > expected:
        return alarmed(outbox, codes.RECEIPT_GAP, f"receipt {receipt.rseq} came, {expected} is the next one")
    if outbox.receipt_prev is not None and receipt.prev != outbox.receipt_prev:
        detail = f"receipt {receipt.rseq} follows {receipt.prev}, the one known before it is {outbox.receipt_prev}"
        return alarmed(outbox, codes.RECEIPT_GAP, detail)
    if receipt.seq > outbox.head.seq:
        # Not read: a controller restored from an old journal knows the body after the next heartbeat, and settles it.
        detail = f"receipt {receipt.rseq} is for command {receipt.seq}, the newest one issued is {outbox.head.seq}"
        return alarmed(outbox, codes.FORK, detail)
    read = replace(outbox, acked_rseq=receipt.rseq, receipt_prev=digest_of(receipt))
    return _settled(read, receipt)


def relearn(outbox: Outbox, heartbeat: Heartbeat, term: Term | None = None) -> Outbox | Alarm:
    """Compare heads with a verified heartbeat, before its receipts are read.

    With the controller's own `term`, a heartbeat under another one says nothing yet and is no news: it may be a replay
    from before this controller began, and its head may still move by grants of the former one.

    The host behind is usual: it has not decided the rest. The host ahead means that this controller was restored from
    an old journal or rebuilt: it adopts the host's head, and the bodies still open there as unknown. An Alarm (`fork`,
    `host_rewound`) means that neither can be: put it in with `hold`.
    """
    if term is not None and heartbeat.term != term:
        return outbox
    no = _irreconcilable(outbox, heartbeat)
    if no is not None:
        return no
    head = heartbeat.head
    heard = outbox if outbox.obeyed == heartbeat.term else replace(outbox, obeyed=heartbeat.term)
    if head.seq <= outbox.head.seq:
        return mark_delivered(heard, head.seq)
    ours = {e.body.seq for e in outbox.entries} | {u.seq for u in outbox.unknown}
    forgotten = tuple(Unknown(seq=h.seq, body=h.body) for h in heartbeat.open if h.seq not in ours)
    adopted = replace(heard, head=head, unknown=(*outbox.unknown, *forgotten))
    return mark_delivered(_stepped(adopted, heartbeat), head.seq)


def hold(outbox: Outbox, cause: Alarm) -> Outbox:
    """Stop all grants to this host until `resolve`. Same object if it is held for this already."""
    noted = _noted(outbox, cause)
    return noted if noted.held is not None else replace(noted, held=cause.code)


def resolve(outbox: Outbox, heartbeat: Heartbeat) -> Outbox:
    """A person accepts the host's account: its head, its open bodies, its receipts from here on.

    Our own open bodies stay where the host has them open; any other was decided there as something else, or never.
    """
    fresh = new_outbox(outbox.fleet, outbox.host, outbox.host_key)
    known = {h.body for h in heartbeat.open}
    mine = tuple(replace(e, delivered=True) for e in open_entries(outbox) if e.digest in known)
    named = {e.digest for e in mine}
    forgotten = tuple(Unknown(seq=h.seq, body=h.body) for h in heartbeat.open if h.body not in named)
    return replace(
        fresh,
        head=heartbeat.head,
        heard_seq=heartbeat.head.seq,
        obeyed=heartbeat.term,
        entries=mine,
        unknown=forgotten,
        acked_rseq=max(heartbeat.receipt_tail - 1, 0),
        receipt_prev=None,
    )


def alarmed(outbox: Outbox, code: Code, detail: str) -> Outbox:
    return _noted(outbox, alarm(code, outbox.host, detail))


def clear_alarms(outbox: Outbox) -> Outbox:
    """After the caller has journalled and shown them. What holds the host goes on holding it."""
    return replace(outbox, alarms=()) if outbox.alarms else outbox


def _settled(outbox: Outbox, receipt: Receipt) -> Outbox:
    entry = next((e for e in outbox.entries if e.body.seq == receipt.seq), None)
    unknown = next((u for u in outbox.unknown if u.seq == receipt.seq), None)
    expected = entry.digest if entry is not None else unknown.body if unknown is not None else None
    if expected is None:
        return outbox  # settled and forgotten long ago; the chain is all there is to know
    if expected != receipt.body:
        detail = f"command {receipt.seq} is {expected} here, receipt {receipt.rseq} is for {receipt.body}"
        return hold(outbox, alarm(codes.FORK, outbox.host, detail))
    if entry is None:
        return _unknown_settled(outbox, receipt)
    if not entry.open:
        detail = f"command {receipt.seq} has its final receipt, number {receipt.rseq} says {receipt.outcome} again"
        return alarmed(outbox, codes.RECEIPT_CONFLICT, detail)
    settled = replace(entry, receipt=receipt, delivered=True)
    entries = tuple(settled if e is entry else e for e in outbox.entries)
    return replace(outbox, entries=_kept(entries), heard_seq=max(outbox.heard_seq, receipt.seq))


def _unknown_settled(outbox: Outbox, receipt: Receipt) -> Outbox:
    if receipt.final:
        return replace(outbox, unknown=tuple(u for u in outbox.unknown if u.seq != receipt.seq))
    noted = tuple(replace(u, receipt=receipt) if u.seq == receipt.seq else u for u in outbox.unknown)
    return replace(outbox, unknown=noted)


def _read_again(outbox: Outbox, receipt: Receipt) -> Outbox:
    known = next((e.receipt for e in outbox.entries if e.receipt and e.receipt.rseq == receipt.rseq), None)
    if known is None or known == receipt:
        return outbox
    detail = f"receipt {receipt.rseq} came twice: {known.outcome} for {known.body}, then {receipt.outcome}"
    return alarmed(outbox, codes.RECEIPT_CONFLICT, detail)


def _stepped(outbox: Outbox, heartbeat: Heartbeat) -> Outbox:
    """Step over receipts that the host no longer has: it drops only what was acknowledged once, to a memory now lost.

    A body of ours whose receipt is among them stays open until a person resolves it.
    """
    first, oldest = outbox.acked_rseq + 1, heartbeat.receipt_tail
    if oldest <= first:
        return outbox
    lost = f"receipts {first} to {oldest - 1} were acknowledged once and are lost to this controller"
    return replace(alarmed(outbox, codes.RECEIPT_GAP, lost), acked_rseq=oldest - 1, receipt_prev=None)


def _irreconcilable(outbox: Outbox, heartbeat: Heartbeat) -> Alarm | None:
    head, host = heartbeat.head, outbox.host
    if heartbeat.host != host or heartbeat.fleet != outbox.fleet:
        return alarm(codes.WRONG_HOST, host, f"it says it is {heartbeat.host} of fleet {heartbeat.fleet}")
    if head.seq < outbox.heard_seq:
        detail = f"it had decided command {outbox.heard_seq} before and now says {head.seq}"
        return alarm(codes.HOST_REWOUND, host, detail)
    if heartbeat.receipt_head < outbox.acked_rseq:
        detail = f"it had signed receipt {outbox.acked_rseq} before and now says {heartbeat.receipt_head}"
        return alarm(codes.HOST_REWOUND, host, detail)
    known = {0: genesis(outbox.fleet, outbox.host_key), outbox.head.seq: outbox.head.body}
    known.update({u.seq: u.body for u in outbox.unknown})
    known.update({e.body.seq: e.digest for e in outbox.entries})
    for said in (head, *heartbeat.open):
        expected = known.get(said.seq, said.body)
        if said.body != expected:
            return alarm(codes.FORK, host, f"command {said.seq} is {expected} here and {said.body} on the host")
    return None


def _changed(outbox: Outbox, which: Callable[[Entry], bool], change: Callable[[Entry], Entry]) -> Outbox:
    if not any(which(e) for e in outbox.entries):
        return outbox
    return replace(outbox, entries=tuple(change(e) if which(e) else e for e in outbox.entries))


def _noted(outbox: Outbox, found: Alarm) -> Outbox:
    if found in outbox.alarms or len(outbox.alarms) >= limits.ALARMS:
        return outbox
    return replace(outbox, alarms=(*outbox.alarms, found))


def _kept(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    settled = [e.body.seq for e in entries if not e.open]
    forget = frozenset(settled[: -limits.SETTLED_KEPT])
    return tuple(e for e in entries if e.body.seq not in forget) if forget else entries
