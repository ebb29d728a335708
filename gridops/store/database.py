"""Opens one SQLite file so that it is either whole, or named and set aside; never silently empty.

`journal` uses it for its file. A new file is made whole under another name and then renamed, so a file of no bytes
is damage and not a beginning. Migrations only go forward; each is one transaction with its version number.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from gridops.base.errors import BadSetup, Busy, DiskFault, EdgeError, Failed, NoRoom
from gridops.base.units import render_bytes
from gridops.disk.atomic import failed, sync_directory
from gridops.disk.failpoint import point
from gridops.disk.quarantine import set_aside
from gridops.store.errors import Damaged

APPLICATION_ID = 0x67726A31
"""Marks the file as ours (`grj1`): a database of somebody else is refused, not set aside."""
BUSY_TIMEOUT_S = 5.0
LITTLE_BYTES = 1 << 20
"""With less than this, a disk that fails a write fails it for want of room: the log alone grows by more."""
_IO = "SQLITE_IOERR"
"""SQLite says `full` for a data page only; where its index cannot grow, or a quota ends, it says this."""
_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED")
_UNREADABLE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_MISMATCH", "OperationalError")
"""The contents are wrong. The last one, without a name of SQLite's, is text that is no UTF-8."""
_MAGIC = b"SQLite format 3\x00"


class NotWhole(Exception):
    """A check of the file's contents failed. Never leaves this room: it becomes `Damaged`."""


def connect(path: Path, migrations: Sequence[str]) -> sqlite3.Connection:
    """A checked connection to an old or new file. Raises NotWhole, Busy, BadSetup or Failed, naming the file."""
    if not path.exists():
        _no_orphan(path)
        _create(path, migrations)
    _begins_like_a_database(path)
    connection = _attach(path)
    try:
        _check(connection, path, len(migrations))
        _brought_forward(connection, path, migrations)
        # From here on the main file alone holds all that was true now: losing the write-ahead log loses the
        # newest rows, never everything.
        checkpoint(connection)
    except sqlite3.Error as error:
        connection.close()
        raise refused(error, "open", path, NotWhole) from error
    except (NotWhole, EdgeError):
        connection.close()
        raise
    return connection


def checkpoint(connection: sqlite3.Connection) -> None:
    """Bring what stands in the write-ahead log into the main file."""
    with point("journal.checkpoint", broken=broken):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, what: str) -> Iterator[sqlite3.Connection]:
    """One writing transaction: all of it or nothing. `what`: its failpoint."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        with point(what, broken=broken):
            connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def broken(number: int) -> sqlite3.Error:
    """What SQLite says of a disk that is full or fails, for failpoints."""
    full = number == errno.ENOSPC
    error = sqlite3.OperationalError("database or disk is full" if full else "disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL if full else sqlite3.SQLITE_IOERR
    error.sqlite_errorname = "SQLITE_FULL" if full else "SQLITE_IOERR"
    return error


def is_locked(error: sqlite3.Error) -> bool:
    """Another process holds the file; nothing was written."""
    return getattr(error, "sqlite_errorname", "").startswith(_LOCKED)


def refused(error: sqlite3.Error, what: str, path: Path, damage: type[Exception] = Failed) -> Exception:
    """An SQLite error as one of ours. `damage` is raised for a file that is not what SQLite expects."""
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if is_locked(error):
        return Busy(f"cannot {what} {path}: another process has it locked", hints=(f"see who: fuser -v {path}",))
    if name == "SQLITE_FULL" or (name.startswith(_IO) and free_bytes(path.parent) < LITTLE_BYTES):
        return no_room(what, path)
    if name.startswith(_UNREADABLE):
        return damage(f"cannot {what} {path}: {error} ({name})")
    kind = DiskFault if name.startswith(_IO) else Failed
    return kind(f"cannot {what} {path}: {error} ({name})", hints=(f"look at the disk under {path.parent}",))


def free_bytes(folder: Path) -> int:
    """What this process may still write there; 0 where no more files can be made."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return LITTLE_BYTES
    return 0 if found.f_files and not found.f_favail else found.f_bavail * found.f_frsize


def no_room(what: str, path: Path) -> NoRoom:
    """The file system of `path` is full: which folder, how much is free, what to do."""
    folder = path.parent
    return NoRoom(
        f"cannot {what} {path}: no space left on the file system of {folder}, {free_bytes(folder)} bytes are free",
        hints=(f"free at least {render_bytes(LITTLE_BYTES)} there; see what fills it: df -h {folder}",),
    )


def quarantine(path: Path, reason: str) -> Damaged:
    """Set the file aside and return the error to raise."""
    kept = set_aside(path, reason, time.time_ns() // 1_000_000)
    return Damaged(
        f"the journal {path} is damaged: {reason}",
        kept,
        hints=(f"it is kept as {kept}", "the controller only recommends until a person has looked"),
    )


def _no_orphan(path: Path) -> None:
    """A log without its database: read into a new one it would mix two histories."""
    log = path.with_name(path.name + "-wal")
    if log.exists():
        kept = set_aside(log, "the database that this log belongs to is gone", time.time_ns() // 1_000_000)
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
        hints = (f"the log is kept as {kept}",)
        raise Damaged(f"the journal {path} is gone, only its write-ahead log was there", kept, hints=hints)


def _create(path: Path, migrations: Sequence[str]) -> None:
    making = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        for leftover in (making, making.with_name(making.name + "-wal"), making.with_name(making.name + "-shm")):
            leftover.unlink(missing_ok=True)
        # It holds what only the controller may read (join secrets), and its log and index inherit the mode.
        os.close(os.open(making, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        connection = _attach(making)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _migrate(connection, migrations)
        # By name: the one that a closing does says nothing when it fails, and only the main file takes the new name.
        checkpoint(connection)
        connection.close()
        with point("journal.create"):
            os.rename(making, path)
            sync_directory(path.parent)
    except OSError as error:
        raise failed("create", path, error) from error
    except sqlite3.Error as error:
        raise refused(error, "create", path) from error


def _attach(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote(str(path))}?mode=rw"
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=32
    )
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON", "cell_size_check = ON"):
        try:
            connection.execute(f"PRAGMA {pragma}")
        except sqlite3.Error as error:
            connection.close()
            raise refused(error, "open", path, NotWhole) from error
    return connection


def _begins_like_a_database(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except OSError as error:
        raise failed("open", path, error) from error
    if start != _MAGIC:
        raise NotWhole("it is empty" if start == b"" else "it does not begin like an SQLite file")


def _check(connection: sqlite3.Connection, path: Path, known: int) -> None:
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise NotWhole(f"SQLite's integrity check says: {found}")
    ours = connection.execute("PRAGMA application_id").fetchone()[0]
    if ours != APPLICATION_ID:
        raise BadSetup(
            f"{path} is an SQLite file, but not a journal of gridops",
            hints=("give the controller a state folder of its own",),
        )
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if not 0 < version <= known:
        raise BadSetup(
            f"{path} has format {version}, this version of gridops reads up to {known}",
            hints=("start the version that wrote it, or a newer one",),
        )


def _brought_forward(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    try:
        _migrate(connection, migrations)
    except sqlite3.Error as error:
        # Our own fault or the disk's: the older format stands whole, and is nothing to set aside.
        raise refused(error, "bring to the newest format", path) from error


def _migrate(connection: sqlite3.Connection, migrations: Sequence[str]) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    for number, script in enumerate(migrations[version:], version + 1):
        with transaction(connection, "journal.migrate"):
            for statement in filter(str.strip, script.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
