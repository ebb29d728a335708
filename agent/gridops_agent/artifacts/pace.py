"""How fast bytes may come, and how far each transfer is. Shared by the threads that fetch.

One limit for all transfers together, so that two of them take no more of an owner's line than one. Progress is a
reading: it is shown in heartbeats and status and decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock

from gridops.base.ids import Digest


@dataclass(frozen=True, slots=True)
class Progress:
    """One transfer, now."""

    artifact: Digest
    source: str
    """Where the bytes come from now: the scheme, or `peer`."""
    done_bytes: int
    size_bytes: int


class Pace:
    """A limit in bits per second. `owed` says how long whoever has taken so many bytes has to wait before the next."""

    def __init__(self, rate_bps: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = rate_bps / 8 if rate_bps is not None else None
        self._clock = clock
        self._free_at = 0.0
        self._lock = Lock()

    def owed(self, count: int) -> float:
        """Seconds to wait after `count` bytes."""
        if self._per_s is None:
            return 0.0
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now) + count / self._per_s
            return self._free_at - now


class Board:
    """What is being transferred now."""

    def __init__(self) -> None:
        self._rows: dict[Digest, Progress] = {}
        self._lock = Lock()

    def begin(self, artifact: Digest, size_bytes: int) -> None:
        with self._lock:
            self._rows[artifact] = Progress(artifact, "", 0, size_bytes)

    def note(self, artifact: Digest, source: str, done_bytes: int) -> None:
        """Absolute, because a resumed or rejected part makes it jump either way."""
        with self._lock:
            row = self._rows.get(artifact)
            if row is not None:
                self._rows[artifact] = replace(row, source=source, done_bytes=min(done_bytes, row.size_bytes))

    def end(self, artifact: Digest) -> None:
        with self._lock:
            self._rows.pop(artifact, None)

    def rows(self) -> tuple[Progress, ...]:
        with self._lock:
            return tuple(self._rows[key] for key in sorted(self._rows))
