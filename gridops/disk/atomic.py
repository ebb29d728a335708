"""Atomic files: after a crash at any moment a file is either the old one or the new one, whole.

Used by store, agent and CLI for everything that must survive. Must never leave a temporary file behind on failure,
and names the path in what it raises.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path

from gridops.base.errors import Failed, NoRoom
from gridops.disk.failpoint import point

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
    return Failed(f"cannot {what} {os.fspath(path)}: {error.strerror or error}")
