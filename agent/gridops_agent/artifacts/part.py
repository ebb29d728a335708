"""A file that is arriving: its bytes on disk, hashed as they come, and who has sent some of them.

What an earlier try or an earlier run of the agent left is hashed again before anything is added to it. Bytes of
several answers may not fit together, so a wrong digest speaks against a source only when all bytes came in one answer.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from threading import Event
from typing import BinaryIO

from gridops.base.ids import Digest
from gridops.model.profile import ArtifactFile
from gridops_agent.artifacts.find import CHUNK, TakenBack


class Part:
    """One file in the staging folder. Use it inside `with`."""

    def __init__(self, path: Path, file: ArtifactFile, stop: Event) -> None:
        self.file = file
        self.answers = 0
        """How many answers the bytes on disk came from."""
        self.size = 0
        self._path = path
        self._stop = stop
        self._hash = hashlib.sha256()
        self._sink: BinaryIO | None = None

    def __enter__(self) -> Part:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Never through a link that somebody put here: what is written is ours alone.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._sink = os.fdopen(os.open(self._path, flags, 0o600), "r+b", buffering=0)
        if os.fstat(self._sink.fileno()).st_size > self.file.size_bytes:
            self.drop()
        while chunk := self._sink.read(CHUNK):
            if self._stop.is_set():
                raise TakenBack
            self._hash.update(chunk)
            self.size += len(chunk)
        self.answers = 1 if self.size else 0
        return self

    def __exit__(self, *_: object) -> None:
        assert self._sink is not None
        self._sink.close()

    @property
    def full(self) -> bool:
        return self.size == self.file.size_bytes

    def begin(self, offset: int) -> None:
        """An answer begins at `offset`: where the part ends, or at 0."""
        if offset != self.size:
            self.drop()
        self.answers += 1

    def add(self, chunk: bytes) -> None:
        """Raises OSError, also for a full disk."""
        assert self._sink is not None
        view = memoryview(chunk)
        while view:
            view = view[self._sink.write(view) :]
        self._hash.update(chunk)
        self.size += len(chunk)

    def drop(self) -> None:
        """Forget every byte."""
        assert self._sink is not None
        self._sink.seek(0)
        self._sink.truncate(0)
        self._hash = hashlib.sha256()
        self.size = self.answers = 0

    def settle(self) -> Digest:
        """Durable; what it turned out to be."""
        assert self._sink is not None
        os.fsync(self._sink.fileno())
        return Digest(f"sha256:{self._hash.hexdigest()}")
