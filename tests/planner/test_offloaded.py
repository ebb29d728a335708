"""A paused host gave a model's memory back: who keeps its seat, its room and its name, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace

from gridops.base.ids import ReplicaId
from gridops.model.fleet import Absence, OnReturn
from gridops.model.plan import Plan
from gridops.model.snapshot import HostState, ResidencyState
from tests.planner.fleet import NOW, Fleet, codes_of, config, decisions, host, laptop, profile, running, seats
from tests.planner.test_actions import alter, state, steps, told

PATIENCE = 600_000
NOTES = profile("notes", configs=(config("m", 20, backends=("metal", "cuda")),))
AWAY = state(ResidencyState.OFFLOADED)


def paused(since: int = NOW, **more: object) -> Fleet:
    """A model on a laptop whose owner is at the keyboard, and a server that came later."""
    fleet = Fleet(hosts=(laptop("ana", 32, **more),), profiles=(NOTES,))
    fleet = fleet.applied(fleet.plan()).but(hosts=(laptop("ana", 32, **more), host("zeb")))
    return alter(fleet, "notes/1", AWAY).reporting("ana", state=HostState.PAUSED, since_ms=since)


def moved() -> tuple[Fleet, Plan]:
    fleet = paused(NOW - PATIENCE)
    return fleet, fleet.plan()


def test_while_its_owner_is_waited_for_it_keeps_its_seat_and_nothing_is_done() -> None:
    fleet = paused(NOW - PATIENCE + 1)
    made = fleet.plan()
    assert (made.to_do, seats(made)) == ((), {"notes/1": "ana"})
    assert steps(fleet, made) == ()


def test_after_the_patience_it_moves_and_the_old_one_goes_once_the_new_one_serves() -> None:
    fleet, made = moved()
    assert decisions(made) == ["move notes/1 ana -> zeb"]
    assert told(steps(fleet, made)) == [
        "load notes/1 zeb",
        "warm notes/1 zeb: its artifact",
        "drain notes/1 ana: notes/1 to be ready on zeb",
    ]
    new = fleet.reporting("zeb", residencies=(running(made.placement[0], made),))
    assert told(steps(new, made)) == ["drain notes/1 ana"]
    drained = replace(new.snapshot().hosts[0].residencies[0], state=ResidencyState.DRAINING)
    assert told(steps(new.reporting("ana", residencies=(drained,)), made)) == ["unload notes/1 ana"]


def test_a_host_that_is_itself_again_needs_no_command_and_gets_no_second_process() -> None:
    fleet = paused().reporting("ana", state=HostState.ACCEPTING, since_ms=None)
    made = fleet.plan()
    assert (made.to_do, seats(made)) == ((), {"notes/1": "ana"})
    assert steps(fleet, made) == ()


def test_its_room_is_nobody_else_s_whether_its_host_is_paused_or_open() -> None:
    for now in (HostState.PAUSED, HostState.ACCEPTING, HostState.THROTTLED):
        fleet = paused().reporting("ana", state=now)
        fleet = fleet.but(hosts=fleet.hosts[:1], profiles=(NOTES, profile("other", configs=NOTES.configs)))
        made = fleet.plan()
        assert seats(made) == {"notes/1": "ana"}, now
        assert "ana" in codes_of(made, "other/1")


def test_an_owner_who_wants_the_oldest_kept_finds_it_as_it_was() -> None:
    keep = Absence(replace_after_ms=PATIENCE, on_return=OnReturn.KEEP_OLDEST)
    fleet = alter(
        paused(NOW - PATIENCE, absence=keep), "notes/1", state(ResidencyState.OFFLOADED, since_ms=NOW - 10**7)
    )
    made = fleet.plan()
    assert decisions(made) == ["move notes/1 ana -> zeb"]
    new = running(made.placement[0], made, since_ms=NOW)
    both = fleet.reporting("zeb", residencies=(new,)).but(parent=made)
    assert steps(both, made) == (), "the old one waits for its owner to go"
    back = alter(both, "notes/1", lambda r: replace(r, state=ResidencyState.READY))
    back = back.reporting("ana", state=HostState.ACCEPTING, since_ms=None)
    assert decisions(back.plan()) == ["move notes/1 zeb -> ana"]
    assert told(steps(back, back.plan())) == ["drain notes/1 zeb"]


def test_what_is_not_wanted_any_more_goes_even_from_an_owner_who_keeps_the_oldest() -> None:
    keep = Absence(replace_after_ms=PATIENCE, on_return=OnReturn.KEEP_OLDEST)
    fleet = paused(absence=keep).but(profiles=())
    assert told(steps(fleet, fleet.plan())) == ["drain notes/1 ana"]


def test_what_was_replaced_goes_when_its_host_is_back_by_default() -> None:
    fleet, made = moved()
    new = running(made.placement[0], made)
    back = fleet.reporting("zeb", residencies=(new,)).reporting("ana", state=HostState.ACCEPTING).but(parent=made)
    assert back.plan().to_do == ()
    assert told(steps(back, back.plan())) == ["drain notes/1 ana"]


def test_a_controller_that_forgot_everything_finds_it_where_it_is() -> None:
    fleet = paused().reporting("ana", state=HostState.ACCEPTING).but(parent=None)
    made = fleet.plan()
    assert seats(made) == {ReplicaId("notes/1"): "ana"}
    assert steps(fleet, made) == ()
