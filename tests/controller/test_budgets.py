"""Budgets while things happen: windows are asked at every command, limits count what is under way, repair goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.codes.placement import HELD_DISRUPTION, HELD_WINDOW
from gridops.controller.core.budgeting import circumstances
from gridops.model.action import Drain, Warm
from gridops.model.snapshot import ResidencyState
from gridops.protocol import outbox as ob
from tests.controller.fleet import DEFAULT, HOSTS, NOW, POLICIES, Desk, Fleet, profile
from tests.controller.test_reconcile import WIDE, finish, held, open_kinds, slow, started

BUDGETS = POLICIES["policies/budgets.yaml"]
CLOSED = BUDGETS + '    windows: [{deny: "Mon 01:00-01:05 UTC", except: [repair]}]\n'
"""The test's clock begins on Monday at 00:53:20 UTC."""
SHUT, OPEN = NOW + 400_000, NOW + 700_000
ONE_AT_A_TIME = BUDGETS + "    disruptions: [{reasons: [rollout], max: 1}]\n"
SMALL = HOSTS.replace("3GiB", "700MiB", 1).replace("3GiB", "100MiB")
"""One host with room for one replica, and one with room for none."""


def until(desk: Desk, at_ms: int) -> None:
    """Time passes with everybody beating."""
    while desk.clock.wall < at_ms:
        desk.clock.pass_by(min(10_000, at_ms - desk.clock.wall))
        desk.beat()
        desk.pass_()


def kinds(desk: Desk, kind: str) -> int:
    return len([k for _, k, _ in desk.executed() if k == kind])


def now_of(desk: Desk) -> object:
    rights = desk.controller.rights(DEFAULT, desk.now)
    return circumstances(rights, desk.controller.soft, desk.controller.roster)


def test_a_window_that_closes_stops_what_has_not_begun_until_it_opens(fleet: Fleet) -> None:
    desk = started(fleet, **{"policies/budgets.yaml": CLOSED})
    slow(desk, "load")
    desk.settle(3)
    assert open_kinds(desk) == ["load"]
    until(desk, SHUT)
    finish(desk, "load")
    desk.settle(6)
    assert "coder/1: scale_up is closed by windows[1] (Mon 01:00-01:05 UTC), opens 2026-11-30T01:05:00Z" in held(desk)
    assert kinds(desk, "warm") == 0
    until(desk, OPEN)
    desk.settle(3)
    assert desk.ready() == ["coder/1"]
    desk.controller.close()


def test_a_command_that_no_host_has_heard_is_taken_back_when_its_window_closes(fleet: Fleet) -> None:
    desk = started(fleet, **{"policies/budgets.yaml": CLOSED})
    desk.clock.pass_by(399_000)
    desk.beat()
    desk.beat()
    desk.pass_()
    assert open_kinds(desk) == ["load"], "queued before the hour"
    desk.clock.pass_by(2_000)
    desk.beat()
    assert kinds(desk, "load") == 0
    desk.controller.close()


def test_what_was_approved_goes_on_through_a_window(fleet: Fleet) -> None:
    desk = started(fleet, **{"policies/budgets.yaml": CLOSED})
    desk.clock.pass_by(SHUT - NOW)
    desk.settle(2)
    assert desk.ready() == []
    desk.apply()
    desk.settle(4)
    assert desk.ready() == ["coder/1"]
    desk.controller.close()


def test_what_is_half_done_when_a_window_closes_is_finished(fleet: Fleet) -> None:
    """There is room for one: the old one has gone, and the new one starts although nothing else may."""
    desk = started(fleet, **{"policies/budgets.yaml": CLOSED, "policies/mode.yaml": WIDE, "fleet.d/hosts.yaml": SMALL})
    desk.settle(6)
    assert desk.ready() == ["coder/1"]
    slow(desk, "unload")
    desk.commit({"profiles.d/coder.yaml": profile(context=4096)})
    desk.settle(6)
    assert open_kinds(desk) == ["unload"], held(desk)
    until(desk, SHUT)
    finish(desk, "unload")
    desk.settle(6)
    assert desk.ready() == ["coder/1"], held(desk)
    assert kinds(desk, "warm") == 2
    # Nothing new begins.
    desk.commit({"profiles.d/coder.yaml": profile(context=2048)})
    desk.settle(6)
    assert kinds(desk, "drain") == 1
    assert HELD_WINDOW.code in held(desk)
    desk.controller.close()


def test_a_start_whose_former_self_still_serves_waits_for_the_window(fleet: Fleet) -> None:
    """The files of the new one came too late: the old one goes on, and nobody is worse off."""
    desk = started(fleet, **{"policies/budgets.yaml": CLOSED, "policies/mode.yaml": WIDE})
    desk.settle(6)
    slow(desk, "load")
    desk.commit({"profiles.d/coder.yaml": profile(sha="sha256:" + "cd" * 32)})
    desk.settle(3)
    assert open_kinds(desk) == ["load"]
    until(desk, SHUT)
    finish(desk, "load")
    desk.settle(5)
    assert (kinds(desk, "warm"), desk.ready()) == (1, ["coder/1"])
    until(desk, OPEN)
    desk.settle(6)
    assert (kinds(desk, "warm"), desk.ready()) == (2, ["coder/1"])
    desk.controller.close()


