"""Approvals: what counts, what does not and why, and that one rejection blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gridops.base import limits
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, HostId, PersonName, ProfileName, ScopeName
from gridops.base.record import to_bytes
from gridops.model.plan import Generation, ProfileDigest, ReadSet
from gridops.trust import envelope
from gridops.trust.approval import Approval, Binding, Verdict, judge, seal_approval
from gridops.trust.root import RoleName, RootChain
from tests.trust.people import NOW, YEAR, chain_of, person, role, root

CHAIN = chain_of()
HALF_HOUR = 1_800_000
READS = ReadSet(
    profiles=(ProfileDigest(profile=ProfileName("coder"), digest=Digest("sha256:" + "1" * 64)),),
    hosts=(Generation(host=HostId("gpu-01"), generation=7), Generation(host=HostId("gpu-02"), generation=1)),
)
BINDING = Binding(CHAIN.fleet, ScopeName("default"), Digest("sha256:" + "d" * 64), READS)
BOTH = frozenset({PersonName("mira"), PersonName("jon")})


def approval(who: str = "mira", **fields: Any) -> Approval:
    made = Approval(
        fleet=BINDING.fleet,
        scope=BINDING.scope,
        decisions_digest=BINDING.decisions_digest,
        reads=BINDING.reads,
        decision="approve",
        approver=PersonName(who),
        issued_ms=NOW,
        not_after_ms=NOW + HALF_HOUR,
    )
    return replace(made, **fields)


def signed(who: str = "mira", **fields: Any) -> str:
    return seal_approval(approval(who, **fields), person(who))


def verdict(
    texts: Sequence[str],
    need: int = 1,
    now_ms: int = NOW + 1,
    chain: RootChain = CHAIN,
    eligible: frozenset[PersonName] = BOTH,
) -> Verdict:
    return judge(texts, chain=chain, binding=BINDING, need=need, eligible=eligible, now_ms=now_ms)


def refusal(texts: Sequence[str], **how: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        verdict(texts, **how)
    return caught.value


def test_one_good_approval_carries_a_change_that_needs_one() -> None:
    assert verdict([signed()]) == Verdict((PersonName("mira"),), frozenset(), (signed(),))


def test_two_people_are_two_and_are_named_in_order() -> None:
    assert verdict([signed("mira"), signed("jon")], need=2).approvers == ("jon", "mira")


def test_names_of_last_replicas_are_those_that_the_approvers_typed() -> None:
    texts = [signed("mira", last_replicas=(ProfileName("coder"),)), signed("jon", last_replicas=(ProfileName("chat"),))]
    assert verdict(texts, need=2).last_replicas == {"coder", "chat"}
    stale = signed("jon", last_replicas=(ProfileName("chat"),), not_after_ms=NOW)
    assert verdict([texts[0], stale]).last_replicas == {"coder"}, "an approval that does not count names nothing"


NOT_COUNTED: dict[str, tuple[Callable[[], str], str]] = {
    "another fleet": (lambda: signed(fleet=Digest("sha256:" + "0" * 64)), "another fleet"),
    "another scope": (lambda: signed(scope=ScopeName("lab")), "scope lab, not default"),
    "other decisions": (
        lambda: signed(decisions_digest=Digest("sha256:" + "e" * 64)),
        "other decisions .eeeeeeee, now dd",
    ),
    "a profile has changed": (
        lambda: signed(
            reads=replace(READS, profiles=(replace(READS.profiles[0], digest=Digest("sha256:" + "2" * 64)),))
        ),
        "changed: profile coder",
    ),
    "a host has changed": (
        lambda: signed(reads=replace(READS, hosts=(READS.hosts[0], replace(READS.hosts[1], generation=2)))),
        "changed: host gpu-02",
    ),
    "it read less": (lambda: signed(reads=ReadSet()), "changed: host gpu-01, host gpu-02, profile coder"),
    "it read in another order": (lambda: signed(reads=replace(READS, hosts=READS.hosts[::-1])), "changed: their order"),
    "expired": (lambda: signed(not_after_ms=NOW), "expired at 2027-01-15T08:00:00Z"),
    "from the future": (
        lambda: signed(issued_ms=NOW + 2 + limits.ISSUED_AHEAD_MS, not_after_ms=NOW + HALF_HOUR),
        "issued in the future",
    ),
    "valid for too long": (lambda: signed(not_after_ms=NOW + limits.APPROVAL_VALID_MS + 1), "longer than 7 days"),
    "not an envelope": (lambda: "{}", "cannot be read"),
    "another kind": (lambda: envelope.seal("operator", to_bytes(approval()), person("mira")), "cannot be read"),
    "another form": (lambda: envelope.seal("approval", b'{"a":1}', person("mira")), "cannot be read"),
    "another version of the form": (
        lambda: envelope.seal("approval", to_bytes(approval()).replace(b'"v":1', b'"v":2'), person("mira")),
        "cannot be read",
    ),
    "another decision": (
        lambda: envelope.seal("approval", to_bytes(approval()).replace(b'approve"', b'perhaps"'), person("mira")),
        "cannot be read",
    ),
}


@pytest.mark.parametrize(("made", "why"), NOT_COUNTED.values(), ids=NOT_COUNTED.keys())
def test_an_approval_for_something_else_does_not_count_and_says_why(made: Callable[[], str], why: str) -> None:
    found = refusal([made()])
    assert found.code == "GO413"
    assert found.message == "approval missing (0 of 1)"
    assert len(found.evidence) == 1
    assert re.search(why, found.evidence[0]), found.evidence


@pytest.mark.parametrize("made", [m for m, _ in NOT_COUNTED.values()], ids=NOT_COUNTED.keys())
def test_a_bad_approval_does_not_spoil_a_good_one(made: Callable[[], str]) -> None:
    assert verdict([made(), signed("jon")]).approvers == ("jon",)


def test_an_approval_waits_as_long_as_the_policy_lets_it_whatever_end_it_names() -> None:
    binding = replace(BINDING, waits_ms=60_000)
    lasting = signed(not_after_ms=NOW + limits.APPROVAL_VALID_MS)
    how: dict[str, Any] = {"chain": CHAIN, "binding": binding, "need": 1, "eligible": BOTH}
    assert judge([lasting], now_ms=NOW + 60_000, **how).approvers == ("mira",)
    with pytest.raises(Refusal) as caught:
        judge([lasting], now_ms=NOW + 60_001, **how)
    assert caught.value.code == "GO413"
    (why,) = caught.value.evidence
    assert "mira was signed at 2027-01-15T08:00:00Z, and policies/approvals.yaml lets one wait for 60 s" in why
    no = signed("jon", decision="reject", not_after_ms=NOW + HALF_HOUR)
    with pytest.raises(Refusal, match="jon rejected these decisions"):
        judge([no], now_ms=NOW + HALF_HOUR, **how)


def test_the_edges_of_time_are_inside() -> None:
    assert verdict([signed()], now_ms=NOW + HALF_HOUR)
    assert refusal([signed()], now_ms=NOW + HALF_HOUR + 1).code == "GO413"
    assert verdict([signed()], now_ms=NOW - limits.ISSUED_AHEAD_MS)
    assert refusal([signed()], now_ms=NOW - limits.ISSUED_AHEAD_MS - 1).code == "GO413"
    assert verdict([signed(not_after_ms=NOW + limits.APPROVAL_VALID_MS)])


def test_too_few_is_a_refusal_that_says_how_many() -> None:
    assert refusal([]).message == "approval missing (0 of 1)"
    found = refusal([signed("mira")], need=2)
    assert (found.code, found.message, found.evidence) == ("GO413", "approval missing (1 of 2)", ("approved by mira",))


def test_one_person_is_one_however_often_and_with_however_many_tokens() -> None:
    chain = chain_of(root(role(RoleName.APPROVER, 1, "mira", "mira+2", "jon")))
    bound = {"fleet": chain.fleet}
    first = seal_approval(approval("mira", **bound), person("mira"))
    second = seal_approval(approval("mira", **bound, issued_ms=NOW + 1), person("mira+2"))
    both = Binding(chain.fleet, BINDING.scope, BINDING.decisions_digest, READS)
    for texts in ([first, first], [first, second]):
        with pytest.raises(Refusal, match="1 of 2"):
            judge(texts, chain=chain, binding=both, need=2, eligible=BOTH, now_ms=NOW)
    assert judge([second], chain=chain, binding=both, need=1, eligible=BOTH, now_ms=NOW).approvers == ("mira",)


def test_an_approval_by_an_unknown_key_is_go414() -> None:
    forged = seal_approval(approval("mira"), person("thief"))
    found = refusal([forged])
    assert (found.code, found.message) == ("GO414", "signature by an unknown key (0 of 1 approval)")
    assert any(person("thief").public.key_id in line for line in found.evidence)


def test_root_and_controller_keys_do_not_approve() -> None:
    assert refusal([seal_approval(approval("mira"), person("mira.root"))]).code == "GO414"


def test_a_changed_byte_is_an_unknown_signature() -> None:
    document = json.loads(signed())
    other = json.loads(signed(last_replicas=(ProfileName("coder"),)))
    assert refusal([json.dumps({**document, "payload": other["payload"]})]).code == "GO414"


def test_nobody_approves_in_anothers_name() -> None:
    found = refusal([seal_approval(approval("jon"), person("mira"))])
    assert found.code == "GO414"
    assert found.evidence == ("an approval by jon is signed with the key of mira",)


def test_a_second_signature_on_one_approval_is_no_second_approval() -> None:
    text = envelope.countersign(signed("mira"), kind="approval", signer=person("jon"))
    assert verdict([text]).approvers == ("mira",)
    assert refusal([text], need=2).code == "GO413"


def test_only_the_roster_counts() -> None:
    found = refusal([signed("jon")], eligible=frozenset({PersonName("mira")}))
    assert (found.code, found.evidence) == ("GO413", ("jon may not approve this change (not on its roster)",))


def test_a_valid_rejection_blocks_in_any_order_and_whatever_is_needed() -> None:
    no = signed("jon", decision="reject")
    for texts in ([no, signed("mira")], [signed("mira"), no]):
        for need in (0, 1):
            found = refusal(texts, need=need)
            assert (found.code, found.subject) == ("GO421", "jon")
    assert refusal([no], eligible=frozenset({PersonName("mira")})).code == "GO421", "saying no needs less than a yes"


def test_a_rejection_of_something_else_or_by_a_stranger_does_not_block() -> None:
    strangers = seal_approval(approval("jon", decision="reject"), person("thief"))
    others = signed("jon", decision="reject", scope=ScopeName("lab"))
    past = signed("jon", decision="reject", not_after_ms=NOW)
    assert verdict([strangers, others, past, signed("mira")]).approvers == ("mira",)


def test_the_root_threshold_is_the_least_that_approves_anything() -> None:
    chain = chain_of(root(role(RoleName.APPROVER, 2, "mira", "jon")))
    binding = Binding(chain.fleet, BINDING.scope, BINDING.decisions_digest, READS)
    one, two = (seal_approval(approval(who, fleet=chain.fleet), person(who)) for who in ("mira", "jon"))
    with pytest.raises(Refusal, match=r"1 of 2"):
        judge([one], chain=chain, binding=binding, need=1, eligible=BOTH, now_ms=NOW)
    assert len(judge([one, two], chain=chain, binding=binding, need=1, eligible=BOTH, now_ms=NOW).approvers) == 2
    nothing = judge([], chain=chain, binding=binding, need=0, eligible=BOTH, now_ms=NOW)
    assert nothing == Verdict((), frozenset())


def test_an_expired_root_freezes_change() -> None:
    late = NOW + YEAR
    text = signed(issued_ms=late - 1, not_after_ms=late + HALF_HOUR)
    assert refusal([text], now_ms=late).code == "root_expired"


def test_approvals_are_bounded() -> None:
    assert verdict([signed()] * limits.APPROVALS_PER_REQUEST)
    assert refusal([signed()] * (limits.APPROVALS_PER_REQUEST + 1)).code == "GO413"


# --- what hosts can tell, and who wrote it ---------------------------------------------------------------------------

TREE = Digest("sha256:" + "7" * 64)


def test_where_hosts_verify_an_approval_it_names_the_tree_of_the_same_decisions() -> None:
    binding = replace(BINDING, tree=TREE)

    def judged(text: str) -> Verdict:
        return judge([text], chain=CHAIN, binding=binding, need=1, eligible=BOTH, now_ms=NOW)

    assert judged(signed(decisions_tree=TREE)).texts == (signed(decisions_tree=TREE),)
    with pytest.raises(Refusal) as old:
        judged(signed())
    assert "signed by an older gridops" in old.value.evidence[0]
    with pytest.raises(Refusal) as other:
        judged(signed(decisions_tree=READS.profiles[0].digest))
    assert "is for other decisions" in other.value.evidence[0]
    with pytest.raises(Refusal) as no:
        judged(signed("jon", decision="reject"))
    assert no.value.code == "GO421", "a no is a no in any form"


def test_an_approval_of_the_first_form_has_the_bytes_it_always_had() -> None:
    """Recorded before there was a tree; envelopes that people keep in files are read for ever."""
    recorded = (
        b'{"approver":"mira","decision":"approve","decisions_digest":"sha256:' + b"d" * 64 + b'","fleet":"'
        + CHAIN.fleet.encode() + b'","issued_ms":1800000000000,"last_replicas":[],"not_after_ms":1800001800000,"reads":'
        b'{"hosts":[{"generation":7,"host":"gpu-01"},{"generation":1,"host":"gpu-02"}],"profiles":[{"digest":"sha256:'
        + b"1" * 64 + b'","profile":"coder"}]},"scope":"default","v":1}'
    )  # fmt: skip
    assert to_bytes(approval()) == recorded
    assert verdict([envelope.seal("approval", recorded, person("mira"))]).approvers == ("mira",)


def test_what_counted_is_kept_and_nothing_else() -> None:
    good, bad = signed("jon"), signed("mira", scope=ScopeName("lab"))
    assert verdict([bad, good, signed("jon", issued_ms=NOW + 1)]).texts == (good,)
