"""A replica that its host has given up, or that nobody may start any more: seen, proposed, started by a decision."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from gridops.base.ids import short
from gridops.base.record import to_data
from gridops.cli import status as screen
from gridops.controller import views
from gridops.controller.core.state import Attempt
from gridops.model.plan import CauseKind, DecisionKind
from gridops.model.policy import ActionClass, Risk
from gridops.model.snapshot import ResidencyState
from tests.controller.fleet import AUTOMATIC, DEFAULT, OBSERVE, Desk, Fleet, mode, profile
from tests.controller.replayed import same

DAY_MS = 25 * 3_600_000
HERE = profile() + "placement: {allow_hosts: [alpha]}\n"
NOTHING_ALLOWED = mode("{mode: automatic, automatic: {allow: [remove]}}")


def serving(fleet: Fleet, text: str | None = None) -> Desk:
    """One replica that can only be on alpha, ready; the authority of its plan has ended."""
    more = {} if text is None else {"policies/mode.yaml": text}
    fleet.begin(**{"profiles.d/coder.yaml": HERE, **more})
    desk = Desk(fleet)
    desk.settle(2)
    if desk.book().target is None:
        desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    desk.clock.pass_by(DAY_MS)
    desk.settle(2)
    return desk


def gives_up(desk: Desk, detail: str = "exit code 1", restarts: int = 3) -> None:
    """Its restart policy is used up: the host reports what is left as failed."""
    room = desk.fleet.agents["alpha"].room
    room.residencies = {
        k: replace(v, state=ResidencyState.FAILED, detail=detail, restarts=restarts)
        for k, v in room.residencies.items()
    }
    room.bump()


def drains(desk: Desk) -> None:
    """It takes no work any more, and its host waits for the word to end it."""
    room = desk.fleet.agents["alpha"].room
    room.residencies = {k: replace(v, state=ResidencyState.DRAINING) for k, v in room.residencies.items()}
    room.bump()


def loses(desk: Desk) -> None:
    """Its host knows nothing of the process any more."""
    room = desk.fleet.agents["alpha"].room
    room.residencies.clear()
    room.bump()


def candidate(desk: Desk) -> list[tuple[str, str]]:
    found = desk.controller.soft.scope(DEFAULT).candidate
    return [] if found is None else [(d.kind.value, d.replica) for d in found.to_do]


@pytest.mark.parametrize("how", ["failed", "gone"])
def test_recommend_proposes_a_restart_as_repair_and_an_approval_carries_it_out(fleet: Fleet, how: str) -> None:
    desk = serving(fleet)
    (gives_up if how == "failed" else loses)(desk)
    desk.settle(2)
    plan = desk.proposal()
    (decision,) = plan.to_do
    assert (decision.kind, decision.replica, decision.action_class) == (
        DecisionKind.PLACE,
        "coder/1",
        ActionClass.REPAIR,
    )
    assert (decision.risk, decision.cause.kind) == (Risk.ROUTINE, CauseKind.UNHEALTHY)
    words = (
        "restart on alpha: failed 4 times, last: exit code 1" if how == "failed" else "restart on alpha: nothing of it"
    )
    assert decision.cause.detail.startswith(words)
    done = desk.executed()
    desk.settle(6)
    assert desk.proposal().id == plan.id, "the same question is asked once"
    assert desk.executed() == done, "and nothing happens meanwhile"
    assert desk.apply()["applied"]
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert desk.book().applies[-1].outcome == "done"
    assert desk.book().proposal is None
    assert candidate(desk) == []
    same(desk)
    desk.controller.close()


@pytest.mark.parametrize("text", [None, AUTOMATIC], ids=["recommend", "automatic"])
def test_what_was_drained_where_it_is_wanted_and_nobody_may_end_is_started_again(
    fleet: Fleet, text: str | None
) -> None:
    """A plan drained it to move it, a later one left it where it was, and the right to end it went with the first."""
    desk = serving(fleet, text)
    drains(desk)
    desk.settle(3)
    if text is None:
        (decision,) = desk.proposal().to_do
        assert (decision.kind, decision.action_class) == (DecisionKind.PLACE, ActionClass.REPAIR)
        assert decision.cause.detail == "restart on alpha: it was drained there, and nobody may end it any more"
        assert desk.ready() == []
        desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert desk.book().proposal is None
    same(desk)
    desk.controller.close()


def test_what_is_drained_and_may_be_ended_is_not_asked_about(fleet: Fleet) -> None:
    """Whoever may end it and start it again does so as soon as anything is done at all."""
    fleet.begin(**{"profiles.d/coder.yaml": HERE})
    desk = Desk(fleet)
    desk.settle(2)
    desk.apply()
    desk.settle()
    desk.commit({"policies/mode.yaml": OBSERVE})
    desk.settle(2)
    drains(desk)
    desk.settle(3)
    assert candidate(desk) == []
    desk.commit({"policies/mode.yaml": mode("{mode: recommend}")})
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert len(desk.events("proposed")) == 1, "the one that was applied"
    desk.controller.close()


def test_a_failure_is_proposed_while_the_authority_of_its_plan_lasts_too(fleet: Fleet) -> None:
    """A failed process at its seat is evidence: nothing clears it away but a decision."""
    fleet.begin(**{"profiles.d/coder.yaml": HERE})
    desk = Desk(fleet)
    desk.settle(2)
    desk.apply()
    desk.settle()
    gives_up(desk)
    desk.settle(3)
    assert [d.replica for d in desk.proposal().to_do] == ["coder/1"]
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    desk.controller.close()


def test_what_a_second_failure_asks_is_another_question(fleet: Fleet) -> None:
    desk = serving(fleet)
    gives_up(desk)
    desk.settle(2)
    first = desk.proposal()
    desk.ask("reject", plan=first.id)
    desk.settle(3)
    assert desk.book().proposal is None, "no is an answer"
    assert candidate(desk) == [("place", "coder/1")], "and it stays visible"
    desk.apply(first)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    desk.clock.pass_by(60_000)
    gives_up(desk)
    desk.settle(2)
    assert desk.proposal().decisions_digest != first.decisions_digest
    desk.controller.close()


@pytest.mark.parametrize(
    ("text", "again"), [(AUTOMATIC, True), (NOTHING_ALLOWED, False)], ids=["repair", "not allowed"]
)
def test_automatic_mode_starts_it_again_where_repair_is_allowed(fleet: Fleet, text: str, again: bool) -> None:
    desk = serving(fleet)
    desk.commit({"policies/mode.yaml": text})
    gives_up(desk)
    desk.settle()
    assert desk.ready() == (["coder/1"] if again else [])
    assert (desk.book().proposal is None) is again
    desk.controller.close()


def test_a_replica_that_fails_again_and_again_is_started_less_and_less_often(fleet: Fleet) -> None:
    """The streak is durable: a restart of the controller does not begin it anew."""
    desk = serving(fleet, AUTOMATIC)
    starts = []
    for turn in range(400):
        desk.clock.pass_by(10_000)
        if desk.ready():
            gives_up(desk)
            starts.append(turn * 10)
        if turn == 150:
            desk.restart()
        desk.beat()
        desk.pass_()
    gaps = [b - a for a, b in itertools.pairwise(starts)]
    assert gaps == sorted(gaps)
    assert 6 <= len(starts) <= 9, gaps
    assert gaps[-1] >= 900, "in seconds"
    assert desk.book().again["coder/1"].failures >= len(gaps)
    desk.clock.pass_by(6 * 3_600_000)
    desk.settle(6)
    assert desk.ready() == ["coder/1"]
    desk.clock.pass_by(6 * 3_600_000)
    gives_up(desk)
    desk.settle(6)
    assert desk.book().again["coder/1"].failures == 1, "what stood for long begins anew"
    desk.controller.close()


def test_a_proposal_that_comes_and_goes_by_itself_is_made_less_and_less_often(fleet: Fleet) -> None:
    desk = serving(fleet)
    room = desk.fleet.agents["alpha"].room
    up = dict(room.residencies)
    made = 0
    for _ in range(60):
        before = desk.book().proposal
        room.residencies = {} if room.residencies else dict(up)
        room.bump()
        desk.settle(1, step_ms=5_000)
        made += before is None and desk.book().proposal is not None
    assert 3 <= made <= 5, "300 s: at once, and then after 30, 60 and 120 s"
    desk.controller.close()


def test_what_is_being_started_is_not_given_up(fleet: Fleet) -> None:
    """While a load or a start goes on, or a success waits to be shown, the plan is empty."""
    fleet.begin(**{"profiles.d/coder.yaml": HERE})
    desk = Desk(fleet)
    desk.settle(2)
    for agent in fleet.agents.values():
        agent.room.slow |= {"load", "warm"}
    desk.apply()
    for kind in ("load", "warm"):
        desk.settle(3)
        assert desk.book().proposal is None
        assert candidate(desk) == []
        fleet.agents["alpha"].finish(kind)
    desk.settle(3)
    assert desk.ready() == ["coder/1"]
    assert desk.book().proposal is None
    desk.controller.close()


def test_a_transfer_that_outlasts_its_authority_is_decided_anew_when_it_ends_and_not_before(fleet: Fleet) -> None:
    fleet.begin(**{"profiles.d/coder.yaml": HERE})
    desk = Desk(fleet)
    desk.settle(2)
    fleet.agents["alpha"].room.slow.add("load")
    desk.apply()
    desk.settle(3)
    desk.clock.pass_by(DAY_MS)
    desk.settle(3)
    assert candidate(desk) == []
    fleet.agents["alpha"].finish("load")
    desk.settle(3)
    (decision,) = desk.proposal().to_do
    assert decision.cause.detail.startswith("start on alpha: it was decided and never done")
    desk.controller.close()


def test_a_success_that_no_report_shows_yet_is_not_taken_for_a_loss(fleet: Fleet) -> None:
    """It was started by itself, the mode is `recommend` now, and what the host reports lags behind its receipt."""
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC, "profiles.d/coder.yaml": HERE})
    desk = Desk(fleet)
    agent = fleet.agents["alpha"]
    agent.room.slow.add("warm")
    desk.settle(8)
    assert ("warm", "coder/1") in agent.executed
    lagging = agent.inventory()
    agent.finish("warm")
    agent.inventory = lambda: lagging  # type: ignore[method-assign]
    desk.commit({"policies/mode.yaml": mode("{mode: recommend}")})
    desk.settle(4)
    assert candidate(desk) == []
    desk.clock.pass_by(120_000)
    desk.settle(2)
    assert candidate(desk) == [("place", "coder/1")], "after two minutes the report alone counts"
    desk.controller.close()


def test_a_silent_host_is_not_taken_for_one_that_lost_its_process(fleet: Fleet) -> None:
    desk = serving(fleet)
    loses(desk)
    for _ in range(4):
        desk.clock.pass_by(1_000)
        desk.beat("beta")
        desk.pass_()
    assert candidate(desk) == []
    desk.controller.close()


def test_observe_records_the_drift_and_proposes_nothing(fleet: Fleet) -> None:
    desk = serving(fleet, None)
    desk.commit({"policies/mode.yaml": OBSERVE})
    gives_up(desk)
    desk.settle(3)
    assert desk.book().proposal is None
    drift = views.status(desk.controller.view()).scopes[0].drift
    assert [(d.kind, d.replica) for d in drift] == [("place", "coder/1")]
    desk.controller.close()


def test_what_automatic_mode_left_undone_is_growth_and_waits_for_people(fleet: Fleet) -> None:
    """Leaving automatic takes its commands back: what was never started is proposed, and never called repair."""
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC, "profiles.d/coder.yaml": HERE})
    desk = Desk(fleet)
    for agent in fleet.agents.values():
        agent.room.fails["load"] = "no_artifact"
    desk.settle(4)
    desk.commit({"policies/mode.yaml": mode("{mode: automatic, automatic: {allow: [repair]}}")})
    for agent in fleet.agents.values():
        agent.room.fails.clear()
    desk.settle(4)
    assert desk.ready() == []
    (decision,) = desk.proposal().to_do
    assert decision.action_class is ActionClass.SCALE_UP
    assert "load failed 1 time, last: no_artifact" in decision.cause.detail
    desk.apply()
    desk.clock.pass_by(60_000)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    desk.controller.close()


def test_what_a_rebuild_finds_missing_is_proposed(fleet: Fleet) -> None:
    """A restored target has nobody's authority: what it lacks needs a new plan, and there is one."""
    desk = serving(fleet)
    desk.project()
    desk.rebuild()
    loses(desk)
    desk.settle(8)
    assert [(d.kind.value, d.replica) for d in desk.proposal().to_do] == [("place", "coder/1")]
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    desk.controller.close()


