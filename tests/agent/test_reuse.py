"""A pid that the kernel gives to a stranger is never signalled, and its engine is started again once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")


def possible() -> bool:
    """This test may have PID numbers of its own (Linux, root)."""
    try:
        return subprocess.run((*NAMESPACE, "true"), capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("way", ["real", "pretended"] if possible() else ["pretended"])
def test_a_stranger_under_an_engines_pid_is_left_alone_and_one_engine_is_started(
    way: str, tmp_path: Path, repository: Path
) -> None:
    story = (sys.executable, "-m", "tests.agent.reuse_story", str(tmp_path), way)
    command = (*NAMESPACE, *story) if way == "real" else story
    told = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False, timeout=120)
    assert told.returncode == 0, told.stderr[-4_000:]
