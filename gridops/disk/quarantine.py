"""Quarantine: a damaged file is set aside under a new name, with the reason beside it. Never deleted or overwritten.

The journal and the agent's ledger call this when a file does not verify; what happened stays there for a person.
"""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

from gridops.base.errors import Failed
from gridops.disk.atomic import failed, sync_directory, write_atomic
from gridops.disk.failpoint import point

_SIDECARS = ("-wal", "-shm", "-journal")
"""Files that SQLite keeps beside a database; left behind they would be read into the fresh one."""
_TRIES = 1_000


def set_aside(path: str | os.PathLike[str], reason: str, now_ms: int) -> Path:
    """Rename to `<name>.damaged-<utc stamp>` and return that path; the reason goes to `<that>.why`. Raises Failed."""
    source = Path(path)
    target = _free_name(source, now_ms)
    try:
        # The main file goes first. A crash in between then leaves sidecars beside no database, which SQLite deletes
        # when it makes a new one; the other way round it would leave a database without its newest pages.
        with point("aside.rename", source.name):
            os.rename(source, target)
        _take_along(source, target)
        sync_directory(source.parent)
    except OSError as error:
        raise failed("set aside", source, error) from error
    # The disk may be full, which may be the very reason; the file itself is safe by now.
    with contextlib.suppress(Failed):
        write_atomic(f"{target}.why", (reason.rstrip() + "\n").encode("utf-8", "replace"))
    return target


def is_set_aside(path: str | os.PathLike[str]) -> Path | None:
    """The newest damaged copy of a file, by its name; None when there is none."""
    source = Path(path)
    kept = [f for f in source.parent.glob(f"{source.name}.damaged-*") if not f.name.endswith((".why", *_SIDECARS))]
    return max(kept, key=lambda f: f.name) if kept else None


def bring_rest(path: str | os.PathLike[str], kept: Path) -> None:
    """Finish what was cut off: what lies beside the place of a file that was set aside follows it. Raises Failed."""
    try:
        _take_along(Path(path), kept)
        sync_directory(kept.parent)
    except OSError as error:
        raise failed("set aside", path, error) from error


def _take_along(source: Path, target: Path) -> None:
    for suffix in _SIDECARS:
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{source}{suffix}", f"{target}{suffix}")


def _free_name(source: Path, now_ms: int) -> Path:
    stamp = datetime.fromtimestamp(now_ms / 1000, tz=UTC).strftime("%Y%m%dT%H%M%SZ")
    for number in range(1, _TRIES + 1):
        name = f"{source.name}.damaged-{stamp}" + (f"-{number}" if number > 1 else "")
        candidate = source.with_name(name)
        taken = (f"{candidate}{suffix}" for suffix in ("", ".why", *_SIDECARS))
        if not any(os.path.lexists(each) for each in taken):
            return candidate
    raise Failed(f"cannot set aside {source}: there are {_TRIES} damaged copies of this second already")
