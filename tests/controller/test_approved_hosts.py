"""Commands under an approval, from the person's signature to the host that verifies it for itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridops.base.ids import DeviceId
from gridops.base.record import from_data, to_data
from gridops.controller import views
from gridops.controller.core import pack
from gridops.controller.core.state import Warrant
from gridops.model.plan import DecisionKind
from gridops.protocol import outbox as ob
from gridops.protocol.messages import Authority, AuthorityKind, Grant
from gridops.protocol.open import open_grant
from tests.controller.fleet import AUTOMATIC, DEFAULT, Desk, Fleet, profile


def granted(desk: Desk) -> list[Grant]:
    """What the hosts were sent last."""
    keys = (desk.controller.signer.public,)
    told = [a.last for a in desk.fleet.agents.values() if a.last is not None]
    return [open_grant(text, keys) for directive in told for text in directive.grants]


def proposed(desk: Desk) -> Desk:
    desk.settle(2)
    return desk


def refused(desk: Desk) -> list[str]:
    return [code for a in desk.fleet.agents.values() for code in a.rejects]


def held(desk: Desk) -> str:
    return "\n".join(views.status(desk.controller.view()).scopes[0].held)


def test_what_people_applied_is_carried_out_by_hosts_that_verify_it(desk: Desk) -> None:
    proposed(desk)
    desk.apply()
    sent = []
    for _ in range(8):
        desk.clock.pass_by(1_000)
        desk.beat()
        sent += granted(desk)
        desk.pass_()
    assert {g.body.action.kind for g in sent} == {"load", "warm"}
    assert {g.authority.kind for g in sent} == {AuthorityKind.APPROVAL}
    assert all(g.authority.proof is not None for g in sent)
    assert desk.ready() == ["coder/1"]
    assert refused(desk) == []


STORIES: dict[str, dict[str, str | None]] = {
    "another context": {"profiles.d/coder.yaml": profile(context=1024)},
    "one more": {"profiles.d/coder.yaml": profile(replicas=2)},
    "gone": {"profiles.d/coder.yaml": profile(replicas=0)},
    "another name": {
        "profiles.d/coder.yaml": None,
        "profiles.d/code.yaml": profile("code") + "renamed_from: coder\n",
    },
    "another name and another context": {
        "profiles.d/coder.yaml": None,
        "profiles.d/code.yaml": profile("code", context=1024) + "renamed_from: coder\n",
    },
}


@pytest.mark.parametrize("name", STORIES)
def test_every_kind_of_change_goes_through_with_approvals_alone(desk: Desk, name: str) -> None:
    """In `recommend` each step of each decision is one that its host finds approved."""
    proposed(desk)
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    desk.commit(STORIES[name])
    desk.settle(4)
    plan = desk.proposal()
    desk.apply(plan, names=("coder",) if any(d.last_replica for d in plan.to_do) else ())
    desk.settle(20)
    target = desk.book().target
    assert desk.ready() == sorted(a.replica for a in target.placement)
    assert refused(desk) == []
    assert desk.book().under_way is None, held(desk)


def test_a_move_off_a_drained_host_goes_through(desk: Desk) -> None:
    proposed(desk)
    desk.apply()
    desk.settle()
    (home,) = [a.host for a in desk.fleet.agents.values() if a.room.residencies]
    drain = f"apiVersion: gridops/v1\nkind: Drain\nhost: {home}\nreason: fans\n"
    desk.commit({f"fleet.d/drains/{home}.yaml": drain})
    desk.settle(4)
    assert [d.kind for d in desk.proposal().to_do] == [DecisionKind.MOVE]
    desk.apply()
    desk.settle(20)
    assert [a.host for a in desk.fleet.agents.values() if a.room.residencies] == [
        a.host for a in desk.fleet.agents.values() if a.host != home
    ]
    assert refused(desk) == []


def test_an_agent_that_asks_for_no_proof_is_sent_none(desk: Desk) -> None:
    """It was built before, and refuses a field that it does not know."""
    for agent in desk.fleet.agents.values():
        agent.room.abilities = ("evict",)
    proposed(desk)
    desk.apply()
    desk.clock.pass_by(1_000)
    desk.beat()
    sent = granted(desk)
    assert sent
    assert all(g.authority.proof is None for g in sent)
    assert all("proof" not in to_data(g)["authority"] for g in sent)


def warrants(desk: Desk, **changes: Any) -> None:
    """The controller's own memory, changed by somebody who can write in it."""
    book = desk.book()
    book.warrants = {name: replace(w, **changes) for name, w in book.warrants.items()}


def test_what_its_host_would_refuse_is_not_sent(desk: Desk) -> None:
    """An approval of an older gridops in the journal: the step waits, in words, and no number is used up."""
    proposed(desk)
    plan = desk.proposal()
    desk.apply(plan)
    for host in desk.state.hosts.values():  # what the apply has queued at once
        host.outbox = replace(host.outbox, entries=())
    desk.fleet.agents["alpha"].room.slow.add("load")
    old = desk.fleet.approval(plan, desk.now, tree=None)
    warrants(desk, approvals=(old,))
    desk.controller.reconcile(DEFAULT)
    assert all(not ob.open_entries(h.outbox) for h in desk.state.hosts.values())
    assert "its host would refuse it: approval missing (0 of 1)" in held(desk)
    assert "sign it again" in held(desk)
    assert refused(desk) == []