def test_what_crashes_in_a_closed_window_is_repaired_though_it_was_started_as_growth(fleet: Fleet) -> None:
    desk = started(fleet, **{"policies/budgets.yaml": CLOSED})
    desk.settle(6)
    assert desk.ready() == ["coder/1"]
    until(desk, SHUT)
    for agent in fleet.agents.values():
        agent.room.residencies.clear()
        agent.room.bump()
    desk.settle(4)
    assert desk.ready() == ["coder/1"], held(desk)
    desk.controller.close()


def test_a_rollout_disrupts_no_more_at_once_than_its_budget_counting_what_is_under_way(fleet: Fleet) -> None:
    """Two replicas on two hosts, one at a time: the second begins when the first serves again, and not before."""
    hosts = HOSTS.replace("3GiB", "700MiB")
    wanted = {"profiles.d/coder.yaml": profile(replicas=2)}
    desk = started(
        fleet,
        **{"policies/budgets.yaml": ONE_AT_A_TIME, "policies/mode.yaml": WIDE, "fleet.d/hosts.yaml": hosts, **wanted},
    )
    desk.settle(6)
    assert desk.ready() == ["coder/1", "coder/2"]
    assert now_of(desk).disrupted == ()  # type: ignore[attr-defined]
    slow(desk, "warm")
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2, context=4096)})
    desk.settle(10)
    assert len(now_of(desk).disrupted) == 1  # type: ignore[attr-defined]
    assert (kinds(desk, "drain"), len(desk.ready())) == (1, 1)
    assert f"{HELD_DISRUPTION.code}: " in held(desk)
    assert "1 of 1 disrupted at once" in held(desk)
    assert "it opens when they serve again" in held(desk)
    finish(desk, "warm")
    desk.settle(14)
    assert (kinds(desk, "drain"), desk.ready()) == (2, ["coder/1", "coder/2"])
    assert now_of(desk).disrupted == ()  # type: ignore[attr-defined]
    desk.controller.close()


def test_what_grows_disrupts_nobody_and_what_moves_is_on_its_way_until_it_serves(fleet: Fleet) -> None:
    desk = started(fleet, **{"policies/mode.yaml": WIDE})
    slow(desk, "load", "warm")
    desk.settle(3)
    assert (now_of(desk).disrupted, now_of(desk).moving) == ((), ())  # type: ignore[attr-defined]
    finish(desk, "load", "warm")
    desk.settle(6)
    (home,) = (name for name, agent in fleet.agents.items() if agent.replicas())
    slow(desk, "warm")
    denied = profile() + f"placement: {{deny_hosts: [{home}]}}\n"
    desk.commit({"profiles.d/coder.yaml": denied})
    desk.settle(6)
    assert now_of(desk).moving == ("coder/1",)  # type: ignore[attr-defined]
    assert now_of(desk).disrupted == ("coder/1",)  # type: ignore[attr-defined]
    assert len(now_of(desk).moved_ms) == 1  # type: ignore[attr-defined]
    finish(desk, "warm")
    desk.settle(8)
    assert (now_of(desk).disrupted, now_of(desk).moving) == ((), ())  # type: ignore[attr-defined]
    for agent in fleet.agents.values():
        room = agent.room
        room.residencies = {k: replace(r, state=ResidencyState.WARMING) for k, r in room.residencies.items()}
    desk.beat()
    assert now_of(desk).disrupted == ("coder/1",)  # type: ignore[attr-defined]
    desk.controller.close()


@pytest.mark.parametrize("limit", ["concurrent: 1", "transfers_per_host: 1, concurrent: 4"])
def test_repair_does_not_wait_for_optional_commands(fleet: Fleet, limit: str) -> None:
    """Every command that may go on at once is a slow transfer of something new; what crashed starts all the same."""
    desk = started(fleet, **{"policies/budgets.yaml": BUDGETS.replace("concurrent: 4", limit)})
    desk.settle(6)
    assert desk.ready() == ["coder/1"]
    slow(desk, "load")
    other = {"profiles.d/other.yaml": profile("other", sha="sha256:" + "cd" * 32)}
    desk.commit(other)
    desk.settle(3)
    assert open_kinds(desk) == ["load"]
    for agent in fleet.agents.values():
        agent.room.residencies.clear()
        agent.room.cached.clear()
        agent.room.bump()
        agent.room.slow.clear()
    desk.settle(6)
    assert desk.ready() == ["coder/1"], held(desk)
    entries = [e for b in desk.state.hosts.values() for e in ob.open_entries(b.outbox)]
    assert [e.body.action.replica for e in entries] == ["other/1"]
    assert not any(isinstance(e.body.action, Warm | Drain) for e in entries)
    desk.controller.close()


