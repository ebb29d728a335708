"""The demo's controller half, in process: a commit becomes a proposal, an apply, commands, a residency, and back."""

from __future__ import annotations

from tests.controller.fleet import AUTOMATIC, Desk, profile


def test_a_commit_becomes_a_model_after_an_apply(desk: Desk) -> None:
    desk.beat()
    desk.pass_()
    assert desk.executed() == []
    plan = desk.proposal()
    assert [d.replica for d in plan.to_do] == ["coder/1"]
    assert desk.project() is None
    assert plan.id in desk.fleet.git("ls-tree", "-r", "--name-only", "gridops/plans")
    answer = desk.apply()
    assert answer["applied"]
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert desk.book().applies[-1].outcome == "done"
    assert desk.book().proposal is None


def test_automatic_scales_up_by_itself_and_writes_one_document(desk: Desk) -> None:
    desk.beat()
    desk.pass_()
    desk.apply()
    desk.settle()
    desk.project()
    before = len(desk.fleet.git("ls-tree", "-d", "--name-only", "gridops/plans:plans/default").splitlines())
    desk.commit({"policies/mode.yaml": AUTOMATIC, "profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]
    assert desk.project() is None
    after = len(desk.fleet.git("ls-tree", "-d", "--name-only", "gridops/plans:plans/default").splitlines())
    assert after == before + 1
    assert desk.project() is None
    assert len(desk.fleet.git("ls-tree", "-d", "--name-only", "gridops/plans:plans/default").splitlines()) == after