def test_the_applied_plan_itself_says_that_it_was_applied(fleet: Fleet) -> None:
    """Its authority is not renewed by naming it again: what is down is a new decision with a new plan."""
    desk = serving(fleet)
    old = desk.book().target
    loses(desk)
    desk.settle(2)
    assert desk.ask("apply", plan=old.id)["already"]
    held = "\n".join(views.status(desk.controller.view()).scopes[0].held)
    assert "the authority of its plan has ended" in held
    assert "gridops plans list" in held
    desk.controller.close()


def test_the_wait_after_a_restart_doubles() -> None:
    assert [Attempt(n, 0).wait_until_ms for n in (1, 2, 3)] == [30_000, 60_000, 120_000]


def shown(desk: Desk) -> str:
    """The line of the model on the status screen."""
    document = to_data(views.status(desk.controller.view()))
    (line,) = [line for line in screen.lines(document, desk.now, None, wide=False) if line.startswith("  coder ")]
    assert f"coder ({document['scopes'][0]['models'][0]['command']})" in screen.attention(document)
    return line


@pytest.mark.parametrize("how", ["failed", "gone"])
def test_status_names_the_plan_that_starts_again_what_a_host_gave_up(fleet: Fleet, how: str) -> None:
    desk = serving(fleet)
    (gives_up if how == "failed" else loses)(desk)
    desk.settle(2)
    line = shown(desk)
    assert "Degraded" in line
    assert f"restart on alpha: {'failed 4 times' if how == 'failed' else 'nothing of it runs there'}" in line
    assert line.endswith(f"; gridops apply {short(desk.proposal().decisions_digest)}")
    desk.apply()
    desk.settle()
    document = views.status(desk.controller.view())
    assert [(m.state, m.note, m.command) for m in document.scopes[0].models if m.profile == "coder"] == [
        ("Ready", "", "")
    ]


