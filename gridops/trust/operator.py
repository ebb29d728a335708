"""Operator requests: what a person asks of the controller, signed, short-lived and for one fleet.

The CLI seals, the controller opens. This module decides who asked and whether the request still holds; that a nonce
is used once is remembered by the controller. A request that only tightens is heard even when the root has expired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gridops.base import limits
from gridops.base.codes import trust as codes
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, HostId, PersonName, PlanId, ProfileName, ScopeName
from gridops.base.record import record, to_bytes
from gridops.base.units import render_instant, render_ms
from gridops.trust import envelope
from gridops.trust.keys import PublicKey, Signer
from gridops.trust.root import RoleName, RootChain

Verb = Literal["apply", "freeze", "thaw", "invite", "write_off", "reject", "unlock", "errand", "reconcile_outcome"]
_TIGHTENING = frozenset({"freeze", "reject"})
_BY_CHANGE = frozenset({"freeze"})
"""What a change key may ask for as well, also a bot's that is limited to paths: whoever may push stops a scope anyhow,
by a stricter mode at the tip. All else loosens, or speaks for on-call, and wants an approver's key."""
COMPARE = (
    "compare `date -u` here with the time in `gridops status -o json`, and set the clock that is wrong right (NTP)"
)
_NONCE_CHARS = range(16, 129)


@record
class OperatorRequest:
    """The payload a person signs. Which of the optional fields a verb needs is the controller's to say."""

    v: Literal[1] = 1
    fleet: Digest
    verb: Verb
    by: PersonName
    nonce: str
    """Random, 16 to 128 characters; the controller hears each one once."""
    issued_ms: int
    not_after_ms: int
    scope: ScopeName | None = None
    plan: PlanId | None = None
    approvals: tuple[str, ...] = ()
    host: HostId | None = None
    ttl_ms: int | None = None
    reason: str | None = None
    until_ms: int | None = None
    last_replicas: tuple[ProfileName, ...] = ()
    resume: bool = False
    errand: Digest | None = None
    """Name of the advised step on a host's disk that shall be done."""
    command: Digest | None = None
    """Identity of a command whose outcome nobody knows; `reason` is the evidence."""
    outcome: str | None = None
    """How it ended: `succeeded` or `failed`."""


def seal_operator(request: OperatorRequest, signer: Signer) -> str:
    """Sign a request."""
    return envelope.seal("operator", to_bytes(request), signer)


@dataclass(frozen=True, slots=True)
class Step:
    """One advised step on a host's disk, by its name."""

    fleet: Digest
    scope: ScopeName
    errand: Digest


def require_let(texts: Sequence[str], step: Step, chain: RootChain, now_ms: int) -> None:
    """Have enough people with approver keys let this very step be done, and does their word still carry it?

    For hosts, and for who commands them. Raises Refusal with what is missing.
    """
    people: dict[PersonName, PublicKey] = {}
    why: list[str] = []
    for text in texts[: limits.SIGNATURES]:
        try:
            request, signers = _opened(text, chain, now_ms, limits.APPROVAL_CARRIED_MS)
        except Refusal as refusal:
            why.append(refusal.message)
            continue
        if request.verb != "errand" or request.errand != step.errand or request.scope not in (None, step.scope):
            why.append(f"the word of {request.by} is for something else")
            continue
        people[request.by] = next(key for key in chain.keys(RoleName.APPROVER) if key in signers)
    count, wanted = min(len(people), len({k.raw for k in people.values()})), chain.threshold(RoleName.APPROVER)
    if count < wanted:
        raise Refusal(codes.GO413.code, f"approval missing ({count} of {wanted})", evidence=tuple(why))


def open_operator(text: str | bytes, chain: RootChain, now_ms: int) -> OperatorRequest:
    """The request, if somebody whose role may ask for that signed it for this fleet, and it is in time."""
    return _opened(text, chain, now_ms, 0)[0]


def _opened(
    text: str | bytes, chain: RootChain, now_ms: int, carried_ms: int
) -> tuple[OperatorRequest, tuple[PublicKey, ...]]:
    """The request and who signed it; its word may carry on after its end."""
    keys = _operators(chain)
    try:
        request, opened = envelope.open_record(
            OperatorRequest, text, kind="operator", keys=keys, limit=limits.REQUEST_BYTES
        )
    except Refusal as error:
        if error.code != codes.BAD_SIGNATURE.code:
            raise
        raise Refusal(
            codes.GO414.code,
            f"the request is not signed by any approver or change key of root {chain.root.version}",
            evidence=error.evidence,
        ) from error
    if request.fleet != chain.fleet:
        raise Refusal(codes.WRONG_FLEET.code, f"the request is for fleet {request.fleet}, this is {chain.fleet}")
    holders = sorted({chain.holder(key) or "" for key in opened.signers})
    if holders != [request.by]:
        raise Refusal(codes.GO414.code, f"a request by {request.by} is signed with the key of {', '.join(holders)}")
    if request.verb not in _BY_CHANGE and not set(opened.signers) & set(chain.keys(RoleName.APPROVER)):
        needed = f"`{request.verb.replace('_', '-')}` needs an approver key of root {chain.root.version}"
        raise Refusal(codes.GO414.code, f"{needed}, and {request.by}'s key has the role change")
    _require_in_time(request, now_ms, carried_ms)
    if request.verb not in _TIGHTENING:
        chain.require_fresh(now_ms)
    if len(request.nonce) not in _NONCE_CHARS:
        raise Refusal(codes.BAD_SCHEMA.code, "the request's nonce has not 16 to 128 characters")
    if len(request.approvals) > limits.APPROVALS_PER_REQUEST:
        raise Refusal(codes.BAD_SCHEMA.code, f"the request carries more than {limits.APPROVALS_PER_REQUEST} approvals")
    return request, opened.signers


def _operators(chain: RootChain) -> tuple[PublicKey, ...]:
    return tuple(dict.fromkeys((*chain.keys(RoleName.APPROVER), *chain.keys(RoleName.CHANGE))))


def _require_in_time(request: OperatorRequest, now_ms: int, carried_ms: int) -> None:
    if request.issued_ms > now_ms + limits.ISSUED_AHEAD_MS:
        raise Refusal(
            codes.REQUEST_NOT_YET.code,
            f"the request is from the future: {_times(request, now_ms)}",
            hints=(COMPARE,),
        )
    if now_ms > request.not_after_ms + carried_ms:
        raise Refusal(
            codes.REQUEST_EXPIRED.code,
            f"the request expired at {render_instant(request.not_after_ms)}: {_times(request, now_ms)}",
            hints=_ways_out(now_ms - request.issued_ms),
        )
    if request.not_after_ms - request.issued_ms > limits.OPERATOR_VALID_MS:
        raise Refusal(codes.REQUEST_EXPIRED.code, "the request claims to be valid for longer than ten minutes")


def _times(request: OperatorRequest, now_ms: int) -> str:
    made, here = render_instant(request.issued_ms), render_instant(now_ms)
    return f"it was made at {made} by the clock of {request.by}, and the controller's time is {here}"


def _ways_out(ahead_ms: int) -> tuple[str, ...]:
    """The controller's time never goes back, so a clock that ran ahead is waited for: this says how, and what works."""
    ran_ahead = "if the controller's clock ran ahead and was set right, its time stays ahead"
    return (
        "run the command again, if this one was kept for a while",
        COMPARE,
        f"{ran_ahead}: stop the controller for {render_ms(ahead_ms)} (engines go on), then start it",
        "to freeze meanwhile, commit `mode: observe` in policies/mode.yaml: it counts whatever the time is",
    )
