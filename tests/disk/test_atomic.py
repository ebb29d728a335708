"""Atomic writes: the old file or the new one, and nothing left lying about."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from gridops.base.errors import Failed, NoRoom
from gridops.disk import atomic
from gridops.disk.atomic import write_atomic


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_a_file_is_written_with_its_mode_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    old = os.umask(0o077)
    try:
        write_atomic(tmp_path / "a", b"one", mode)
    finally:
        os.umask(old)
    assert (tmp_path / "a").read_bytes() == b"one"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode
    assert names(tmp_path) == ["a"]


def test_others_may_read_a_file_unless_told_otherwise(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", b"")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644


def test_no_descriptor_is_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        write_atomic(tmp_path / "a", b"")

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    for _ in range(3):
        with pytest.raises(Failed):
            write_atomic(tmp_path / "a", b"")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "a"
    write_atomic(target, b"a long first content")
    write_atomic(str(target), b"two")
    assert target.read_bytes() == b"two"


def test_a_link_is_replaced_and_what_it_pointed_at_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"keep")
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    write_atomic(tmp_path / "a", b"new")
    assert (tmp_path / "elsewhere").read_bytes() == b"keep"
    assert not (tmp_path / "a").is_symlink()


def test_the_content_is_durable_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor: int) -> None:
        info = os.fstat(descriptor)
        steps.append("directory" if stat.S_ISDIR(info.st_mode) else f"{info.st_size} byte")
        fsync(descriptor)

    def watched_replace(source: Any, target: Any) -> None:
        steps.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    write_atomic(tmp_path / "a", b"x")
    assert steps == ["1 byte", "rename", "directory"]


@pytest.mark.parametrize("step", ["fsync", "replace", "fchmod"])
@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "no space left"), (errno.EIO, "Input/output error")])
def test_a_failing_disk_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int, words: str
) -> None:
    target = tmp_path / "a"
    write_atomic(target, b"old")

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, step, fails)
    with pytest.raises(Failed, match=words) as caught:
        write_atomic(target, b"new")
    assert str(target) in caught.value.message
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_full_disk_says_how_to_look(tmp_path: Path) -> None:
    full = atomic.failed("write", tmp_path / "a", OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert full.hints == (f"free some space: df -h {tmp_path}",)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"nowhere/a: No such file or directory"):
        write_atomic(tmp_path / "nowhere" / "a", b"")


def test_a_really_full_file_system_fails_cleanly() -> None:
    """/dev/full says ENOSPC to every write; the machine's own words, not ours."""
    with pytest.raises(OSError, match=r".") as caught, open("/dev/full", "wb", buffering=0) as full:
        full.write(b"x")
    assert "no space left" in atomic.failed("write", "/dev/full", caught.value).message


def test_an_interrupted_write_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "a", b"x")
    assert names(tmp_path) == []


def test_the_longest_name_is_possible(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 255)
    write_atomic(target, b"x")
    assert target.read_bytes() == b"x"


def test_a_full_disk_is_told_apart_because_it_passes() -> None:
    full = atomic.failed("write", "/dev/full", OSError(errno.ENOSPC, "full"))
    broken = atomic.failed("write", "/dev/full", OSError(errno.EIO, "broken"))
    assert isinstance(full, NoRoom)
    assert not isinstance(broken, NoRoom)