def test_status_names_how_to_find_out_where_no_plan_waits_for_what_is_down(fleet: Fleet) -> None:
    desk = serving(fleet, OBSERVE.replace("observe", "recommend"))
    desk.commit({"policies/mode.yaml": OBSERVE})
    gives_up(desk)
    desk.settle(2)
    assert desk.book().proposal is None
    assert shown(desk).endswith("; gridops explain coder")


def test_a_long_reason_cuts_no_command(fleet: Fleet) -> None:
    desk = serving(fleet)
    gives_up(desk, detail="x" * 290)
    desk.settle(2)
    assert shown(desk).endswith(f"; gridops apply {short(desk.proposal().decisions_digest)}")


@pytest.mark.parametrize("resumed", [False, True], ids=["a new plan", "resume"])
def test_an_apply_whose_replica_is_given_up_is_over_and_holds_no_lock(fleet: Fleet, resumed: bool) -> None:
    """Its commands succeeded, then the host tried it no more, while another step of the apply still waited."""
    fleet.begin(**{"profiles.d/coder.yaml": HERE, "profiles.d/zoo.yaml": profile("zoo")})
    desk = Desk(fleet)
    desk.settle(2)
    plan = desk.proposal()
    assert sorted(d.replica for d in plan.to_do) == ["coder/1", "zoo/1"]
    desk.apply()
    while "coder/1" not in desk.ready():
        assert desk.book().under_way is not None
        desk.settle(1)
    gives_up(desk)
    desk.settle()
    apply = desk.book().applies[-1]
    assert (apply.outcome, desk.book().under_way) == ("failed", None)
    failure = apply.failures["coder/1"]
    assert (failure.host, failure.outcome) == ("alpha", "given up")
    assert failure.detail == "restart on alpha: failed 4 times, last: exit code 1"
    document = views.status(desk.controller.view()).scopes[0].apply
    assert document is not None
    steps = {s.replica: (s.state, s.phase, s.detail) for s in document.steps}
    assert steps["coder/1"] == ("failed", "given up", failure.detail)
    same(desk)
    assert desk.ask("apply", plan=plan.id, resume=True)["resumed"] if resumed else desk.apply()["applied"]
    desk.settle()
    assert desk.ready() == ["coder/1", "zoo/1"]
    assert desk.book().applies[-1].outcome == "done"
    desk.controller.close()


def test_repair_that_is_allowed_goes_on_when_the_class_that_placed_it_is_allowed_no_more(fleet: Fleet) -> None:
    """Its warrant lasts a day, and carries nothing now: what was started there once is repair all the same."""
    fleet.begin(**{"profiles.d/coder.yaml": HERE, "policies/mode.yaml": AUTOMATIC})
    desk = Desk(fleet)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    desk.commit({"policies/mode.yaml": mode("{mode: automatic, automatic: {allow: [repair]}}")})
    desk.settle(2)
    loses(desk)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    desk.controller.close()
