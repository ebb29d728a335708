"""Behaviours that an earlier allocator pinned and no other test of ours shows (`tests/earlier.md` names the rest)."""

from __future__ import annotations

import pytest

from gridops.model.action import Drain
from tests.controller.fleet import POLICIES, Fleet, profile
from tests.controller.replayed import same
from tests.controller.test_reconcile import WIDE, started

OTHER = "sha256:" + "cd" * 32


@pytest.mark.parametrize("sha", [OTHER, None])
def test_new_files_do_not_wait_for_what_failed_or_ended_with_the_old_ones(fleet: Fleet, sha: str | None) -> None:
    """The old files are bad and their load backs off; a commit names others, and they are fetched at once."""
    desk = started(fleet, **{"policies/mode.yaml": WIDE})
    for agent in fleet.agents.values():
        agent.room.fails["load"] = "wrong_digest"
    desk.settle(4)
    assert [k for _, k, _ in desk.executed()] == ["load"]
    for agent in fleet.agents.values():
        agent.room.fails.clear()
    if sha is not None:
        desk.commit({"profiles.d/coder.yaml": profile(sha=sha)})
    desk.settle(8)
    assert desk.ready() == (["coder/1"] if sha is not None else []), "the same files go on waiting"
    same(desk)
    desk.controller.close()


def test_a_start_of_another_command_does_not_wait_for_the_cooldown_of_the_last_one(fleet: Fleet) -> None:
    budgets = POLICIES["policies/budgets.yaml"].replace("cooldown: 0s", "cooldown: 600s")
    desk = started(fleet, **{"policies/mode.yaml": WIDE, "policies/budgets.yaml": budgets})
    desk.settle(6)
    assert desk.ready() == ["coder/1"]
    desk.commit({"profiles.d/coder.yaml": profile(context=4096)})
    desk.settle(10)
    warms = [k for _, k, _ in desk.executed() if k == "warm"]
    assert len(warms) == 2
    desk.controller.close()


def test_what_went_and_came_back_may_go_again(fleet: Fleet) -> None:
    desk = started(fleet, **{"policies/mode.yaml": WIDE, "profiles.d/coder.yaml": profile(replicas=2)})
    for replicas in (2, 1, 2, 1):
        desk.clock.pass_by(61_000)  # the same decisions are carried out by themselves once a minute
        desk.commit({"profiles.d/coder.yaml": profile(replicas=replicas)})
        desk.settle(12)
        assert len(desk.ready()) == replicas
    drains = [e for b in desk.state.hosts.values() for e in b.outbox.entries if isinstance(e.body.action, Drain)]
    assert len(drains) == 2
    desk.controller.close()
