"""Requests of people to the controller: who asked, for which fleet, and whether it still holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest

from gridops.base import canon, limits
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, PersonName, PlanId, ProfileName, ScopeName
from gridops.base.record import to_bytes, to_data
from gridops.trust import envelope
from gridops.trust.operator import OperatorRequest, Verb, open_operator, seal_operator
from gridops.trust.root import RoleName
from tests.trust.people import NOW, YEAR, chain_of, machine, person, role, root

CHAIN = chain_of(root(role(RoleName.CHANGE, 1, "lee")))
MINUTE = 60_000


def request(by: str = "mira", **fields: Any) -> OperatorRequest:
    made = OperatorRequest(
        fleet=CHAIN.fleet, verb="apply", by=PersonName(by), nonce="n" * 16, issued_ms=NOW, not_after_ms=NOW + MINUTE
    )
    return replace(made, **fields)


def signed(by: str = "mira", **fields: Any) -> str:
    return seal_operator(request(by, **fields), person(by))


@pytest.mark.parametrize("who", ["mira", "jon"])
@pytest.mark.parametrize("verb", get_args(Verb))
def test_approvers_are_heard_whatever_they_ask(verb: Verb, who: str) -> None:
    assert open_operator(signed(who, verb=verb), CHAIN, NOW) == request(who, verb=verb)


@pytest.mark.parametrize("verb", get_args(Verb))
def test_a_change_key_stops_and_does_nothing_else(verb: Verb) -> None:
    """lee's commits are believed, as those of a bot: neither thaws what on-call froze nor ends what is in doubt."""
    text = signed("lee", verb=verb)
    if verb == "freeze":
        assert open_operator(text, CHAIN, NOW) == request("lee", verb=verb)
        return
    with pytest.raises(Refusal, match=f"`{verb.replace('_', '-')}` needs an approver key") as caught:
        open_operator(text, CHAIN, NOW)
    assert "lee's key has the role change" in caught.value.message
    assert caught.value.code == "GO414"


def test_all_fields_arrive() -> None:
    fields = {
        "scope": ScopeName("default"),
        "plan": PlanId("20270115T0800Z-7f3a2c19"),
        "approvals": ("{}",),
        "reason": "GA weekend",
        "until_ms": NOW,
        "last_replicas": (ProfileName("coder"),),
        "resume": True,
    }
    assert open_operator(signed(**fields), CHAIN, NOW) == request(**fields)


REFUSED: dict[str, tuple[Callable[[], str], str]] = {
    "by a stranger": (lambda: seal_operator(request(), person("thief")), "GO414"),
    "by a root key": (lambda: seal_operator(request(), person("mira.root")), "GO414"),
    "in another's name": (lambda: seal_operator(request("jon"), person("mira")), "GO414"),
    "signed by two": (lambda: envelope.countersign(signed(), kind="operator", signer=person("jon")), "GO414"),
    "an approval, not a request": (
        lambda: envelope.seal("approval", to_bytes(request()), person("mira")),
        "wrong_kind",
    ),
    "not an envelope": (lambda: "hello", "bad_envelope"),
    "another version of the form": (
        lambda: envelope.seal("operator", canon.dumps({**to_data(request()), "v": 2}), person("mira")),
        "bad_schema",
    ),
    "an unknown verb": (
        lambda: envelope.seal("operator", canon.dumps({**to_data(request()), "verb": "erase"}), person("mira")),
        "bad_schema",
    ),
    "for another fleet": (lambda: signed(fleet=Digest("sha256:" + "0" * 64)), "wrong_fleet"),
    "expired": (lambda: signed(not_after_ms=NOW - 1), "request_expired"),
    "valid for more than ten minutes": (
        lambda: signed(not_after_ms=NOW + limits.OPERATOR_VALID_MS + 1),
        "request_expired",
    ),
    "from the future": (lambda: signed(issued_ms=NOW + limits.ISSUED_AHEAD_MS + 1), "request_not_yet"),
    "a short nonce": (lambda: signed(nonce="n" * 15), "bad_schema"),
    "a long nonce": (lambda: signed(nonce="n" * 129), "bad_schema"),
    "too many approvals": (lambda: signed(approvals=("{}",) * (limits.APPROVALS_PER_REQUEST + 1)), "bad_schema"),
    "too large": (lambda: signed(reason="x" * limits.REQUEST_BYTES), "bad_envelope"),
}


@pytest.mark.parametrize(("made", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_a_request_that_does_not_hold_is_refused(made: Callable[[], str], code: str) -> None:
    with pytest.raises(Refusal) as caught:
        open_operator(made(), CHAIN, NOW)
    assert caught.value.code == code


def test_the_edges_are_inside() -> None:
    for text in (
        signed(not_after_ms=NOW),
        signed(not_after_ms=NOW + limits.OPERATOR_VALID_MS),
        signed(issued_ms=NOW + limits.ISSUED_AHEAD_MS),
        signed(nonce="n" * 128),
        signed(approvals=("{}",) * limits.APPROVALS_PER_REQUEST),
    ):
        assert open_operator(text, CHAIN, NOW)


def test_a_machine_asks_for_nothing() -> None:
    payload = to_bytes(request("controller"))
    signature = machine("controller").sign("operator", envelope.pae("operator", payload))
    with pytest.raises(Refusal) as caught:
        open_operator(envelope._render("operator", payload, [("", signature)]), CHAIN, NOW)
    assert caught.value.code == "GO414"


@pytest.mark.parametrize(
    ("verb", "heard"),
    [
        ("freeze", True),
        ("reject", True),
        ("apply", False),
        ("thaw", False),
        ("invite", False),
        ("write_off", False),
        ("unlock", False),
        ("reconcile_outcome", False),
    ],
)
def test_only_what_tightens_is_heard_when_the_root_has_expired(verb: str, heard: bool) -> None:
    late = NOW + YEAR
    text = signed(verb=verb, issued_ms=late, not_after_ms=late + MINUTE)
    if heard:
        assert open_operator(text, CHAIN, late).verb == verb
    else:
        with pytest.raises(Refusal) as caught:
            open_operator(text, CHAIN, late)
        assert caught.value.code == "root_expired"


def test_a_key_that_is_both_approver_and_author_signs_as_one() -> None:
    chain = chain_of(root(role(RoleName.CHANGE, 1, "mira")))
    text = signed(fleet=chain.fleet)
    assert open_operator(text, chain, NOW).by == "mira"
