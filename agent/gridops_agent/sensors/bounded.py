"""Asks what may never answer. The question has a thread of its own, the asker waits for a bounded time and goes on.

A driver that hangs hangs in the kernel, where nothing can end the call. So at most one question is out at a time: while
it is, everybody else is told at once how long it has been silent. Its late answer is dropped, since it is of the past.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Bounded(Generic[T]):
    """One source that may hang. `read` is never called twice at the same time."""

    def __init__(self, what: str, read: Callable[[], T], patience_s: float) -> None:
        self._what = what
        self._read = read
        self._patience_s = patience_s
        self._turn = threading.Lock()
        self._out: threading.Thread | None = None
        self._asked_s = 0.0

    def ask(self) -> tuple[T | None, str]:
        """The answer, or None and why there is none. Returns within the patience, whatever the source does."""
        if not self._turn.acquire(timeout=self._patience_s):
            return None, f"{self._what} is still being asked"
        try:
            if self._out is not None and self._out.is_alive():
                return None, f"{self._what} has not answered for {time.monotonic() - self._asked_s:.0f} s"
            return self._ask()
        finally:
            self._turn.release()

    def _ask(self) -> tuple[T | None, str]:
        found: list[T] = []
        faults: list[str] = []

        def work() -> None:
            try:
                found.append(self._read())
            except Exception as error:  # noqa: BLE001 - a source that fails in any way is a reading that is not there
                faults.append(f"{self._what} failed: {type(error).__name__}: {error}"[:200])

        self._asked_s = time.monotonic()
        self._out = threading.Thread(target=work, name=f"sensor {self._what}", daemon=True)
        self._out.start()
        self._out.join(self._patience_s)
        if self._out.is_alive():
            return None, f"{self._what} did not answer within {self._patience_s:g} s"
        return (found[0], "") if found else (None, faults[0])
