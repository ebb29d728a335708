"""Whether open files are still those at their names.

A database whose file was deleted or replaced under the process that holds it is written as before, and all of it is
gone when that process ends. Nothing fails, so whoever promises by such a file has to look before it promises more.
"""

from __future__ import annotations

import os
from pathlib import Path


class Moored:
    """Names of open files, each with the file that it named at first. A name that named none is not looked at."""

    def __init__(self, *paths: Path) -> None:
        self._known = {path: found for path in paths if (found := _file_at(path)) is not None}

    def adrift(self) -> Path | None:
        """The first name at which another file lies, or none."""
        return next((path for path, was in self._known.items() if _file_at(path) != was), None)


def _file_at(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
