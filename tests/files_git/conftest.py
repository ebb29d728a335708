"""Real repositories in temporary folders: `repo` is an ordinary checkout with one commit of intent."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Git = Callable[..., str]


@pytest.fixture(autouse=True)
def own_git_config(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("home")
    (home / "gitconfig").write_text("[init]\n defaultBranch = main\n[advice]\n detachedHead = false\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("HOME", str(home))


@pytest.fixture
def git() -> Git:
    def call(where: Path, *args: str, check: bool = True) -> str:
        ran = subprocess.run(["git", *args], cwd=where, capture_output=True, text=True, check=False)
        assert not check or ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    return call


@pytest.fixture
def repo(tmp_path: Path, git: Git) -> Path:
    root = tmp_path / "ops"
    for folder in ("fleet.d", "profiles.d", "policies"):
        (root / folder).mkdir(parents=True)
    (root / "fleet.d/office.yaml").write_text("kind: Hosts\n")
    (root / "profiles.d/coder.yaml").write_text("kind: Profile\nname: coder\n")
    (root / "policies/mode.yaml").write_text("kind: Mode\n")
    (root / "README.md").write_text("ours\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "First fleet\n\nwith a body")
    return root
