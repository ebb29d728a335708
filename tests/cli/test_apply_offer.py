"""What `gridops apply` signs: the decisions of the plan that it was shown, and never a controller's word for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import Digest, PersonName
from gridops.base.record import from_bytes, to_bytes, to_data
from gridops.cli import apply as module
from gridops.cli.client import connect
from gridops.cli.output import Context
from gridops.cli.person import chain_of
from gridops.cli.requests import Desk
from gridops.model.plan import Plan
from gridops.planner.diff import decisions_digest
from gridops.trust.approval import Approval
from gridops.trust.approved import tree_of
from gridops.trust.envelope import seal, split
from gridops.trust.keys import PersonSigner
from tests.render.plans import story


@pytest.fixture
def at(trusted: Any, controller: Any) -> Desk:
    client = connect(Context(directory=trusted.root))
    return Desk(PersonName("mira"), PersonSigner.from_seed(b"p" * 32), chain_of(trusted.root), client)


def offered(trusted: Any, controller: Any, plan: Plan, *, tree: str | None) -> str:
    """A controller offers this plan; by what name."""
    binding = {"reads": to_data(plan.reads), **({"decisions_tree": tree} if tree is not None else {})}
    document = {"envelope": seal("plan", to_bytes(plan), trusted.signer), "binding": binding}
    controller.answers[f"/v1/plans/{plan.id}"] = (200, document)
    return plan.id


def real(trusted: Any) -> Plan:
    told = story()
    return replace(told, fleet=trusted.fleet, decisions_digest=decisions_digest(told.decisions))


def signed(at: Desk, name: str) -> Approval:
    text = module._approve(at, module._offer(at, name), ())
    return from_bytes(Approval, split(text, kind="approval").payload)


def test_it_signs_the_tree_of_the_plan_that_was_shown_whatever_tree_it_is_told(
    at: Desk, trusted: Any, controller: Any
) -> None:
    plan = real(trusted)
    name = offered(trusted, controller, plan, tree="sha256:" + "0" * 64)
    approval = signed(at, name)
    assert (approval.decisions_digest, approval.decisions_tree) == (plan.decisions_digest, tree_of(plan))


def test_a_controller_of_before_is_sent_an_approval_of_before(at: Desk, trusted: Any, controller: Any) -> None:
    """It refuses a field that it does not know."""
    assert signed(at, offered(trusted, controller, real(trusted), tree=None)).decisions_tree is None


@pytest.mark.parametrize(
    ("told", "lasts_ms"), [({}, 1_800_000), ({"approval_ms": 60_000}, 60_000), ({"approval_ms": 10**12}, 604_800_000)]
)
def test_an_approval_lasts_as_long_as_the_policy_lets_it_wait(
    at: Desk, trusted: Any, controller: Any, told: dict[str, int], lasts_ms: int
) -> None:
    name = offered(trusted, controller, real(trusted), tree=None)
    controller.answers[f"/v1/plans/{name}"][1].update(told)
    approval = signed(at, name)
    assert approval.not_after_ms - approval.issued_ms == lasts_ms


def test_what_is_no_approval_is_named_and_not_handed_on(tmp_path: Path) -> None:
    """The file of a private key, above all: whatever is handed on is another machine's to keep."""
    for text, why in (("-----BEGIN OPENSSH PRIVATE KEY-----", "it is not JSON"), (envelope("operator"), "a signed op")):
        (tmp_path / "jon.json").write_text(text)
        with pytest.raises(Refusal, match=why) as no:
            module._read(tmp_path / "jon.json")
        assert no.value.message.startswith(f"{tmp_path / 'jon.json'}: ")
    (tmp_path / "jon.json").write_text(envelope("approval"))
    assert module._read(tmp_path / "jon.json") == envelope("approval")


def envelope(kind: str) -> str:
    return seal(kind, b"{}", PersonSigner.from_seed(b"j" * 32))


def test_a_plan_that_is_named_for_other_decisions_is_not_signed(at: Desk, trusted: Any, controller: Any) -> None:
    """The controller shows one plan and has the digest of another one signed."""
    plan = real(trusted)
    others = replace(plan, decisions=plan.decisions[1:])
    for bent in (others, replace(plan, decisions_digest=Digest("sha256:" + "d" * 64))):
        with pytest.raises(Refusal) as no:
            module._offer(at, offered(trusted, controller, bent, tree=tree_of(bent)))
        assert no.value.code == "GO415"
        assert "decides other things than it is named for" in no.value.message
