"""What reaches git: one document a plan, results, the quantised snapshot; and that failing to write blocks nothing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from gridops.base.record import digest_of
from gridops.controller.core.projecting import due, material
from gridops.controller.project import carry_out
from gridops.files.projection import PlanBranch
from tests.controller.fleet import AUTOMATIC, DEFAULT, POLICIES, Desk, Fleet, profile


def test_an_apply_is_written_when_it_begins_and_its_result_when_it_ends(desk: Desk) -> None:
    desk.settle(2)
    desk.project()
    desk.apply()
    desk.project()
    branch = PlanBranch(desk.checkout)
    place = branch.places()[-1]
    assert "outcome: under way" in (branch.result_text(place) or "")
    assert branch.read(place.id).approvals, "who approved it is kept beside it"
    desk.settle()
    desk.project()
    text = branch.result_text(branch.places()[-1]) or ""
    assert "outcome: done" in text
    assert "by: mira" in text
    tip = desk.fleet.git("rev-parse", "gridops/plans")
    desk.settle(3)
    desk.project()
    assert desk.fleet.git("rev-parse", "gridops/plans") == tip


def test_a_failed_apply_is_written_with_its_reasons(desk: Desk) -> None:
    desk.settle(2)
    for agent in desk.fleet.agents.values():
        agent.room.fails["load"] = "no_space"
    desk.apply()
    desk.settle()
    desk.project()
    branch = PlanBranch(desk.checkout)
    applied, proposed = branch.places()
    text = branch.result_text(applied) or ""
    assert "outcome: failed" in text
    assert "no_space" in text
    assert branch.result_text(proposed) is None, "that another host is tried is a question of its own"


def test_automatic_plans_are_batched_and_the_first_is_written_at_once(fleet: Fleet) -> None:
    budgets = POLICIES["policies/budgets.yaml"].replace("plan_file_every: 1s", "plan_file_every: 10m")
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC, "policies/budgets.yaml": budgets})
    desk = Desk(fleet)
    desk.settle()
    desk.project()
    branch = PlanBranch(desk.checkout)
    assert len(branch.places()) == 1
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    desk.commit({"profiles.d/other.yaml": profile("other", sha="sha256:" + "cd" * 32)})
    desk.settle()
    desk.project()
    assert desk.ready() == ["coder/1", "coder/2", "other/1"]
    assert len(branch.places()) == 1, "nothing is written before its time"
    desk.clock.pass_by(600_000)
    desk.settle(1)
    desk.project()
    assert len(branch.places()) == 2
    text = branch.result_text(branch.places()[-1]) or ""
    assert "by: automatic" in text
    assert text.count("Z-") >= 2, "the document names every plan of its batch"
    desk.controller.close()


def test_the_snapshot_on_the_state_branch_changes_only_with_the_situation(desk: Desk) -> None:
    desk.settle(2)
    desk.project()
    tip = desk.fleet.git("rev-parse", "gridops/state")
    for agent in desk.fleet.agents.values():
        agent.room.devices = tuple(replace(d, external_bytes=12_345_678) for d in agent.room.devices)
    desk.settle(3)
    desk.project()
    assert desk.fleet.git("rev-parse", "gridops/state") == tip
    stored = PlanBranch(desk.checkout).read_state(DEFAULT)
    assert stored is not None
    assert [h.host for h in stored.hosts] == ["alpha", "beta"]
    assert all(stored.observed_ms - h.observed_ms < 15_000 for h in stored.hosts)
    desk.fleet.agents["alpha"].goodbye = True
    desk.settle(1)
    desk.project()
    assert desk.fleet.git("rev-parse", "gridops/state") != tip
    assert digest_of(material(stored)) == digest_of(material(material(stored)))


def test_a_write_that_fails_is_told_kept_due_and_blocks_nothing(desk: Desk) -> None:
    desk.settle(2)
    lock = desk.fleet.path / ".git" / "refs" / "heads" / "gridops"
    lock.write_text("in the way")
    assert desk.project() is not None
    assert due(desk.state, desk.controller.soft, desk.controller.roster, desk.now)
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    lock.unlink()
    assert desk.project() is None
    assert len(PlanBranch(desk.checkout).places()) >= 1


def test_a_push_that_failed_is_owed_and_made_later(fleet: Fleet, tmp_path: Path) -> None:
    remote = tmp_path / "remote.git"
    settings = POLICIES["policies/fleet.yaml"] + f"remote: {{url: '{remote}', branch: main}}\n"
    fleet.begin(**{"policies/fleet.yaml": settings})
    desk = Desk(fleet)
    desk.settle(2)
    work = due(desk.state, desk.controller.soft, desk.controller.roster, desk.now)
    written = carry_out(desk.place(), work)
    desk.controller.commit(written.rows, desk.now)
    assert written.rows
    assert written.unpushed
    fleet.git("init", "-q", "--bare", str(remote))
    again = carry_out(desk.place(), (), owed=True)
    assert again.error is None
    assert not again.unpushed
    assert "gridops/plans" in fleet.git("ls-remote", str(remote))
    desk.controller.close()
    shutil.rmtree(remote)
