"""How a git process that takes too long is ended: its whole group, and never a group that merely has its number now."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from gridops.files import git_run

SLEEPS = [sys.executable, "-Sc", "import time; time.sleep(60)"]
ENDS = [sys.executable, "-Sc", ""]


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The groups that were signalled; they really are."""
    seen: list[int] = []
    killpg = os.killpg

    def spy(group: int, how: int) -> None:
        seen.append(group)
        killpg(group, how)

    monkeypatch.setattr(git_run.os, "killpg", spy)
    return seen


def started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)


def test_what_lives_is_ended(signalled: list[int]) -> None:
    process = started(SLEEPS)
    git_run._kill(process)
    assert signalled == [process.pid]
    assert process.returncode == -9


def test_the_group_of_one_that_ended_and_was_not_collected_is_ended(signalled: list[int]) -> None:
    """Its helpers may go on, and a zombie keeps the number."""
    process = started(ENDS)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    git_run._kill(process)
    assert signalled == [process.pid]


def by_itself(process: subprocess.Popen[bytes]) -> None:
    process.wait()


def by_somebody_else(process: subprocess.Popen[bytes]) -> None:
    os.waitpid(process.pid, 0)


@pytest.mark.parametrize("collect", [by_itself, by_somebody_else])
def test_a_number_that_is_free_again_is_not_signalled(
    collect: Callable[[subprocess.Popen[bytes]], None], signalled: list[int]
) -> None:
    process = started(ENDS)
    collect(process)
    git_run._kill(process)
    assert signalled == []
