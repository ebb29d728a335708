"""Wakes the loop when the repository may have changed. A hint only: the look that follows finds out by itself.

watchfiles tells of local commits within a moment; where it cannot watch (no inotify left, a network disk), the
interval alone does, and the log says so once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import watchfiles

log = logging.getLogger("gridops.git")

DEBOUNCE_MS = 50
LOCAL_EVERY_S = 2.0
"""How often a local branch is looked at without a hint: one `rev-parse`, a few milliseconds."""


async def hints(refs: Path, stop: asyncio.Event, wake: Callable[[], None]) -> None:
    """Call `wake` whenever something below the refs folder moves, until `stop`."""
    try:
        async for _ in watchfiles.awatch(
            refs, stop_event=stop, debounce=DEBOUNCE_MS, step=DEBOUNCE_MS, rust_timeout=500, yield_on_timeout=False,
            raise_interrupt=False, ignore_permission_denied=True,
        ):  # fmt: skip
            wake()
    except (OSError, RuntimeError) as error:
        log.warning("cannot watch %s (%s): commits are noticed every %g s", refs, error, LOCAL_EVERY_S)
