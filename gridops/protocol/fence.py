"""The host's fence: may this grant be acted on, and what must be remembered before acting?

Called by the agent's core for each grant of a directive, in order. The host is where execute and void are decided:
whichever of the two is recorded first wins, and the other is answered with the stored outcome. The fence returned by
a ruling must be durable before anything happens. It never acts, never reads a clock, and knows no engine: what the
host itself may object to (ceilings, brake, preconditions) is the agent's, after an `Execute`.

The checks and their order are trust.md B5; first failure wins. A refusal that is not final returns the very same
fence object, so that not one durable byte can change; a final one has used up the command's number.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gridops import __version__
from gridops.base import limits
from gridops.base.codes import Code
from gridops.base.codes import protocol as codes
from gridops.base.codes import trust as trust_codes
from gridops.base.errors import Bug, Refusal
from gridops.base.ids import Digest, HostId
from gridops.base.record import digest_of, record
from gridops.base.units import counted, render_ms
from gridops.model.action import Action, Load, Unload, Warm
from gridops.protocol.covers import Asked, Runs, nothing, uncovered
from gridops.protocol.messages import AuthorityKind, Grant, GrantMode, Head, Term, genesis
from gridops.protocol.open import open_grant
from gridops.trust.catalog import Start, loads, starts
from gridops.trust.release import NONE_KNOWN, KnownCatalog, demanded
from gridops.trust.root import RootChain

NO_TERM = Term(epoch=0, counter=0)
"""Before the first command: below every term, and no base for a jump."""


@record
class Decided:
    """One number that is used up. `rseq` is the final receipt's number; None while the body is open."""

    seq: int
    body: Digest
    rseq: int | None = None


