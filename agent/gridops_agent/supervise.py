"""Starts programs: engines, each in a session of its own, and harmless questions. No other module starts a process.

Called by the keeper of child processes, and by whoever asks a tool of the system (`ask`). Decides nothing about when a
process should run, signals nobody and remembers nobody. An engine never dies with the agent (no PDEATHSIG).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gridops.base import limits
from gridops.base.errors import Failed

KEPT = ("LD_LIBRARY_PATH", "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "DYLD_LIBRARY_PATH")
_SESSION = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "XDG_CONFIG_HOME")
_DESKTOP = ("DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY")
ASKED = (*KEPT, *_SESSION, *_DESKTOP)
"""What a tool of the system needs besides to answer at all."""
HEARD_ENOUGH_S = 1.0
"""How long a program that was listened to may take to end."""

Child = subprocess.Popen[bytes]
"""A process that this run of the agent started: only it can be reaped, and only of it an exit code is known."""


def begin(argv: tuple[str, ...], environment: Mapping[str, str], folder: Path, log: Path) -> Child:
    """Start a program in its own session and process group, its output appended to the log. Raises Failed."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            env=kept | dict(environment),
            cwd=folder,
            start_new_session=True,
        )
    except OSError as error:
        raise Failed(f"{argv[0]} cannot be started: {error.strerror}") from error
    finally:
        os.close(written)


@dataclass(frozen=True, slots=True)
class Ran:
    """How a short program ended, and what it said."""

    code: int
    out: str
    err: str


def run(argv: tuple[str, ...], patience: float = 30.0, also: tuple[str, ...] = ()) -> Ran:
    """Run a short program of the system to its end. Raises Failed when it cannot be run or does not end.

    `also`: beginnings of names of variables that it is given besides (an installer's own configuration).
    """
    environment = {name: text for name, text in os.environ.items() if name in ASKED or (also and name.startswith(also))}
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=patience, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{argv[0]} does not answer {argv[-1]}: {error}") from error
    return Ran(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


def ask(argv: tuple[str, ...], patience: float = 30.0) -> str:
    """What a program says when it is asked a harmless question (`--help`). Raises Failed when it cannot be run."""
    answer = run(argv, patience)
    return answer.out + answer.err


def trim_log(path: Path, limit: int = limits.ENGINE_LOG_BYTES) -> None:
    """Keep the newer half of a log that has grown past its bound. The engine goes on at its new end (O_APPEND)."""
    try:
        if path.stat().st_size <= limit:
            return
        with path.open("r+b") as log:
            log.seek(-(limit // 2), os.SEEK_END)
            rest = log.read()
            log.truncate(0)
        older = path.with_name(path.name + ".1")
        older.unlink(missing_ok=True)
        handle = os.open(older, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as kept:
            kept.write(rest)
    except OSError:
        return


def tail(path: Path, lines: int = 6, reach: int = 16_384) -> tuple[str, ...]:
    """The last lines of a log, for the detail of a failure."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - reach))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(line.strip()[:300] for line in text.splitlines() if line.strip())[-lines:]


async def listen(argv: tuple[str, ...]) -> AsyncGenerator[str]:
    """What a program of the system says, line by line, until it ends or the caller has heard enough. Raises Failed."""
    environment = {name: os.environ[name] for name in ASKED if name in os.environ}
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        child = await asyncio.create_subprocess_exec(
            *argv, stdin=none, stdout=pipe, stderr=none, env=environment, start_new_session=True
        )
    except OSError as error:
        raise Failed(f"{argv[0]} cannot be started: {error.strerror}") from error
    assert child.stdout is not None
    try:
        while line := await child.stdout.readline():
            yield line.decode("utf-8", "replace")
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)  # its own session: whatever it has started goes with it
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.wait(), HEARD_ENOUGH_S)
