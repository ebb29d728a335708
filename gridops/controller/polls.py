"""One poll of a host in three steps: hear it, so that its word becomes rows; prove what it is to be told; answer it.

`service` calls `hear` for each poll that came together, then `prove` for each, makes everything durable at once, and
calls `answer` for each. Between the first and the last nothing may leave the process. Nothing here decides what to do
on a host: `core` does.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gridops.base import limits
from gridops.base.codes.control import GO426, NOT_READY
from gridops.base.codes.trust import BAD_ENVELOPE, BAD_SCHEMA
from gridops.base.errors import Refusal
from gridops.base.ids import HostId, is_name
from gridops.base.record import with_one
from gridops.controller.core import ingest, issue
from gridops.controller.core.observe import fresh, now_shown
from gridops.controller.core.soft import Heard
from gridops.model.snapshot import Residency, ResidencyState
from gridops.protocol.messages import Beat, Heartbeat
from gridops.protocol.open import open_receipt, opened_heartbeat, sealed_bytes, sealed_heartbeat
from gridops.trust.envelope import Sealed, seal_record
from gridops.trust.keys import PublicKey

if TYPE_CHECKING:
    from gridops.controller.service import Controller


@dataclass(frozen=True, slots=True)
class Polled:
    """A poll that was heard and waits for its answer."""

    heartbeat: Heartbeat
    news: bool
    now_ms: int
    heard: Heard | None = None
    """What it said, where that is of now."""
    heard_lately: bool = False
    """It was fresh until this word."""
    in_doubt: bool = False
    """It may be a copy that speaks: it gets nothing to act on."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A sealed directive, and whether the host said anything that asks for a pass."""

    directive: str
    news: bool


def hear(desk: Controller, beat: Beat) -> Polled:
    """Its rows are recorded and not yet durable: nothing may be said before that. Raises Refusal."""
    host, sealed = _claimed_host(beat.heartbeat)
    key = _admitted(desk, host)
    heartbeat, digest = opened_heartbeat(sealed or sealed_heartbeat(beat.heartbeat), key)
    if heartbeat.host != host:
        raise Refusal(BAD_SCHEMA.code, f"a heartbeat of {heartbeat.host} came as one of {host}")
    receipts = [ingest.Signed(open_receipt(text, key), text) for text in beat.receipts[: limits.RECEIPTS_PER_REQUEST]]
    state, soft, now_ms = desk.state, desk.soft, desk.now()
    word = ingest.Word(heartbeat, digest, desk.roster, receipts)
    said = ingest.take(state, soft, key.text, word, now_ms)
    soft.pulses[host] = said.pulse
    if said.refusal is not None:
        raise said.refusal
    if said.doubted:
        return Polled(heartbeat, False, now_ms, in_doubt=True)
    desk.writer.record(said.rows, now_ms)
    news = bool(said.rows) or _differs(soft.hosts.get(host), said.heard)
    lately = fresh(soft, desk.roster, host, now_ms)
    if said.heard is not None:
        soft.hosts[host] = said.heard
        soft.shown.setdefault(host, {}).update(now_shown(state.hosts[host], said.heard))
    desk.rise()
    return Polled(heartbeat, news, now_ms, said.heard, lately)


def prove(desk: Controller, polled: Polled) -> Polled:
    """Take back what may not go any more, by all that was heard: also by who spoke after it and is answered with it."""
    if not polled.in_doubt:
        host, now_ms = polled.heartbeat.host, polled.now_ms
        rows = desk.taken_back(host, polled.heard, now_ms, heard_lately=polled.heard_lately)
        desk.writer.record(rows, now_ms)
    return polled


def answer(desk: Controller, polled: Polled) -> Answered:
    """What a host is told whose rows are durable."""
    heartbeat, now_ms = polled.heartbeat, polled.now_ms
    host = heartbeat.host
    if polled.in_doubt:
        nothing = issue.nothing(desk.state, desk.soft, desk.roster, heartbeat, now_ms)
        return Answered(seal_record("directive", nothing, desk.signer), False)
    grants = tuple(seal_record("grant", g, desk.signer) for g in ingest.due(desk.state, heartbeat, now_ms))
    expected = any(host in outcome.hosts for outcome in desk.outcomes.values())
    told = issue.Answer(grants, desk.gateway_keys, expected, desk.soft)
    directive = issue.directive(desk.state, desk.roster, heartbeat, told, now_ms)
    return Answered(seal_record("directive", directive, desk.signer), polled.news)


def peek(envelope: str, payload_bytes: int) -> dict[str, object]:
    """The payload of an envelope nobody has verified yet. Only to find out whose key to verify it with."""
    try:
        if len(envelope) > sealed_bytes(payload_bytes):
            raise Refusal(BAD_ENVELOPE.code, f"this envelope is larger than {sealed_bytes(payload_bytes)} bytes")
        return _claims(base64.b64decode(json.loads(envelope)["payload"], validate=True))
    except (ValueError, LookupError, TypeError, RecursionError, binascii.Error) as error:
        raise Refusal(BAD_ENVELOPE.code, "this is not a signed envelope") from error


def _claims(payload: bytes) -> dict[str, object]:
    try:
        claimed = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise Refusal(BAD_ENVELOPE.code, "this is not a signed envelope") from error
    return claimed if isinstance(claimed, dict) else {}


def _claimed_host(envelope: str) -> tuple[HostId, Sealed | None]:
    """Which host a heartbeat says it is from: chooses the key to verify with, and decides nothing else.

    With the parts of its envelope, unless that is none: who is admitted is asked before what is wrong with it is said.
    """
    sealed = None
    with contextlib.suppress(Refusal):
        sealed = sealed_heartbeat(envelope)
    claimed = peek(envelope, limits.HEARTBEAT_BYTES) if sealed is None else _claims(sealed.payload)
    host = claimed.get("host")
    if not isinstance(host, str) or not is_name(host):
        raise Refusal(BAD_SCHEMA.code, "the heartbeat names no host")
    return HostId(host), sealed


def _admitted(desk: Controller, host: HostId) -> PublicKey:
    if desk.state.accepted is None:
        raise Refusal(NOT_READY.code, "the controller has no valid commit yet, so it knows no host")
    key = desk.roster.key_of(host)
    if key is None:
        raise Refusal("not_admitted", f"{host} is not admitted", subject=host, hints=(GO426.remedy,))
    return key


def _differs(before: Heard | None, now: Heard | None) -> bool:
    """Whether a host says something else than before. How many requests a process works on is a reading: no news."""
    if before is None or now is None:
        return before is not now
    old, new = before.report, now.report
    if (old.generation, old.state, old.goodbye, old.left, old.cached) != (
        new.generation,
        new.state,
        new.goodbye,
        new.left,
        new.cached,
    ):
        return True
    return old.residencies != new.residencies and _still(old.residencies) != _still(new.residencies)


def _still(residencies: tuple[Residency, ...]) -> list[Residency]:
    """Without the requests in flight, but of those that drain: there the last one ends a wait."""
    return [r if r.state is ResidencyState.DRAINING else with_one(r, "in_flight", 0) for r in residencies]
