"""Trees: only the folders of intent, in order, and nothing but regular files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gridops.base import limits
from gridops.files.load import check
from gridops.files.tree import MemoryTree, WorkingTree
from tests.files.repo import GOOD, MODE


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, text in GOOD.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_a_working_tree_and_a_memory_tree_say_the_same(root: Path) -> None:
    tree = WorkingTree(root)
    assert tree.paths() == MemoryTree(GOOD).paths()
    assert {path: tree.read(path).decode() for path in tree.paths()} == dict(GOOD)


def test_only_the_folders_of_intent_are_looked_into(root: Path) -> None:
    for path in ("README.yaml", "plans/x/plan.yaml", "policies/.hidden.yaml", "fleet.d/.git/x.yaml"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("kind: Nonsense\n")
    assert WorkingTree(root).paths() == MemoryTree(GOOD).paths()


def test_folders_may_be_nested(root: Path) -> None:
    (root / "fleet.d/eu/paris").mkdir(parents=True)
    (root / "fleet.d/hosts.yaml").rename(root / "fleet.d/eu/paris/hosts.yaml")
    found = check(WorkingTree(root))
    assert found.problems == ()
    assert found.files == len(GOOD)


def test_a_folder_that_is_no_repository_is_empty(tmp_path: Path) -> None:
    assert WorkingTree(tmp_path).paths() == ()


def test_a_link_is_refused_and_not_followed(root: Path) -> None:
    (root / "secret").write_text(GOOD[MODE])
    (root / MODE).unlink()
    (root / MODE).symlink_to(root / "secret")
    found = check(WorkingTree(root))
    assert [(p.code, p.file) for p in found.problems] == [("GO116", MODE)]


def test_a_link_is_called_a_link_in_a_work_tree_and_what_it_leads_to_is_not_read(root: Path) -> None:
    for name, to in (("loop.yaml", "loop.yaml"), ("gone.yaml", "nowhere"), ("inside.yaml", "coder.yaml")):
        (root / "profiles.d" / name).symlink_to(to)
    found = check(WorkingTree(root))
    assert [p.code for p in found.problems] == ["GO116"] * 3
    assert {p.message for p in found.problems} == {"the file cannot be read: it is a link, and links are not followed"}


def test_a_linked_folder_is_said_not_to_be_read(root: Path) -> None:
    (root / "profiles.d/shared").symlink_to("../fleet.d")
    found = check(WorkingTree(root))
    assert [(p.code, p.severity, p.file) for p in found.problems] == [("GO217", "warning", "profiles.d/shared")]
    assert found.files == len(GOOD)


def test_a_folder_named_like_a_file_is_refused_alike_by_every_tree(root: Path) -> None:
    (root / "profiles.d/x.yaml/deep").mkdir(parents=True)
    (root / "profiles.d/x.yaml/deep/y.yaml").write_text("nonsense")
    for tree in (WorkingTree(root), MemoryTree({**GOOD, "profiles.d/x.yaml/deep/y.yaml": "nonsense"})):
        assert [(p.code, p.file, p.message) for p in check(tree).problems] == [
            ("GO116", "profiles.d/x.yaml", "the file cannot be read: it is a folder")
        ]


def test_a_fifo_is_refused_and_nobody_waits(root: Path) -> None:
    (root / MODE).unlink()
    os.mkfifo(root / MODE)
    found = check(WorkingTree(root))
    assert [p.code for p in found.problems] == ["GO116"]
    assert "regular" in found.problems[0].message


def test_no_more_is_read_of_a_file_than_its_bound(root: Path) -> None:
    with (root / MODE).open("wb") as file:
        file.truncate(1 << 34)
    assert len(WorkingTree(root).read(MODE)) == limits.YAML_FILE_BYTES + 1
    assert [p.code for p in check(WorkingTree(root)).problems] == ["GO110"]


def test_a_file_that_goes_away_is_a_problem_and_no_exception() -> None:
    class Leaky(MemoryTree):
        def read(self, path: str) -> bytes:
            if path == MODE:
                raise FileNotFoundError(2, "No such file or directory")
            return super().read(path)

    found = check(Leaky(GOOD))
    assert [(p.code, p.message) for p in found.problems] == [
        ("GO116", "the file cannot be read: No such file or directory")
    ]
