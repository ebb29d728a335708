"""The keyring: what it creates, and every way in which a key stops being a secret."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from gridops.base.errors import BadSetup, Failed
from gridops.disk import failpoint
from gridops.disk.keyring import create_secret, read_secret


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "keys" / "host.seed"
    create_secret(path, b"s" * 32)
    return path


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_secret_is_its_owners_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    (tmp_path / "state").mkdir()
    path = tmp_path / "state" / "keys" / "host.seed"
    old = os.umask(umask)
    try:
        create_secret(path, b"secret")
    finally:
        os.umask(old)
    assert (mode_of(path), mode_of(path.parent)) == (0o600, 0o700)
    assert read_secret(path) == b"secret"


def test_a_umask_that_takes_the_owners_bits_is_overruled(key: Path) -> None:
    old = os.umask(0o277)
    try:
        create_secret(key.with_name("second"), b"x")
    finally:
        os.umask(old)
    assert mode_of(key.with_name("second")) == 0o600


def test_no_descriptor_is_left_open(key: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        read_secret(key)
    key.chmod(0o644)
    for _ in range(3):
        with pytest.raises(BadSetup):
            read_secret(key)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_large_secret_is_still_one(key: Path) -> None:
    key.write_bytes(b"x" * (1 << 20))
    assert len(read_secret(key)) == 1 << 20


def test_folders_above_the_keyring_are_made_too(tmp_path: Path) -> None:
    create_secret(tmp_path / "a" / "b" / "keys" / "seed", b"x")
    assert read_secret(tmp_path / "a" / "b" / "keys" / "seed") == b"x"


def test_a_secret_is_never_overwritten(key: Path) -> None:
    with pytest.raises(Failed, match="exists already; nothing was changed"):
        create_secret(key, b"other")
    assert read_secret(key) == b"s" * 32


def test_a_planted_link_is_not_followed(key: Path, tmp_path: Path) -> None:
    planted = key.with_name("planted")
    planted.symlink_to(tmp_path / "target")
    with pytest.raises(Failed):
        create_secret(planted, b"x")
    assert not (tmp_path / "target").exists()


def test_a_failed_creation_leaves_nothing_and_can_be_repeated(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = key.with_name("second")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Failed, match="no space left"):
            create_secret(path, b"x")
    assert not path.exists()
    create_secret(path, b"x")


def test_a_secret_and_its_name_are_durable(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        info = os.fstat(descriptor)
        synced.append("directory" if stat.S_ISDIR(info.st_mode) else f"{info.st_size} byte")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    create_secret(key.with_name("second"), b"x")
    assert synced == ["1 byte", "directory"]
    synced.clear()
    create_secret(key.parent / "more" / "third", b"xy")
    assert synced == ["directory", "2 byte", "directory"], "the new keyring's own name first"


def test_a_loose_or_strange_keyring_takes_no_keys(tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir(mode=0o755)
    with pytest.raises(BadSetup, match=r"is open to others .mode 0755, expected 0700") as caught:
        create_secret(loose / "seed", b"x")
    assert caught.value.hints == (f"chmod 700 {loose}",)
    assert list(loose.iterdir()) == []
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(BadSetup, match="is not a directory"):
        create_secret(tmp_path / "link" / "seed", b"x")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BadSetup, match="is not a directory"):
        create_secret(tmp_path / "file" / "seed", b"x")


def link_beside(key: Path) -> None:
    os.link(key, key.with_name("other"))


def symlink_instead(key: Path) -> None:
    key.rename(key.with_name("other"))
    key.symlink_to(key.with_name("other"))


def pipe_instead(key: Path) -> None:
    key.unlink()
    os.mkfifo(key, 0o600)


def directory_instead(key: Path) -> None:
    key.unlink()
    key.mkdir(0o700)


def emptied(key: Path) -> None:
    key.write_bytes(b"")


def swollen(key: Path) -> None:
    key.write_bytes(b"x" * ((1 << 20) + 1))


SPOILED: dict[str, tuple[Callable[[Path], object], str, str | None]] = {
    "its group can read it": (lambda k: k.chmod(0o640), "mode 0640, expected 0600", "chmod 600 {key}"),
    "everybody can read it": (lambda k: k.chmod(0o604), "mode 0604, expected 0600", "chmod 600 {key}"),
    "everybody can write it": (lambda k: k.chmod(0o602), "mode 0602", "chmod 600 {key}"),
    "others can replace it": (lambda k: k.parent.chmod(0o777), "mode 0777, expected 0700", "chmod 700 {dir}"),
    "its group can replace it": (lambda k: k.parent.chmod(0o720), "mode 0720, expected 0700", "chmod 700 {dir}"),
    "it has a second name": (link_beside, "has 2 hard links", "find -L {dir} -xdev -samefile {key}"),
    "it is a link": (symlink_instead, "is a symbolic link", None),
    "it is a pipe": (pipe_instead, "is not a regular file", None),
    "it is a directory": (directory_instead, "is not a regular file", None),
    "it is missing": (lambda k: k.unlink(), "there is no key at", None),
    "it is empty": (emptied, "is empty: its creation was interrupted", "rm {key}"),
    "it is huge": (swollen, "is larger than any key", None),
}


@pytest.mark.parametrize(("spoil", "words", "repair"), SPOILED.values(), ids=SPOILED.keys())
def test_a_key_that_may_be_known_to_others_is_refused_with_its_repair(
    key: Path, spoil: Callable[[Path], object], words: str, repair: str | None
) -> None:
    spoil(key)
    with pytest.raises(BadSetup, match=words) as caught:
        read_secret(key)
    assert str(key.parent) in caught.value.message
    if repair is not None:
        assert caught.value.hints[0] == repair.format(key=key, dir=key.parent)


def test_a_repaired_key_is_read_again(key: Path) -> None:
    key.chmod(0o644)
    with pytest.raises(BadSetup):
        read_secret(key)
    key.chmod(0o400)
    assert read_secret(key) == b"s" * 32


def test_a_key_of_another_user_is_refused(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(BadSetup, match=f"belongs to user {mine}, not to user {mine + 1}") as caught:
        read_secret(key)
    assert caught.value.hints == (f"chown {mine + 1} {key}",)
    with pytest.raises(BadSetup, match=f"belongs to user {mine}"):
        create_secret(key.with_name("second"), b"x")


def test_the_file_that_was_checked_is_the_file_that_is_read(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check looks at the open descriptor: exchanging the name in between changes nothing."""
    fstat = os.fstat

    def exchanged(descriptor: int) -> os.stat_result:
        if key.exists():
            key.rename(key.with_name("old"))
            key.write_bytes(b"planted")
        return fstat(descriptor)

    monkeypatch.setattr(os, "fstat", exchanged)
    assert read_secret(key) == b"s" * 32


