"""A process that runs beside the target when nobody may end it any more: seen, proposed, ended by a decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.ids import Digest, HostId, ReplicaId
from gridops.model.plan import Decision, DecisionKind, Plan
from gridops.model.policy import ActionClass, Risk
from gridops.model.snapshot import ResidencyState
from gridops.planner.check import check
from gridops.planner.planner import plan
from tests.controller.fleet import Desk, Fleet, mode, profile
from tests.controller.replayed import same
from tests.controller.test_given_up import DAY_MS, candidate, loses, serving
from tests.controller.test_plans_alike import alike

OTHER = Digest("sha256:" + "e" * 64)
LATE = Digest("sha256:" + "d" * 64)
SWEEPS = mode("{mode: automatic, automatic: {allow: [scale_down]}}")
REPAIRS = mode("{mode: automatic, automatic: {allow: [repair]}}")


def comes_back(desk: Desk, host: str = "beta", incarnation: Digest = OTHER) -> None:
    """A host has a copy of coder/1 as well, of an older command: it was away, or its start was taken back too late."""
    comes_back_from(desk, "alpha", host, incarnation)


def comes_back_from(desk: Desk, home: str, host: str, incarnation: Digest = OTHER) -> None:
    """The same, of what runs at home."""
    (first,) = desk.fleet.agents[home].room.residencies.values()
    room = desk.fleet.agents[host].room
    room.residencies[incarnation] = replace(first, incarnation=incarnation)
    room.bump()


def left(desk: Desk, host: str = "beta") -> list[Digest]:
    return sorted(k for k, r in desk.fleet.agents[host].room.residencies.items() if r.profile == "coder")


def test_recommend_proposes_its_end_and_an_approval_carries_it_out(fleet: Fleet) -> None:
    desk = serving(fleet)
    comes_back(desk)
    desk.settle(3)
    waits = desk.proposal()
    (decision,) = waits.to_do
    assert (decision.kind, decision.replica, decision.target) == (DecisionKind.REMOVE, "coder/1", None)
    assert decision.source is not None
    assert decision.source.host == "beta"
    assert (decision.action_class, decision.risk) == (ActionClass.SCALE_DOWN, Risk.ROUTINE)
    assert not decision.last_replica
    assert decision.cause.detail == "still runs on beta, and coder/1 stands on alpha"
    assert [a.seat.host for a in waits.placement] == ["alpha"], "its seat is where it was"
    done = desk.executed()
    desk.settle(6)
    assert desk.proposal().id == waits.id, "the same question is asked once"
    assert desk.executed() == done, "and nothing happens meanwhile"
    assert desk.apply()["applied"]
    desk.settle()
    assert left(desk) == []
    assert len(left(desk, "alpha")) == 1
    assert desk.ready() == ["coder/1"]
    assert desk.book().applies[-1].outcome == "done"
    assert (desk.book().proposal, candidate(desk)) == (None, [])
    same(desk)
    desk.controller.close()


def test_what_beside_its_very_seat_is_one_too_many_is_ended_and_one_stays(fleet: Fleet) -> None:
    desk = serving(fleet)
    comes_back(desk, "alpha")
    desk.settle(3)
    (decision,) = desk.proposal().to_do
    assert decision.source is not None
    assert decision.source.host == "alpha"
    assert len(decision.changes) == 1
    desk.apply()
    desk.settle()
    assert len(left(desk, "alpha")) == 1
    assert desk.ready() == ["coder/1"]
    desk.controller.close()


def test_while_its_plan_has_authority_nobody_is_asked(fleet: Fleet) -> None:
    fleet.begin()
    desk = Desk(fleet)
    desk.settle(2)
    desk.apply()
    desk.settle()
    comes_back(desk, "beta" if "alpha" in desk.book().target.placement[0].seat.host else "alpha")
    desk.settle()
    assert [len(left(desk, h)) for h in ("alpha", "beta")].count(1) == 1
    assert len(desk.events("proposed")) == 1, "the one that was applied"
    desk.controller.close()


@pytest.mark.parametrize(("text", "ended"), [(SWEEPS, True), (REPAIRS, False)], ids=["allowed", "not allowed"])
def test_automatic_ends_it_by_itself_where_scaling_down_is_allowed(fleet: Fleet, text: str, ended: bool) -> None:
    desk = serving(fleet)
    desk.commit({"policies/mode.yaml": text})
    desk.settle(2)
    comes_back(desk)
    desk.settle()
    assert (left(desk) == []) is ended
    assert (desk.book().proposal is None) is ended
    assert desk.ready() == ["coder/1"] if ended else ["coder/1", "coder/1"]
    desk.controller.close()


def test_the_right_to_take_a_copy_away_starts_nothing(fleet: Fleet) -> None:
    desk = serving(fleet)
    desk.commit({"policies/mode.yaml": SWEEPS})
    desk.settle(2)
    comes_back(desk)
    desk.settle()
    assert left(desk) == []
    done = len(desk.executed())
    loses(desk)
    desk.settle()
    assert len(desk.executed()) == done, "repair is not allowed, and the right to scale down is none to start"
    assert [(d.kind, d.replica) for d in desk.proposal().to_do] == [(DecisionKind.PLACE, "coder/1")]
    desk.controller.close()


def test_the_last_one_of_a_profile_that_is_gone_needs_its_name_typed(fleet: Fleet) -> None:
    """Its host was away while the profile was removed, and comes back when that plan has no authority any more."""
    desk = serving(fleet)
    room = desk.fleet.agents["alpha"].room
    (kept,) = room.residencies.values()
    desk.commit({"profiles.d/coder.yaml": None, "profiles.d/zoo.yaml": profile("zoo")})
    desk.settle(2)
    desk.apply(names=("coder",))
    desk.settle()
    assert left(desk, "alpha") == []
    desk.clock.pass_by(DAY_MS)
    desk.settle(2)
    room.residencies[OTHER] = replace(kept, incarnation=OTHER, state=ResidencyState.READY)
    room.bump()
    desk.settle(3)
    (decision,) = desk.proposal().to_do
    assert (decision.replica, decision.risk, decision.last_replica) == ("coder/1", Risk.DESTRUCTIVE, True)
    assert decision.cause.detail == "still runs on alpha, and the plan in force has no coder/1"
    desk.apply(names=("coder",))
    desk.settle()
    assert left(desk, "alpha") == []
    desk.controller.close()


def test_both_know_what_runs_beside_the_plan(fleet: Fleet) -> None:
    desk = serving(fleet)
    comes_back(desk)
    desk.settle(3)
    asked = alike(desk)
    assert [(s.replica, s.seat.host) for s in asked.strays or ()] == [("coder/1", "beta")]
    assert plan(replace(asked, strays=(), waiting=None)).to_do == (), "who does not know of it leaves it as it is"
    assert plan(replace(asked, strays=None)).to_do == desk.proposal().to_do, "and asks what the proposal asks"


def faulty(waits: Plan, decision: Decision) -> Plan:
    return replace(waits, decisions=(decision,))


def test_the_checker_lets_nobody_end_what_is_not_beside_the_plan(fleet: Fleet) -> None:
    desk = serving(fleet)
    comes_back(desk)
    desk.settle(3)
    asked = replace(alike(desk), waiting=None)
    waits = plan(asked)
    (decision,) = waits.to_do
    assert check(waits, asked) == ()
    (change,) = decision.changes
    (mine,) = desk.fleet.agents["alpha"].room.residencies
    only = replace(change, old=f"alpha {mine[7:15]}")
    host = replace(decision, source=replace(decision.source, host=HostId("alpha")), changes=(only,))
    strange = replace(decision, changes=(replace(change, old="beta 00000000"),))
    other = replace(decision, replica=ReplicaId("coder/7"))
    for wrong in (host, strange, other):
        assert any("has no difference behind it" in note for note in check(faulty(waits, wrong), asked)), wrong
    desk.controller.close()


def test_the_right_to_end_one_process_is_none_to_end_another_of_its_name(fleet: Fleet) -> None:
    """One more comes to light when the first has just been decided upon: it is a question of its own."""
    desk = serving(fleet)
    comes_back(desk)
    desk.settle(3)
    desk.apply()
    comes_back(desk, incarnation=LATE)
    desk.settle()
    assert left(desk) == [LATE]
    assert desk.book().applies[-1].outcome == "done", "what people decided was carried out"
    (decision,) = desk.proposal().to_do
    assert [c.old for c in decision.changes] == ["beta dddddddd"]
    desk.apply()
    desk.settle()
    assert left(desk) == []
    assert desk.ready() == ["coder/1"]
    same(desk)
    desk.controller.close()


def test_a_second_process_on_the_very_seat_is_asked_about_while_its_plan_has_authority(fleet: Fleet) -> None:
    """What was approved keeps what runs so there: its host would refuse to end either of them by that."""
    fleet.begin()
    desk = Desk(fleet)
    desk.settle(2)
    desk.apply()
    desk.settle()
    own = desk.book().warrants[ReplicaId("coder/1")]
    (home,) = (name for name in ("alpha", "beta") if left(desk, name))
    comes_back_from(desk, home, home)
    desk.settle()
    assert len(left(desk, home)) == 2
    (decision,) = desk.proposal().to_do
    assert len(decision.changes) == 1
    desk.apply()
    desk.settle()
    assert len(left(desk, home)) == 1
    assert desk.book().applies[-1].outcome == "done"
    assert desk.book().warrants[ReplicaId("coder/1")] == own, "its own right is what it was"
    desk.controller.close()


def test_where_no_plan_is_in_force_and_nothing_is_wanted_what_runs_is_proposed_to_end(fleet: Fleet) -> None:
    """After a rebuild that found no plan: nothing differs between no plan and one that places nothing."""
    desk = serving(fleet)
    desk.commit({"profiles.d/coder.yaml": profile(replicas=0)})
    desk.controller.close()
    for path in fleet.state.glob("journal.sqlite*"):
        path.unlink()
    desk.controller.close = lambda: None  # type: ignore[method-assign]
    desk.rebuild()
    desk.settle(8)
    assert desk.book().target is None
    waits = desk.proposal()
    (decision,) = waits.to_do
    assert (decision.kind, decision.replica, decision.last_replica) == (DecisionKind.REMOVE, "coder/1", True)
    assert decision.cause.detail == "still runs on alpha, and no plan is in force that has coder/1"
    done = desk.executed()
    desk.settle(6)
    assert desk.proposal().id == waits.id, "the same question is asked once"
    assert desk.executed() == done, "and nothing happens meanwhile"
    assert desk.apply(names=("coder",))["applied"]
    desk.settle()
    assert left(desk, "alpha") == []
    assert (desk.book().proposal, candidate(desk)) == (None, [])
    same(desk)
    desk.controller.close()


@pytest.mark.parametrize("stands", [False, True])
def test_an_apply_whose_room_is_held_by_what_nobody_may_end_is_over_and_its_end_is_proposed(
    fleet: Fleet, stands: bool
) -> None:
    """It came back between the question and the yes. Waiting for it would hold the lock for nothing. What changes where
    it stands waits for its own start before it ends: that makes no room either."""
    desk = serving(fleet)
    pinned = profile("other", sha="sha256:" + "cd" * 32) + "placement: {allow_hosts: [beta]}\n"
    desk.commit({"profiles.d/other.yaml": pinned})
    desk.settle(2)
    if stands:
        desk.apply()
        desk.settle(6)
        desk.commit({"profiles.d/other.yaml": pinned.replace("2048", "1024")})
        desk.settle(2)
    comes_back(desk)
    room = desk.fleet.agents["beta"].room
    room.residencies[OTHER] = replace(room.residencies[OTHER], device_bytes=64 << 30)
    desk.apply()
    desk.settle(4)
    assert desk.book().under_way is None
    assert desk.book().applies[-1].outcome == "failed"
    (failure,) = desk.book().applies[-1].failures.values()
    assert "held by coder/1 (ready)" in (failure.detail or "")
    assert "; coder/1: " in (failure.detail or "")
    assert [(d.kind, d.replica) for d in desk.proposal().to_do] == [(DecisionKind.REMOVE, "coder/1")]
    desk.apply()
    desk.settle(20)
    assert desk.ready() == ["coder/1", "other/1"]
    desk.controller.close()
