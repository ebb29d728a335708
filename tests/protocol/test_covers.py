"""What an approval covers, command by command: the step that was decided, on the seat and by the launch that was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gridops.base import limits
from gridops.base.ids import DeviceId, Digest, HostId, PersonName, ReplicaId, ScopeName
from gridops.base.record import digest_of, from_data, to_data
from gridops.model.action import Action, Drain, Evict, Load, Operate, Unload, Warm
from gridops.model.plan import DecisionKind, Seat
from gridops.model.snapshot import ResidencyState
from gridops.protocol.covers import Asked, Running, uncovered
from gridops.protocol.messages import Authority
from gridops.protocol.outbox import action_key
from gridops.trust import root as roots
from gridops.trust.approved import ApprovedDecision, leaf_of, leaves_of, prove, root_of
from gridops.trust.keys import PersonSigner
from gridops.trust.root import Role, RoleKey, RoleName, RootChain, seal_root
from tests.builders.approvals import Approver, approved, launch_of, placed
from tests.protocol import build as b

HERE = Seat(host=b.HOST, devices=(DeviceId("gpu0"),))
AWAY = Seat(host=HostId("gpu-08"), devices=(DeviceId("gpu0"),))
WARM = b.warm()
OWN = digest_of(WARM.launch)
OTHER_LAUNCH = replace(WARM.launch, context=8192)
BODY = b.drain().incarnation
CODER = WARM.replica
DRAIN = b.drain()
UNLOAD = b.unload()
DAY = limits.APPROVAL_CARRIED_MS


def running(**changes: Any) -> Running:
    return replace(Running(CODER, OWN, HERE.devices, ResidencyState.READY), **changes)


def why(action: Action, decision: ApprovedDecision | None = None, runs: Running | None = None, **how: Any) -> str:
    """Why this command is not covered by ada's approval of the decision; empty: it is."""
    launch = how.pop("launch", None)
    changes = {k: v for k, v in (("decision", decision), ("launch", launch)) if v is not None}
    authority = how.pop("authority", None) or approved(action, b.PERSON, **changes)
    runs_there = {} if runs is None else {BODY: runs}
    asked = Asked(b.FLEET, ScopeName("default"), action, authority, runs_there)
    return uncovered(asked, how.pop("chain", b.CHAIN), how.pop("now_ms", b.NOW)) or ""


def decided(kind: DecisionKind = DecisionKind.PLACE, **changes: Any) -> ApprovedDecision:
    return placed(CODER, HERE, OWN, kind=kind, **changes)


# --- starts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DecisionKind.PLACE, DecisionKind.MOVE, DecisionKind.CHANGE])
def test_a_decision_that_puts_a_replica_there_covers_its_files_and_its_start(kind: DecisionKind) -> None:
    load = b.load()
    launch = launch_of(load)
    assert why(load, placed(load.replica, HERE, digest_of(launch), kind=kind), launch=launch) == ""
    assert why(WARM, decided(kind)) == ""


