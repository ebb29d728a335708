"""Objects by name: sizes before contents, in order, within bounds, and never an answer to another question."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gridops.base.errors import Bug, Refusal, Unreachable
from gridops.files import objects as room
from gridops.files.git import Checkout
from gridops.files.objects import Objects

Git = Callable[..., str]


@pytest.fixture
def objects(repo: Path) -> Objects:
    return Objects(Checkout(repo).where)


def blobs(repo: Path, texts: list[bytes]) -> list[str]:
    """The names of new blobs."""
    done = [
        subprocess.run(["git", "hash-object", "-w", "--stdin"], cwd=repo, input=t, capture_output=True, check=True)
        for t in texts
    ]
    return [d.stdout.decode().strip() for d in done]


def test_many_are_read_in_their_order_whatever_else_is_asked_in_between(
    objects: Objects, repo: Path, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_AT_ONCE", 3)
    texts = [b"", b"\n", b"a\n\nb", b"x" * 100_000, bytes(range(256)), b"last", b"and one"]
    names = blobs(repo, texts)
    tree = git(repo, "rev-parse", "HEAD^{tree}")
    with objects:
        assert objects.sizes(names, "blob") == tuple(len(t) for t in texts)
        found = []
        for raw in objects.each(names, "blob", 1 << 20):
            found.append(raw)
            assert objects.inside(tree, "policies") is not None
        assert found == texts
        assert objects.read(names[2], "blob", 10) == texts[2]


def test_what_is_too_large_missing_or_of_another_kind_is_refused_unread(objects: Objects, repo: Path, git: Git) -> None:
    (name,) = blobs(repo, [b"x" * 101])
    head = git(repo, "rev-parse", "HEAD")
    with objects:
        for oid, kind in ((name, "blob"), ("d" * 40, "blob"), (name, "commit"), (head, "tree")):
            with pytest.raises(Refusal) as refusal:
                objects.read(oid, kind, 100)
            assert refusal.value.code == "commit_unreadable"
        assert objects.read(name, "blob", 101) == b"x" * 101, "and goes on"
        for bad in ("main", "HEAD", "abc", f"{name}\n{name}", name.upper()):
            with pytest.raises(Bug):
                objects.read(bad, "blob", 100)


def test_a_tree_that_git_would_not_write_is_refused(objects: Objects, repo: Path) -> None:
    for raw in (
        b"100644 a\x00" + b"\x01" * 19,
        b"100644a\x00" + b"\x01" * 20,
        b"abcdef a\x00" + b"\x01" * 20,
        b" a\x00",
    ):
        made = subprocess.run(
            ["git", "hash-object", "-w", "-t", "tree", "--stdin", "--literally"],
            cwd=repo, input=raw, capture_output=True, check=True,
        )  # fmt: skip
        with objects, pytest.raises(Refusal, match="not what git writes"):
            objects.folder(made.stdout.decode().strip())


def test_what_differs_between_two_trees_is_named_file_by_file(objects: Objects, repo: Path, git: Git) -> None:
    old = git(repo, "rev-parse", "HEAD^{tree}")
    git(repo, "rm", "-q", "-r", "profiles.d")
    (repo / "profiles.d").write_text("a file in the place of a folder\n")
    (repo / "policies/mode.yaml").write_text("kind: Mode # other\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "change")
    new = git(repo, "rev-parse", "HEAD^{tree}")
    with objects:
        assert sorted(objects.changed(old, new)) == ["policies/mode.yaml", "profiles.d", "profiles.d/coder.yaml"]
        assert list(objects.changed(new, new)) == []
        told = git(repo, "diff-tree", "-r", "--name-only", "--no-renames", old, new).split("\n")
        assert sorted(objects.changed(old, new)) == sorted(told)


def test_git_that_says_nothing_is_waited_for_no_longer_than_the_bound(
    objects: Objects, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "SILENT_S", 0.2)
    (name,) = blobs(repo, [b"x"])
    monkeypatch.setattr(room, "start", lambda where, *args: hanging(repo))
    with objects, pytest.raises(Unreachable, match=r"git said nothing of its objects for 0\.2 s"):
        objects.read(name, "blob", 10)


def hanging(where: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["sleep", "60"], cwd=where, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
