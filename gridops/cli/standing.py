"""Whether a fleet stands in a folder, and the one answer of every command where none does.

Imports next to nothing, so that the commands which only read files start at once.
"""

from __future__ import annotations

from pathlib import Path

from gridops.cli.output import Usage
from gridops.files.tree import FOLDERS


def holds_fleet(directory: Path) -> bool:
    """Whether any folder of a fleet is there."""
    return any((directory / folder).is_dir() for folder in FOLDERS)


def no_fleet(directory: Path) -> Usage:
    """The error for a folder that was named, or is the current one, and holds no fleet."""
    return Usage(
        f"{directory.resolve()}: no fleet here (no {', '.join(FOLDERS)})",
        hints=("make one: gridops init", "or name another folder: gridops -C DIR ..."),
    )
