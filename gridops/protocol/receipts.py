"""The host's receipts: numbered without gaps, chained by digest, repeated until acknowledged, kept long after.

Called by the agent's core when a body has an outcome and when a directive acknowledges. The shell makes the new chain
durable before it seals and sends a receipt. Nothing here decides an outcome.
"""

from __future__ import annotations

from dataclasses import replace

from gridops.base import limits
from gridops.base.codes.protocol import HOST_REWOUND
from gridops.base.ids import Digest, HostId
from gridops.base.record import digest_of, record
from gridops.protocol.alarm import Alarm, alarm
from gridops.protocol.messages import Outcome, Receipt, Term, genesis


@record
class Statement:
    """What happened to one body, before it gets its place in the chain."""

    body: Digest
    seq: int
    term: Term
    outcome: Outcome
    final: bool = True
    code: str | None = None
    detail: str | None = None
    began_ms: int
    ended_ms: int
    fetched_bytes: int | None = None


@record
class Receipts:
    """`kept` ends with the newest and holds everything above `acked`, and history below it as far as the bound goes."""

    fleet: Digest
    host: HostId
    head: int
    prev: Digest
    acked: int = 0
    kept: tuple[Receipt, ...] = ()


def new_receipts(fleet: Digest, host: HostId, host_key: str) -> Receipts:
    return Receipts(fleet=fleet, host=host, head=0, prev=genesis(fleet, host_key))


def state(receipts: Receipts, boot: str, statement: Statement) -> tuple[Receipts, Receipt]:
    """The next receipt of the chain. `boot` is the random id of this run of the agent."""
    receipt = Receipt(
        fleet=receipts.fleet,
        host=receipts.host,
        boot=boot,
        rseq=receipts.head + 1,
        prev=receipts.prev,
        body=statement.body,
        seq=statement.seq,
        term=statement.term,
        outcome=statement.outcome,
        final=statement.final,
        code=statement.code,
        detail=statement.detail,
        began_ms=statement.began_ms,
        ended_ms=statement.ended_ms,
        fetched_bytes=statement.fetched_bytes,
    )
    grown = replace(receipts, head=receipt.rseq, prev=digest_of(receipt), kept=(*receipts.kept, receipt))
    return _bounded(grown), receipt


def owed(receipts: Receipts) -> tuple[Receipt, ...]:
    """What the next request carries: not yet acknowledged, oldest first."""
    return tuple(r for r in receipts.kept if r.rseq > receipts.acked)[: limits.RECEIPTS_PER_REQUEST]


def owed_count(receipts: Receipts) -> int:
    """For `fence.Standing`: a host that nobody acknowledges stops accepting, so that no receipt is ever dropped."""
    return sum(1 for r in receipts.kept if r.rseq > receipts.acked)


def acknowledge(receipts: Receipts, acked_rseq: int) -> Receipts | Alarm:
    """What a fresh directive says it has. Less than before is right: a restored controller learns its past again."""
    if acked_rseq > receipts.head:
        detail = f"the controller has receipt {acked_rseq}, the newest this ledger made is {receipts.head}"
        return alarm(HOST_REWOUND, receipts.host, detail)
    if acked_rseq == receipts.acked:
        return receipts
    return _bounded(replace(receipts, acked=max(acked_rseq, 0)))


def tail(receipts: Receipts) -> int:
    """Number of the oldest receipt that can still be repeated, for the heartbeat."""
    return receipts.kept[0].rseq if receipts.kept else receipts.head + 1


def stored(receipts: Receipts, body: Digest) -> Receipt | None:
    """The newest receipt for a body: the answer to a repeated command."""
    return next((r for r in reversed(receipts.kept) if r.body == body), None)


def _bounded(receipts: Receipts) -> Receipts:
    spare = len(receipts.kept) - limits.DECIDED_KEPT
    if spare <= 0:
        return receipts
    old, young = receipts.kept[:spare], receipts.kept[spare:]
    return replace(receipts, kept=(*(r for r in old if r.rseq > receipts.acked), *young))
