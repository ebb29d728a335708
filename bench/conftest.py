"""Benches measure and never judge: a slow machine, or a slow day, fails nothing.

Run by `make bench`. Each bench prints its numbers through pytest-benchmark; notes go to `extra_info`.
"""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same terminal for every bench."""
    for name in list(os.environ):
        if name.startswith("GRIDOPS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints what the benches noted beside their times."""
    session = getattr(config, "_benchmarksession", None)
    for bench in session.benchmarks if session is not None else ():
        for key, value in bench.extra_info.items():
            terminalreporter.write_line(f"{bench.name}: {key} = {value}")