def test_an_unreadable_disk_is_named(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("gridops.disk.keyring.os", SimpleNamespace(**{**vars(os), "open": broken}))
    with pytest.raises(BadSetup, match=r"cannot read .*host\.seed: Input/output error"):
        read_secret(key)
    with pytest.raises(Failed, match="cannot create"):
        create_secret(key.with_name("second"), b"x")


@pytest.mark.parametrize(
    "step", ["secret.write.seed:1:kill", "secret.rename.seed:1:kill", "secret.rename.seed:1:killed"]
)
def test_a_secret_is_whole_or_not_there_when_its_making_is_cut_off(tmp_path: Path, step: str) -> None:
    """An empty one would keep its owner from ever starting, and half a one would be taken for a key."""
    path = tmp_path / "keys" / "seed"
    make = f"from gridops.disk.keyring import create_secret; create_secret({str(path)!r}, b's' * 32)"
    cut = subprocess.run([sys.executable, "-c", make], env={**os.environ, failpoint.NAME: step}, check=False)
    assert cut.returncode == -signal.SIGKILL
    if step.endswith(":killed"):
        assert read_secret(path) == b"s" * 32
    else:
        assert not path.exists()
        create_secret(path, b"t" * 32)
        assert read_secret(path) == b"t" * 32
    assert [f.name for f in path.parent.iterdir()] == ["seed"]
