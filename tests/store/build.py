"""Journals for the store's tests, and children that can be killed: forked, so that each costs milliseconds."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gridops.store.journal import Entry, Journal, Row


def rows(first: int, count: int, size: int = 40) -> list[Entry]:
    return [Entry("noted", 1_000 + n, {"n": n, "text": "x" * size}) for n in range(first, first + count)]


def filled(path: Path, count: int = 60, *, snapshot: int | None = None) -> tuple[Row, ...]:
    """A closed journal with rows in groups of ten."""
    journal = Journal.open(path)
    term = journal.take_term(1)
    for first in range(1, count + 1, 10):
        journal.append(rows(first, min(10, count + 1 - first)), term)
    if snapshot is not None:
        journal.save_snapshot(snapshot, {"sum": snapshot})
    found = tuple(journal.replay())
    journal.close()
    return found


@dataclass
class Child:
    """A forked process and the pipe on which it says how far it is."""

    pid: int
    pipe: int

    def said(self) -> bytes:
        """Everything it says until it ends."""
        heard = b""
        while chunk := os.read(self.pipe, 65_536):
            heard += chunk
        return heard

    def kill(self) -> bytes:
        """SIGKILL, and what it had said before."""
        os.kill(self.pid, signal.SIGKILL)
        heard = self.said()
        self.wait()
        return heard

    def wait(self) -> int:
        os.close(self.pipe)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def fork(work: Callable[[Callable[[bytes], None]], None]) -> Child:
    """Run `work(say)` in a child process. It ends with 0, or with 1 and a traceback on stderr."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            work(lambda text: _say(writing, text))
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it is, the parent has to hear of it
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    return Child(pid, reading)


def _say(pipe: int, text: bytes) -> None:
    os.write(pipe, text + b"\n")
