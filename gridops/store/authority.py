"""The right to write: one process per state folder, and a term that rises each time it is taken.

The controller's shell opens it first and holds it for its whole life. The lock keeps a second controller on this
machine out; the term keeps a former one out that still believes it holds the lock (a paused process, a copied
folder): its appends fail, and hosts refuse its grants. Honest on one machine only: `flock` says nothing elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Self

from gridops.base.errors import Busy
from gridops.disk.atomic import failed
from gridops.protocol.messages import Term
from gridops.store.journal import Journal

LOCK = "controller.lock"
JOURNAL = "journal.sqlite"


class Authority:
    """A held lock, the open journal and the term under which it is written."""

    def __init__(self, journal: Journal, term: Term, lock: int) -> None:
        self.journal = journal
        self.term = term
        self._lock: int | None = lock

    @classmethod
    def open(cls, directory: Path, epoch: int) -> Authority:
        """Lock the folder, open its journal, take the next term.

        Raises Busy naming the holder, or what `Journal.open` raises; then nothing is held.
        """
        directory = Path(directory)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = _acquire(directory / LOCK)
        except OSError as error:
            raise failed("lock", directory / LOCK, error) from error
        journal = None
        try:
            journal = Journal.open(directory / JOURNAL)
            return cls(journal, journal.take_term(epoch), lock)
        except BaseException:
            if journal is not None:
                journal.close()
            os.close(lock)
            raise

    def raise_above(self, counter: int) -> Term:
        """A new term above what a host remembers: for a controller that was rebuilt or restored, by a person's will."""
        self.term = self.journal.take_term(self.term.epoch, above=counter)
        return self.term

    def renew(self, epoch: int) -> Term:
        """The next term of another epoch: people rotated the controller's key."""
        self.term = self.journal.take_term(epoch)
        return self.term

    def close(self) -> None:
        """Close the journal, then let the lock go. The term is not given back. Closing again does nothing."""
        lock, self._lock = self._lock, None
        if lock is None:
            return  # its number may be somebody else's file by now
        self.journal.close()
        with contextlib.suppress(OSError):
            os.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _acquire(path: Path) -> int:
    # The file stays when the lock goes: unlinking it would let two processes lock two files of one name.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise Busy(
            f"another controller (process {holder}) holds {path.parent}",
            hints=(f"stop it first: kill {holder}", "or give this one a state folder of its own"),
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
