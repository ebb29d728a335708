"""Quarantine: what is damaged stays, whole, under a name that says so."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from gridops.base.errors import Failed
from gridops.disk import quarantine
from gridops.disk.quarantine import set_aside

NOW = 1_800_000_000_999
STAMP = "damaged-20270115T080000Z"


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def test_a_damaged_file_is_kept_with_the_reason_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"damaged")
    moved = set_aside(tmp_path / "a.json", "row 7: digest does not match", NOW)
    assert moved == tmp_path / f"a.json.{STAMP}"
    assert moved.read_bytes() == b"damaged"
    assert (tmp_path / f"a.json.{STAMP}.why").read_text() == "row 7: digest does not match\n"
    assert names(tmp_path) == [f"a.json.{STAMP}", f"a.json.{STAMP}.why"]


def test_the_new_name_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(quarantine, "sync_directory", synced.append)
    monkeypatch.setattr(quarantine, "write_atomic", lambda *_: None)
    (tmp_path / "a").write_bytes(b"x")
    set_aside(tmp_path / "a", "why", NOW)
    assert synced == [tmp_path]


def test_nothing_is_overwritten_however_often_it_happens(tmp_path: Path) -> None:
    kept = []
    for number in range(3):
        (tmp_path / "a").write_bytes(b"%d" % number)
        kept.append(set_aside(str(tmp_path / "a"), f"time {number}", NOW))
    assert [path.name for path in kept] == [f"a.{STAMP}", f"a.{STAMP}-2", f"a.{STAMP}-3"]
    assert [path.read_bytes() for path in kept] == [b"0", b"1", b"2"]
    assert [Path(f"{path}.why").read_text() for path in kept] == ["time 0\n", "time 1\n", "time 2\n"]


@pytest.mark.parametrize("suffix", ["", ".why", "-wal", "-shm", "-journal"])
def test_even_a_dangling_link_or_a_leftover_takes_a_name(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / f"a.{STAMP}{suffix}").symlink_to("nowhere")
    assert set_aside(tmp_path / "a", "why", NOW).name == f"a.{STAMP}-2"


def test_there_is_an_end_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "_TRIES", 2)
    for _ in range(2):
        (tmp_path / "a").write_bytes(b"x")
        set_aside(tmp_path / "a", "why", NOW)
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(Failed, match="2 damaged copies"):
        set_aside(tmp_path / "a", "why", NOW)
    assert (tmp_path / "a").exists()


def test_a_database_goes_with_its_newest_pages_and_the_next_one_is_fresh(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    # A second connection that stays open keeps the first from folding the log into the database.
    with sqlite3.connect(path) as first, sqlite3.connect(path) as second:
        first.execute("pragma journal_mode=wal")
        first.execute("create table t (n)")
        first.execute("insert into t values (7)")
        first.commit()
        second.execute("select * from t").fetchall()
        assert (tmp_path / "journal.sqlite-wal").stat().st_size > 0
        moved = set_aside(path, "integrity check failed", NOW)
    first.close()
    second.close()
    assert not [name for name in names(tmp_path) if name.startswith("journal.sqlite-")]
    old = sqlite3.connect(moved)
    assert old.execute("select n from t").fetchall() == [(7,)]
    old.close()
    new = sqlite3.connect(path)
    assert new.execute("select count(*) from sqlite_master").fetchone() == (0,)
    new.close()


def test_a_directory_can_be_set_aside(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "log").write_bytes(b"x")
    assert (set_aside(tmp_path / "engine", "why", NOW) / "log").read_bytes() == b"x"


def test_a_full_disk_loses_the_reason_and_not_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"x")

    def full(*_: object, **__: object) -> None:
        raise Failed("no space left")

    monkeypatch.setattr(quarantine, "write_atomic", full)
    assert set_aside(tmp_path / "a", "why", NOW).read_bytes() == b"x"
    assert names(tmp_path) == [f"a.{STAMP}"]


def test_a_reason_in_any_words_is_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    moved = set_aside(tmp_path / "a", "bad byte \ud800", NOW)
    assert Path(f"{moved}.why").read_text() == "bad byte ?\n"


def test_what_cannot_be_moved_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failed, match=r"cannot set aside .*missing: No such file"):
        set_aside(tmp_path / "missing", "why", NOW)

    def fails(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    (tmp_path / "a").write_bytes(b"x")
    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(Failed, match="Read-only file system"):
        set_aside(tmp_path / "a", "why", NOW)
    assert names(tmp_path) == ["a"]
