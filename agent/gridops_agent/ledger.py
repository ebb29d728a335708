"""The ledger: what this host has promised and done, in SQLite. The only module of the agent that opens sqlite3.

One transaction per step of the heart, written with synchronous=FULL before any effect of that step. What a row is
stands in `ledger_rows`. Each carries the digest of its content, receipts carry the digest of the one before them, and
both are checked when the ledger is opened. A ledger that does not verify is set aside and never read as if it were
empty: `damage` says so, and goes on saying so after restarts, until the host is enrolled anew.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TypeVar

from gridops.base.errors import BadSetup, Failed
from gridops.base.record import Malformed, from_bytes, to_bytes
from gridops.disk.atomic import failed, sync_directory
from gridops.disk.failpoint import point
from gridops.disk.moored import Moored
from gridops.disk.quarantine import bring_rest, is_set_aside, set_aside
from gridops.protocol.messages import Receipt
from gridops_agent.core.state import Host
from gridops_agent.ledger_forms import FORM, migration
from gridops_agent.ledger_rows import (
    HOST_KINDS,
    KINDS,
    STEP_KINDS,
    FileProof,
    Identity,
    Note,
    ReceiptsRow,
    Rows,
    broken_chain,
    host_of,
    root_rows,
    row_digest,
    rows_of,
)

_ROTTEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""What SQLite answers when a file is not what it wrote."""
T = TypeVar("T")


class Unwritable(Failed):
    """A step could not be made durable; nothing of it may happen."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What was found wrong, and where the damaged file lies now."""

    why: str
    aside: str


class _Damaged(Exception):
    """Internal: the file does not verify."""


