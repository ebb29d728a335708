"""The agent's own log: bounded, private, and left to the journal where there is one."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridops.base import limits
from gridops_agent.life.logs import NAME, keep_log

LOG = logging.getLogger("gridops_agent")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    before = list(LOG.handlers)
    yield
    for handler in LOG.handlers[:]:
        if handler not in before:
            LOG.removeHandler(handler)
            with contextlib.suppress(OSError):  # of the full disk
                handler.close()


def test_the_log_is_kept_in_few_files_that_only_their_owner_reads(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        assert keep_log(tmp_path / "log", bound=2_000) is not None
        for n in range(1_000):
            LOG.warning("line %s of many", n)
    finally:
        os.umask(old)
    files = sorted((tmp_path / "log").iterdir())
    assert len(files) == limits.AGENT_LOG_FILES + 1
    assert sum(f.stat().st_size for f in files) <= 2_000 * (limits.AGENT_LOG_FILES + 1)
    assert {f.stat().st_mode & 0o777 for f in files} == {0o600}
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o700
    assert "line 999 of many" in (tmp_path / "log" / NAME).read_text()


def test_the_journal_bounds_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:12345")
    assert keep_log(tmp_path / "log") is None
    assert not (tmp_path / "log").exists()


def test_a_folder_that_cannot_be_written_costs_the_log_and_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text("a file where the folder would be")
    assert keep_log(tmp_path / "log") is None
    handler = keep_log(tmp_path / "other")
    assert handler is not None
    handler.stream = open("/dev/full", "w")  # type: ignore[attr-defined] # noqa: SIM115 - closed by the handler
    LOG.warning("lost")
    assert "Traceback" not in capfd.readouterr().err


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / NAME).symlink_to(tmp_path / "elsewhere")
    assert keep_log(tmp_path / "log") is None
    assert not (tmp_path / "elsewhere").exists()
