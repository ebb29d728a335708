"""What a person at the host said: drain, pause or quarantine, kept in one file of the state folder.

`gridops-agent drain|pause|quarantine|resume` write and remove the file, with an agent running or not; the running
agent reads it with each look. Only people write it, so no word is ever lost to an agent that writes too: how much of a
word's time is over, the agent keeps as a note in its ledger. Time runs by CLOCK_BOOTTIME, sleep included, and a wall
clock that jumps ends nothing; after a reboot it goes on from what was left when last noted. A file that cannot be read
counts as the strictest word.
"""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gridops.base import limits
from gridops.base.codes import protection as codes
from gridops.base.errors import GridopsError
from gridops.base.record import Malformed, from_bytes, record, to_bytes
from gridops.disk.atomic import failed, read_checked, sync_directory, write_checked
from gridops_agent.core.protection import Override, OverrideKind

NOTE = "override"
NOTE_EVERY_MS = 30_000
"""How often what is left is noted: a reboot prolongs a word by at most this. Half: twice the writes to the ledger."""
FILE_BYTES = 16 << 10


class Hours(Protocol):
    """The clocks that an override lives by."""

    def wall_ms(self) -> int: ...

    def boottime_ms(self) -> int: ...

    def boot_id(self) -> str: ...


class Notes(Protocol):
    """Where the agent keeps small facts."""

    def note(self, key: str) -> str | None: ...

    def keep_note(self, key: str, text: str) -> None: ...


@record
class Word:
    """One word of a person. `boot` and `boot_ms` say when it was said."""

    id: str
    kind: OverrideKind
    reason: str
    said_ms: int
    """Wall time; only shown."""
    boot: str
    boot_ms: int
    for_ms: int | None = None
    """None: until it is taken back."""


@record
class _Left:
    """What was left of a word at one moment."""

    id: str
    left_ms: int
    boot: str
    boot_ms: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What to say."""

    kind: OverrideKind
    reason: str
    for_ms: int | None = None


def say(path: Path, wish: Wish, clock: Hours) -> Word:
    """Write the word; it replaces any before it. Raises Failed, and then the one before it stands."""
    word = Word(
        id=secrets.token_hex(8),
        kind=wish.kind,
        reason=wish.reason,
        said_ms=clock.wall_ms(),
        boot=clock.boot_id(),
        boot_ms=clock.boottime_ms(),
        for_ms=wish.for_ms,
    )
    write_checked(path, to_bytes(word))
    return word


def take_back(path: Path) -> bool:
    """Remove the word; False when there was none. Raises Failed."""
    try:
        path.unlink()
        sync_directory(path.parent)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise failed("remove", path, error) from error
    return True


def stands(path: Path, notes: Notes | None, clock: Hours) -> Override | None:
    """What holds now; None when nothing was said, it was taken back, or its time is over."""
    found = _read(path)
    if found is None or isinstance(found, Override):
        return found
    left = _left_ms(found, notes, clock)
    return None if left is not None and left <= 0 else Override(found.kind, found.reason, left)


class Overrides:
    """The running agent's view of the file: reads it, and notes how much of a word's time is left."""

    def __init__(self, path: Path, notes: Notes, clock: Hours) -> None:
        self._path = path
        self._notes = notes
        self._clock = clock
        self._noted: tuple[str, int] | None = None
        """Word, and what was left when it was last noted."""

    def now(self) -> Override | None:
        """What holds now. Blocks on the disk."""
        found = _read(self._path)
        if found is None or isinstance(found, Override):
            return found
        left = _left_ms(found, self._notes, self._clock)
        if left is None:
            return Override(found.kind, found.reason)
        self._note(found, left)
        return Override(found.kind, found.reason, left) if left > 0 else None

    def _note(self, word: Word, left: int) -> None:
        known = self._noted[1] if self._noted is not None and self._noted[0] == word.id else None
        if known is not None and known - left < NOTE_EVERY_MS and (left > 0 or known <= 0):
            return
        row = _Left(id=word.id, left_ms=left, boot=self._clock.boot_id(), boot_ms=self._clock.boottime_ms())
        # Without a note a reboot prolongs the word, which is the safe side.
        with contextlib.suppress(GridopsError):
            self._notes.keep_note(NOTE, to_bytes(row).decode())
            self._noted = (word.id, left)


def _read(path: Path) -> Word | Override | None:
    try:
        return from_bytes(Word, read_checked(path, FILE_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, Malformed, ValueError) as error:
        words = f"{codes.OVERRIDE_DAMAGED.code}: {path.name} cannot be read: {error}"
        return Override(OverrideKind.QUARANTINE, words[: limits.OVERRIDE_REASON_CHARS])


def _left_ms(word: Word, notes: Notes | None, clock: Hours) -> int | None:
    if word.for_ms is None:
        return None
    left = word.for_ms - _passed(word.boot, word.boot_ms, clock)
    text = notes.note(NOTE) if notes is not None else None
    with contextlib.suppress(Malformed, ValueError):
        row = from_bytes(_Left, text.encode()) if text is not None else None
        if row is not None and row.id == word.id:
            left = min(left, row.left_ms - _passed(row.boot, row.boot_ms, clock))
    return left


def _passed(boot: str, boot_ms: int, clock: Hours) -> int:
    """Time since then; of time in another boot nothing is known."""
    return max(0, clock.boottime_ms() - boot_ms) if boot == clock.boot_id() else 0