def test_what_hosts_would_not_believe_any_more_is_asked_again(desk: Desk) -> None:
    """The approval was given in time, and its plan is in force; since then it carries nothing at a host."""
    proposed(desk)
    plan = desk.proposal()
    for agent in desk.fleet.agents.values():
        agent.room.fails["load"] = "fetch_failed"
    desk.apply(plan)
    desk.settle(2)
    warrants(desk, approvals=(desk.fleet.approval(plan, desk.now, tree=None),))
    for agent in desk.fleet.agents.values():
        agent.room.fails.clear()
    desk.clock.pass_by(7_200_000)
    desk.settle(4)
    again = desk.proposal()
    assert [(d.kind, d.replica) for d in again.to_do] == [(DecisionKind.PLACE, "coder/1")]
    desk.apply(again)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert refused(desk) == []


def test_the_host_refuses_what_a_changed_controller_sends_under_a_real_approval(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code no longer asks whether it may, and starts what it likes where it likes."""
    proposed(desk)
    monkeypatch.setattr("gridops.controller.core.rights.uncovered", lambda *_: None)
    spare = desk.fleet.agents["beta"]
    import gridops.controller.core.reconcile as passes

    honest = passes.ob.enqueue

    def bent(outbox: Any, action: Any, *rest: Any) -> Any:
        if action.kind == "warm":
            action = replace(action, launch=replace(action.launch, context=32_768), devices=(DeviceId("cpu0"),))
        return honest(outbox, action, *rest)

    monkeypatch.setattr(passes.ob, "enqueue", bent)
    desk.apply()
    desk.settle(6)
    assert refused(desk)
    assert set(refused(desk)) == {"unapproved"}
    assert desk.ready() == []
    assert [a.room.spawned for a in (desk.fleet.agents["alpha"], spare)] == [[], []]


def test_a_repair_goes_on_beside_an_approval_that_people_have_not_finished(fleet: Fleet) -> None:
    """Standing authority for a disjoint repair: neither asks for the other's proof, and both are carried out."""
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC, "profiles.d/coder.yaml": profile(replicas=1)})
    desk = Desk(fleet)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    desk.commit({"profiles.d/coder.yaml": profile(context=1024)})  # a rollout: not in automatic.allow
    desk.settle(3)
    waits = desk.proposal()
    approval = desk.fleet.approval(waits, desk.now)
    (home,) = [a for a in fleet.agents.values() if a.room.residencies]
    home.room.residencies.clear()
    home.room.bump()
    desk.settle(8)
    assert "coder/1" in desk.ready(), "the repair waits for nobody"
    assert refused(desk) == []
    assert desk.proposal().decisions_digest == waits.decisions_digest
    answer = desk.apply(waits)
    assert answer["applied"]
    desk.settle(20)
    assert refused(desk) == []
    assert approval
    desk.controller.close()


def test_what_is_remembered_of_an_approval_survives_a_restart_and_a_pack(desk: Desk) -> None:
    proposed(desk)
    for agent in desk.fleet.agents.values():
        agent.room.slow.add("load")
    desk.apply()
    desk.settle(3)
    before = desk.book()
    assert before.leaves
    assert pack.unpack(pack.pack(desk.state)).scope(DEFAULT) == before
    desk.restart()
    assert desk.book().leaves == before.leaves
    assert desk.book().warrants == before.warrants
    desk.settle(3)
    for agent in desk.fleet.agents.values():
        agent.room.slow.clear()
        agent.finish("load")
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert refused(desk) == []


def test_a_tree_is_kept_as_long_as_a_warrant_rests_on_it(desk: Desk) -> None:
    proposed(desk)
    desk.apply()
    desk.settle()
    first = set(desk.book().leaves)
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle(4)
    desk.apply()
    desk.settle()
    assert first < set(desk.book().leaves), "coder/1 still rests on it"
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2, context=1024)})
    desk.settle(4)
    desk.apply()
    desk.settle(20)
    assert len(desk.book().leaves) == 1


def test_rows_and_packs_of_an_older_controller_are_read() -> None:
    said = {"kind": "approval", "action_class": "repair", "approvals": ["x"]}
    authority = from_data(Authority, said)
    assert authority.proof is None
    assert to_data(authority) == said
    assert Warrant.__dataclass_fields__["decision"].default is None


def test_what_hosts_would_not_believe_any_more_is_no_bar_to_repair_that_is_allowed(desk: Desk) -> None:
    """It was started there once by an approval that carries nothing since; repair by itself needs none."""
    proposed(desk)
    plan = desk.proposal()
    desk.apply(plan)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    desk.commit({"policies/mode.yaml": AUTOMATIC})
    desk.settle(2)
    warrants(desk, approvals=(desk.fleet.approval(plan, desk.now, tree=None),))
    for agent in desk.fleet.agents.values():
        if agent.room.residencies:
            agent.room.residencies.clear()
            agent.room.bump()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert refused(desk) == []
