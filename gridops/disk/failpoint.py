"""Failpoints: moments at which a process can be told to fail, so that every durable step can be stopped in a test.

`GRIDOPS_FAILPOINT=name:nth:how` arms one point of a process: `kill` ends it before the step, `killed` after it, `eio`
and `enospc` fail the step before anything of it is done, `unknown` does it and says that it failed.
`GRIDOPS_FAILPOINT=list:FILE` only writes down which points are passed, one name a line. Called around each write that
a promise rests on, by `disk`, `store` and the agent's ledger. Unset, a point costs one comparison and does nothing.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from gridops.base.errors import BadSetup

log = logging.getLogger("gridops.failpoint")

NAME = "GRIDOPS_FAILPOINT"
HOWS = ("kill", "killed", "eio", "enospc", "unknown")
_NUMBERS = {"eio": errno.EIO, "enospc": errno.ENOSPC, "unknown": errno.EIO}
_FORM = re.compile(r"([A-Za-z0-9_.-]{1,120}):([1-9][0-9]{0,5}):([a-z]{1,10})")
_LIST = "list:"


def broken_file(number: int) -> Exception:
    """What a file system says when a step fails."""
    return OSError(number, os.strerror(number))


@dataclass(slots=True)
class _Armed:
    """What this process was told. `seen` counts the passes of the one point."""

    name: str = ""
    nth: int = 0
    how: str = ""
    listing: int | None = None
    seen: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def passes(self, name: str) -> bool:
        """Note that a point is passed; whether this is the time to fail."""
        if self.listing is not None:
            os.write(self.listing, f"{name}\n".encode())
            return False
        if name != self.name:
            return False
        with self.lock:
            self.seen += 1
            return self.seen == self.nth


class _Off:
    """No failpoint: the step is taken as it is."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


class _Point:
    """One pass of one point, in a process in which something is armed."""

    def __init__(self, armed: _Armed, name: str, broken: Callable[[int], Exception]) -> None:
        self._how = armed.how if armed.passes(name) else ""
        self._broken = broken
        if self._how:
            log.warning("%s fails now on purpose, by %s: %s", name, NAME, self._how)

    def __enter__(self) -> None:
        if self._how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._how in ("eio", "enospc"):
            raise self._broken(_NUMBERS[self._how])

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None and self._how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind is None and self._how == "unknown":
            raise self._broken(_NUMBERS[self._how])


@dataclass(slots=True)
class _Process:
    """What holds for this process."""

    unread: bool = True
    armed: _Armed | None = None


_OFF = _Off()
_HERE = _Process()


def point(
    name: str, of: str = "", broken: Callable[[int], Exception] = broken_file
) -> contextlib.AbstractContextManager[None]:
    """Take a step inside it. `of`: which file, where steps of one name differ by that. `broken`: the error to raise."""
    if _HERE.unread:
        arm(os.environ.get(NAME))
    if _HERE.armed is None:
        return _OFF
    return _Point(_HERE.armed, f"{name}.{of}" if of else name, broken)


def arm(text: str | None) -> None:
    """Arm what a text says; None or nothing disarms. Raises BadSetup for a text that says nothing sensible."""
    _HERE.unread, _HERE.armed = False, None
    if not text:
        return
    if text.startswith(_LIST):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        _HERE.armed = _Armed(listing=os.open(text.removeprefix(_LIST), flags, 0o600))
        return
    match = _FORM.fullmatch(text)
    if match is None or match.group(3) not in HOWS:
        _HERE.unread = True  # whoever goes on all the same hears it again
        raise BadSetup(
            f"{NAME}={text} is not `name:nth:how`",
            hints=(f"how is one of {', '.join(HOWS)}", f"or unset it: only tests need it: unset {NAME}"),
        )
    _HERE.armed = _Armed(match.group(1), int(match.group(2)), match.group(3))
    log.warning("%s is set: this process will fail on purpose at %s", NAME, text)
