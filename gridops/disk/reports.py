"""Reports of unexpected faults: private files for people, of which only the newest few are kept.

A service that ends by a fault is started again by its manager, for as long as the fault stands: its reports must fill
no disk. The caller has taken out of the text what may be secret.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from pathlib import Path

from gridops.base import limits


def write_report(program: str, text: str) -> Path | None:
    """Write one report of a program below the person's state folder, or where that takes none into the temporary one;
    None where neither does."""
    name = f"{program}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"
    for folder in (*_state(program), Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _written(folder / name, text)
        except OSError:
            continue
        with contextlib.suppress(OSError):
            _only_newest(folder, program)
        return folder / name
    return None


def _state(program: str) -> tuple[Path, ...]:
    """The folder below the person's state; none for an account without a home."""
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    except RuntimeError:
        return ()
    return (Path(state) / program / "reports",)


def _written(path: Path, text: str) -> None:
    """Whole, or not at all. Raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        path.unlink()
        raise


def _only_newest(folder: Path, program: str) -> None:
    """Take away the oldest reports of the program, by the time in their names. Other files stay. Raises OSError."""
    ours = re.compile(rf"{re.escape(program)}-\d{{8}}T\d{{6}}Z-\d+\.txt")
    found = sorted(name for name in os.listdir(folder) if ours.fullmatch(name))
    for name in found[: -limits.REPORTS_KEPT]:
        (folder / name).unlink(missing_ok=True)
