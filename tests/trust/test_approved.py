"""The tree that an approval signs: every decision has its place, nothing else has, and its form is written down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridops.base import limits
from gridops.base.ids import DeviceId, Digest, HostId, PlanId, ProfileName, ReplicaId, ScopeName
from gridops.base.record import digest_of, from_data, to_data
from gridops.model.plan import (
    Cause,
    CauseKind,
    Change,
    Decision,
    DecisionKind,
    IntentRef,
    Plan,
    PlannerRef,
    ReadSet,
    Seat,
    SnapshotRef,
    Terms,
)
from gridops.model.policy import ActionClass, Risk
from gridops.model.snapshot import SnapshotSource
from gridops.trust.approved import (
    ApprovedDecision,
    Branch,
    Proof,
    approved_decisions,
    fits,
    leaf_of,
    leaves_of,
    prove,
    root_of,
    tree_of,
)
from tests.protocol.build import warm

SEAT = Seat(host=HostId("gpu-07"), devices=(DeviceId("gpu0"),))
LAUNCH = Digest("sha256:" + "1" * 64)


def decided(n: int, **changes: Any) -> ApprovedDecision:
    made = ApprovedDecision(kind=DecisionKind.PLACE, replica=ReplicaId(f"coder/{n}"), target=SEAT, launch=LAUNCH)
    return replace(made, **changes)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 9, 31, 33])
def test_every_decision_of_a_tree_is_proved_and_no_other_is(size: int) -> None:
    decisions = tuple(decided(n) for n in range(size))
    leaves = leaves_of(decisions)
    root = root_of(leaves)
    for one in decisions:
        proof = prove(one, leaves)
        assert proof.tree == root
        assert fits(proof)
        assert from_data(Proof, to_data(proof)) == proof
        assert replace(proof, decision=decided(size)).tree != root
        if proof.path:
            assert replace(proof, path=proof.path[:-1]).tree != root
            turned = tuple(replace(b, left=not b.left) for b in proof.path)
            assert replace(proof, path=turned).tree != root
    with pytest.raises(ValueError, match="not in tuple"):
        prove(decided(size), leaves)


def test_order_does_not_matter_and_everything_else_does() -> None:
    one, two = decided(1), decided(2)
    assert root_of(leaves_of((one, two))) == root_of(leaves_of((two, one)))
    changes: list[dict[str, Any]] = [
        {"kind": DecisionKind.MOVE},
        {"replica": ReplicaId("coder/3")},
        {"former": ReplicaId("old/1")},
        {"source": SEAT},
        {"target": None},
        {"target": replace(SEAT, devices=(DeviceId("gpu1"),))},
        {"launch": Digest("sha256:" + "2" * 64)},
        {"processes": ("gpu-07 0a1b2c3d",)},
    ]
    roots = {root_of(leaves_of((replace(one, **change), two))) for change in changes}
    assert len(roots) == len(changes)
    assert root_of(leaves_of((one, two))) not in roots


def test_no_plan_at_all_is_no_plan_with_decisions() -> None:
    assert root_of(()) not in {root_of(leaves_of((decided(n),))) for n in range(3)}


def test_a_node_does_not_pass_for_a_leaf() -> None:
    """Somebody who knows the tree cannot show an inner node as a decision, or a decision as a node."""
    leaves = leaves_of((decided(1), decided(2), decided(3), decided(4)))
    root = root_of(leaves)
    for one in (decided(1), decided(2)):
        deep = prove(one, leaves)
        assert Proof(decision=one, path=deep.path[1:]).tree != root
        beside = Branch(beside=leaf_of(one))
        assert Proof(decision=one, path=(beside, *deep.path)).tree != root


def test_the_largest_plan_has_a_path_that_is_read_and_a_longer_one_is_not() -> None:
    leaves = (leaf_of(decided(1)), *(Digest(f"sha256:f{n:063x}") for n in range(limits.DECISIONS - 1)))
    assert list(leaves) == sorted(leaves)
    proof = prove(decided(1), leaves)
    assert len(proof.path) == limits.APPROVED_PATH
    assert fits(proof)
    assert not fits(replace(proof, path=(*proof.path, proof.path[0])))


def test_a_launch_that_is_shown_is_the_one_that_was_decided() -> None:
    launch = warm().launch
    one = decided(1, launch=digest_of(launch))
    assert fits(prove(one, leaves_of((one,)), launch))
    assert not fits(prove(decided(1), leaves_of((decided(1),)), launch))


def test_the_form_of_a_leaf_and_of_a_tree_is_written_down() -> None:
    """Signed by people and verified by hosts of other releases: these digests may never change."""
    one = decided(1, former=ReplicaId("old/1"), source=SEAT)
    assert leaf_of(one) == "sha256:ea384a18837c66de327d46981fb168403de992220e46d58aaef4b05ea058872b"
    assert (
        root_of(leaves_of((one, decided(2), decided(3))))
        == "sha256:73a816e78d63bac28722a24b0178e89aa7201d3674080445f49a6f539bc31aa7"
    )
    assert root_of(()) == "sha256:bf8202414b9b0a0325cb0168abd740d004e8bb1aa711732076c23e223f8650fa"


def _decision(kind: DecisionKind, *changes: Change, target: Seat | None = SEAT) -> Decision:
    return Decision(
        n=1,
        kind=kind,
        replica=ReplicaId("code/2"),
        profile=ProfileName("code"),
        action_class=ActionClass.ROLLOUT,
        risk=Risk.ROUTINE,
        cause=Cause(kind=CauseKind.INTENT, detail="-"),
        change_set=1,
        source=SEAT,
        target=target,
        changes=changes,
        launch=LAUNCH if target is not None else None,
    )


def _plan(*decisions: Decision, renamed_from: str | None = None) -> Plan:
    terms = Terms(profile=ProfileName("code"), serves=("code",), replicas_min=1, priority=1)
    return Plan(
        id=PlanId("p"),
        fleet=LAUNCH,
        scope=ScopeName("default"),
        created_ms=1,
        intent=IntentRef(digest=LAUNCH),
        snapshot=SnapshotRef(source=SnapshotSource.LIVE, observed_ms=1, digest=LAUNCH),
        planner=PlannerRef(version="1"),
        decisions_digest=LAUNCH,
        reads=ReadSet(),
        decisions=decisions,
        terms=(replace(terms, renamed_from=ProfileName(renamed_from) if renamed_from else None),),
    )


def test_a_plan_approves_its_decisions_with_the_names_by_which_hosts_may_know_them() -> None:
    (plain,) = approved_decisions(_plan(_decision(DecisionKind.MOVE)))
    assert plain == ApprovedDecision(
        kind=DecisionKind.MOVE, replica=ReplicaId("code/2"), source=SEAT, target=SEAT, launch=LAUNCH
    )
    renamed = _decision(DecisionKind.CHANGE, Change(field="profile", old="coder", new="code"))
    (now,) = approved_decisions(_plan(renamed))
    (since,) = approved_decisions(_plan(_decision(DecisionKind.MOVE), renamed_from="coder"))
    assert now.former == since.former == "coder/2"


def test_an_end_beside_the_plan_names_the_processes_and_a_start_again_names_none() -> None:
    ended = _decision(DecisionKind.REMOVE, Change(field="process", old="gpu-07 0a1b2c3d", new="ended"), target=None)
    (one,) = approved_decisions(_plan(ended))
    assert one.processes == ("gpu-07 0a1b2c3d",)
    again = _decision(DecisionKind.PLACE, Change(field="process", old="gone", new="started again"))
    (two,) = approved_decisions(_plan(again))
    assert two.processes is None


def test_what_cannot_be_placed_is_no_decision_that_anybody_carries_out() -> None:
    nowhere = replace(_decision(DecisionKind.CANNOT_PLACE, target=None), source=None)
    assert approved_decisions(_plan(nowhere)) == ()
    assert tree_of(_plan(nowhere)) == root_of(())
