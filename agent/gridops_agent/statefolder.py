"""A state folder belongs to one agent at a time, and keeps copies of the root documents beside the ledger."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from gridops.base.errors import Busy
from gridops.disk.atomic import write_atomic
from gridops_agent.config import LOCK, Config

LOCK_TRIES = 5


@contextlib.contextmanager
def only_one(config: Config) -> Iterator[None]:
    """Hold the lock of a state folder. Raises Busy while another agent holds it."""
    config.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(config.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        for patience in range(LOCK_TRIES, -1, -1):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if not patience:
                    hint = "end it where it runs: Ctrl-C, or stop its service (`systemctl stop gridops-agent`)"
                    raise Busy(f"an agent runs on {config.state} already", hints=(hint,)) from error
                time.sleep(0.1)  # `status` holds it for a moment while it looks
        yield
    finally:
        os.close(handle)


def is_running(config: Config) -> bool:
    """Another agent holds the state folder now."""
    try:
        with only_one(config):
            return False
    except Busy:
        return True


def is_held(folder: Path) -> bool:
    """Whether an agent, whoever it belongs to, holds this state folder now. Waits for nobody and creates nothing."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def spare_roots(config: Config) -> tuple[str, ...]:
    """The copies of the root documents, in order."""
    try:
        files = sorted(config.roots.glob("*.json"), key=lambda f: int(f.stem))
        return tuple(file.read_text("utf-8") for file in files)
    except (OSError, ValueError):
        return ()


def keep_roots(config: Config, roots: tuple[str, ...]) -> None:
    """Copy the root documents beside the ledger, so that a damaged ledger leaves the host its trust."""
    config.roots.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number, text in enumerate(roots, start=1):
        file: Path = config.roots / f"{number}.json"
        if not _holds(file, text.encode()):
            write_atomic(file, text.encode())


def _holds(file: Path, content: bytes) -> bool:
    """A copy that has rotted is worth nothing on the day on which it is needed."""
    try:
        return file.read_bytes() == content
    except OSError:
        return False
