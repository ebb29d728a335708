"""Opens the signed messages of the protocol: bytes in, a verified and bounded record out, or a Refusal.

Both sides call it before anything else looks at a message. Each function names the kind and the keys it trusts; the
record's own lists are bounded here, because the size of an envelope alone does not bound the work it causes. It says
nothing about whether a message is for us, fresh or in order: that is `fence`, `outbox` and `fresh`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from gridops.base import limits
from gridops.base.codes.trust import BAD_SCHEMA
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, is_replica
from gridops.model.action import Evict, Load
from gridops.protocol.messages import WIRE_VERSION, Directive, Grant, Heartbeat, Receipt
from gridops.protocol.plausible import flaw
from gridops.trust.envelope import Sealed, open_record, open_sealed, split
from gridops.trust.keys import PublicKey

T = TypeVar("T")


def sealed_bytes(payload_bytes: int) -> int:
    """The longest envelope of a payload of so many bytes: whoever measures one before it is opened goes by this."""
    # base64 takes four bytes for three; the rest of an envelope with one signature is far below 1 KiB.
    return payload_bytes * 4 // 3 + 1_024


def open_grant(text: str | bytes, keys: Sequence[PublicKey]) -> Grant:
    """A grant signed by one of the controller's keys. Its body has a number and an action for its host."""
    grant = _open(Grant, text, "grant", keys, limits.ENVELOPE_BYTES)
    body = grant.body
    _known("grant", grant.v)
    _known("body", body.v)
    _at_most("grant", "approvals", len(grant.authority.approvals), limits.SIGNATURES)
    _at_most("body", "preconditions", len(body.precondition), limits.DEVICES_PER_HOST)
    if body.seq < 1:
        raise _bad("grant", f"body.seq is {body.seq}, expected a number from 1")
    if body.action.host != body.host:
        raise _bad("grant", f"its action is for {body.action.host}, its body for {body.host}")
    if not isinstance(body.action, Load | Evict) and not is_replica(body.action.replica):
        raise _bad("grant", "its action names no replica")
    if grant.fleet != body.fleet:
        raise _bad("grant", "it names one fleet and its body another")
    return grant


def open_receipt(text: str | bytes, host_key: PublicKey) -> Receipt:
    receipt = _open(Receipt, text, "receipt", (host_key,), limits.ENVELOPE_BYTES)
    _known("receipt", receipt.v)
    if receipt.seq < 1 or receipt.rseq < 1:
        raise _bad("receipt", f"seq {receipt.seq} and rseq {receipt.rseq} count from 1")
    return receipt


def open_heartbeat(text: str | bytes, host_key: PublicKey) -> Heartbeat:
    return opened_heartbeat(sealed_heartbeat(text), host_key)[0]


def sealed_heartbeat(text: str | bytes) -> Sealed:
    """A heartbeat that nobody has verified yet, in its parts: whose it says to be is read before its key is known."""
    return split(text, kind="heartbeat", limit=sealed_bytes(limits.HEARTBEAT_BYTES))


def opened_heartbeat(sealed: Sealed, host_key: PublicKey) -> tuple[Heartbeat, Digest]:
    """`open_heartbeat` of the parts; and its digest."""
    beat, digest = open_sealed(Heartbeat, sealed, kind="heartbeat", keys=(host_key,))
    _known("heartbeat", beat.v)
    _at_most("heartbeat", "alarms", len(beat.alarms), limits.ALARMS)
    _at_most("heartbeat", "open bodies", len(beat.open), limits.OPEN_BODIES_PER_HOST)
    _at_most("heartbeat", "devices", len(beat.inventory.devices), limits.DEVICES_PER_HOST)
    _at_most("heartbeat", "residencies", len(beat.inventory.residencies), limits.RESIDENCIES_PER_HOST)
    _at_most("heartbeat", "cached artifacts", len(beat.inventory.cached), limits.CACHED_ARTIFACTS_PER_HOST)
    _at_most("heartbeat", "transfers", len(beat.inventory.transfers or ()), limits.TRANSFERS)
    _at_most("heartbeat", "measured footprints", len(beat.inventory.measured or ()), limits.MEASURED_PER_HOST)
    _at_most("heartbeat", "abilities", len(beat.inventory.abilities or ()), limits.ABILITIES)
    prefetched = beat.inventory.prefetched or ()
    _at_most("heartbeat", "prefetched artifacts", len(prefetched), limits.PREFETCHED_PER_HOST)
    _at_most("heartbeat", "prefetched files", sum(len(p.files) for p in prefetched), limits.PREFETCHED_FILES)
    wrong = flaw(beat.inventory)
    if wrong is not None:
        raise _bad("heartbeat", wrong)
    if any(p.host != beat.host for p in prefetched):
        raise _bad("heartbeat", "it speaks of files on another host")
    return beat, digest


def open_directive(text: str | bytes, keys: Sequence[PublicKey]) -> Directive:
    directive = _open(Directive, text, "directive", keys, limits.DIRECTIVE_BYTES)
    _known("directive", directive.v)
    _at_most("directive", "grants", len(directive.grants), limits.GRANTS_PER_DIRECTIVE)
    _at_most("directive", "root documents", len(directive.roots), limits.ROOTS_PER_DIRECTIVE)
    return directive


def _open(kind: type[T], text: str | bytes, name: str, keys: Sequence[PublicKey], payload_bytes: int) -> T:
    return open_record(kind, text, kind=name, keys=keys, limit=sealed_bytes(payload_bytes))[0]


def _known(what: str, version: int) -> None:
    if version != WIRE_VERSION:
        raise _bad(what, f"it is of version {version}, this side reads version {WIRE_VERSION}")


def _at_most(what: str, of: str, count: int, most: int) -> None:
    if count > most:
        raise _bad(what, f"it holds {count} {of}, at most {most} are read")


def _bad(what: str, why: str) -> Refusal:
    return Refusal(BAD_SCHEMA.code, f"the signed {what} does not have the expected form: {why}")
