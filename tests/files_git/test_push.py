"""Pushing: failures are values, a person's commit on the remote is never run over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.record import to_bytes
from gridops.files.git import Checkout
from gridops.files.projection import PLANS_BRANCH, STATE_BRANCH, PlanBranch
from gridops.files.push import push
from gridops.model.snapshot import Snapshot, SnapshotSource
from gridops.trust.envelope import seal
from gridops.trust.keys import MachineSigner
from tests.render.plans import story

SIGNER = MachineSigner.from_seed(b"c" * 32)
BRANCHES = (PLANS_BRANCH, STATE_BRANCH)
SNAPSHOT = Snapshot(source=SnapshotSource.LIVE, observed_ms=1_000)


@pytest.fixture
def remote(tmp_path, git):
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    return tmp_path / "remote.git"


@pytest.fixture
def branch(repo) -> PlanBranch:
    branch = PlanBranch(Checkout(repo))
    branch.write(story(), seal("plan", to_bytes(story()), SIGNER))
    branch.write_state("prod-eu", SNAPSHOT)
    return branch


def test_plans_and_replaced_states_arrive(branch, remote, git) -> None:
    assert all(p.ok for p in push(branch.checkout, str(remote), BRANCHES))
    branch.write_state("prod-eu", replace(SNAPSHOT, observed_ms=9_000))
    branch.write_result(story().id, {"outcome": "applied"})
    assert all(p.ok for p in push(branch.checkout, str(remote), BRANCHES))
    for name in BRANCHES:
        assert git(remote, "rev-parse", name) == branch.checkout.head(name)
    assert git(remote, "rev-list", "--count", STATE_BRANCH) == "1"


def test_a_branch_that_does_not_exist_yet_is_no_failure(repo, remote) -> None:
    (pushed,) = push(Checkout(repo), str(remote), [PLANS_BRANCH])
    assert (pushed.ok, pushed.detail) == (True, "nothing to push yet")


def test_a_persons_commit_on_the_remote_stops_us_and_stays(branch, remote, git, tmp_path) -> None:
    push(branch.checkout, str(remote), BRANCHES)
    git(tmp_path, "clone", "-q", "-b", PLANS_BRANCH, str(remote), "person")
    (tmp_path / "person/note.md").write_text("mine\n")
    git(tmp_path / "person", "add", ".")
    git(tmp_path / "person", "commit", "-q", "-m", "Mine")
    git(tmp_path / "person", "push", "-q")
    theirs = git(remote, "rev-parse", PLANS_BRANCH)
    branch.write_result(story().id, {"outcome": "applied"})
    plans, state = push(branch.checkout, str(remote), BRANCHES)
    assert not plans.ok
    assert "somebody else writes it" in plans.detail
    assert state.ok
    assert git(remote, "rev-parse", PLANS_BRANCH) == theirs


def test_a_remote_that_does_not_answer_is_a_value_without_its_password(branch, tmp_path) -> None:
    for remote in (str(tmp_path / "nowhere"), "https://ana:hunter2@127.0.0.1:9/x.git"):
        for pushed in push(branch.checkout, remote, BRANCHES):
            assert not pushed.ok
            assert "hunter2" not in pushed.detail
            assert pushed.detail
