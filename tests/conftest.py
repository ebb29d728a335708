"""What every test gets: an environment in which nothing of the person running it can leak in or out.

No home, no keys, no git configuration, no colours, a fixed time zone. At the end of a run no process started by the
tests may be left: a test that leaks one fails the whole run, by name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("house"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "house")

_CLEARED = ("GRIDOPS_", "XDG_", "GIT_")
_GIT_IDENTITY = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Test",
    "GIT_AUTHOR_EMAIL": "test@example.invalid",
    "GIT_COMMITTER_NAME": "Test",
    "GIT_COMMITTER_EMAIL": "test@example.invalid",
    "GIT_TERMINAL_PROMPT": "0",
}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Home, keys, git and terminal of nobody in particular."""
    for name in list(os.environ):
        if name.startswith(_CLEARED):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    for name, value in {
        **_GIT_IDENTITY,
        "HOME": str(home),
        "GRIDOPS_KEYS": str(home / "keys"),
        "NO_COLOR": "1",
        "TERM": "dumb",
        "COLUMNS": "120",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
    }.items():
        monkeypatch.setenv(name, value)


def pytest_report_header() -> str:
    """Which new seeds of the lab this run goes through."""
    from tests.lab.fresh import header

    return header()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of this checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def no_process_survives() -> Iterator[None]:
    """Fails the run when a test left a living child process behind."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    names = []
    for child in left:
        try:
            if child.status() != psutil.STATUS_ZOMBIE:
                names.append(f"{child.pid} {' '.join(child.cmdline())}")
        except psutil.NoSuchProcess:
            continue
    assert names == [], "processes left by the tests:\n" + "\n".join(names)
