"""The keyring: private keys and other secrets as files that only their owner can read.

Controller, agent and CLI keep their seeds here. A secret is created once and never overwritten; one that others could
have read or replaced is refused with the exact command that repairs it, because such a key is no longer a secret.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from gridops.base.errors import BadSetup, Failed
from gridops.disk.atomic import failed, sync_directory
from gridops.disk.failpoint import point

_LOOSE = stat.S_IRWXG | stat.S_IRWXO
_SECRET_BYTES = 1 << 20


def create_secret(path: str | os.PathLike[str], content: bytes, *, instead: bool = False) -> None:
    """Create a file (0600) in a directory of ours (0700, made if missing). Raises Failed if there is one already.

    `instead`: it takes the place of one that is there, which stands until the new one does.
    """
    target = Path(path)
    _own_directory(target.parent)
    try:
        with _alone_in(target.parent):
            if not instead and os.path.lexists(target):
                raise Failed(f"{target} exists already; nothing was changed")
            _create(target, content)
    except OSError as error:
        raise failed("create", target, error) from error


def read_secret(path: str | os.PathLike[str]) -> bytes:
    """The content of a secret that is still one. Raises BadSetup that says what is wrong and how to repair it."""
    target = Path(path)
    try:
        # O_NONBLOCK: a pipe planted under this name must not hang the daemon before fstat can refuse it.
        descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _unreadable(target, error) from error
    try:
        _require_private(target, os.fstat(descriptor))
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(_SECRET_BYTES + 1)
    except OSError as error:
        raise _unreadable(target, error) from error
    finally:
        os.close(descriptor)
    if not content:
        raise BadSetup(
            f"{target} is empty: its creation was interrupted",
            hints=(f"rm {target}", "then create the key again"),
        )
    if len(content) > _SECRET_BYTES:
        raise BadSetup(f"{target} is larger than any key")
    return content


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Whoever makes a secret in a folder is alone there, so that what was looked for cannot come meanwhile."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _create(target: Path, content: bytes) -> None:
    # Under its own name it is whole or not there: half a key, or an empty one, would be taken for a key.
    making = target.with_name(f".{target.name}.new")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(making)  # of a try that was cut off
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with point("secret.write", target.name), os.fdopen(os.open(making, flags, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o600)  # the umask may have taken bits from the owner too
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with point("secret.rename", target.name):
            os.rename(making, target)
            sync_directory(target.parent)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(making)
        raise


def _require_private(target: Path, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise BadSetup(f"{target} is not a regular file")
    if info.st_uid != os.geteuid():
        raise BadSetup(
            f"{target} belongs to user {info.st_uid}, not to user {os.geteuid()} who runs this",
            hints=(f"chown {os.geteuid()} {target}",),
        )
    if info.st_nlink != 1:
        raise BadSetup(
            f"{target} has {info.st_nlink} hard links: the key can be reached under another name",
            hints=(f"find -L {target.parent} -xdev -samefile {target}",),
        )
    if info.st_mode & _LOOSE:
        raise BadSetup(
            f"{target} can be read or changed by others (mode {stat.S_IMODE(info.st_mode):04o}, expected 0600)",
            hints=(f"chmod 600 {target}",),
        )
    directory = os.stat(target.parent)
    if directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadSetup(
            f"{target.parent} can be changed by others (mode {stat.S_IMODE(directory.st_mode):04o}, expected 0700)",
            hints=(f"chmod 700 {target.parent}",),
        )


def _own_directory(directory: Path) -> None:
    """Make it 0700, or refuse one that others can look into."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
            sync_directory(directory.parent)
        info = os.lstat(directory)
    except OSError as error:
        raise failed("create", directory, error) from error
    if not stat.S_ISDIR(info.st_mode):
        raise BadSetup(f"{directory} is not a directory")
    if info.st_uid != os.geteuid():
        raise BadSetup(
            f"{directory} belongs to user {info.st_uid}, not to user {os.geteuid()} who runs this",
            hints=(f"chown {os.geteuid()} {directory}",),
        )
    if info.st_mode & _LOOSE:
        raise BadSetup(
            f"{directory} holds keys and is open to others (mode {stat.S_IMODE(info.st_mode):04o}, expected 0700)",
            hints=(f"chmod 700 {directory}",),
        )


def _unreadable(target: Path, error: OSError) -> BadSetup:
    if error.errno == errno.ELOOP:
        return BadSetup(f"{target} is a symbolic link; a key is a file of its own")
    if error.errno == errno.ENOENT:
        return BadSetup(f"there is no key at {target}")
    return BadSetup(f"cannot read {target}: {error.strerror or error}")
