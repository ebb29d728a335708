"""The exception tree, drawn once. Every error that can reach a user belongs to exactly one branch.

    GridopsError
    |- ConfigError     your files say something that cannot be meant: every problem, each with a position (exit 3)
    |- Refusal         the rules said no: a stable code, a subject and the evidence; expected, loses nothing (exit 4)
    |- EdgeError       the world said no: a disk, a socket, git; names the path, host or URL
       |- Failed       an ordinary failure (exit 1); NoRoom and DiskFault of it may pass by themselves
       |- Unreachable  somebody did not answer (exit 69)
       |- Busy         somebody else holds it; nothing was changed (exit 75)
       |- BadSetup     this daemon cannot start with its configuration (exit 78)
    Bug                a broken promise of our own code; never caught to go on (exit 70)

`Bug` stands outside `GridopsError` on purpose: `except GridopsError` must not swallow our own faults.
"""

from __future__ import annotations

from collections.abc import Sequence


class GridopsError(Exception):
    """Base of all errors that a user or the world can cause. `hints` are printed one per line after the evidence."""

    exit_code = 1

    def __init__(self, message: str, *, hints: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hints: tuple[str, ...] = tuple(hints)


class ConfigError(GridopsError):
    """Files that do not validate. `problems` holds `gridops.files.diagnose.Problem` values, most important first."""

    exit_code = 3

    def __init__(self, message: str, problems: Sequence[object] = (), *, hints: Sequence[str] = ()) -> None:
        super().__init__(message, hints=hints)
        self.problems = tuple(problems)


class Refusal(GridopsError):
    """The rules said no. `code` is stable (machine-readable); `evidence` are lines that show why."""

    exit_code = 4

    def __init__(
        self,
        code: str,
        message: str,
        *,
        subject: str = "",
        evidence: Sequence[str] = (),
        hints: Sequence[str] = (),
    ) -> None:
        super().__init__(message, hints=hints)
        self.code = code
        self.subject = subject
        self.evidence: tuple[str, ...] = tuple(evidence)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class EdgeError(GridopsError):
    """The world outside did not do what was asked."""


class Failed(EdgeError):
    """An ordinary failure of a disk, a process or git."""

    exit_code = 1


class NoRoom(Failed):
    """The file system is full. Nothing is wrong with what is there, and trying again later will help."""


class DiskFault(Failed):
    """The disk failed to read or write. What lies there may be whole, so a daemon that starts again may go on."""


class Unreachable(EdgeError):
    """A remote, a controller or an agent did not answer."""

    exit_code = 69


class Busy(EdgeError):
    """Somebody else holds what is needed; nothing was changed."""

    exit_code = 75


class BadSetup(EdgeError):
    """A daemon cannot start with this configuration; restarting it will not help."""

    exit_code = 78


class Bug(Exception):
    """A promise of our own code does not hold. Never raised for anything a user or the world can cause."""
