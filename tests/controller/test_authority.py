"""Architecture section 5, row by row: what each mode computes, writes, lets people apply, and does by itself."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gridops.base.errors import Refusal
from gridops.controller import views
from gridops.controller.core.modes import permitted
from gridops.model.policy import Mode
from tests.controller.fleet import AUTOMATIC, DEFAULT, OBSERVE, RECOMMEND, Desk, Fleet, mode, profile


@dataclass(frozen=True)
class Row:
    """What architecture section 5 says of a mode."""

    file: str
    plan_computed: bool
    plan_file_written: bool
    apply_by_people: bool
    applied_by_itself: bool


TABLE = {
    "observe": Row(OBSERVE, True, False, False, False),
    "recommend": Row(RECOMMEND, True, True, True, False),
    "automatic": Row(AUTOMATIC, True, True, True, True),
    "automatic, nothing allowed": Row(mode("{mode: automatic}"), True, True, True, False),
    "automatic, other class": Row(mode("{mode: automatic, automatic: {allow: [repair]}}"), True, True, True, False),
}


@pytest.mark.parametrize("name", sorted(TABLE))
def test_each_mode_does_what_the_table_says(fleet: Fleet, name: str) -> None:
    row = TABLE[name]
    fleet.begin(**{"policies/mode.yaml": row.file})
    desk = Desk(fleet)
    desk.beat()
    desk.pass_()
    candidate = desk.controller.soft.scope(DEFAULT).candidate
    assert (candidate is not None and bool(candidate.to_do)) or row.applied_by_itself
    assert (desk.book().target is not None) is row.applied_by_itself
    desk.project()
    written = "gridops/plans" in fleet.git("branch", "--list", "gridops/plans")
    assert written is row.plan_file_written
    if not row.applied_by_itself and row.apply_by_people:
        assert desk.apply()["applied"]
        desk.settle()
        assert desk.ready() == ["coder/1"]
    if not row.apply_by_people:
        assert candidate is not None
        with pytest.raises(Refusal) as no:
            desk.apply(candidate)
        assert no.value.code == "GO424" or no.value.code == "GO416"
        assert desk.executed() == []
    desk.controller.close()


def test_observe_refuses_the_apply_of_a_plan_that_was_proposed_before(desk: Desk) -> None:
    desk.beat()
    desk.pass_()
    plan = desk.proposal()
    desk.commit({"policies/mode.yaml": OBSERVE})
    with pytest.raises(Refusal) as no:
        desk.apply(plan)
    assert no.value.code == "GO416"
    assert "look only" in no.value.message


def test_keep_alive_needs_nothing_in_any_mode(desk: Desk) -> None:
    """What was applied stays wanted when the mode becomes observe: no command takes it away."""
    desk.beat()
    desk.pass_()
    desk.apply()
    desk.settle()
    before = desk.executed()
    desk.commit({"policies/mode.yaml": OBSERVE})
    desk.settle()
    assert desk.executed() == before
    assert desk.ready() == ["coder/1"]


def test_the_root_must_permit_standing_authority(tmp_path: object) -> None:
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    fleet = Fleet(tmp_path, standing=False)
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    desk = Desk(fleet)
    desk.beat()
    desk.pass_()
    assert desk.book().target is None
    assert desk.proposal().to_do
    held = views.status(desk.controller.view()).scopes[0].held
    assert any("standing" in line for line in held)
    desk.controller.close()


def test_a_removal_outside_the_allowed_classes_becomes_a_proposal_beside_an_allowed_growth(fleet: Fleet) -> None:
    """Change sets proceed independently: growth is carried out, the removal waits for people."""
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC, "profiles.d/other.yaml": profile("other")})
    desk = Desk(fleet)
    desk.beat()
    desk.pass_()
    desk.settle()
    assert desk.ready() == ["coder/1", "other/1"]
    desk.commit({"profiles.d/other.yaml": None, "profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2", "other/1"]
    waits = desk.proposal()
    assert [(d.kind.value, d.replica) for d in waits.to_do] == [("remove", "other/1")]
    assert waits.to_do[0].last_replica
    desk.controller.close()


MODES = {
    "missing entry": ("apiVersion: gridops/v1\nkind: Mode\nscopes: {}\ndefault: recommend\n", Mode.RECOMMEND),
    "ended without after": (mode("{mode: automatic, until: 2020-01-01T00:00:00Z}"), Mode.RECOMMEND),
    "ended, then after": (mode("{mode: observe, until: 2020-01-01T00:00:00Z, after: recommend}"), Mode.RECOMMEND),
    "not yet ended": (mode("{mode: observe, until: 2099-01-01T00:00:00Z, after: automatic}"), Mode.OBSERVE),
}


@pytest.mark.parametrize("name", sorted(MODES))
def test_until_and_after_are_read_at_this_moment(fleet: Fleet, name: str) -> None:
    text, expected = MODES[name]
    fleet.begin(**{"policies/mode.yaml": text})
    desk = Desk(fleet)
    assert permitted(desk.state, DEFAULT, desk.now).mode.mode is expected
    desk.controller.close()


REPAIRING = {
    "allowed": (AUTOMATIC, True),
    "not allowed": (mode("{mode: automatic, automatic: {allow: [scale_up]}}"), False),
}


@pytest.mark.parametrize("name", sorted(REPAIRING))
@pytest.mark.parametrize("since", ["a day", "a rebuild"])
def test_what_was_carried_out_once_is_repaired_when_its_authority_has_ended(
    fleet: Fleet, name: str, since: str
) -> None:
    """Its host lost the process and does not know of it: nothing differs from the target, so no plan would say so."""
    text, again = REPAIRING[name]
    fleet.begin(**{"policies/mode.yaml": text})
    desk = Desk(fleet)
    desk.settle()
    assert desk.ready() == ["coder/1"]
    if since == "a day":
        desk.clock.pass_by(25 * 3_600_000)
    else:
        desk.settle(2)
        desk.project()
        desk.rebuild()
    desk.settle(4)
    for agent in desk.fleet.agents.values():
        if agent.room.residencies:
            agent.room.residencies.clear()
            agent.room.bump()
    desk.settle(8)
    assert desk.ready() == (["coder/1"] if again else [])
    desk.controller.close()


def test_who_typed_the_name_for_a_plan_that_keeps_none_said_it_of_each_replica_on_its_way_out(fleet: Fleet) -> None:
    """One of two was to go, and its host did not end it; then people let the last one go too, and typed the name."""
    fleet.begin(**{"profiles.d/coder.yaml": profile(replicas=2)})
    desk = Desk(fleet)
    desk.settle(2)
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]
    desk.commit({"profiles.d/coder.yaml": profile(replicas=1)})
    desk.settle(2)
    going = desk.proposal().to_do[0]
    assert going.source is not None
    agent = fleet.agents[going.source.host]
    agent.room.fails["drain"] = "drain_timeout"
    desk.apply()
    desk.settle()
    assert len(desk.ready()) == 2
    desk.commit({"profiles.d/coder.yaml": profile(replicas=0)})
    desk.settle(2)
    desk.apply(names=("coder",))
    desk.settle()
    assert desk.ready() == [going.replica], "it waits after its failure"
    del agent.room.fails["drain"]
    desk.settle(30, 5_000)
    assert desk.ready() == []
