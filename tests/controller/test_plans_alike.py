"""`gridops plan` beside a living controller plans as that one does: everything that it plans by is in its answer."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from gridops.base.ids import HostId, ReplicaId
from gridops.base.record import to_bytes
from gridops.cli.planning import Place, Seen, inputs_of, seen_of
from gridops.controller import views
from gridops.controller.core.propose import inputs
from gridops.planner.check import check
from gridops.planner.constants import LEAVE_AFTER
from gridops.planner.planner import Inputs, plan
from tests.controller.fleet import DEFAULT, Desk, Fleet
from tests.controller.test_attempts import broken, try_again, until
from tests.controller.test_given_up import gives_up, serving

OWN = {"intent", "version"}
"""What whoever plans brings along: its files, and itself."""


def here(desk: Desk) -> Inputs:
    """What the controller would plan from now."""
    asked = inputs(desk.state, desk.controller.soft, desk.controller.roster, DEFAULT, desk.now, "test")
    assert asked is not None
    return asked


def there(desk: Desk) -> Inputs:
    """What the command line plans from when it gets the controller's answer now."""
    answer = json.loads(to_bytes(views.snapshot(desk.controller.view())))
    seen: Seen = seen_of(answer)
    asked = here(desk)
    place = Place(desk.fleet.path, None, asked.fleet)
    return inputs_of(place, asked.intent, DEFAULT, seen, desk.now)


def alike(desk: Desk) -> Inputs:
    """Field by field the same, so that no field that is added later is forgotten; and so are the decisions."""
    mine, theirs = here(desk), there(desk)
    for field in fields(Inputs):
        if field.name not in OWN:
            assert getattr(mine, field.name) == getattr(theirs, field.name), field.name
    one, other = plan(mine), plan(theirs)
    assert check(other, theirs) == ()
    assert (one.decisions, one.placement) == (other.decisions, other.placement)
    return theirs


def test_both_know_what_is_being_tried_and_leave_it_alone(fleet: Fleet) -> None:
    desk = broken(fleet, load="no_artifact")
    until(desk, LEAVE_AFTER)
    try_again(desk)
    asked = alike(desk)
    assert asked.under_way == {ReplicaId("coder/1")}
    assert asked.learned is not None
    assert plan(replace(asked, under_way=frozenset(), waiting=None)).to_do, "who does not know of it moves the replica"
    assert plan(replace(asked, waiting=None)).to_do == ()
    assert alike(desk).snapshot == here(desk).snapshot
    desk.controller.close()


def test_both_know_who_was_given_up_and_which_hosts_were_written_off(fleet: Fleet) -> None:
    desk = serving(fleet)
    alike(desk)
    gives_up(desk)
    desk.settle(3)
    asked = alike(desk)
    assert [g.replica for g in asked.given_up or ()] == ["coder/1"]
    assert asked.waiting == desk.proposal()
    assert plan(replace(asked, given_up=(), waiting=None)).to_do == (), "who does not know of it leaves it as it is"
    for _ in range(8):
        desk.clock.pass_by(600_000)
        desk.beat("beta")
    desk.ask("write_off", host="alpha", reason="sold")
    desk.pass_()
    assert alike(desk).written_off == {HostId("alpha")}


@pytest.mark.parametrize("name", ["written_off", "circumstances"])
def test_a_controller_of_before_says_less_and_nobody_guesses_the_rest(desk: Desk, name: str) -> None:
    desk.settle(2)
    answer = json.loads(to_bytes(views.snapshot(desk.controller.view())))
    del answer[name]
    seen = seen_of(answer)
    assert seen.written_off == frozenset()
    assert (seen.given_up is None) == (name == "circumstances")