@record
class Fence:
    """What a host must never forget. `decided` is in order of `seq` and bounded; open bodies never fall out."""

    fleet: Digest
    host: HostId
    host_key: str
    term: Term
    head: Head
    decided: tuple[Decided, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """How the host stands when it judges: controller time, session, root documents, receipts nobody acknowledged, and
    what runs."""

    now_ms: int
    fresh: bool
    chain: RootChain
    owed: int = 0
    known: KnownCatalog = NONE_KNOWN
    """What the host has seen of catalogs."""
    runs: Runs = field(default_factory=nothing)
    agent: str = __version__
    """The version of the agent that judges."""


@dataclass(frozen=True, slots=True)
class Execute:
    """Accepted. Persist `fence`, then act; the outcome needs a final receipt and `settle`."""

    grant: Grant
    fence: Fence


@dataclass(frozen=True, slots=True)
class Voided:
    """Taken back before it was accepted. Persist `fence` with a final `voided` receipt; nothing is to be done."""

    grant: Grant
    fence: Fence


@dataclass(frozen=True, slots=True)
class Repeat:
    """Decided already: answer the stored receipt, or nothing while the body is open. Nothing changes."""

    body: Digest
    seq: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Void for an accepted body that is still open. Only transfers stop; anything else runs to its receipt."""

    body: Digest
    seq: int


@dataclass(frozen=True, slots=True)
class Reject:
    """Refused. Final: persist `fence` with a final `refused` receipt. Not final: nothing changes."""

    code: str
    detail: str
    final: bool
    grant: Grant | None
    fence: Fence


Ruling = Execute | Voided | Repeat | Cancel | Reject


def new_fence(fleet: Digest, host: HostId, host_key: str) -> Fence:
    head = Head(seq=0, body=genesis(fleet, host_key))
    return Fence(fleet=fleet, host=host, host_key=host_key, term=NO_TERM, head=head)


def examine(fence: Fence, envelope: str | bytes, standing: Standing) -> Ruling:
    """Judge one signed grant. Pure and total: whatever the bytes are, the answer is a ruling."""
    try:
        grant = open_grant(envelope, standing.chain.keys("controller"))
    except Refusal as refusal:
        return Reject(refusal.code, refusal.message, False, None, fence)
    no = _for_me(fence, grant) or term_refused(fence, grant.term, standing.chain)
    if no is None and grant.body.seq <= fence.head.seq:
        return _decided_before(fence, grant)
    no = no or _next(fence, grant) or _in_time(grant, standing) or _in_session(fence, standing)
    if no is not None:
        return Reject(no[0].code, no[1], False, grant, fence)
    consumed = _consume(fence, grant)
    if grant.mode is GrantMode.VOID:
        return Voided(grant, consumed)
    no = _in_catalog(grant, standing) or _with_authority(grant, standing)
    if no is not None:
        return Reject(no[0].code, no[1], True, grant, consumed)
    return Execute(grant, consumed)


def settle(fence: Fence, body: Digest, rseq: int) -> Fence:
    """The body has its final receipt. Doing it twice is the caller's fault: a body has one final receipt."""
    for at, item in enumerate(fence.decided):
        if item.body == body:
            if item.rseq is not None:
                raise Bug(f"body {body} already has the final receipt {item.rseq}")
            done = replace(item, rseq=rseq)
            return replace(fence, decided=_kept((*fence.decided[:at], done, *fence.decided[at + 1 :])))
    raise Bug(f"body {body} was never accepted here")


def raise_term(fence: Fence, term: Term, chain: RootChain) -> Fence:
    """The floor after a fresh directive. Raises Refusal `stale_term` or `term_jump`. Same object if nothing rises."""
    no = term_refused(fence, term, chain)
    if no is not None:
        raise Refusal(no[0].code, no[1])
    return fence if term.rank == fence.term.rank else replace(fence, term=term)


def open_heads(fence: Fence) -> tuple[Head, ...]:
    """Accepted bodies without a final receipt, for the heartbeat and for recovery after a restart."""
    return tuple(Head(seq=d.seq, body=d.body) for d in fence.decided if d.rseq is None)


def decided(fence: Fence, seq: int) -> Decided | None:
    """What this host remembers of a number."""
    return next((d for d in reversed(fence.decided) if d.seq == seq), None)


_No = tuple[Code, str] | None


def _for_me(fence: Fence, grant: Grant) -> _No:
    body = grant.body
    if body.fleet != fence.fleet:
        return trust_codes.WRONG_FLEET, f"the command is for fleet {body.fleet}, this host belongs to {fence.fleet}"
    if body.host != fence.host:
        return codes.WRONG_HOST, f"the command is for {body.host}, this is {fence.host}"
    if body.host_key != fence.host_key:
        return codes.WRONG_HOST_KEY, f"the command is for the key {body.host_key}, this host holds {fence.host_key}"
    return None


def term_refused(fence: Fence, term: Term, chain: RootChain) -> _No:
    """Why this term may not speak here, if so. Also for directives.

    With a fenced journal and body identity this is a second fence: simulation does not miss it when it is gone, a
    deposed controller with a restored journal does. It stays.
    """
    said, epoch = f"term {term.epoch}.{term.counter}", chain.root.controller_epoch
    if term.rank < fence.term.rank:
        return codes.STALE_TERM, f"{said} is below {fence.term.epoch}.{fence.term.counter}, which this host has obeyed"
    if term.epoch < epoch:
        return codes.STALE_TERM, f"{said} is of an epoch before {epoch}, which the root document names"
    if term.epoch > epoch:
        return codes.TERM_JUMP, f"{said} is of an epoch after {epoch}, the newest root document here"
    leap = term.counter - fence.term.counter
    if term.epoch == fence.term.epoch and fence.term != NO_TERM and leap > limits.TERM_JUMP:
        return codes.TERM_JUMP, f"{said} is {leap} above the last one, at most {limits.TERM_JUMP} are believed"
    return None


def _decided_before(fence: Fence, grant: Grant) -> Ruling:
    # Before expiry and freshness on purpose: nothing is done here that was not decided already, and a body that the
    # controller once voided is never wanted again, so a late void cancels nothing that is still meant to be.
    seq, body = grant.body.seq, digest_of(grant.body)
    known = decided(fence, seq)
    if known is None:
        return Reject(codes.DUPLICATE.code, f"number {seq} was decided before what is kept here", False, grant, fence)
    if known.body != body:
        detail = f"number {seq} is {known.body} on this host, the controller says {body}"
        return Reject(codes.FORK.code, detail, False, grant, fence)
    if grant.mode is GrantMode.VOID and known.rseq is None:
        return Cancel(body, seq)
    return Repeat(body, seq)


def _next(fence: Fence, grant: Grant) -> _No:
    wanted = fence.head.seq + 1
    if grant.body.seq != wanted:
        return codes.GAP, f"the command has number {grant.body.seq}, this host waits for {wanted}"
    if grant.body.prev != fence.head.body:
        return codes.GAP, f"command {wanted} follows {grant.body.prev}, the last one here is {fence.head.body}"
    return None


def _in_time(grant: Grant, standing: Standing) -> _No:
    now_ms = standing.now_ms
    early = grant.issued_ms - now_ms
    if early > limits.ISSUED_AHEAD_MS:
        return codes.NOT_YET, f"issued {render_ms(early)} after this host's idea of the controller's time"
    if now_ms > grant.not_after_ms:
        return codes.EXPIRED, f"the grant ended {render_ms(now_ms - grant.not_after_ms)} ago"
    valid_ms = grant.not_after_ms - grant.issued_ms
    if not 0 <= valid_ms <= limits.GRANT_VALID_MS:
        most = render_ms(limits.GRANT_VALID_MS)
        return codes.EXPIRED, f"the grant states a validity of {valid_ms} ms, at most {most} counts"
    return None


def _in_session(fence: Fence, standing: Standing) -> _No:
    if not standing.fresh:
        return codes.STALE_SESSION, f"no fresh directive for {render_ms(limits.STALE_SESSION_MS)}"
    if standing.chain.expired(standing.now_ms):
        return trust_codes.ROOT_EXPIRED, "the newest root document here has expired: serving goes on, change waits"
    outdated = standing.chain.outdated(standing.agent)
    if outdated is not None:
        return trust_codes.AGENT_TOO_OLD, f"{outdated}; serving goes on, change waits"
    unfinished, most = len(open_heads(fence)), limits.OPEN_BODIES_PER_HOST
    if unfinished >= most:
        return codes.TOO_MANY_OPEN, f"{counted(unfinished, 'command')} unfinished, at most {most} may be"
    owed, most = standing.owed, limits.RECEIPTS_OWED
    if owed >= most:
        return codes.TOO_MANY_OPEN, f"{owed} receipts are not acknowledged, at most {most} may be"
    return None


def _in_catalog(grant: Grant, standing: Standing) -> _No:
    """Nothing that people did not sign is brought or started. What only ends or relabels is never in its way."""
    least, action = demanded(standing.known, standing.chain), grant.body.action
    if least == 0 or not isinstance(action, Load | Warm):
        return None
    catalog, made_under = standing.known.catalog, grant.body.catalog or 0
    if catalog is not None and made_under < catalog.version:
        under = f"catalog {made_under}" if made_under else "no catalog"
        return codes.OLD_CATALOG, f"the command was made under {under}, this host has seen {catalog.version}"
    return uncatalogued(standing.known, standing.chain, action)


def uncatalogued(known: KnownCatalog, chain: RootChain, action: Action) -> _No:
    """Why what is known of catalogs forbids an action, whoever asks for it."""
    least, catalog = demanded(known, chain), known.catalog
    if least == 0 or not isinstance(action, Load | Warm):
        return None
    if catalog is None or catalog.version < least:
        return codes.NOT_IN_CATALOG, (
            f"catalog {least} or a later one is asked for here, and none came that root {chain.root.version} believes"
        )
    why = loads(catalog, action.artifact) if isinstance(action, Load) else starts(catalog, start_of(action))
    return (codes.NOT_IN_CATALOG, why) if why is not None else None


def start_of(warm: Warm) -> Start:
    """What a command starts, as a catalog judges it."""
    return Start(warm.launch, len(warm.devices), warm.device_bytes, warm.host_bytes)


def _with_authority(grant: Grant, standing: Standing) -> _No:
    authority, body = grant.authority, grant.body
    match authority.kind:
        case AuthorityKind.APPROVAL:
            asked = Asked(body.fleet, body.scope, body.action, authority, standing.runs)
            why = uncovered(asked, standing.chain, standing.now_ms)
            if why is not None:
                return codes.UNAPPROVED, why
        case AuthorityKind.STANDING:
            if not standing.chain.root.standing:
                return codes.UNAPPROVED, "the grant claims standing authority, which the root document does not permit"
            if isinstance(grant.body.action, Unload) and grant.body.action.force:
                return codes.UNAPPROVED, "a forced unload cuts work in flight and needs an approval"
    return None


def _consume(fence: Fence, grant: Grant) -> Fence:
    """The number is used up and the term obeyed from here on."""
    head = Head(seq=grant.body.seq, body=digest_of(grant.body))
    kept = _kept((*fence.decided, Decided(seq=head.seq, body=head.body)))
    return replace(fence, term=grant.term, head=head, decided=kept)


def _kept(items: tuple[Decided, ...]) -> tuple[Decided, ...]:
    spare = len(items) - limits.DECIDED_KEPT
    if spare <= 0:
        return items
    old, young = items[:spare], items[spare:]
    return (*(d for d in old if d.rseq is None), *young)
