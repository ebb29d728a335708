"""Atomic files: after a crash at any moment a file is either the old one or the new one, whole.

Used by store, agent and CLI for everything that must survive. Must never leave a temporary file behind on failure,
and names the path in what it raises.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from pathlib import Path

from gridops.base.errors import DiskFault, Failed, NoRoom
from gridops.disk.failpoint import point

CHECKED_BYTES = 1 << 20
"""The most that is read of a file with a sum."""
_SUM = b"\n# sha256 "
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


def write_atomic(path: str | os.PathLike[str], content: bytes, mode: int = 0o644) -> None:
    """Write, fsync, rename over `path`, fsync the directory. Raises Failed; then the old file stands untouched."""
    target = Path(path)
    temporary: str | None = None
    try:
        # In the same directory, because a rename is atomic only within one file system.
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:80]}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            with point("file.write", target.name):
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        with point("file.rename", target.name):
            os.replace(temporary, target)
            temporary = None
            sync_directory(target.parent)
    except OSError as error:
        raise failed("write", target, error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def write_checked(path: str | os.PathLike[str], content: bytes, mode: int = 0o600) -> None:
    """The same, with a sum behind the content by which `read_checked` finds a change. Raises Failed."""
    write_atomic(path, content + _SUM + hashlib.sha256(content).hexdigest().encode() + b"\n", mode)


def read_checked(path: str | os.PathLike[str], most: int = CHECKED_BYTES) -> bytes:
    """Its content. Raises OSError, or ValueError when it is not what was written. One without a sum is an older one."""
    with open(path, "rb") as file:
        raw = file.read(most + len(_SUM) + 65)
    content, mark, told = raw.partition(_SUM)
    if mark and told != hashlib.sha256(content).hexdigest().encode() + b"\n":
        raise ValueError("its check sum says that it is not what was written")
    return content


def sync_directory(directory: str | os.PathLike[str]) -> None:
    """Make the names in a directory durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def failed(what: str, path: str | os.PathLike[str], error: OSError) -> Failed:
    """What happened to which file, in a sentence for the user."""
    if error.errno in _NO_ROOM:
        return NoRoom(
            f"cannot {what} {os.fspath(path)}: no space left on its file system",
            hints=(f"free some space: df -h {Path(path).parent}",),
        )
    kind = DiskFault if error.errno == errno.EIO else Failed
    return kind(f"cannot {what} {os.fspath(path)}: {error.strerror or error}")
