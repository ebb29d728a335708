"""Approvals: one person's signed yes or no to exactly these decisions, for a limited time.

The CLI signs them, the controller (and later the host) judges them when a target is set. An approval binds fleet,
scope, decisions digest and read set, and counts only while all four are equal to what shall be done now. One valid
rejection blocks. What does not count is explained, one line per approval; a bad one never spoils the good ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from gridops.base import limits
from gridops.base.codes.trust import BAD_SIGNATURE, GO413, GO414, GO421
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, PersonName, ProfileName, ScopeName, short
from gridops.base.record import record, to_bytes
from gridops.base.units import counted, render_instant, render_ms
from gridops.model.plan import ReadSet
from gridops.trust import envelope
from gridops.trust.keys import PublicKey, Signer
from gridops.trust.root import RoleName, RootChain


@record
class Approval:
    """The payload a person signs."""

    v: Literal[1] = 1
    fleet: Digest
    scope: ScopeName
    decisions_digest: Digest
    reads: ReadSet
    decision: Literal["approve", "reject"]
    approver: PersonName
    last_replicas: tuple[ProfileName, ...] = ()
    """Profiles whose last replica may go: their names were typed by this person."""
    issued_ms: int
    not_after_ms: int
    decisions_tree: Digest | None = None
    """The decisions a second time, as the root of a tree (`approved.tree_of`): by it a host tells that one command
    carries out one of them. None: signed by a gridops that knew no tree, so that no host can tell."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What shall be done now; an approval for anything else does not count."""

    fleet: Digest
    scope: ScopeName
    decisions_digest: Digest
    reads: ReadSet
    authors: frozenset[PersonName] = frozenset()
    """Who wrote what shall be done, where that bars them from saying yes to it. Their no counts."""
    tree: Digest | None = None
    """None: nobody has to be shown a single decision."""
    waits_ms: int = limits.APPROVAL_VALID_MS
    """So long after it was signed a yes may set a target; its own end may be earlier. A no holds until its own end."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a command says was approved: decisions of one scope with this tree."""

    fleet: Digest
    scope: ScopeName
    tree: Digest


@dataclass(frozen=True, slots=True)
class Verdict:
    """Enough people said yes. `approvers` sorted; `last_replicas` is what they typed together; `texts` is what
    counted, one of each person."""

    approvers: tuple[PersonName, ...]
    last_replicas: frozenset[ProfileName]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Counted:
    approval: Approval
    key: PublicKey
    text: str


def seal_approval(approval: Approval, signer: Signer) -> str:
    """Sign an approval."""
    return envelope.seal("approval", to_bytes(approval), signer)


def judge(
    texts: Sequence[str],
    *,
    chain: RootChain,
    binding: Binding,
    need: int,
    eligible: frozenset[PersonName],
    now_ms: int,
) -> Verdict:
    """Do these approvals carry the change? Raises Refusal GO413, GO414, GO421 or `root_expired`.

    A need above zero is at least the approver threshold of the root; zero asks nobody, but a rejection still blocks.
    """
    chain.require_fresh(now_ms)
    if len(texts) > limits.APPROVALS_PER_REQUEST:
        raise Refusal(GO413.code, f"more than {limits.APPROVALS_PER_REQUEST} approvals at once")
    counted: dict[PersonName, _Counted] = {}
    last_replicas: set[ProfileName] = set()
    faults: list[Refusal] = []
    for text in texts:
        try:
            found = _valid(text, chain, binding, now_ms)
            if found.approval.decision == "reject":
                raise _rejected(found.approval)
            _require_eligible(found.approval.approver, eligible, binding.authors)
        except Refusal as fault:
            if fault.code == GO421.code:
                raise
            faults.append(fault)
            continue
        counted.setdefault(found.approval.approver, found)
        last_replicas.update(found.approval.last_replicas)
    wanted = max(need, chain.threshold(RoleName.APPROVER)) if need > 0 else 0
    count = _distinct(counted)
    if count < wanted:
        raise _missing(count, wanted, sorted(counted), faults)
    return Verdict(tuple(sorted(counted)), frozenset(last_replicas), tuple(counted[p].text for p in sorted(counted)))


