"""A model that fails to start again and again is no progress: status says so, and that a person should look."""

from __future__ import annotations

from gridops.controller import views
from gridops.controller.documents import ModelDoc
from tests.controller.fleet import AUTOMATIC, Desk


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
