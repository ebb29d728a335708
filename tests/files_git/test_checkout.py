"""Reading commits: every kind of repository, nothing checked out, nothing executed, clear errors."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gridops.base import limits
from gridops.base.errors import Failed, Unreachable
from gridops.files.git import Checkout

PATHS = ("fleet.d/office.yaml", "policies/mode.yaml", "profiles.d/coder.yaml")


def test_a_commit_is_read_without_its_work_tree(repo, git) -> None:
    checkout = Checkout(repo)
    head = checkout.head("main")
    (repo / "profiles.d/coder.yaml").write_text("changed, not committed\n")
    tree = checkout.tree(head)
    assert tree.paths() == PATHS
    assert tree.read("profiles.d/coder.yaml") == b"kind: Profile\nname: coder\n"
    assert checkout.dirty()
    assert (checkout.branch(), checkout.subject(head)) == ("main", "First fleet")
    assert checkout.author(head) == git(repo, "log", "-1", "--format=%an")


@pytest.mark.parametrize("kind", ["bare", "worktree", "detached", "subfolder", "shallow"])
def test_every_kind_of_repository_gives_the_same_tree(kind, repo, git, tmp_path) -> None:
    wanted = Checkout(repo).head()
    place = tmp_path / kind
    match kind:
        case "bare":
            git(tmp_path, "clone", "-q", "--bare", str(repo), str(place))
        case "worktree":
            git(repo, "worktree", "add", "-q", "-b", "side", str(place))
        case "detached":
            git(repo, "checkout", "-q", "--detach")
            place = repo
        case "subfolder":
            place = repo / "fleet.d"
        case "shallow":
            (repo / "README.md").write_text("more\n")
            git(repo, "commit", "-q", "-am", "More")
            git(tmp_path, "clone", "-q", "--depth=1", f"file://{repo}", str(place))
            wanted = Checkout(repo).head()
    checkout = Checkout(place)
    assert checkout.head() == wanted
    assert checkout.tree(wanted).paths() == PATHS
    assert checkout.tree(wanted).read("policies/mode.yaml") == b"kind: Mode\n"
    assert not checkout.dirty()
    assert checkout.shallow() == (kind == "shallow")
    assert checkout.branch() == (None if kind == "detached" else "side" if kind == "worktree" else "main")


def test_a_folder_that_is_no_repository_is_named(tmp_path) -> None:
    with pytest.raises(Failed, match="not a git repository") as error:
        Checkout(tmp_path)
    assert str(tmp_path) in error.value.message
    with pytest.raises(Failed, match="no such folder"):
        Checkout(tmp_path / "nowhere")


def test_a_repository_without_commits_says_so(tmp_path, git) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(Failed, match="no commits yet"):
        Checkout(tmp_path).head()
    with pytest.raises(Failed, match="branch nope has no commit here"):
        Checkout(tmp_path).head("nope")


def test_links_modules_and_giants_are_refused_without_being_followed(repo, git) -> None:
    (repo / "fleet.d/link.yaml").symlink_to("/etc/passwd")
    (repo / "fleet.d/giant.yaml").write_bytes(b"#" * (limits.YAML_FILE_BYTES + 10))
    (repo / "fleet.d/.hidden.yaml").write_text("x")
    git(repo, "add", ".")
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},fleet.d/module")
    git(repo, "commit", "-q", "-m", "Hostile")
    checkout = Checkout(repo)
    tree = checkout.tree(checkout.head())
    assert "fleet.d/.hidden.yaml" not in tree.paths()
    with pytest.raises(OSError, match="it is a link"):
        tree.read("fleet.d/link.yaml")
    with pytest.raises(OSError, match="it is a submodule"):
        tree.read("fleet.d/module")
    with pytest.raises(FileNotFoundError):
        tree.read("fleet.d/absent.yaml")
    assert len(tree.read("fleet.d/giant.yaml")) == limits.YAML_FILE_BYTES + 1
    assert tree.read("fleet.d/office.yaml") == b"kind: Hosts\n"


def test_ancestry_and_changed_paths_follow_history(repo, git) -> None:
    checkout = Checkout(repo)
    first = checkout.head()
    (repo / "profiles.d/coder.yaml").write_text("name: coder\n")
    (repo / "README.md").write_text("not intent\n")
    git(repo, "commit", "-q", "-am", "Second")
    second = checkout.head()
    assert checkout.is_ancestor(first, second)
    assert not checkout.is_ancestor(second, first)
    assert checkout.changed(first, second) == ("profiles.d/coder.yaml",)
    git(repo, "checkout", "-q", "--orphan", "other")
    git(repo, "commit", "-q", "-m", "Unrelated")
    assert not checkout.is_ancestor(first, checkout.head("other"))
    assert not checkout.is_ancestor("0" * 39 + "1", first)


def test_a_revision_that_looks_like_an_option_names_nothing(repo) -> None:
    checkout = Checkout(repo)
    assert checkout.resolve("--all") is None
    assert checkout.resolve("HEAD^") is None
    assert checkout.resolve("main") == checkout.head()


def test_an_untracked_intent_file_makes_the_tree_dirty_and_a_readme_does_not(repo) -> None:
    checkout = Checkout(repo)
    (repo / "README.md").write_text("changed\n")
    assert not checkout.dirty()
    (repo / "fleet.d/new.yaml").write_text("x\n")
    assert checkout.dirty()


def test_fetch_brings_a_branch_and_leaves_every_branch_alone(repo, git, tmp_path) -> None:
    git(tmp_path, "clone", "-q", str(repo), "clone")
    (repo / "README.md").write_text("more\n")
    git(repo, "commit", "-q", "-am", "More")
    git(repo, "tag", "v1")
    clone = Checkout(tmp_path / "clone")
    before = clone.head("main")
    new = clone.fetch(str(repo), "main")
    assert new == Checkout(repo).head() == clone.fetched("main")
    assert clone.head("main") == before
    assert git(tmp_path / "clone", "tag") == ""
    assert clone.fetch("origin", "main") == new


def test_a_rewound_remote_is_fetched_and_seen_as_no_descendant(repo, git, tmp_path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(repo), "mirror")
    mirror = Checkout(tmp_path / "mirror")
    old = mirror.fetch(str(repo), "main")
    git(repo, "commit", "-q", "--amend", "-m", "Rewritten")
    new = mirror.fetch(str(repo), "main")
    assert new != old
    assert not mirror.is_ancestor(old, new)


def test_fetch_errors_name_the_remote_without_its_password(repo, tmp_path) -> None:
    checkout = Checkout(repo)
    with pytest.raises(Unreachable, match="/nowhere"):
        checkout.fetch(str(tmp_path / "nowhere"), "main")
    with pytest.raises(Failed, match="there is no branch nope"):
        checkout.fetch(str(repo), "nope")
    with pytest.raises(Unreachable) as error:
        checkout.fetch("https://ana:hunter2@127.0.0.1:9/x.git", "main")
    assert "hunter2" not in str(error.value) + "".join(error.value.hints)
    assert "127.0.0.1:9" in error.value.message


@pytest.mark.parametrize("remote", ["ext::sh -c 'touch {mark}'", "git://127.0.0.1/x", "http://127.0.0.1:9/x"])
def test_only_https_ssh_and_files_are_spoken(remote, repo, tmp_path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(Unreachable, match="not allowed"):
        Checkout(repo).fetch(remote.format(mark=mark), "main")
    assert not mark.exists()


def test_hooks_and_monitors_of_the_repository_never_run(repo, git, tmp_path) -> None:
    mark = tmp_path / "ran"
    script = f"#!/bin/sh\ntouch {mark}\n"
    for name in ("reference-transaction", "post-checkout", "fsmonitor"):
        hook = repo / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(script)
        hook.chmod(hook.stat().st_mode | stat.S_IXUSR)
    git(repo, "config", "core.fsmonitor", str(repo / ".git/hooks/fsmonitor"))
    checkout = Checkout(repo)
    checkout.fetch(str(repo), "main")
    assert not checkout.dirty()
    assert not mark.exists()


def test_a_silent_remote_is_given_up_and_its_children_end(repo, monkeypatch, tmp_path) -> None:
    slow = tmp_path / "ssh"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(slow))
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"no answer within 0\.5 s"):
        Checkout(repo).fetch("ssh://host.example/x.git", "main", timeout_s=0.5)
    assert time.monotonic() - began < 10
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not _alive(pid):
            break
        time.sleep(0.02)
    assert not _alive(pid)


def test_variables_of_a_calling_hook_do_not_redirect_us(repo, tmp_path, monkeypatch) -> None:
    wanted = Checkout(repo).head()
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere.git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    assert Checkout(repo).head() == wanted
    assert not Checkout(repo).dirty()


def test_a_machine_without_git_is_told_what_to_install(repo, monkeypatch, tmp_path) -> None:
    checkout = Checkout(repo)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failed, match="git is not on PATH"):
        checkout.head()
    code = "import gridops.files.git"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_damaged_object_is_a_failure_that_says_fsck(repo, git) -> None:
    checkout = Checkout(repo)
    tree = checkout.tree(checkout.head())
    oid = git(repo, "rev-parse", "HEAD:policies/mode.yaml")
    os.unlink(repo / ".git/objects" / oid[:2] / oid[2:])
    with pytest.raises(Failed, match="missing or damaged"):
        tree.read("policies/mode.yaml")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_remote_that_sends_without_end_is_stopped_by_name(
    repo: Path, git: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in one large file: what a fetch may write is bounded before anything of it is looked at."""
    (repo / "weights.bin").write_bytes(random.Random(1).randbytes(3 << 20))
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "Somebody committed a model")
    mirror = tmp_path / "mirror.git"
    git(tmp_path, "init", "-q", "--bare", str(mirror))
    with monkeypatch.context() as small:
        small.setattr("gridops.base.limits.FETCHED_BYTES", 1 << 20)
        with pytest.raises(Failed, match="sends more at once than 1048576 bytes"):
            Checkout(mirror).fetch(f"file://{repo}", "main")
    assert Checkout(mirror).fetched("main") is None
    assert not [p for p in (mirror / "objects").rglob("*") if p.is_file()], "and leaves nothing behind"
    assert Checkout(mirror).fetch(f"file://{repo}", "main") == git(repo, "rev-parse", "HEAD")
