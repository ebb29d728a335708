"""Plans in git: plumbing only, nothing lost between two writers, nothing of a person's work touched."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from gridops.base.errors import Busy, Failed
from gridops.base.record import to_bytes
from gridops.files.git import Checkout
from gridops.files.plandoc import read_plan
from gridops.files.projection import PlanBranch
from gridops.model.snapshot import HostReport, Snapshot, SnapshotSource
from gridops.trust.envelope import seal
from gridops.trust.keys import MachineSigner, PersonSigner
from tests.render.plans import story

SIGNER = MachineSigner.from_seed(b"c" * 32)
MIRA = PersonSigner.from_seed(b"m" * 32)


def sealed(plan) -> str:
    return seal("plan", to_bytes(plan), SIGNER)


def later(minute: int, digits: str = "7f3a2c19"):
    return replace(
        story(),
        id=f"20261129T09{minute:02}Z-{digits}",
        decisions_digest=f"sha256:{digits}{'d0' * 28}",
        created_ms=story().created_ms + minute * 60_000,
    )


def test_a_plan_is_one_folder_with_its_signatures_and_the_work_tree_is_left_alone(repo, git) -> None:
    (repo / "README.md").write_text("being edited\n")
    git(repo, "add", "README.md")
    (repo / "README.md").write_text("and more\n")
    before = git(repo, "status", "--porcelain")
    branch = PlanBranch(Checkout(repo))
    approval = seal("approval", b'{"a":1}', MIRA)
    commit = branch.write(story(), sealed(story()), [approval])
    key, mira = (signer.public.key_id.removeprefix("sha256:")[:8] for signer in (SIGNER, MIRA))
    folder = f"plans/prod-eu/{story().id}"
    assert git(repo, "ls-tree", "-r", "--name-only", "gridops/plans").splitlines() == [
        f"{folder}/plan.yaml",
        f"{folder}/sigs/approve.{mira}.json",
        f"{folder}/sigs/controller.{key}.json",
    ]
    assert git(repo, "rev-parse", "gridops/plans") == commit
    assert git(repo, "status", "--porcelain") == before
    assert (repo / "README.md").read_text() == "and more\n"
    stored = branch.read(story().id)
    assert read_plan(stored.yaml, stored.envelope, [SIGNER.public]) == story()
    assert stored.approvals == (approval,)
    assert git(repo, "log", "-1", "--format=%an %ae %ad %s", "--date=iso-strict", "gridops/plans") == (
        "gridops gridops@localhost 2026-11-29T09:07:00+00:00 "
        "plan prod-eu 7f3a2c19: 1 place, 1 move, 2 change, 1 remove, 1 not placed"
    )
    trailers = git(repo, "log", "-1", "--format=%(trailers:key=Gridops-Plan,valueonly)", "gridops/plans")
    assert trailers == story().id


def test_equal_content_writes_nothing_and_equal_plans_are_equal_commits(repo, git, tmp_path) -> None:
    branch = PlanBranch(Checkout(repo))
    first = branch.write(story(), sealed(story()))
    assert branch.write(story(), sealed(story())) is None
    assert git(repo, "rev-parse", "gridops/plans") == first
    git(tmp_path, "init", "-q", "elsewhere")
    assert PlanBranch(Checkout(tmp_path / "elsewhere")).write(story(), sealed(story())) == first


def test_a_result_is_written_beside_its_plan_and_needs_one(repo) -> None:
    branch = PlanBranch(Checkout(repo))
    branch.write(story(), sealed(story()))
    assert branch.write_result(story().id, {"outcome": "applied", "steps": [{"replica": "a/1", "result": "ok"}]})
    assert (
        branch.write_result(story().id, {"outcome": "applied", "steps": [{"replica": "a/1", "result": "ok"}]}) is None
    )
    (place,) = branch.places()
    assert place.finished
    text = branch.result_text(place)
    assert text is not None
    assert "outcome: applied" in text
    with pytest.raises(Failed, match="no plan"):
        branch.write_result("20261129T0907Z-00000000", {"outcome": "applied"})


def test_plans_are_found_by_id_prefix_and_short_digest(repo) -> None:
    branch = PlanBranch(Checkout(repo))
    for plan in (later(1), later(2), later(3, "c08e11d4")):
        branch.write(plan, sealed(plan))
    assert branch.list() == ("20261129T0901Z-7f3a2c19", "20261129T0902Z-7f3a2c19", "20261129T0903Z-c08e11d4")
    assert branch.find("c08e").id == "20261129T0903Z-c08e11d4"
    assert branch.find("7f3a2c19").id == "20261129T0902Z-7f3a2c19", "equal decisions: the newest"
    assert branch.find(later(3, "c08e11d4").decisions_digest).id == "20261129T0903Z-c08e11d4"
    assert branch.find("20261129T0901").id == "20261129T0901Z-7f3a2c19"
    for vague in ("7f3a", "2026"):
        with pytest.raises(Failed, match=r"names [23] plans"):
            branch.find(vague)
    for none in ("", "ffff", "../../etc"):
        with pytest.raises(Failed, match="no plan"):
            branch.find(none)


def test_two_writers_lose_nothing(repo) -> None:
    plans = [later(n, f"{n:08x}") for n in range(1, 13)]
    faults: list[Failed] = []

    def write(some) -> None:
        branch = PlanBranch(Checkout(repo))
        for plan in some:
            try:
                branch.write(plan, sealed(plan))
            except Busy:
                branch.write(plan, sealed(plan))
            except Failed as fault:
                faults.append(fault)

    threads = [threading.Thread(target=write, args=(plans[n::3],)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert PlanBranch(Checkout(repo)).list() == tuple(p.id for p in plans)


def test_a_writer_that_saw_an_old_tip_starts_again_from_the_new_one(repo, git, monkeypatch) -> None:
    branch = PlanBranch(Checkout(repo))
    branch.write(later(1), sealed(later(1)))
    real, raced = branch.branch._make, []

    def race(*args):
        if not raced:
            raced.append(PlanBranch(Checkout(repo)).write(later(2), sealed(later(2))))
        return real(*args)

    monkeypatch.setattr(branch.branch, "_make", race)
    branch.write(later(3), sealed(later(3)))
    assert raced
    assert [i[9:13] for i in branch.list()] == ["0901", "0902", "0903"]
    assert git(repo, "rev-list", "--count", "gridops/plans") == "3"


def test_state_is_always_one_commit_without_parents(repo, git) -> None:
    branch = PlanBranch(Checkout(repo))
    snapshot = Snapshot(
        source=SnapshotSource.LIVE, observed_ms=1_000, hosts=(HostReport(host="forge", observed_ms=900),)
    )
    assert branch.read_state("prod-eu") is None
    assert branch.write_state("prod-eu", snapshot)
    assert branch.write_state("prod-eu", snapshot) is None
    assert branch.write_state("lab", replace(snapshot, observed_ms=2_000))
    assert branch.write_state("prod-eu", replace(snapshot, observed_ms=3_000))
    assert git(repo, "rev-list", "--count", "gridops/state") == "1"
    assert branch.read_state("prod-eu") == replace(snapshot, observed_ms=3_000, source=SnapshotSource.STATE)
    assert branch.read_state("lab") == replace(snapshot, observed_ms=2_000, source=SnapshotSource.STATE)


def test_a_damaged_state_is_named(repo, git) -> None:
    git(repo, "checkout", "-q", "--orphan", "gridops/state")
    git(repo, "rm", "-rfq", ".")
    (repo / "state").mkdir()
    (repo / "state/prod-eu.json").write_text('{"source": "live"}')
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "x")
    with pytest.raises(Failed, match=r"state/prod-eu\.json on branch gridops/state"):
        PlanBranch(Checkout(repo)).read_state("prod-eu")


def test_a_clone_reads_what_its_remote_has_and_goes_on_from_there(repo, git, tmp_path) -> None:
    PlanBranch(Checkout(repo)).write(later(1), sealed(later(1)))
    git(tmp_path, "clone", "-q", str(repo), "clone")
    clone = PlanBranch(Checkout(tmp_path / "clone"))
    assert clone.list() == (later(1).id,)
    clone.write(later(2), sealed(later(2)))
    assert clone.list() == (later(1).id, later(2).id)
    assert git(tmp_path / "clone", "rev-list", "--count", "gridops/plans") == "2"


def test_what_is_known_of_a_remote_never_hides_newer_work_of_ours(repo, git, tmp_path) -> None:
    PlanBranch(Checkout(repo)).write(later(9), sealed(later(9)))
    git(tmp_path, "clone", "-q", str(repo), "clone")
    clone = PlanBranch(Checkout(tmp_path / "clone"))
    clone.write(later(2), sealed(later(2)))  # dated before the tip it stands on
    assert clone.list() == (later(2).id, later(9).id)
    PlanBranch(Checkout(repo)).write(later(10), sealed(later(10)))
    Checkout(tmp_path / "clone").fetch("origin", "gridops/plans")
    assert clone.list() == (later(9).id, later(10).id), "unrelated work: the newer date"


@pytest.mark.parametrize("where", ["the same branch", "a linked work tree"])
def test_a_checked_out_branch_is_followed_by_index_and_files(where, repo, git, tmp_path) -> None:
    if where == "the same branch":
        place, branch = repo, PlanBranch(Checkout(repo), "same")
    else:
        place, branch = tmp_path / "plans", PlanBranch(Checkout(repo))
        branch.write(later(1), sealed(later(1)))
        git(repo, "worktree", "add", "-q", str(place), "gridops/plans")
    (place / "notes.txt").write_text("a person's\n")
    git(place, "add", "notes.txt")
    assert branch.write(later(2), sealed(later(2)))
    assert branch.write_result(later(2).id, {"outcome": "applied"})
    assert git(place, "status", "--porcelain") == "A  notes.txt"
    assert (place / f"plans/prod-eu/{later(2).id}/result.yaml").read_text().startswith("# Result of")
    git(place, "commit", "-q", "-m", "Notes")
    assert later(2).id in PlanBranch(Checkout(repo), branch.branch.name).list(), "a person's commit keeps our plan"


def test_a_persons_work_on_the_very_files_is_never_overwritten(repo, git) -> None:
    branch = PlanBranch(Checkout(repo), "same")
    folder = repo / f"plans/prod-eu/{story().id}"
    folder.mkdir(parents=True)
    (folder / "plan.yaml").write_text("mine\n")
    head = git(repo, "rev-parse", "HEAD")
    with pytest.raises(Failed, match="changed by hand"):
        branch.write(story(), sealed(story()))
    git(repo, "add", ".")
    with pytest.raises(Failed, match="staged changes"):
        branch.write(story(), sealed(story()))
    assert (folder / "plan.yaml").read_text() == "mine\n"
    assert git(repo, "rev-parse", "HEAD") == head


def test_a_rebase_under_way_is_waited_for(repo, git) -> None:
    git(repo, "checkout", "-q", "-b", "side")
    (repo / "policies/mode.yaml").write_text("side\n")
    git(repo, "commit", "-q", "-am", "Side")
    git(repo, "checkout", "-q", "main")
    (repo / "policies/mode.yaml").write_text("main\n")
    git(repo, "commit", "-q", "-am", "Main")
    git(repo, "rebase", "side", check=False)
    with pytest.raises(Busy, match="rebase of main"):
        PlanBranch(Checkout(repo), "same", watched="main").write(story(), sealed(story()))
    git(repo, "rebase", "--abort")
    assert PlanBranch(Checkout(repo), "same", watched="main").write(story(), sealed(story()))


def test_a_lost_race_puts_the_followed_work_tree_back(repo, git, monkeypatch) -> None:
    branch = PlanBranch(Checkout(repo), "same")
    monkeypatch.setattr("gridops.files.branch.TRIES", 1)
    real = branch.branch._make

    def race(*args):
        made = real(*args)
        git(repo, "commit", "-q", "--allow-empty", "-m", "A person was faster")
        return made

    monkeypatch.setattr(branch.branch, "_make", race)
    with pytest.raises(Busy, match="kept moving"):
        branch.write(story(), sealed(story()))
    assert git(repo, "status", "--porcelain") == ""


def test_a_symlinked_plans_folder_is_not_written_through(repo, tmp_path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repo / "plans").symlink_to(outside)
    with pytest.raises(Failed, match="symlink"):
        PlanBranch(Checkout(repo), "same").write(story(), sealed(story()))
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("change", [{"scope": "../up"}, {"id": "../../x"}, {"id": "20261129T0907Z-zz"}])
def test_names_never_lead_out_of_the_plans_folder(change, repo) -> None:
    plan = replace(story(), **change)
    with pytest.raises(Failed, match="no place for a plan"):
        PlanBranch(Checkout(repo)).write(plan, sealed(plan))


def test_an_odd_branch_name_is_refused(repo) -> None:
    with pytest.raises(Failed, match="no name for a branch"):
        PlanBranch(Checkout(repo), "--force")
    with pytest.raises(Failed, match="no name for a branch"):
        PlanBranch(Checkout(repo), "a..b")
