"""Reports of faults: private, whole, and only the newest few, however often a service fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gridops.base import limits
from gridops.disk.reports import write_report

PROGRAM = "gridops-agent"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "else"))
    return tmp_path / "state" / PROGRAM / "reports"


def named(hour: int, pid: int = 7) -> str:
    return f"{PROGRAM}-20200101T{hour // 60:02d}{hour % 60:02d}00Z-{pid}.txt"


def test_a_service_that_fails_at_each_start_keeps_the_newest_reports_only(folder: Path) -> None:
    folder.mkdir(parents=True)
    old = [named(n) for n in range(limits.REPORTS_KEPT + 5)]
    others = ["gridops-20200101T000000Z-7.txt", "notes.txt", f"{PROGRAM}-20200101T000000Z-7.txt.mine"]
    for name in (*old, *others):
        (folder / name).write_text("x")
    path = write_report(PROGRAM, "a fault")
    assert path is not None
    assert path.read_text() == "a fault"
    assert path.stat().st_mode & 0o777 == 0o600
    left = {p.name for p in folder.iterdir()}
    assert left == {path.name, *old[-(limits.REPORTS_KEPT - 1) :], *others}


def test_a_report_that_the_disk_does_not_take_leaves_nothing_and_goes_elsewhere(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fdopen

    def full(handle: int, *rest: object, **more: object) -> object:
        if os.readlink(f"/proc/self/fd/{handle}").startswith(str(folder)):
            os.close(handle)
            raise OSError(28, "No space left on device")
        return real(handle, *rest, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "fdopen", full)
    path = write_report(PROGRAM, "a fault")
    assert path is not None
    assert path.parent == tmp_path / "else"
    assert list(folder.iterdir()) == []


def test_an_account_without_a_home_still_reports(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    path = write_report(PROGRAM, "a fault")
    assert path is not None
    assert path.parent == tmp_path / "else"
