"""Credentials as systemd makes them, and every way in which one is not as it makes them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gridops.base.errors import BadSetup
from gridops.disk.credentials import VARIABLE, credential, read_credential

NAME = "gridops.controller.seed"
STRANGER = 65_534


def remade(path: Path, content: bytes = b"s" * 32, mode: int = 0o400) -> Path:
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A real directory of that form: 0500, its files 0400. For its owner it stays writable until it is closed."""
    made = tmp_path / "run" / "gridops.service"
    made.mkdir(parents=True)
    remade(made / NAME)
    made.chmod(0o500)
    monkeypatch.setenv(VARIABLE, str(made))
    return made


def open_up(folder: Path, change: Callable[[Path], object]) -> None:
    folder.chmod(0o700)
    change(folder)
    folder.chmod(0o500)


def found() -> Path:
    path = credential(NAME)
    assert path is not None
    return path


def test_a_credential_of_systemds_form_is_read(folder: Path) -> None:
    assert read_credential(found()) == b"s" * 32
    assert found() == folder / NAME


@pytest.mark.parametrize(("of_folder", "of_file"), [(0o550, 0o440), (0o700, 0o400), (0o500, 0o440)])
def test_what_an_access_list_shows_as_a_right_of_the_group_is_no_stranger(
    folder: Path, of_folder: int, of_file: int
) -> None:
    """So systemd lets a service's own account in: owner and group stay root, or ours."""
    open_up(folder, lambda f: (f / NAME).chmod(of_file))
    folder.chmod(of_folder)
    assert read_credential(found()) == b"s" * 32


def test_without_a_service_manager_or_a_file_of_that_name_there_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert credential("gridops.gateway.key") is None
    for name in ("", "../x", "a/b", ".", "A", "x" * 200):
        assert credential(name) is None, name
    for value in ("", str(folder / "gone")):
        monkeypatch.setenv(VARIABLE, value)
        assert credential(NAME) is None
    monkeypatch.delenv(VARIABLE)
    assert credential(NAME) is None


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "its owner can write it": (lambda f: (f / NAME).chmod(0o600), r"mode 0600, expected 0440 or less"),
    "others can read it": (lambda f: (f / NAME).chmod(0o444), "mode 0444"),
    "its group can write it": (lambda f: (f / NAME).chmod(0o460), "mode 0460"),
    "it runs": (lambda f: (f / NAME).chmod(0o500), "mode 0500"),
    "a link": (lambda f: ((f / NAME).rename(f / "other"), (f / NAME).symlink_to(f / "other")), "cannot read"),
    "two names": (lambda f: (f / "other").hardlink_to(f / NAME), "2 hard links"),
    "a folder": (lambda f: ((f / NAME).unlink(), (f / NAME).mkdir(0o400)), "not a regular file"),
    "empty": (lambda f: remade(f / NAME, b""), "is empty"),
    "too large": (lambda f: remade(f / NAME, b"x" * ((1 << 20) + 1)), "larger than any key"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_systemd_would_not_make_is_refused(name: str, folder: Path) -> None:
    change, words = WRONG[name]
    open_up(folder, change)
    with pytest.raises(BadSetup, match=words):
        read_credential(found())


def test_a_pipe_hangs_nobody(folder: Path) -> None:
    open_up(folder, lambda f: ((f / NAME).unlink(), os.mkfifo(f / NAME, 0o400)))
    with pytest.raises(BadSetup, match="not a regular file"):
        read_credential(found())


@pytest.mark.parametrize("mode", [0o505, 0o555, 0o520, 0o570, 0o777])
def test_a_folder_that_others_can_look_into_is_refused(mode: int, folder: Path) -> None:
    folder.chmod(mode)
    with pytest.raises(BadSetup, match=f"{folder} can be read or changed by others"):
        read_credential(found())


def test_a_folder_that_is_a_link_or_no_absolute_path_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "link"))
    with pytest.raises(BadSetup, match="cannot open"):
        read_credential(found())
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv(VARIABLE, folder.name)
    with pytest.raises(BadSetup, match="no absolute path"):
        read_credential(found())


if os.geteuid() == 0:

    @pytest.mark.parametrize("what", ["file", "folder"])
    def test_what_belongs_to_somebody_else_is_refused(what: str, folder: Path) -> None:
        os.chown(folder / NAME if what == "file" else folder, STRANGER, 0)
        with pytest.raises(BadSetup, match=f"belongs to user {STRANGER}"):
            read_credential(found())

    def test_the_group_of_somebody_else_is_a_stranger_if_it_can_read(folder: Path) -> None:
        os.chown(folder / NAME, 0, STRANGER)
        assert read_credential(found()) == b"s" * 32, "0400: the group has no right"
        (folder / NAME).chmod(0o440)
        with pytest.raises(BadSetup, match=f"of group {STRANGER}"):
            read_credential(found())

    def test_the_account_of_a_service_reads_what_root_was_asked_to_hand_over(folder: Path) -> None:
        """Root owns it, and the account's group may read it: as after the access list, and read by that account."""
        ready, told = os.pipe()
        for part in (folder.parent, *folder.parent.parents):
            if part.stat().st_mode & stat.S_IXOTH == 0:
                part.chmod(part.stat().st_mode | stat.S_IXOTH)
        for part, mode in ((folder, 0o550), (folder / NAME, 0o440)):
            os.chown(part, 0, STRANGER)
            part.chmod(mode)
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(STRANGER)
                os.setuid(STRANGER)
                os.write(told, read_credential(folder / NAME))
            finally:
                os._exit(0)
        os.close(told)
        with os.fdopen(ready, "rb") as answer:
            assert answer.read() == b"s" * 32
        os.waitpid(child, 0)