def test_the_cooldown_ends_to_the_millisecond(fleet: Fleet) -> None:
    """The engine is gone without a word: the same start is given again when the cooldown is over, and no earlier."""
    desk = started(fleet, **{"policies/budgets.yaml": BUDGETS.replace("cooldown: 0s", "cooldown: 30s")})
    desk.settle(6)
    ((home, ended_ms),) = (
        (host, at) for host, book in desk.state.hosts.items() for (kind, _), at in book.cooled.items() if kind == "warm"
    )
    fleet.agents[home].room.residencies.clear()
    fleet.agents[home].room.bump()
    until(desk, ended_ms + 29_999)
    assert (open_kinds(desk), kinds(desk, "warm")) == ([], 1)
    assert "coder/1: warm on alpha waits: the same step ended 29 s ago" in held(desk)
    desk.clock.pass_by(1)
    desk.pass_()
    assert open_kinds(desk) == ["warm"]
    desk.controller.close()


def comes_to_serve(fleet: Fleet) -> tuple[Desk, str, str]:
    """One is down by a rollout. Another one had gone down, was told to change then, and serves by now as it was."""
    hosts = HOSTS.replace("3GiB", "700MiB")
    desk = started(
        fleet,
        **{"policies/budgets.yaml": ONE_AT_A_TIME, "policies/mode.yaml": WIDE, "fleet.d/hosts.yaml": hosts},
        **{"profiles.d/other.yaml": profile("other")},
    )
    desk.settle(6)
    assert desk.ready() == ["coder/1", "other/1"]
    at = {replica: name for name, agent in fleet.agents.items() for replica in agent.replicas()}
    one, two = at["coder/1"], at["other/1"]
    slow(desk, "warm")
    desk.commit({"profiles.d/coder.yaml": profile(context=4096)})
    desk.settle(6)
    fleet.agents[two].room.residencies.clear()
    fleet.agents[two].room.bump()
    desk.settle(3)
    assert open_kinds(desk) == ["warm", "warm"]
    desk.commit({"profiles.d/other.yaml": profile("other", context=4096)})
    desk.settle(3)
    assert (kinds(desk, "drain"), desk.ready()) == (1, [])
    fleet.agents[two].finish("warm")
    return desk, one, two


def test_who_came_to_serve_since_it_was_decided_is_not_stopped_beside_one_that_is_down(fleet: Fleet) -> None:
    desk, one, _ = comes_to_serve(fleet)
    desk.settle(6)
    assert (kinds(desk, "drain"), desk.ready()) == (1, ["other/1"])
    assert "waits: other/1: disruptions[1] (rollout: max 1): 1 of 1 disrupted at once (coder/1), 1 more" in held(desk)
    fleet.agents[one].finish("warm")
    desk.settle(6)
    assert (kinds(desk, "drain"), desk.ready()) == (2, ["coder/1"])
    finish(desk, "warm")
    desk.settle(6)
    assert desk.ready() == ["coder/1", "other/1"]
    desk.controller.close()


def test_a_stop_that_waited_for_its_host_is_judged_by_who_serves_when_it_is_handed_over(fleet: Fleet) -> None:
    """It was queued while it would have been the only one down, and another one broke before its host asked."""
    desk, one, two = comes_to_serve(fleet)
    fleet.agents[one].finish("warm")
    desk.beat()
    desk.beat(one)
    desk.pass_()
    assert open_kinds(desk) == ["drain"]
    room = fleet.agents[one].room
    room.residencies = {k: replace(r, state=ResidencyState.FAILED) for k, r in room.residencies.items()}
    room.bump()
    desk.beat(one)
    desk.beat(two)
    assert (kinds(desk, "drain"), desk.ready()) == (1, ["other/1"])
    desk.settle(2)
    assert (kinds(desk, "drain"), desk.ready()) == (1, ["other/1"])
    desk.controller.close()


def test_of_two_that_came_to_serve_one_is_stopped_at_once(fleet: Fleet) -> None:
    """Both were down when their change was decided, and both could be stopped in the same moment."""
    hosts = HOSTS.replace("3GiB", "700MiB")
    desk = started(
        fleet,
        **{"policies/budgets.yaml": ONE_AT_A_TIME, "policies/mode.yaml": WIDE, "fleet.d/hosts.yaml": hosts},
        **{"profiles.d/other.yaml": profile("other")},
    )
    desk.settle(6)
    slow(desk, "warm")
    for agent in fleet.agents.values():
        agent.room.residencies.clear()
        agent.room.bump()
    desk.settle(3)
    desk.commit({f"profiles.d/{name}.yaml": profile(name, context=4096) for name in ("coder", "other")})
    desk.settle(3)
    finish(desk, "warm")
    slow(desk, "warm")
    desk.settle(8)
    assert (kinds(desk, "drain"), len(desk.ready())) == (1, 1)
    finish(desk, "warm")
    desk.settle(10)
    assert (kinds(desk, "drain"), desk.ready()) == (2, ["coder/1", "other/1"])
    desk.controller.close()
