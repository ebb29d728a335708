"""Changes in place on a full host: where each waits for the room of another that waits too, one has to begin."""

from __future__ import annotations

from dataclasses import replace

from gridops.base.ids import HostId, ProfileName
from gridops.model.plan import Plan
from gridops.model.profile import Downtime, Profile
from gridops.model.snapshot import ResidencyState
from tests.planner.fleet import Fleet, config, host, profile
from tests.planner.test_actions import alter, state, steps, told
from tests.planner.walk import Walk


def two(context: int) -> tuple[Profile, Profile]:
    """Two models that fill a card together."""
    return (
        profile("big", configs=(config("big-q4", 9, context=context),), priority=200),
        profile("old", configs=(config("old-q4", 9, context=context),)),
    )


def both_changed() -> tuple[Fleet, Plan]:
    fleet = Fleet(hosts=(host("ant"),), profiles=two(4096))
    fleet = fleet.applied(fleet.plan()).but(profiles=two(8192))
    return fleet, fleet.plan()


def test_the_most_important_one_begins_and_the_other_waits() -> None:
    fleet, made = both_changed()
    found = told(steps(fleet, made))
    assert "drain big/1 ant" in found
    assert "drain old/1 ant: old/1 to be ready on ant" in found


def test_both_are_done_in_the_end_one_after_the_other() -> None:
    fleet, made = both_changed()
    taken = [line for line in Walk(fleet, made).run().taken if line.startswith(("drain", "warm"))]
    assert taken == ["drain big/1 ant", "warm big/1 ant", "drain old/1 ant", "warm old/1 ant"]


def test_who_is_going_already_is_waited_for() -> None:
    fleet, made = both_changed()
    going = alter(fleet, "big/1", state(ResidencyState.DRAINING))
    assert "drain old/1 ant: old/1 to be ready on ant" in told(steps(going, made))


def test_the_first_that_may_go_down_begins() -> None:
    fleet, made = both_changed()
    terms = tuple(replace(t, downtime=Downtime.NEVER) if t.profile == ProfileName("big") else t for t in made.terms)
    found = told(steps(fleet, replace(made, terms=terms)))
    assert "drain old/1 ant" in found
    assert "drain big/1 ant: big/1 to be ready on ant" in found


def test_nobody_begins_while_somebody_leaves_who_needs_no_room_here() -> None:
    """The one that goes elsewhere gives its room back by itself."""
    fleet, made = both_changed()
    fleet = fleet.but(hosts=(host("ant"), host("bee")))
    moved = [replace(a, seat=replace(a.seat, host=HostId("bee"))) for a in made.placement if a.replica == "old/1"]
    stays = [a for a in made.placement if a.replica != "old/1"]
    found = told(steps(fleet, replace(made, placement=(*stays, *moved))))
    assert "drain big/1 ant: big/1 to be ready on ant" in found
