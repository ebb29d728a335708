"""A model that fails to start again and again is no progress: status says so, and that a person should look."""

from __future__ import annotations

from dataclasses import replace

from gridops.controller import views
from gridops.controller.documents import ModelDoc
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Outcome
from tests.controller.fleet import AUTOMATIC, Desk, profile


def coder(desk: Desk) -> ModelDoc:
    (found,) = (m for m in views.status(desk.controller.view()).scopes[0].models if m.profile == "coder")
    return found


def failures(desk: Desk) -> list[int]:
    return [a.failures for host in desk.state.hosts.values() for a in host.attempts.values()]


def test_a_model_that_fails_to_start_more_than_once_is_degraded_until_it_starts(desk: Desk) -> None:
    for agent in desk.fleet.agents.values():
        agent.room.fails["warm"] = "start_failed"
    desk.commit({"policies/mode.yaml": AUTOMATIC})
    for _ in range(30):
        if failures(desk):
            break
        desk.settle(1)
    assert failures(desk) == [1]
    assert coder(desk).state == "Progressing", "once may be bad luck"
    desk.settle(60)
    assert coder(desk).state == "Degraded"
    assert coder(desk).note.startswith("warm on alpha failed ")
    assert coder(desk).note.endswith(" times (start_failed)")
    for agent in desk.fleet.agents.values():
        agent.room.fails.clear()
    desk.settle(400)
    assert (coder(desk).state, coder(desk).note) == ("Ready", "")


def test_the_last_one_on_its_way_out_is_not_called_ready(desk: Desk) -> None:
    """None is wanted and none is ready: that is no reason to say that all is well while one drains."""
    for act in (lambda: None, desk.apply):
        desk.settle(4)
        act()
    desk.settle(6)
    assert coder(desk).state == "Ready"
    desk.commit({"profiles.d/coder.yaml": profile(replicas=0)})
    desk.settle(2)
    for agent in desk.fleet.agents.values():
        agent.room.slow.add("unload")
    desk.apply(names=("coder",))
    desk.settle(4)
    assert desk.ready() == []
    assert (coder(desk).want, coder(desk).ready) == (0, 0)
    assert (coder(desk).state, coder(desk).note.split()[0]) == ("Progressing", "draining")
    for agent in desk.fleet.agents.values():
        agent.room.slow.clear()
        agent.finish("unload", Outcome.SUCCEEDED)
    desk.settle(6)
    assert coder(desk).state == "Idle"


def test_what_failed_on_the_way_to_an_end_is_forgotten_with_it(desk: Desk) -> None:
    """A drain that ran into its time, twice: who is wanted there again is on its way, and no drain is failing."""
    for act in (lambda: None, desk.apply):
        desk.settle(4)
        act()
    desk.settle(6)
    rooms = [agent.room for agent in desk.fleet.agents.values()]
    for room in rooms:
        room.fails["drain"] = "drain_timeout"
    desk.commit({"profiles.d/coder.yaml": profile(replicas=0)})
    desk.settle(2)
    desk.apply(names=("coder",))
    desk.settle(120)
    assert max(failures(desk)) > 1, "it was tried again"
    for room in rooms:  # its time is over, and the host lets nothing new in: only the end of it is left to do
        room.residencies = {k: replace(r, state=ResidencyState.DRAINING) for k, r in room.residencies.items()}
        room.bump()
    desk.settle(6)
    assert coder(desk).state == "Idle"
    assert failures(desk) == []
    for room in rooms:
        room.slow.add("warm")
    desk.commit({"profiles.d/coder.yaml": profile(replicas=1)})
    desk.settle(2)
    desk.apply()
    desk.settle(4)
    assert coder(desk).state == "Progressing", coder(desk).note
