"""Receipts of failed attempts lead to a plan that tries another host: proposed, or carried out where repair is allowed.

The agents are scripted at the edge: what they refuse with are the codes that a real host's receipts carry.
"""

from __future__ import annotations

import itertools

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import Digest, HostId, ReplicaId
from gridops.controller import views
from gridops.controller.core.attempts import failing, under_way
from gridops.controller.core.modes import permitted
from gridops.controller.core.propose import inputs
from gridops.controller.core.rights import Rights
from gridops.controller.core.state import Lesson
from gridops.model.plan import CauseKind, Decision, DecisionKind
from gridops.model.policy import ActionClass, Risk
from gridops.planner.constants import LEAVE_AFTER
from gridops.planner.planner import Inputs
from gridops.protocol.messages import Outcome
from tests.controller.fleet import AUTOMATIC, DEFAULT, Desk, Fleet, mode, profile
from tests.controller.replayed import same

REPAIR_ALONE = mode("{mode: automatic, automatic: {allow: [repair]}}")
GROWTH_ALONE = mode("{mode: automatic, automatic: {allow: [scale_up]}}")
HOUR_MS = 3_600_000


def broken(fleet: Fleet, text: str | None = None, *, on: tuple[str, ...] = ("alpha",), **fails: str) -> Desk:
    """One replica that people decided to have on alpha, where every load or start fails."""
    for name in on:
        fleet.agents[name].room.fails |= fails
    fleet.begin()
    desk = Desk(fleet)
    desk.settle(2)
    assert [d.target.host for d in desk.proposal().to_do if d.target] == ["alpha"]
    desk.apply()
    if text is not None:
        desk.commit({"policies/mode.yaml": text})
    return desk


def failures(desk: Desk, host: str = "alpha") -> int:
    return sum(a.failures for a in desk.state.hosts[HostId(host)].attempts.values())


def until(desk: Desk, count: int, host: str = "alpha", step_ms: int = 15_000) -> None:
    """Time goes by until so many attempts in a row have failed there."""
    for _ in range(400):
        if failures(desk, host) >= count:
            return
        desk.settle(1, step_ms)
    raise AssertionError(f"{failures(desk, host)} attempts failed on {host}, not {count}")


def try_again(desk: Desk) -> None:
    """What failed on alpha works from now on, and slowly: the next attempt is under way."""
    room = desk.fleet.agents["alpha"].room
    room.fails.clear()
    room.slow.add("load")
    for _ in range(200):
        desk.settle(1, 60_000)
        if under_way(rights(desk)):
            return


def rights(desk: Desk) -> Rights:
    return Rights(desk.state, DEFAULT, permitted(desk.state, DEFAULT, desk.now), desk.controller.soft.chain, desk.now)


def planned(desk: Desk) -> Inputs:
    """What a plan would be made from now."""
    asked = inputs(desk.state, desk.controller.soft, desk.controller.roster, DEFAULT, desk.now, "test")
    assert asked is not None
    return asked


def tries(desk: Desk, host: str) -> int:
    return sum(1 for at, kind, _ in desk.executed() if at == host and kind in ("load", "warm"))


def asks(desk: Desk) -> list[tuple[str, str, str]]:
    waits = desk.book().proposal
    return [(d.kind.value, d.replica, d.target.host if d.target else "") for d in (waits.plan.to_do if waits else ())]


def only(desk: Desk) -> Decision:
    (decision,) = desk.proposal().to_do
    return decision


@pytest.mark.parametrize(("step", "code"), [("load", "no_artifact"), ("warm", "start_failed")])
def test_recommend_proposes_the_move_after_so_many_receipts_and_an_approval_carries_it_out(
    fleet: Fleet, step: str, code: str
) -> None:
    desk = broken(fleet, **{step: code})
    until(desk, LEAVE_AFTER - 1)
    desk.settle(3)
    assert asks(desk) == [], "once and twice may be bad luck"
    until(desk, LEAVE_AFTER)
    desk.settle(1, 1)
    assert asks(desk) == [("move", "coder/1", "beta")]
    decision = only(desk)
    assert (decision.kind, decision.action_class, decision.risk) == (
        DecisionKind.MOVE,
        ActionClass.REPAIR,
        Risk.ROUTINE,
    )
    assert decision.cause.kind is CauseKind.FAILED_START
    assert decision.cause.detail == f"does not come up on alpha: 3 attempts failed, last: {code}"
    assert desk.book().proposal.cause == "failed"
    assert views.snapshot(desk.controller.view()).learned is not None
    same(desk)
    assert desk.apply()["applied"]
    desk.settle()
    assert fleet.agents["beta"].replicas() == {"coder/1": "ready"}
    assert desk.book().applies[-1].outcome == "done"
    desk.settle(40, 60_000)
    assert (asks(desk), desk.ready()) == ([], ["coder/1"]), "it stays where it came up"
    same(desk)
    desk.controller.close()


