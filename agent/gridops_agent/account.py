"""The account that the system's service runs as: made once, given the state folder, and stepped down to by root.

`install` makes it and hands the folder over; each command that root calls on such a folder steps down to the folder's
owner first, so that nothing in it becomes root's, and nothing that lies in it is ever run by root. Where the folder is
root's own, as one that is run by hand, nothing changes. It decides nothing else about a host.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gridops
from gridops.base.errors import Failed
from gridops.disk.atomic import write_atomic

NAME = "gridops-agent"
HOME = "/var/lib/gridops-agent"
CARDS = ("render", "video")
"""Groups that own the nodes of graphics cards, on machines that have them."""
_DECLARED = f'# Written by `gridops-agent join`.\nu {NAME} - "gridops host agent" {HOME}\n'
_as_root = os.geteuid() == 0
"""Root began this program, whoever it is by now."""


@dataclass(frozen=True, slots=True)
class Account:
    """Who the service runs as."""

    name: str
    uid: int
    gid: int
    groups: tuple[str, ...] = ()
    """What it belongs to besides, by name."""


def began_as_root() -> bool:
    """Whether the service manager of the system may be asked, once this program has stepped down."""
    return _as_root


def known() -> Account | None:
    """The account on this machine, if there is one."""
    try:
        found = pwd.getpwnam(NAME)
    except KeyError:
        return None
    return Account(NAME, found.pw_uid, found.pw_gid, tuple(name for name in CARDS if _is_group(name)))


def made(ask: Callable[[tuple[str, ...], float], str], declared: Path, look: Callable[[], Account | None]) -> Account:
    """The account, made through systemd where there is none yet. Raises Failed."""
    found = look()
    if found is None:
        try:
            declared.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failed(f"cannot make {declared.parent}: {error.strerror}") from error
        write_atomic(declared, _DECLARED.encode())
        declared.chmod(0o644)
        ask(("systemd-sysusers", str(declared)), 30.0)
        found = look()
    if found is None:
        hint = f"make it by hand: useradd --system --home-dir {HOME} --shell /usr/sbin/nologin {NAME}"
        raise Failed(f"there is no account {NAME}, which the service runs as", hints=(hint,))
    return found


def hand_over(folder: Path, account: Account) -> None:
    """The folder with all that is in it is the account's from here on. No link is followed. Raises Failed."""
    try:
        for _, folders, files, here in os.fwalk(folder, follow_symlinks=False):
            for name in (*folders, *files):
                os.chown(name, account.uid, account.gid, dir_fd=here, follow_symlinks=False)
            os.fchown(here, account.uid, account.gid)
    except OSError as error:
        raise Failed(f"cannot give {folder} to {account.name}: {error.strerror}") from error


def lay_open(folder: Path, home: Path = Path(HOME)) -> None:
    """Whoever may pass the account's home may pass what is between it and a state folder; read it, nobody more than
    before. A strict umask of root's made it root's alone. Raises Failed."""
    for part in folder.parents:
        if part == home or part.is_relative_to(home):
            try:
                part.chmod(stat.S_IMODE(part.stat().st_mode) | stat.S_IXGRP | stat.S_IXOTH)
            except OSError as error:
                raise Failed(f"cannot open {part} for the service: {error.strerror}") from error


def barred(path: Path, account: Account, *, last: int = stat.S_IXOTH) -> Path | None:
    """The first part of a path that the account cannot pass, by its mode; `last`: what it needs of the last one."""
    for part in (*reversed(path.parents), path):
        try:
            info = os.stat(part)
        except OSError:
            return part
        need = last if part == path else stat.S_IXOTH
        shift = 6 if info.st_uid == account.uid else 3 if info.st_gid == account.gid else 0
        if (info.st_mode >> shift) & need != need:
            return part
    return None


def runs_from() -> tuple[Path, ...]:
    """Where this program is read from while it runs: the interpreter with its library, and what is installed for it."""
    return tuple(dict.fromkeys((Path(sys.base_prefix), Path(sys.prefix), Path(gridops.__file__).parent)))


def step_down(folder: Path, *, for_good: bool = True) -> None:
    """Root becomes the owner of a state folder that is somebody else's. `for_good`: otherwise `as_root` finds the way
    back, for the command that removes the service too."""
    owner = _owner(folder)
    if owner is None:
        return
    _require_reach(owner)
    os.initgroups(owner.pw_name, owner.pw_gid)
    if not for_good:
        os.setegid(owner.pw_gid)
        os.seteuid(owner.pw_uid)
        return
    os.setgid(owner.pw_gid)
    os.setuid(owner.pw_uid)
    os.environ["HOME"] = str(folder)


@contextlib.contextmanager
def as_root() -> Iterator[None]:
    """For a moment root again, where root stepped down and not for good; otherwise nothing."""
    user, group = os.geteuid(), os.getegid()
    if user == 0 or os.getuid() != 0:
        yield
        return
    os.seteuid(0)
    os.setegid(0)
    try:
        yield
    finally:
        os.setegid(group)
        os.seteuid(user)


def _owner(folder: Path) -> pwd.struct_passwd | None:
    """Who has the folder, where root asks and it is not root."""
    if os.geteuid() != 0:
        return None
    try:
        uid = os.lstat(folder).st_uid
    except OSError:
        return None  # what is wrong with it is said by whoever reads it
    if uid == 0:
        return None
    try:
        return pwd.getpwuid(uid)
    except KeyError as error:
        hint = f"give it to somebody: chown -R {NAME}: {folder}"
        raise Failed(f"{folder} belongs to user {uid}, whom this machine does not know", hints=(hint,)) from error


def _require_reach(owner: pwd.struct_passwd) -> None:
    """What is not loaded yet could not be, by somebody who may not read it."""
    account = Account(owner.pw_name, owner.pw_uid, owner.pw_gid)
    bar = next((bar for path in runs_from() if (bar := barred(path, account)) is not None), None)
    if bar is not None:
        hint = "install it where everybody can read it, such as in /opt, and call it there"
        raise Failed(f"the state folder is {account.name}'s, who cannot read this program: {bar}", hints=(hint,))


def _is_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True
