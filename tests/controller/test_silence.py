"""A proposal outlives the silence of its hosts for as long as their agents may be between two tries."""

from __future__ import annotations

from gridops.controller import views
from gridops.controller.core.observe import FORGOTTEN_MS
from tests.controller.fleet import HOSTS, Desk, Fleet, profile
from tests.controller.test_given_up import gives_up, serving

STALE_MS = 15_000


def passes(desk: Desk, ms: int, step_ms: int = 1_000) -> None:
    """Time goes by and nobody speaks."""
    for _ in range(ms // step_ms):
        desk.clock.pass_by(step_ms)
        desk.pass_()


def held(desk: Desk) -> str:
    return "\n".join(views.status(desk.controller.view()).scopes[0].held)


def test_a_restart_loses_no_review_while_agents_may_still_try(desk: Desk) -> None:
    desk.settle(2)
    waits = desk.proposal()
    desk.restart()
    passes(desk, FORGOTTEN_MS - 2_000)
    assert desk.proposal() == waits
    assert "is kept until these hosts are heard again, or lost: alpha, beta" in held(desk)
    desk.settle(2)
    assert desk.proposal() == waits
    assert held(desk) == ""
    assert len(desk.events("proposed")) == 1, "one question, asked once"
    desk.apply(waits)
    desk.settle()
    assert desk.ready() == ["coder/1"]


def test_hosts_that_stay_away_end_the_proposal_and_it_is_not_called_done(desk: Desk) -> None:
    desk.settle(2)
    desk.restart()
    passes(desk, FORGOTTEN_MS + 6_000)
    assert desk.book().proposal is None
    (closed,) = desk.events("proposal_closed")
    assert "its hosts are silent: " in closed
    assert desk.book().again == {}, "a silence is no sign that something comes and goes by itself"


def test_the_first_host_to_speak_overturns_nothing(fleet: Fleet) -> None:
    """Two replicas are proposed; while one host is not heard, the plan has one of them only."""
    fleet.begin(**{"profiles.d/coder.yaml": profile(replicas=2)})
    desk = Desk(fleet)
    desk.settle(2)
    waits = desk.proposal()
    assert {d.target.host for d in waits.to_do if d.target} == {"alpha", "beta"}
    desk.restart()
    for _ in range(25):
        desk.clock.pass_by(1_000)
        desk.beat("alpha")
        desk.pass_()
    assert desk.proposal() == waits
    desk.settle(2)
    assert desk.proposal() == waits


def test_a_break_in_the_network_loses_no_review(desk: Desk) -> None:
    desk.settle(2)
    waits = desk.proposal()
    passes(desk, STALE_MS + FORGOTTEN_MS - 2_000)
    assert desk.proposal() == waits
    desk.settle(2)
    assert desk.proposal() == waits


def test_a_restart_of_an_engine_is_still_asked_after_an_outage(fleet: Fleet) -> None:
    desk = serving(fleet)
    gives_up(desk)
    desk.settle(2)
    waits = desk.proposal()
    desk.restart()
    passes(desk, FORGOTTEN_MS - 2_000)
    desk.settle(2)
    assert desk.proposal() == waits


def test_what_people_changed_meanwhile_counts_at_once(desk: Desk) -> None:
    desk.settle(2)
    desk.restart()
    passes(desk, 20_000)
    desk.commit({"profiles.d/coder.yaml": profile(replicas=0)})
    desk.pass_()
    assert desk.book().proposal is None


def test_a_host_that_was_written_off_keeps_nothing_waiting(desk: Desk) -> None:
    desk.settle(2)
    desk.restart()
    passes(desk, 20_000)
    for host in ("alpha", "beta"):
        desk.ask("write_off", host=host, reason="burnt", last_replicas=())
    desk.pass_()
    assert desk.book().proposal is None


def test_repair_waits_for_no_review(fleet: Fleet) -> None:
    """What a silence makes necessary is proposed at once, whatever was under review."""
    fleet.begin(hosts=HOSTS)
    desk = Desk(fleet)
    desk.settle(2)
    desk.apply()
    desk.settle()
    (at,) = (name for name, agent in fleet.agents.items() if agent.replicas())
    other = next(name for name in fleet.agents if name != at)
    desk.commit({"profiles.d/spare.yaml": profile("spare", 1)})
    desk.settle(2)
    waits = desk.proposal()
    for _ in range(STALE_MS // 1_000 + 3):
        desk.clock.pass_by(1_000)
        desk.beat(other)
        desk.pass_()
    assert desk.proposal() != waits
    assert "coder" in {d.profile for d in desk.proposal().to_do}
