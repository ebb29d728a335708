"""The drop-ins that make units of one device exclude each other: written, renewed, removed; unit files never.

A drop-in says three things: which units may not run beside this one, that systemd keeps it alive no more (the agent
does), and which command it was started for. Only files that say they are this agent's are ever touched.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gridops.base.codes import host as codes
from gridops.base.errors import Failed, Refusal
from gridops.disk.atomic import write_atomic
from gridops_agent.keep.ways import Unit, check_unit

FILE = "50-gridops.conf"
COOKIE = "GRIDOPS_UNIT_BODY"
"""Names the command that a unit was started for, in the environment of its processes."""
TAKEN_OVER = "taken-over"
"""In its place, for a unit that a person had started: whoever starts it anew is that person, and no command of ours."""


def user_folder() -> Path:
    """Where a person's own units and drop-ins lie."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "systemd" / "user"


def rivals(unit: Unit, units: tuple[Unit, ...]) -> tuple[str, ...]:
    """The units that may not run beside this one: those that share a device with it."""
    return tuple(sorted(u.name for u in units if u.name != unit.name and set(u.devices) & set(unit.devices)))


def text(unit: Unit, units: tuple[Unit, ...], owner: str, body: str) -> str:
    """A drop-in. `owner` is the state folder of the agent that wrote it."""
    conflicts = "".join(f"Conflicts={name}\n" for name in rivals(unit, units))
    return (
        f"{_mark(owner)}\n# It keeps units of one device apart. Edit the unit, not this file.\n"
        f"[Unit]\n{conflicts}"
        "[Service]\nRestart=no\nKillMode=control-group\n"
        f"Environment={COOKIE}={body}\n"
    )


class DropIns:
    """The drop-ins of one agent."""

    def __init__(self, folder: Path, owner: str, units: tuple[Unit, ...]) -> None:
        self._folder = folder
        self._owner = owner
        self._units = units

    def write(self, unit: Unit, body: str) -> None:
        """Write the drop-in of a unit. Raises Refusal for a file of that name that is not ours."""
        path = self._path(unit.name)
        if path.is_symlink() or (path.exists() and not self._ours(path)):
            raise Refusal(
                codes.NOT_OURS.code,
                f"{path} was not written by this agent",
                hints=(f"move it away: mv {path} {path}.old",),
            )
        wanted = text(unit, self._units, self._owner, body)
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if path.read_text("utf-8") == wanted:
                return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failed(f"cannot make {path.parent}: {error.strerror}") from error
        write_atomic(path, wanted.encode())

    def has(self, name: str) -> bool:
        """Whether a unit has a drop-in of ours."""
        path = self._path(name)
        return not path.is_symlink() and path.exists() and self._ours(path)

    def remove(self, name: str) -> None:
        """Remove the drop-in of a unit, if it is ours: its owner's own words count again. Raises Failed."""
        if not self.has(name):
            return
        path = self._path(name)
        try:
            path.unlink()
        except OSError as error:
            raise Failed(f"cannot remove {path}: {error.strerror}") from error
        with contextlib.suppress(OSError):
            path.parent.rmdir()

    def tidy(self) -> bool:
        """Remove those of units that agent.toml names no more. True when one was removed."""
        named = {unit.name for unit in self._units}
        removed = False
        for path in sorted(self._folder.glob(f"*.d/{FILE}")):
            if path.parent.name.removesuffix(".d") not in named and not path.is_symlink() and self._ours(path):
                with contextlib.suppress(OSError):
                    path.unlink()
                    removed = True
                    path.parent.rmdir()  # fails, as it should, where somebody keeps more in it
        return removed

    def _path(self, name: str) -> Path:
        return self._folder / f"{check_unit(name)}.d" / FILE

    def _ours(self, path: Path) -> bool:
        try:
            return path.read_text("utf-8").partition("\n")[0] == _mark(self._owner)
        except (OSError, UnicodeDecodeError):
            return False


def _mark(owner: str) -> str:
    return f"# Written by gridops-agent for {owner}"