def require_carried(texts: Sequence[str], claim: Claim, chain: RootChain, now_ms: int) -> None:
    """Do these approvals still carry commands of a target that was set by them? For hosts, and for who commands them.

    The same people, keys and rejections as for `judge`. What was read was judged when the target was set, and so was
    the end of each approval, which carries for APPROVAL_CARRIED_MS from then on. Raises Refusal GO413, GO414, GO421.
    """
    counted: dict[PersonName, _Counted] = {}
    faults: list[Refusal] = []
    for text in texts[: limits.SIGNATURES]:
        try:
            found = _signed(text, chain)
            _require_claimed(found.approval, claim)
            _require_in_time(found.approval, now_ms, limits.APPROVAL_CARRIED_MS)
        except Refusal as fault:
            faults.append(fault)
            continue
        if found.approval.decision == "reject":
            raise _rejected(found.approval)
        counted.setdefault(found.approval.approver, found)
    count, wanted = _distinct(counted), chain.threshold(RoleName.APPROVER)
    if count < wanted:
        raise _missing(count, wanted, sorted(counted), faults)


def _distinct(counted: Mapping[PersonName, _Counted]) -> int:
    # Distinct people with distinct keys, as everywhere. The root lets no key have two holders; this holds anyway.
    return min(len(counted), len({entry.key.raw for entry in counted.values()}))


def _valid(text: str, chain: RootChain, binding: Binding, now_ms: int) -> _Counted:
    """An approval or rejection by a known key, for exactly this, in time. Raises Refusal GO413 or GO414."""
    found = _signed(text, chain)
    _require_bound(found.approval, binding)
    _require_in_time(found.approval, now_ms)
    if found.approval.decision == "approve":
        _require_fresh(found.approval, binding.waits_ms, now_ms)
    return found


def _signed(text: str, chain: RootChain) -> _Counted:
    """An approval or rejection by the person whose key signed it. Raises Refusal GO413 or GO414."""
    try:
        approval, opened = _opened(text, chain.keys(RoleName.APPROVER))
    except Refusal as error:
        if error.code != BAD_SIGNATURE.code:
            raise Refusal(GO413.code, f"an approval cannot be read: {error.message}") from error
        version = chain.root.version
        raise Refusal(
            GO414.code, f"an approval is not signed by any approver key of root {version}", evidence=error.evidence
        ) from error
    key = next((k for k in opened.signers if chain.holder(k) == approval.approver), None)
    if key is None:
        holder = chain.holder(opened.signers[0])
        raise Refusal(GO414.code, f"an approval by {approval.approver} is signed with the key of {holder}")
    return _Counted(approval, key, text)


@lru_cache(maxsize=limits.APPROVALS_KEPT)
def _opened(text: str, keys: tuple[PublicKey, ...]) -> tuple[Approval, envelope.Opened]:
    """What these keys signed, whenever it is asked: each pass asks for all that carries the targets in force."""
    return envelope.open_record(Approval, text, kind="approval", keys=keys)


def _require_bound(approval: Approval, binding: Binding) -> None:
    who = f"the approval by {approval.approver} is for"
    if approval.fleet != binding.fleet:
        raise Refusal(GO413.code, f"{who} another fleet ({short(approval.fleet)})")
    if approval.scope != binding.scope:
        raise Refusal(GO413.code, f"{who} scope {approval.scope}, not {binding.scope}")
    if approval.decisions_digest != binding.decisions_digest:
        old, new = short(approval.decisions_digest), short(binding.decisions_digest)
        raise Refusal(GO413.code, f"{who} other decisions ({old}, now {new})")
    if approval.reads != binding.reads:
        changed = ", ".join(_differences(approval.reads, binding.reads)) or "their order"
        raise Refusal(GO413.code, f"{who} what was read before something changed: {changed}")
    if binding.tree is not None and approval.decision == "approve":
        _require_tree(approval, binding.tree)


