"""Where files come from: a checkout on disk, a mapping in memory, or (in `files.git`) a commit.

Called by `load`, `format` and the CLI. Paths are relative, with `/`, and sorted. A working tree is read with
suspicion: links are not followed, fifos and devices are not opened, and no more than one file's bound is read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from gridops.base.limits import YAML_FILE_BYTES

FOLDERS = ("fleet.d", "policies", "profiles.d")
"""The only folders that hold intent."""
A_LINK = "it is a link, and links are not followed"


class Tree(Protocol):
    """A set of files at one moment."""

    def paths(self) -> tuple[str, ...]:
        """Relative paths of all files, sorted."""
        ...

    def read(self, path: str) -> bytes:
        """Contents, at most one byte more than `limits.YAML_FILE_BYTES`. Raises OSError."""
        ...


class MemoryTree:
    """Files held in memory; for tests and for text from standard input."""

    def __init__(self, files: Mapping[str, bytes | str]) -> None:
        self._files = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}

    def paths(self) -> tuple[str, ...]:
        return tuple(sorted(self._files))

    def read(self, path: str) -> bytes:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(path) from None


class WorkingTree:
    """The intent folders of a directory on disk, as they stand now."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def paths(self) -> tuple[str, ...]:
        found: list[str] = []
        pending = [folder for folder in FOLDERS if (self.root / folder).is_dir()]
        while pending:
            folder = pending.pop()
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    path = f"{folder}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False) and not entry.name.endswith(".yaml"):
                        pending.append(path)
                    else:
                        found.append(path)
        return tuple(sorted(found))

    def read(self, path: str) -> bytes:
        # O_NONBLOCK: opening a fifo must not wait for a writer that never comes.
        try:
            handle = os.open(self.root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as failure:
            if failure.errno == errno.ELOOP:
                raise OSError(A_LINK) from failure
            raise
        try:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                raise OSError("it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file")
            return _read_up_to(handle, YAML_FILE_BYTES + 1)
        finally:
            os.close(handle)


def _read_up_to(handle: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        part = os.read(handle, min(size, 1 << 16))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