STARTS: dict[str, tuple[Warm, ApprovedDecision, str]] = {
    "of another replica": (replace(WARM, replica=ReplicaId("coder/2")), decided(), "is about coder/1, the command"),
    "under another profile": (replace(WARM, profile="chat"), decided(), "the command about coder/1"),  # type: ignore[arg-type]
    "on another host than decided": (WARM, placed(CODER, AWAY, OWN), "puts coder/1 on gpu-08, not on gpu-07"),
    "on other devices": (replace(WARM, devices=(DeviceId("gpu1"),)), decided(), "on gpu1, which was not approved"),
    "by other arguments": (replace(WARM, launch=OTHER_LAUNCH), decided(), "would be started by launch"),
    "under the approval of its end": (
        WARM,
        replace(decided(DecisionKind.REMOVE), target=None, launch=None),
        "is to remove coder/1, and nothing is started for that",
    ),
    "where its process is to be ended": (
        WARM,
        replace(decided(DecisionKind.REMOVE), processes=("gpu-07 0a1b2c3d",)),
        "nothing is started for that",
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_start_is_not_covered(name: str) -> None:
    action, decision, words = STARTS[name]
    assert words in why(action, decision)


def test_files_are_covered_only_for_the_launch_that_was_decided() -> None:
    load = b.load()
    launch = launch_of(load)
    decision = placed(load.replica, HERE, digest_of(launch))
    other = replace(load, artifact=b.artifact(9))
    assert "the artifact is not the one" in why(other, decision, launch=launch)
    assert "does not belong together" in why(other, decision, launch=launch_of(other))
    bare = approved(load, b.PERSON, decision=decision)
    assert bare.proof is not None
    bare = replace(bare, proof=replace(bare.proof, launch=None))
    assert "does not show the launch" in why(load, authority=bare)


# --- ends -----------------------------------------------------------------------------------------------------------

AT_ITS_SEAT = running()
ENDS: dict[str, tuple[ApprovedDecision, Running | None, str]] = {
    "removed": (ApprovedDecision(kind=DecisionKind.REMOVE, replica=CODER), AT_ITS_SEAT, ""),
    "moved away": (placed(CODER, AWAY, OWN, kind=DecisionKind.MOVE), AT_ITS_SEAT, ""),
    "on other devices here": (decided(DecisionKind.CHANGE), running(devices=(DeviceId("gpu1"),)), ""),
    "by another launch here": (decided(DecisionKind.CHANGE), running(launch=digest_of(OTHER_LAUNCH)), ""),
    "a copy beside the seat": (placed(CODER, AWAY, OWN), AT_ITS_SEAT, ""),
    "failed at its own seat": (decided(), running(state=ResidencyState.FAILED), ""),
    "drained before it was wanted again": (decided(), running(state=ResidencyState.DRAINING), ""),
    "gone already": (decided(), None, ""),
    "named as it was before": (
        replace(ApprovedDecision(kind=DecisionKind.REMOVE, replica=ReplicaId("code/1")), former=CODER),
        AT_ITS_SEAT,
        "",
    ),
    "what was to be placed": (decided(), AT_ITS_SEAT, "keeps coder/1 where it is"),
    "what was to be placed, still starting": (
        decided(DecisionKind.MOVE),
        running(state=ResidencyState.WARMING),
        "keeps coder/1 where it is",
    ),
    "another replica": (
        ApprovedDecision(kind=DecisionKind.REMOVE, replica=ReplicaId("coder/2")),
        AT_ITS_SEAT,
        "is about coder/2, and this is coder/1",
    ),
    "another model under this name": (
        ApprovedDecision(kind=DecisionKind.REMOVE, replica=CODER),
        running(replica=ReplicaId("chat/1")),
        "is about coder/1, and this is chat/1",
    ),
    "this very process beside the plan": (
        ApprovedDecision(kind=DecisionKind.REMOVE, replica=CODER, processes=(f"gpu-07 {BODY[7:15]}",)),
        AT_ITS_SEAT,
        "",
    ),
    "another process than the one beside the plan": (
        ApprovedDecision(kind=DecisionKind.REMOVE, replica=CODER, processes=("gpu-07 0a1b2c3d",)),
        AT_ITS_SEAT,
        "ends gpu-07 0a1b2c3d, not",
    ),
    "that process on another host": (
        ApprovedDecision(kind=DecisionKind.REMOVE, replica=CODER, processes=(f"gpu-08 {BODY[7:15]}",)),
        AT_ITS_SEAT,
        "not",
    ),
}


@pytest.mark.parametrize("action", [DRAIN, UNLOAD], ids=["drain", "unload"])
@pytest.mark.parametrize("name", ENDS)
def test_what_ends_by_an_approval_and_what_does_not(name: str, action: Drain | Unload) -> None:
    decision, runs, words = ENDS[name]
    found = why(action, decision, runs)
    assert words in found
    assert bool(found) == bool(words)


def test_new_terms_are_for_what_the_decision_put_there() -> None:
    operate: Operate = b.operate()
    change = decided(DecisionKind.CHANGE)
    assert why(operate, change, running()) == ""
    assert why(operate, change, running(replica=ReplicaId("old/1"))) == "", "it takes its new name"
    for other in (running(launch=digest_of(OTHER_LAUNCH)), running(devices=(DeviceId("gpu1"),))):
        assert "is not what was approved as coder/1" in why(operate, change, other)
    assert "nothing is started" in why(operate, ApprovedDecision(kind=DecisionKind.REMOVE, replica=CODER), running())


# --- who, and until when --------------------------------------------------------------------------------------------

JON = Approver("jon", PersonSigner.from_seed(b"j" * 32), b.FLEET, b.NOW)


def _root(threshold: int) -> RootChain:
    """The test's root with two approvers. It is a first root, so its fleet is another one."""
    old = b.CHAIN.root
    keys = (
        RoleKey(holder=PersonName("ada"), key=b.ADA.public.text),
        RoleKey(holder=PersonName("jon"), key=JON.signer.public.text),
    )
    others = tuple(r for r in old.roles if r.name is not RoleName.APPROVER)
    root = replace(
        old, fleet=b.FLEET, version=2, roles=(Role(name=RoleName.APPROVER, threshold=threshold, keys=keys), *others)
    )
    return b.CHAIN.advance(seal_root(root, b.ADA))


TWO = _root(2)


def test_as_many_people_as_the_root_wants_of_approvers() -> None:
    assert "approval missing (1 of 2)" in why(WARM, chain=TWO)
    both = approved(WARM, b.PERSON, JON)
    assert why(WARM, authority=both, chain=TWO) == ""
    twice = approved(WARM, b.PERSON, b.PERSON)
    assert "approval missing (1 of 2)" in why(WARM, authority=twice, chain=TWO)
    assert "unknown key" in why(WARM, authority=approved(WARM, JON))


def _signed(*texts: str, decision: ApprovedDecision | None = None) -> Authority:
    of = decision or decided()
    made = approved(WARM, b.PERSON, decision=of)
    return replace(made, approvals=texts)


def _tree(decision: ApprovedDecision | None = None) -> Digest:
    return root_of(leaves_of((decision or decided(),)))


SAID: dict[str, tuple[Callable[[], str], str]] = {
    "for another fleet": (lambda: b.PERSON.signs(_tree(), fleet=Digest("sha256:" + "0" * 64)), "another fleet"),
    "for another scope": (lambda: b.PERSON.signs(_tree(), scope=ScopeName("lab")), "scope lab, not default"),
    "for other decisions": (lambda: b.PERSON.signs(_tree(decided(former=ReplicaId("old/1")))), "for other decisions"),
    "by an older gridops": (lambda: b.PERSON.signs(None), "older gridops and tells hosts no single step"),
    "for a month": (lambda: b.PERSON.signs(_tree(), not_after_ms=b.NOW + 30 * DAY), "longer than 7 days"),
    "tomorrow": (lambda: b.PERSON.signs(_tree(), issued_ms=b.NOW + 60_000), "issued in the future"),
    "in the name of another": (lambda: b.PERSON.signs(_tree(), approver=PersonName("jon")), "with the key of ada"),
    "by nobody": (lambda: "{}", "cannot be read"),
}


@pytest.mark.parametrize("name", SAID)
def test_an_approval_of_anything_else_carries_nothing_and_says_why(name: str) -> None:
    text, words = SAID[name]
    found = why(WARM, authority=_signed(text()))
    assert found.startswith(("approval missing (0 of 1)", "signature by an unknown key"))
    assert words in found
    good = b.PERSON.signs(_tree())
    assert why(WARM, authority=_signed(text(), good)) == "", "and spoils no other"


def test_an_approval_carries_for_a_day_after_its_end_and_no_longer() -> None:
    end = b.NOW + 1_800_000
    assert why(WARM, authority=_signed(b.PERSON.signs(_tree())), now_ms=end + DAY) == ""
    assert "expired" in why(WARM, authority=_signed(b.PERSON.signs(_tree())), now_ms=end + DAY + 1)


def test_one_rejection_of_these_decisions_blocks_and_of_others_does_not() -> None:
    yes, no = b.PERSON.signs(_tree()), JON.signs(_tree(), decision="reject")
    chain = _root(1)
    for texts in ((yes, no), (no, yes)):
        assert why(WARM, authority=_signed(*texts), chain=chain).startswith("jon rejected these decisions")
    other = JON.signs(_tree(decided(former=ReplicaId("old/1"))), decision="reject")
    assert why(WARM, authority=_signed(yes, other), chain=chain) == ""
    assert why(WARM, authority=_signed(yes, no)) == "", "jon has no key in the other root"


def test_a_command_that_shows_nothing_is_not_covered() -> None:
    bare = replace(approved(WARM, b.PERSON), proof=None)
    assert "does not show which approved decision" in why(WARM, authority=bare)
    assert "carries none" in why(WARM, authority=replace(bare, approvals=()))


def test_among_many_decisions_each_command_shows_its_own() -> None:
    many = tuple(placed(ReplicaId(f"chat/{n}"), AWAY, OWN) for n in range(40))
    assert why(WARM, authority=approved(WARM, b.PERSON, among=many)) == ""
    mine, theirs = decided(), many[0]
    leaves = leaves_of((theirs, *many[1:]))
    text = b.PERSON.signs(root_of(leaves))
    slipped_in = prove(mine, leaves_of((mine, *many)))
    assert "for other decisions" in why(WARM, authority=replace(_signed(text), proof=slipped_in))


# --- advised steps --------------------------------------------------------------------------------------------------

GUESS: Load = replace(b.load(), guess=True)
EVICT = Evict(host=b.HOST, replica=CODER, profile=WARM.profile, files=(Digest("sha256:" + "f" * 64),))


@pytest.mark.parametrize("action", [GUESS, EVICT], ids=["guess", "evict"])
def test_an_advised_step_is_covered_by_the_word_for_it_alone(action: Action) -> None:
    assert why(action) == ""
    key = Digest(action_key(action))
    authority = approved(action, b.PERSON)
    words = {
        "another step": b.PERSON.lets(Digest("sha256:" + "9" * 64)),
        "another scope": b.PERSON.lets(key, scope=ScopeName("lab")),
        "another request": b.PERSON.lets(key, verb="unlock"),
        "the plan": b.PERSON.signs(_tree()),
        "a stranger": Approver("ada", JON.signer, b.FLEET, b.NOW).lets(key),
    }
    for name, text in words.items():
        found = why(action, authority=replace(authority, approvals=(text,)))
        assert found.startswith("approval missing (0 of 1)"), name
    assert "missing (1 of 2)" in why(action, chain=TWO)
    assert why(action, authority=approved(action, b.PERSON, JON), chain=TWO) == ""
    end = b.NOW + 300_000
    assert why(action, now_ms=end + DAY) == ""
    assert "expired" in why(action, now_ms=end + DAY + 1)


def test_no_plan_deletes_files() -> None:
    plan = approved(WARM, b.PERSON)
    assert "approval missing" in why(EVICT, authority=plan)


def test_the_first_root_of_a_fleet_decides_who_is_believed() -> None:
    """Not the one that a controller made up."""
    thief = PersonSigner.from_seed(b"t" * 32)
    old = b.CHAIN.root
    keys = (RoleKey(holder=PersonName("ada"), key=thief.public.text),)
    roles = tuple(
        Role(name=r.name, threshold=1, keys=keys) if r.name is not RoleName.CONTROLLER else r for r in old.roles
    )
    own = roots.genesis(seal_root(replace(old, roles=roles), thief))
    authority = approved(WARM, Approver("ada", thief, b.FLEET, b.NOW))
    assert why(WARM, authority=authority, chain=own) == ""
    assert "unknown key" in why(WARM, authority=authority)


def test_the_form_on_the_wire_is_written_down() -> None:
    """Agents of other releases read these very fields: an old grant has no `proof` at all, a new one has this."""
    authority = approved(WARM, b.PERSON, among=(placed(ReplicaId("chat/1"), AWAY, OWN),))
    said = to_data(authority)
    assert sorted(said) == ["action_class", "approvals", "kind", "proof"]
    assert said["proof"] == {
        "v": 1,
        "decision": {
            "kind": "place",
            "replica": "coder/1",
            "target": {"host": "gpu-07", "devices": ["gpu0"]},
            "launch": OWN,
        },
        "path": [{"beside": leaf_of(placed(ReplicaId("chat/1"), AWAY, OWN)), "left": said["proof"]["path"][0]["left"]}],
    }
    old = from_data(Authority, {k: v for k, v in said.items() if k != "proof"})
    assert old.proof is None
    assert "proof" not in to_data(old)
