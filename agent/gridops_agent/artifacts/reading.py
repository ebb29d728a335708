"""Reading a header that may lie: every read is bounded by what the file has left. Used by the checks of model files."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from types import TracebackType


class Unsound(Exception):
    """What is wrong with a file, as the end of a sentence."""


class Reader:
    """A file from its beginning on, little-endian. Raises Unsound for whatever is not there."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.size = os.fstat(self._file.fileno()).st_size
        self.at = 0

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    @property
    def left(self) -> int:
        return self.size - self.at

    def take(self, count: int, what: str) -> bytes:
        """The next bytes."""
        if count > self.left:
            raise Unsound(f"it ends in {what}: {count} bytes wanted, {self.left} are left")
        raw = self._file.read(count)
        if len(raw) != count:
            raise Unsound(f"it ends in {what}")
        self.at += count
        return raw

    def skip(self, count: int, what: str) -> None:
        """Step over bytes without reading them."""
        if count > self.left:
            raise Unsound(f"it ends in {what}: {count} bytes wanted, {self.left} are left")
        self._file.seek(count, os.SEEK_CUR)
        self.at += count

    def u32(self, what: str) -> int:
        return int(struct.unpack("<I", self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(struct.unpack("<Q", self.take(8, what))[0])
