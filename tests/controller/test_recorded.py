"""A heartbeat that was recorded, played to a controller that has just started: it proves and moves nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.ids import HostId
from gridops.controller import views
from gridops.controller.core.observe import fresh
from gridops.model.snapshot import ResidencyState
from gridops.protocol import outbox as ob
from gridops.protocol.messages import Beat
from tests.controller.fleet import AUTOMATIC, DEFAULT, Desk, Fleet, mode, profile

WIDE = mode("{mode: automatic, automatic: {allow: [repair, scale_up, scale_down, rollout, rebalance, remove]}}")
ALPHA = HostId("alpha")


def recorded(desk: Desk, name: str = "alpha") -> Beat:
    """A genuine, signed heartbeat that never reached the controller."""
    agent = desk.fleet.agents[name]
    agent.now_ms = desk.now
    return agent.beat()


def serving(fleet: Fleet, text: str = WIDE) -> Desk:
    fleet.begin(**{"policies/mode.yaml": text, "profiles.d/coder.yaml": profile(replicas=2)})
    desk = Desk(fleet)
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]
    return desk


def is_fresh(desk: Desk, host: HostId = ALPHA) -> bool:
    return fresh(desk.controller.soft, desk.controller.roster, host, desk.now)


def open_commands(desk: Desk) -> int:
    return sum(len(ob.open_entries(b.outbox)) for b in desk.state.hosts.values())


def test_a_recorded_heartbeat_does_not_make_a_host_fresh_after_a_restart(fleet: Fleet) -> None:
    desk = serving(fleet)
    old = recorded(desk)
    desk.clock.pass_by(60_000)
    desk.restart()
    desk.controller.beat(old)
    assert not is_fresh(desk)
    assert ALPHA not in desk.controller.soft.hosts
    desk.beat("alpha")
    assert not is_fresh(desk), "its first word may still be an old one"
    desk.beat("alpha")
    assert is_fresh(desk), "the word after our answer is of now"
    desk.controller.close()


@pytest.mark.parametrize("wish", ["one fewer", "a new command", "gone", "what it said is missing"])
def test_nothing_is_decided_from_a_recorded_heartbeat_and_nothing_is_called_lost(fleet: Fleet, wish: str) -> None:
    """The record says that alpha serves, or that it does not; alpha itself says nothing. Beta is heard all the time."""
    desk = serving(fleet)
    agent = fleet.agents["alpha"]
    if wish == "what it said is missing":
        kept = dict(agent.room.residencies)
        agent.room.residencies = {k: replace(v, state=ResidencyState.FAILED) for k, v in kept.items()}
        old = recorded(desk)
        agent.room.residencies = kept
    else:
        old = recorded(desk)
    done = desk.executed()
    desk.restart()
    desk.commit(
        {
            "one fewer": {"profiles.d/coder.yaml": profile(replicas=1)},
            "a new command": {"profiles.d/coder.yaml": profile(replicas=2, context=4096)},
            "gone": {"profiles.d/coder.yaml": None},
            "what it said is missing": {"profiles.d/spare.yaml": profile("spare", 0)},
        }[wish]
    )
    desk.controller.beat(old)
    for _ in range(3):
        desk.clock.pass_by(500)
        desk.beat("beta")
        desk.pass_()
        assert desk.controller.soft.scope(DEFAULT).candidate is None, "it waits for alpha while the grace lasts"
        assert open_commands(desk) == 0
    assert not desk.controller.ready
    for _ in range(12):
        desk.clock.pass_by(1_000)
        desk.beat("beta")
        desk.pass_()
        plan = desk.controller.soft.scope(DEFAULT).candidate
        assert plan is None or all(d.cause.kind.value != "host_lost" for d in plan.decisions)
        hosts = {h.host: h for h in views.status(desk.controller.view()).hosts}
        assert not hosts["alpha"].heard
        assert ob.open_entries(desk.state.hosts[ALPHA].outbox) == ()
    if wish != "a new command":
        assert desk.executed() == done, "nor is the one that is heard stopped on the word of the record"
    desk.controller.close()


def test_a_written_off_host_does_not_come_back_by_a_recorded_heartbeat(fleet: Fleet) -> None:
    desk = serving(fleet, AUTOMATIC)
    old = recorded(desk)
    for _ in range(20):
        desk.clock.pass_by(1_000)
        desk.beat("beta")
    desk.ask("write_off", host="alpha", reason="stolen")
    desk.restart()
    desk.controller.beat(old)
    assert desk.state.hosts["alpha"].written_off_ms is not None
    desk.beat("alpha")
    desk.beat("alpha")
    assert desk.state.hosts["alpha"].written_off_ms is None
    desk.controller.close()


def test_after_a_rebuild_even_a_first_heartbeat_has_to_answer_us(fleet: Fleet) -> None:
    """A journal that knows no host cannot tell a new one from a record of its first day."""
    fleet.begin()
    desk = Desk(fleet)
    old = recorded(desk)
    desk.settle(2)
    desk.apply()
    desk.settle()
    desk.project()
    desk.rebuild()
    desk.controller.beat(old)
    assert not is_fresh(desk)
    desk.beat("alpha")
    desk.beat("alpha")
    assert is_fresh(desk)
    desk.controller.close()


def test_a_host_that_was_never_heard_is_believed_at_its_first_word(fleet: Fleet) -> None:
    fleet.begin()
    desk = Desk(fleet)
    desk.beat("alpha")
    assert is_fresh(desk)
    desk.controller.close()