def test_the_question_stays_the_same_while_it_is_tried_again_and_goes_when_that_succeeds(fleet: Fleet) -> None:
    desk = broken(fleet, load="no_artifact")
    until(desk, LEAVE_AFTER)
    desk.settle(1, 1)
    first = desk.proposal().id
    until(desk, LEAVE_AFTER + 4, step_ms=60_000)
    assert desk.proposal().id == first, "each further failure is the same question"
    try_again(desk)
    assert under_way(rights(desk)) == {ReplicaId("coder/1")} == planned(desk).under_way
    assert failing(rights(desk))[1] == ("coder/1",), "that it begins and ends is a reason to plan"
    desk.settle(5, 60_000)
    assert desk.proposal().id == first, "and an attempt takes nothing back"
    fleet.agents["alpha"].room.slow.clear()
    fleet.agents["alpha"].finish("load")
    desk.settle(8)
    assert desk.ready() == ["coder/1"]
    assert desk.book().proposal is None
    assert fleet.agents["beta"].replicas() == {}
    same(desk)
    desk.controller.close()


def test_people_may_apply_it_while_it_is_tried_again(fleet: Fleet) -> None:
    desk = broken(fleet, load="no_artifact")
    until(desk, LEAVE_AFTER)
    desk.settle(1, 1)
    try_again(desk)
    assert desk.apply()["applied"]
    desk.settle(20)
    assert fleet.agents["beta"].replicas() == {"coder/1": "ready"}
    assert fleet.agents["alpha"].replicas() == {}
    desk.controller.close()


@pytest.mark.parametrize(("step", "code"), [("load", "no_artifact"), ("warm", "start_failed")])
def test_automatic_moves_it_by_itself_where_repair_is_allowed(fleet: Fleet, step: str, code: str) -> None:
    desk = broken(fleet, REPAIR_ALONE, **{step: code})
    until(desk, LEAVE_AFTER)
    desk.settle(6)
    assert fleet.agents["beta"].replicas() == {"coder/1": "ready"}
    assert (asks(desk), tries(desk, "alpha")) == ([], LEAVE_AFTER + (step == "warm"))
    desk.settle(20, 60_000)
    assert desk.ready() == ["coder/1"]
    same(desk)
    desk.controller.close()


def test_automatic_without_repair_asks(fleet: Fleet) -> None:
    desk = broken(fleet, GROWTH_ALONE, load="no_artifact")
    until(desk, LEAVE_AFTER)
    desk.settle(3)
    assert asks(desk) == [("move", "coder/1", "beta")]
    assert any(codes.HELD_CLASS.code in line for line in desk.controller.soft.scope(DEFAULT).held)
    assert fleet.agents["beta"].replicas() == {}
    desk.controller.close()


def test_automatic_waits_for_an_attempt_that_is_under_way(fleet: Fleet) -> None:
    """The mode is loosened while the question waits and the host is being tried again: that may succeed yet."""
    desk = broken(fleet, load="no_artifact")
    until(desk, LEAVE_AFTER)
    desk.settle(1, 1)
    room = fleet.agents["alpha"].room
    room.fails.clear()
    room.slow.add("load")
    for _ in range(200):
        desk.settle(1, 60_000)
        if under_way(rights(desk)):
            break
    desk.commit({"policies/mode.yaml": AUTOMATIC})
    desk.settle(3)
    assert any(codes.HELD_ATTEMPT.code in line for line in desk.controller.soft.scope(DEFAULT).held)
    assert fleet.agents["beta"].executed == []
    fleet.agents["alpha"].finish("load", outcome=Outcome.FAILED, code="no_artifact")
    desk.settle(6)
    assert fleet.agents["beta"].replicas() == {"coder/1": "ready"}
    desk.controller.close()


def test_a_host_without_disk_is_left_after_its_first_answer(fleet: Fleet) -> None:
    desk = broken(fleet, REPAIR_ALONE, load="no_space")
    until(desk, 1, step_ms=1_000)
    desk.settle(6)
    assert (tries(desk, "alpha"), fleet.agents["beta"].replicas()) == (1, {"coder/1": "ready"})
    same(desk)
    desk.controller.close()