def _require_claimed(approval: Approval, claim: Claim) -> None:
    who = f"the approval by {approval.approver} is for"
    if approval.fleet != claim.fleet:
        raise Refusal(GO413.code, f"{who} another fleet ({short(approval.fleet)})")
    if approval.scope != claim.scope:
        raise Refusal(GO413.code, f"{who} scope {approval.scope}, not {claim.scope}")
    _require_tree(approval, claim.tree)


def _require_tree(approval: Approval, tree: Digest) -> None:
    who = f"the approval by {approval.approver}"
    if approval.decisions_tree is None:
        raise Refusal(GO413.code, f"{who} was signed by an older gridops and tells hosts no single step: sign it again")
    if approval.decisions_tree != tree:
        raise Refusal(GO413.code, f"{who} is for other decisions than the one that is to be carried out")


def _require_in_time(approval: Approval, now_ms: int, carried_ms: int = 0) -> None:
    who = f"the approval by {approval.approver}"
    if now_ms > approval.not_after_ms + carried_ms:
        raise Refusal(GO413.code, f"{who} expired at {render_instant(approval.not_after_ms)}")
    if approval.issued_ms > now_ms + limits.ISSUED_AHEAD_MS:
        raise Refusal(GO413.code, f"{who} was issued in the future, at {render_instant(approval.issued_ms)}")
    if approval.not_after_ms - approval.issued_ms > limits.APPROVAL_VALID_MS:
        raise Refusal(GO413.code, f"{who} is valid for longer than 7 days, which no approval may be")


def _require_fresh(approval: Approval, waits_ms: int, now_ms: int) -> None:
    if now_ms > approval.issued_ms + waits_ms:
        signed, most = render_instant(approval.issued_ms), render_ms(waits_ms)
        policy = f"policies/approvals.yaml lets one wait for {most}"
        raise Refusal(GO413.code, f"the approval by {approval.approver} was signed at {signed}, and {policy}")


def _require_eligible(approver: PersonName, eligible: frozenset[PersonName], authors: frozenset[PersonName]) -> None:
    if approver in authors:
        why = "signed a commit behind it, and author_may_approve is false"
        raise Refusal(GO413.code, f"{approver} may not approve this change ({why})")
    if approver not in eligible:
        raise Refusal(GO413.code, f"{approver} may not approve this change (not on its roster)")


def _differences(old: ReadSet, new: ReadSet) -> list[str]:
    """Names of profiles and hosts that are not the same in both, sorted."""
    profiles = {(p.profile, p.digest) for p in old.profiles} ^ {(p.profile, p.digest) for p in new.profiles}
    hosts = {(h.host, h.generation) for h in old.hosts} ^ {(h.host, h.generation) for h in new.hosts}
    return sorted({f"profile {name}" for name, _ in profiles} | {f"host {name}" for name, _ in hosts})


def _rejected(approval: Approval) -> Refusal:
    return Refusal(
        GO421.code,
        f"{approval.approver} rejected these decisions at {render_instant(approval.issued_ms)}",
        subject=approval.approver,
        evidence=(f"the rejection holds until {render_instant(approval.not_after_ms)}",),
    )


def _missing(count: int, wanted: int, approvers: Sequence[PersonName], faults: Sequence[Refusal]) -> Refusal:
    lines = [fault.message for fault in faults]
    if approvers:
        lines.insert(0, f"approved by {', '.join(approvers)}")
    foreign = [fault for fault in faults if fault.code == GO414.code]
    if foreign:
        extra = tuple(line for fault in foreign for line in fault.evidence)
        headline = f"signature by an unknown key ({count} of {counted(wanted, 'approval')})"
        return Refusal(GO414.code, headline, evidence=(*lines, *extra))
    return Refusal(
        GO413.code,
        f"approval missing ({count} of {wanted})",
        evidence=lines,
        hints=("look at the plan and sign it: gridops apply PLAN",),
    )
