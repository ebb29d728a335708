"""What a controller does whose disk is full: it ends, says so to whoever asks, and begins anew when there is room.

`gridops watch` runs everything through `lasting`. The controller that met the full disk is closed first, because its
memory may be ahead of its journal; what waits here knows nothing, sends nothing and takes nothing in. Hosts hear a
refusal and keep what they have to say. A service manager that restarts at once would give up after a few times; this
does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gridops.base.codes.control import NOT_READY
from gridops.base.errors import BadSetup, EdgeError, NoRoom
from gridops.base.units import render_bytes
from gridops.controller.http import Answer, Listen, opened
from gridops.controller.shell import Shell
from gridops.controller.statedir import StateDir
from gridops.controller.writer import Lost
from gridops.store.database import LITTLE_BYTES, free_bytes

log = logging.getLogger("gridops.watch")

LOOK_S = 3.0
"""How often it is tried whether there is room."""
SAY_S = 600.0
"""How often it is said again that there is none."""


def lasting(begin: Callable[[], Shell], state: StateDir, listen: Listen | None) -> int:
    """Run a controller until it is told to stop, through every time that its disk is full. Without `listen`: once."""
    while True:
        try:
            shell = begin()
            try:
                return asyncio.run(shell.run())
            finally:
                shell.controller.close()
        except EdgeError as error:
            if listen is None or not is_full(error):
                raise
            log.error("%s", error.message)
        code = asyncio.run(waiting(state, listen))
        if code is not None:
            return code


def is_full(error: BaseException) -> bool:
    """Whether room alone ends what happened."""
    return isinstance(error, NoRoom) or (isinstance(error, Lost) and isinstance(error.__cause__, NoRoom))


async def waiting(state: StateDir, listen: Listen) -> int | None:
    """Answer everybody with what is full until there is room (None), or until a signal (its exit code)."""
    stop, codes = asyncio.Event(), list[int]()
    loop = asyncio.get_running_loop()

    def end(code: int) -> None:
        codes.append(code)
        stop.set()

    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        loop.add_signal_handler(number, end, code)
    serving = asyncio.create_task(_answering(state, listen, stop))
    said_s = 0.0
    try:
        while not stop.is_set():
            if time.monotonic() - said_s >= SAY_S or not said_s:
                said_s = time.monotonic()
                log.error("%s; %s", *sentences(state.path), extra={"event": "full"})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_S)
            if not stop.is_set() and await asyncio.to_thread(has_room, state.path):
                free = render_bytes(free_bytes(state.path))
                log.info("there is room again, %s: starting anew from the journal", free, extra={"event": "room"})
                break
    finally:
        stop.set()
        await serving
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    return codes[0] if codes else None


def has_room(folder: Path) -> bool:
    """Whether it can be written there again, by writing: a quota shows in no number."""
    if free_bytes(folder) < LITTLE_BYTES:
        return False
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(LITTLE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError:
        return False
    return True


def sentences(folder: Path) -> tuple[str, str]:
    """What is full, and what to do."""
    what = (
        f"the controller's disk is full: {folder} has {free_bytes(folder)} bytes free. Nothing is planned or sent "
        "until there is room; engines go on, and nothing that was acknowledged is lost"
    )
    return what, f"free at least {render_bytes(LITTLE_BYTES)} there (see: df -h {folder}); it then goes on by itself"


async def _answering(state: StateDir, listen: Listen, stop: asyncio.Event) -> None:
    """The listener meanwhile. Where it cannot be opened there is none; the wait goes on."""

    async def no(request: Request) -> Response:
        message, hint = sentences(state.path)
        error = {"code": NOT_READY.code, "message": message, "subject": "", "evidence": [], "hints": [hint]}
        return Answer({"error": {**error, "exit_code": 69}}, status_code=503)

    app = Starlette(routes=[Route("/{path:path}", no, methods=["GET", "POST"])])
    try:
        door = opened(app, listen, state)
    except BadSetup as error:
        log.warning("nobody can be told: %s", error.message)
        return
    serving = asyncio.create_task(door.run_until_stopped())
    await stop.wait()
    door.should_exit = True
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(serving, 5.0)