def test_where_it_comes_up_nowhere_it_goes_once_to_each_and_stays(fleet: Fleet) -> None:
    desk = broken(fleet, REPAIR_ALONE, on=("alpha", "beta"), load="no_artifact")
    for _ in range(100):
        desk.settle(1, 120_000)
    seats = [d.target.host for row in desk.book().batch.plans for d in desk.state.plans[row].to_do if d.target]
    assert seats == ["beta"], "it left alpha once"
    target = desk.book().target
    assert target is not None
    assert [a.seat.host for a in target.placement] == ["beta"]
    assert failures(desk, "beta") > LEAVE_AFTER, "and goes on being tried there"
    fleet.agents["beta"].room.fails.clear()
    desk.settle(12, HOUR_MS // 4)
    assert fleet.agents["beta"].replicas() == {"coder/1": "ready"}
    same(desk)
    desk.controller.close()


def test_the_only_host_that_may_keeps_it_and_the_plan_says_so(fleet: Fleet) -> None:
    for agent in fleet.agents.values():
        agent.room.fails["load"] = "no_space"
    fleet.begin(**{"profiles.d/coder.yaml": profile() + "placement: {allow_hosts: [alpha]}\n"})
    desk = Desk(fleet)
    desk.settle(2)
    desk.apply()
    until(desk, LEAVE_AFTER)
    desk.settle(2)
    assert asks(desk) == []
    candidate = desk.controller.soft.scope(DEFAULT).candidate
    assert candidate is not None
    assert [(w.host, w.code) for w in candidate.report.waiting] == [("alpha", codes.KEEPS_FAILING.code)]
    before = desk.controller.soft.scope(DEFAULT).plans
    desk.settle(30)
    assert desk.controller.soft.scope(DEFAULT).plans <= before + 1, "it is looked at again once a minute, no oftener"
    fleet.agents["alpha"].room.fails.clear()
    desk.settle(20, 60_000)
    assert desk.ready() == ["coder/1"]
    desk.controller.close()


def test_failures_that_cross_the_line_are_a_reason_to_plan_and_no_others(fleet: Fleet) -> None:
    desk = broken(fleet, load="no_artifact")
    until(desk, 1, step_ms=1_000)
    desk.settle(2, 1)
    plans = desk.controller.soft.scope(DEFAULT).plans
    assert failing(rights(desk)) == ((), ())
    until(desk, LEAVE_AFTER - 1)
    desk.settle(2, 1)
    assert desk.controller.soft.scope(DEFAULT).plans == plans
    until(desk, LEAVE_AFTER)
    desk.settle(1, 1)
    assert desk.controller.soft.scope(DEFAULT).plans == plans + 1
    (at,), trying = failing(rights(desk))
    assert (at[:2], trying) == (("alpha", "fetch"), ())
    assert planned(desk).under_way == frozenset()
    desk.controller.close()


def test_failed_fetches_and_failed_starts_of_the_same_files_cross_the_line_together(fleet: Fleet) -> None:
    fleet.begin()
    desk = Desk(fleet)
    desk.settle(2)
    desk.apply()
    desk.settle()
    book = desk.state.hosts[HostId("alpha")]
    (fetch,), (warm,) = ([k for k in book.lessons if k[0] == kind] for kind in ("fetch", "warm"))
    other = (*fetch[:3], Digest("sha256:" + "0" * 64))
    book.lessons |= {fetch: Lesson(failures=1), warm: Lesson(failures=LEAVE_AFTER - 1)}
    assert [at[1] for at in failing(rights(desk))[0]] == ["warm"]
    book.lessons |= {fetch: Lesson(), other: Lesson(failures=1)}
    assert failing(rights(desk)) == ((), ()), "other files are another matter"
    book.lessons |= {fetch: Lesson(failures=1, failed_ms=2, code="no_space"), warm: Lesson(failures=1, failed_ms=1)}
    assert [at[1] for at in failing(rights(desk))[0]] == ["fetch", "warm"], "the newest says why"
    desk.controller.close()


def test_a_restart_of_the_controller_forgets_no_failure(fleet: Fleet) -> None:
    desk = broken(fleet, load="no_artifact")
    until(desk, LEAVE_AFTER - 1)
    desk.restart()
    until(desk, LEAVE_AFTER)
    desk.settle(6)
    assert asks(desk) == [("move", "coder/1", "beta")]
    desk.controller.close()


@pytest.mark.parametrize(("code", "grows"), [("brake", False), ("drain_timeout", True)])
def test_the_wait_for_a_hosts_brake_does_not_grow(fleet: Fleet, code: str, grows: bool) -> None:
    """It opens by time alone; what failed by itself is tried less and less often."""
    everything = "{mode: automatic, automatic: {allow: [scale_up, scale_down], last_replica: [coder]}}"
    fleet.begin(**{"policies/mode.yaml": mode(everything)})
    desk = Desk(fleet)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    agent = next(agent for agent in fleet.agents.values() if agent.replicas())
    agent.room.fails["drain"] = code
    desk.commit({"profiles.d/coder.yaml": profile(replicas=0)}, "none")
    tried = []
    for _ in range(120):
        before = agent.receipts.head
        desk.settle(1, 5_000)
        if agent.receipts.head > before:
            tried.append(desk.now)
    waits = [after - before for before, after in itertools.pairwise(tried)]
    assert min(waits) >= 30_000, waits
    assert (max(waits) > 60_000) == grows, waits