class Ledger:
    """An open ledger. Steps and proofs are written from several threads, one transaction at a time."""

    def __init__(self, connection: sqlite3.Connection, damage: Damage | None) -> None:
        self._db = connection
        path = Path(connection.execute("PRAGMA database_list").fetchone()[2])
        self._folder = path.parent
        self._moored = Moored(path, path.with_name(path.name + "-wal"))
        self._lock = Lock()
        self.damage = damage
        self.writable = True
        """The newest try to write succeeded."""
        self._unsure = False
        """A step failed, and may be on the disk all the same: the next one is written against what is there."""

    @classmethod
    def create(cls, path: Path, identity: Identity, roots: tuple[str, ...]) -> Ledger:
        """A new ledger for a host that has just joined. Raises Failed if there is one already."""
        if path.exists():
            raise Failed(f"{path} exists already; nothing was changed")
        return cls._begun(path, {("identity", ""): identity, **root_rows(roots)}, None)

    @classmethod
    def _begun(cls, path: Path, rows: Rows, damage: Damage | None) -> Ledger:
        """A new ledger with its first rows. Made under another name: at its own it is never there by half."""
        making = path.with_name(f".{path.name}.new")
        try:
            _clear(making)
            first = cls(_connect(making), None)
            first._write(rows, ())
            # By name: the one that a closing does says nothing when it fails, and only the main file is renamed.
            first._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            first.close()
            _clear_sidecars(path)  # the log of a ledger that is gone would be read into this one
            with point("ledger.create"):
                os.rename(making, path)
                sync_directory(path.parent)
            return cls(_connect(path), damage)
        except OSError as error:
            raise failed("create", path, error) from error
        except sqlite3.Error as error:
            raise Failed(f"{path} cannot be created: {error}") from error

    @classmethod
    def open(cls, path: Path, identity: Identity, spare_roots: tuple[str, ...], now_ms: int) -> Ledger:
        """Open and verify. A damaged file is set aside; what follows it remembers that, whose it is and the roots."""
        if not path.exists() and is_set_aside(path):
            cut = Damage("it was set aside, and what follows it was not written", "")
            return cls._without_memory(path, identity, spare_roots, cut, now_ms)
        if not path.exists():
            raise BadSetup(
                f"{path} is missing: this host has not joined, or its memory was deleted",
                hints=("join again with a new token: gridops-agent join TOKEN",),
            )
        try:
            ledger = cls(_connect(path), None)
            ledger._verify(identity)
        except (sqlite3.DatabaseError, _Damaged) as error:
            if isinstance(error, sqlite3.DatabaseError) and error.sqlite_errorcode & 0xFF not in _ROTTEN:
                # Full, locked, read-only, failing: the memory is there, it only cannot be reached now.
                raise Failed(f"{path} cannot be opened: {error}") from error
            return cls._without_memory(path, identity, spare_roots, Damage(str(error), ""), now_ms)
        if ledger.note("damage") is not None:
            ledger.damage = Damage(ledger.note("damage") or "", ledger.note("aside") or "")
        return ledger

    @classmethod
    def _without_memory(
        cls, path: Path, identity: Identity, roots: tuple[str, ...], damage: Damage, now_ms: int
    ) -> Ledger:
        known = None if path.exists() else is_set_aside(path)
        aside = known or set_aside(path, f"the ledger does not verify: {damage.why}", now_ms)
        if known is not None:  # an earlier run was cut off behind this step
            bring_rest(path, known)
        rows: Rows = {
            ("identity", ""): identity,
            ("note", "damage"): Note(text=damage.why),
            ("note", "aside"): Note(text=str(aside)),
        }
        return cls._begun(path, {**rows, **root_rows(roots)}, Damage(damage.why, str(aside)))

    @classmethod
    def open_anyones(cls, path: Path) -> Ledger:
        """Open and verify it, whosever it is: for a person who says whose it shall be. Raises Failed."""
        look = cls.look(path)
        try:
            whose = look._one("identity", Identity)
            damage = "it names no host" if whose is None else look.problem(whose)
        except (Malformed, sqlite3.DatabaseError) as error:
            whose, damage = None, str(error)
        finally:
            look.close()
        if whose is None or damage is not None:
            hint = "join again with a new token: gridops-agent join TOKEN"
            raise Failed(f"{path} is damaged ({damage}), and nothing was changed", hints=(hint,))
        return cls(_connect(path), None)

    def become(self, host: Host, note: str, words: str) -> None:
        """Be the ledger of this host instead, in one transaction, and remember why. Raises Unwritable."""
        now = {**rows_of(host), ("note", note): Note(text=words)}
        there = [(kind, key) for kind in STEP_KINDS for key, _ in self._rows(kind, KINDS[kind])]
        self._write(now, tuple(key for key in there if key not in now))

    @classmethod
    def whose(cls, path: Path) -> str | None:
        """The host key that it names, unverified; None where there is nothing to read."""
        try:
            look = cls.look(path)
        except Failed:
            return None
        try:
            found = look._one("identity", Identity)
        except (Malformed, sqlite3.DatabaseError):
            return None
        finally:
            look.close()
        return found.host_key if found is not None else None

    @classmethod
    def look(cls, path: Path) -> Ledger:
        """Read only, beside a running agent (for `status`). Raises Failed when there is nothing to read."""
        try:
            connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None, timeout=2)
            form = int(connection.execute("PRAGMA user_version").fetchone()[0])
            connection.execute("SELECT COUNT(*) FROM entry").fetchone()
        except sqlite3.DatabaseError as error:
            raise Failed(f"cannot read {path}: {error}", hints=("see: gridops-agent doctor",)) from error
        if form > FORM:
            raise _newer(path, f"form {form}, this one reads up to {FORM}")
        return cls(connection, None)

    def close(self) -> None:
        """Close, once no thread writes: SQLite's memory is freed here, and a writer that still used it would crash."""
        with self._lock:
            self._db.close()

    # --- the host -------------------------------------------------------------------------------------------------

    def load(self, boot: str) -> Host:
        """Everything a host remembers. Raises BadSetup when the root documents do not hold."""
        return host_of({(kind, key): row for kind in HOST_KINDS for key, row in self._rows(kind, KINDS[kind])}, boot)

    def write(self, old: Host, new: Host) -> None:
        """Make the difference durable, in one transaction. Raises Unwritable; then nothing of it is."""
        before, after = self._there() if self._unsure else rows_of(old), rows_of(new)
        changed = {key: value for key, value in after.items() if before.get(key) is not value}
        changed = {key: value for key, value in changed.items() if before.get(key) != value}
        self._write(changed, tuple(key for key in before if key not in after))
        self._unsure = False

    def _there(self) -> Rows:
        """The rows of the host as the disk has them; what was never written yet is there as a new host has it."""
        try:
            rows = {(kind, key): row for kind in HOST_KINDS for key, row in self._rows(kind, KINDS[kind])}
            return {**rows_of(host_of(rows, "")), **{key: row for key, row in rows.items() if key[0] in STEP_KINDS}}
        except sqlite3.Error as error:
            self.writable = False
            raise self._unwritable(error) from error

    # --- small facts ----------------------------------------------------------------------------------------------

    def note(self, key: str) -> str | None:
        found = self._one("note", Note, key)
        return found.text if found is not None else None

    def keep_note(self, key: str, text: str) -> None:
        self._write({("note", key): Note(text=text)}, ())

    def proofs(self) -> Mapping[str, FileProof]:
        return MappingProxyType(dict(self._rows("proof", FileProof)))

    def keep_proof(self, path: str, proof: FileProof | None) -> None:
        """Remember, or with None forget, that a file was proved."""
        if proof is None:
            self._write({}, (("proof", path),))
        else:
            self._write({("proof", path): proof}, ())

    # --- rows -----------------------------------------------------------------------------------------------------

    def _rows(self, kind: str, shape: type[T]) -> Iterator[tuple[str, T]]:
        query = "SELECT key, value FROM entry WHERE kind = ? ORDER BY key"
        for key, value in self._db.execute(query, (kind,)):
            yield key, from_bytes(shape, value)

    def _one(self, kind: str, shape: type[T], key: str = "") -> T | None:
        row = self._db.execute("SELECT value FROM entry WHERE kind = ? AND key = ?", (kind, key)).fetchone()
        return from_bytes(shape, row[0]) if row is not None else None

    def _write(self, put: Rows, gone: tuple[tuple[str, str], ...]) -> None:
        if not put and not gone:
            return
        try:
            with self._lock:
                self._look_where_it_lies()
                self._transact(put, gone)
        except sqlite3.Error as error:
            self.writable, self._unsure = False, True
            raise self._unwritable(error) from error
        self.writable = True

    def _look_where_it_lies(self) -> None:
        adrift = self._moored.adrift()
        if adrift is not None:
            self.writable = False
            raise Unwritable(
                f"{adrift} was deleted or replaced while this agent writes it: what it promises now would be forgotten",
                hints=("end the agent, put the file back if you have it, or join again: gridops-agent join TOKEN",),
            )

    def _unwritable(self, error: sqlite3.Error) -> Unwritable:
        hint = f"free some space: df -h {self._folder}; the agent goes on by itself"
        return Unwritable(f"the ledger in {self._folder} cannot be written: {error}", hints=(hint,))

    def _transact(self, put: Rows, gone: tuple[tuple[str, str], ...]) -> None:
        rendered = [(key, to_bytes(put[key])) for key in sorted(put)]
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany("DELETE FROM entry WHERE kind = ? AND key = ?", gone)
            self._db.executemany(
                "INSERT INTO entry (kind, key, value, digest) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, digest = excluded.digest",
                [(kind, key, raw, row_digest(kind, key, raw)) for (kind, key), raw in rendered],
            )
            with point("ledger.commit", broken=_broken):
                self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def problem(self, identity: Identity) -> str | None:
        """What is wrong with it, for `doctor`; None when nothing. Raises BadSetup when a newer agent wrote it."""
        try:
            self._verify(identity)
        except (sqlite3.DatabaseError, _Damaged) as error:
            return str(error)
        return self.note("damage")

    def _verify(self, identity: Identity) -> None:
        """Raises _Damaged when anything in the file is not what was written."""
        problems = [row[0] for row in self._db.execute("PRAGMA integrity_check")]
        if problems != ["ok"]:
            raise _Damaged(f"integrity check: {problems[0]}")
        for kind, key, value, digest in self._db.execute("SELECT kind, key, value, digest FROM entry"):
            if not isinstance(value, bytes) or row_digest(kind, key, value) != digest:
                raise _Damaged(f"row {kind}/{key} is not what was written")
            try:
                from_bytes(KINDS[kind], value)
            except (KeyError, Malformed) as error:  # just what was written, and not by us
                raise _newer(self._folder, f"row {kind}/{key}: {error}"[:300]) from error
        kept = tuple(row for _, row in self._rows("receipt", Receipt))
        broken = broken_chain(kept, self._one("receipts", ReceiptsRow))
        if broken is not None:
            raise _Damaged(broken)
        whose = self._one("identity", Identity)
        if whose is None:
            raise _Damaged("it names no host")
        if whose != identity:
            # It is whole, so what changed is what says who we are: nothing is set aside for that.
            raise BadSetup(
                f"{self._folder / 'ledger.sqlite'} is that of host {whose.host} with key {whose.host_key}, but "
                f"agent.toml says {identity.host} and keys/host.seed is key {identity.host_key}",
                hints=("bring back the agent.toml and the keys/host.seed of this host, or join with another --state",),
            )


def _connect(path: Path) -> sqlite3.Connection:
    new = not path.exists()
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    if new:
        path.chmod(0o600)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    form = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if form > FORM:
        raise _newer(path, f"form {form}, this one reads up to {FORM}")
    if form < FORM:
        with point("ledger.migrate", broken=_broken):
            connection.executescript(migration(form))
    return connection


def _clear(path: Path) -> None:
    """What a beginning that was cut off has left."""
    path.unlink(missing_ok=True)
    _clear_sidecars(path)


def _clear_sidecars(path: Path) -> None:
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _broken(number: int) -> sqlite3.Error:
    """What SQLite says of a disk that is full or fails, for failpoints."""
    full = number == errno.ENOSPC
    error = sqlite3.OperationalError("database or disk is full" if full else "disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL if full else sqlite3.SQLITE_IOERR
    error.sqlite_errorname = "SQLITE_FULL" if full else "SQLITE_IOERR"
    return error


def _newer(path: Path, why: str) -> BadSetup:
    hint = "install the version that wrote it, or a newer one; engines that run are not touched"
    return BadSetup(f"{path} was written by a newer agent ({why})", hints=(hint,))
