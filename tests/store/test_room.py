"""A disk without room is told from a disk that is broken, in words that name the folder and what to do."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from gridops.base.errors import DiskFault, Failed, NoRoom
from gridops.store import database
from gridops.store.authority import Authority
from gridops.store.database import LITTLE_BYTES, free_bytes, refused
from tests.store.build import rows


def error(name: str) -> sqlite3.Error:
    made = sqlite3.OperationalError("disk I/O error")
    made.sqlite_errorname = name
    return made


def test_what_is_full_is_said_with_the_folder_the_free_bytes_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda folder: full if Path(folder) == tmp_path else None)
    told = refused(error("SQLITE_FULL"), "write", tmp_path / "journal.sqlite")
    assert isinstance(told, NoRoom)
    assert f"no space left on the file system of {tmp_path}, {free_bytes(tmp_path)} bytes are free" in told.message
    assert told.hints == (f"free at least 1 MiB there; see what fills it: df -h {tmp_path}",)


@pytest.mark.parametrize(("free", "kind"), [(LITTLE_BYTES - 1, NoRoom), (LITTLE_BYTES, DiskFault)])
def test_an_index_that_cannot_grow_is_a_full_disk_and_no_broken_one(
    free: int, kind: type[Failed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "free_bytes", lambda folder: free)
    for name in ("SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_WRITE"):
        assert type(refused(error(name), "write", tmp_path / "journal.sqlite")) is kind


def test_a_file_system_without_a_free_name_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.statvfs(tmp_path)

    def without_names(folder: object) -> os.statvfs_result:
        values = list(found)
        values[5], values[7] = 1_000, 0  # all names, names that we may take
        return os.statvfs_result(values)

    assert free_bytes(tmp_path) > 0
    monkeypatch.setattr(os, "statvfs", without_names)
    assert free_bytes(tmp_path) == 0


def test_what_stopped_the_writing_is_what_every_later_attempt_meets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room is waited for; a broken disk is not. So the first reason must not turn into another one."""
    with Authority.open(tmp_path, 1) as authority:
        journal = authority.journal
        journal.append(rows(1, 1), authority.term)
        with monkeypatch.context() as full:
            full.setattr(journal, "_put", _raise_full)
            with pytest.raises(NoRoom, match="no space left"):
                journal.append(rows(2, 1), authority.term)
        with pytest.raises(NoRoom, match="nothing more is written"):
            journal.append(rows(2, 1), authority.term)
        assert journal.head == 1


def test_closing_again_closes_nothing_of_somebody_else(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path, 1)
    number = authority._lock
    authority.close()
    other = os.open(tmp_path, os.O_RDONLY)
    if other != number:
        os.dup2(other, number)
        os.close(other)
    authority.close()
    assert os.fstat(number).st_ino == tmp_path.stat().st_ino
    os.close(number)


def _raise_full(guard: object) -> None:
    raise error("SQLITE_FULL")
