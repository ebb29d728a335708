"""The clock of the controller's machine is moved by an hour: what is shown, and what keeps its order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import Digest, HostId, ProfileName
from gridops.base.units import render_instant
from gridops.controller import views
from gridops.controller.clock import TOLERANCE_MS
from gridops.controller.core.modes import permitted
from gridops.controller.service import LEAP_MS
from gridops.model.advice import Prefetched
from gridops.model.snapshot import ResidencyState
from tests.controller.fleet import DEFAULT, OBSERVE, Desk, profile, run

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def alarms(desk: Desk) -> dict[str, str]:
    return {a.key: a.text for a in views.status(desk.controller.view()).alarms}


def test_a_clock_that_was_set_back_is_shown_until_it_has_caught_up(desk: Desk) -> None:
    desk.settle(3)
    assert "clock" not in alarms(desk)
    desk.clock.wall -= HOUR_MS
    assert "60 min ahead of its machine's clock" in alarms(desk)["clock"]
    desk.clock.pass_by(HOUR_MS // 2)
    assert "60 min ahead" in alarms(desk)["clock"], "a difference stays what it is while both go on"
    desk.clock.wall += HOUR_MS
    assert "clock" not in alarms(desk)


def test_a_restart_after_the_clock_was_put_right_says_so_too(desk: Desk) -> None:
    desk.clock.wall += HOUR_MS
    desk.settle(3)
    desk.clock.wall -= HOUR_MS
    desk.restart()
    assert "ahead of its machine's clock" in alarms(desk)["clock"]


def test_plans_keep_their_order_through_a_clock_that_goes_back(desk: Desk) -> None:
    desk.settle(3)
    first = desk.proposal()
    desk.clock.wall -= HOUR_MS
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle(3)
    second = desk.proposal()
    assert second.decisions_digest != first.decisions_digest
    assert second.id > first.id
    assert second.created_ms > first.created_ms


def test_a_leap_forwards_silences_no_host_and_expires_an_approval(desk: Desk) -> None:
    desk.settle(3)
    waits = desk.proposal()
    approval = desk.fleet.approval(waits, desk.now)
    desk.clock.wall += HOUR_MS
    document = views.status(desk.controller.view())
    assert all(host.heard for host in document.hosts)
    with pytest.raises(Refusal) as refused:
        desk.ask("apply", plan=waits.id, approvals=(approval,))
    assert refused.value.code == "GO413", "it was for ten minutes, and an hour has passed"
    desk.apply()


def test_who_is_refused_for_the_time_is_told_both_times_and_the_way_out(desk: Desk) -> None:
    desk.clock.wall += HOUR_MS
    desk.settle(3)
    desk.clock.wall -= HOUR_MS
    right_ms = desk.clock.wall
    with pytest.raises(Refusal) as no:
        run(desk.planning.operator(desk.fleet.request("freeze", right_ms, reason="smoke")))
    assert no.value.code == "request_expired"
    assert f"made at {render_instant(right_ms)} by the clock of mira" in no.value.message
    assert f"the controller's time is {render_instant(desk.now)}" in no.value.message
    hints = "\n".join(no.value.hints)
    assert "stop the controller for 60 min (engines go on), then start it" in hints
    assert "commit `mode: observe` in policies/mode.yaml" in hints
    desk.commit({"policies/mode.yaml": OBSERVE})
    assert permitted(desk.state, DEFAULT, desk.now).observes, "the kill switch works whatever the time is"


def test_the_way_out_of_a_clock_that_ran_ahead_is_one(desk: Desk) -> None:
    desk.clock.wall += HOUR_MS
    desk.settle(3)
    desk.clock.wall -= HOUR_MS
    assert "Stop the controller for 60 min" in alarms(desk)["clock"]
    desk.controller.close()
    desk.clock.pass_by(HOUR_MS)
    desk.start()
    assert "clock" not in alarms(desk)
    assert (
        run(desk.planning.operator(desk.fleet.request("freeze", desk.clock.wall, reason="smoke")))["verb"] == "freeze"
    )


def test_hosts_that_heard_a_later_time_than_it_is_are_named_with_the_way_out(desk: Desk) -> None:
    """A journal from before a step of the clock was put back: nobody here remembers how late it once was."""
    desk.settle(3)
    assert "hosts_clock" not in alarms(desk)
    agent, now = desk.fleet.agents["alpha"], desk.now
    agent.claims = True
    agent.session = replace(agent.session, floor_ms=desk.now + HOUR_MS)
    desk.controller.beat(agent.beat())
    assert "1 host (alpha) once heard a controller's time that is 60 min ahead" in alarms(desk)["hosts_clock"]
    assert "gridops trust rotate controller --stolen" in alarms(desk)["hosts_clock"]
    assert abs(desk.now - now) < 60_000, "what a host says moves nobody's time"
    desk.clock.pass_by(HOUR_MS)
    assert "hosts_clock" not in alarms(desk), "it has come"


def test_a_host_that_people_expunged_alarms_nobody_about_its_time(desk: Desk) -> None:
    desk.settle(3)
    agent = desk.fleet.agents["alpha"]
    agent.claims = True
    agent.session = replace(agent.session, floor_ms=desk.now + HOUR_MS)
    desk.controller.beat(agent.beat())
    assert "hosts_clock" in alarms(desk)
    desk.commit({"fleet.d/keys/alpha.yaml": desk.fleet.key_file("alpha") + "expunged: true\n"})
    assert "hosts_clock" not in alarms(desk)


def test_a_host_whose_clock_was_years_ahead_ages_by_when_it_was_heard(desk: Desk) -> None:
    """Before its first directive a host writes down its wall clock; what it wrote stays when that was put right."""
    desk.settle(2)
    desk.apply()
    desk.settle()
    host = next(name for name, agent in desk.fleet.agents.items() if agent.room.residencies)
    room = desk.fleet.agents[host].room
    ahead_ms = desk.now + 15 * 365 * 86_400_000
    digest = Digest("sha256:" + "7" * 64)
    guess = {"host": HostId(host), "profile": ProfileName("coder"), "files": (digest,), "size_bytes": 1}
    room.residencies = {k: replace(v, since_ms=ahead_ms) for k, v in room.residencies.items()}
    room.guesses = [Prefetched(since_ms=ahead_ms, **guess)]
    desk.restart()
    desk.beat(host)
    moments = []
    for _ in range(3):
        desk.clock.pass_by(1_000)
        desk.beat(host)
        report = desk.controller.soft.hosts[host].report
        moments.append((report.residencies[0].since_ms, report.prefetched[0].since_ms))
    first_ms = desk.now - 2_000
    assert moments == [(first_ms, first_ms)] * 3, "no later than it was heard of, and each word says the same"
    room.residencies = {k: replace(v, state=ResidencyState.DRAINING) for k, v in room.residencies.items()}
    desk.clock.pass_by(1_000)
    desk.beat(host)
    assert desk.controller.soft.hosts[host].report.residencies[0].since_ms == desk.now


def test_a_request_from_the_future_names_both_times(desk: Desk) -> None:
    with pytest.raises(Refusal) as no:
        run(desk.planning.operator(desk.fleet.request("freeze", desk.now + HOUR_MS, reason="smoke")))
    assert no.value.code == "request_not_yet"
    assert render_instant(desk.now + HOUR_MS) in no.value.message
    assert render_instant(desk.now) in no.value.message
    assert any("date -u" in hint for hint in no.value.hints)


# -- moved at every event ---------------------------------------------------------------------------------------------


class Moved:
    """What happens to the wall of the controller's machine at each event of a story; `true_ms` is what has passed."""

    def __init__(self, desk: Desk, how: str, at: int) -> None:
        self._desk, self._how, self._at = desk, how, at
        self._event = 0
        self.true_ms = self.lost_ms = 0
        self.newest_ms = self.begun_ms = desk.now

    def passes(self, ms: int) -> None:
        """Time passes, an event comes, and controller time is looked at as often as a loop does."""
        clock = self._desk.clock
        self._event += 1
        if self._event == self._at:
            clock.wall += {"an hour on": HOUR_MS, "an hour back": -HOUR_MS}.get(self._how, 0)
        if self._how == "a second back at each":
            clock.wall -= 1_000
        for _ in range(ms // 100):
            clock.mono += 100
            clock.wall += 0 if self._how == "stands still" and self._event >= self._at else 100
            now_ms = self._desk.now
            assert now_ms >= self.newest_ms, "controller time went back"
            self.newest_ms = now_ms
        self.true_ms += ms
        held_up_ms = self.true_ms - (self.newest_ms - self.begun_ms)
        assert held_up_ms <= TOLERANCE_MS + self.lost_ms, "time was held up: what expires would last"

    def restarts(self) -> None:
        """A start knows the wall and the newest row: what was counted since that row, with a wall that is behind, is
        counted once more."""
        self._desk.restart()
        self.lost_ms += max(self.newest_ms - self._desk.now, 0) + TOLERANCE_MS
        assert self.lost_ms <= LEAP_MS + 2 * TOLERANCE_MS
        self.newest_ms = self._desk.now


CLOCKS = [(how, at) for how in ("an hour on", "an hour back", "stands still") for at in (1, 4, 5, 7, 8, 12)]
CLOCKS += [("a second back at each", 0)]


@pytest.mark.parametrize(("how", "at"), CLOCKS)
def test_a_clock_moved_at_any_event_doubles_nothing_and_extends_nothing(how: str, at: int, desk: Desk) -> None:
    moved = Moved(desk, how, at)
    for step in range(12):
        moved.passes(1_000)
        desk.beat()
        desk.pass_()
        if step == 3:
            desk.apply()
            granted_ms = desk.now
        if step == 6:
            moved.restarts()
    assert desk.ready() == ["coder/1"]
    for agent in desk.fleet.agents.values():
        bodies = [body for _, body in agent.room.spawned]
        assert len(bodies) == len(set(bodies)), "one body, one process"
    assert all(warrant.until_ms <= granted_ms + DAY_MS for warrant in desk.book().warrants.values())
    assert desk.book().warrants
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    moved.passes(1_000)
    desk.beat()
    desk.pass_()
    waits = desk.proposal()
    approval = desk.fleet.approval(waits, desk.now)  # for ten minutes
    for _ in range(11):
        moved.passes(60_000)
        desk.beat()
    moved.restarts()
    for _ in range(4):
        moved.passes(1_000)
        desk.beat()
        desk.pass_()
    with pytest.raises(Refusal) as refused:
        desk.ask("apply", plan=waits.id, approvals=(approval,))
    assert refused.value.code == "GO413"
