"""Wakes the reconciler when branches of a local repository move, and at latest after an interval.

Called by the controller's loop. A wake is a hint and carries nothing: the pass that follows finds by itself what
changed. Losing a notification costs one interval; where the system cannot watch at all, the interval is all there is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from watchfiles import Change, awatch

from gridops.files.git import Checkout

DEBOUNCE_MS = 50
RETRY_MS = 10_000
"""How long until a folder that could not be watched is tried again."""
_FILES = frozenset({"HEAD", "packed-refs"})
_OURS = ("refs/gridops", "refs/heads/gridops")
"""What gridops writes itself: being woken by it would be a loop."""


async def hints(checkout: Checkout, stop: asyncio.Event, wake: Callable[[], None], *, retry_ms: int = RETRY_MS) -> None:
    """Call `wake` after each change of a branch or of HEAD, until `stop`."""
    places = sorted({checkout.common_dir, checkout.git_dir})
    watching = [_watch(checkout.common_dir / "refs", True, wake, retry_ms)]
    watching += [_watch(place, False, wake, retry_ms) for place in places]
    watchers = [asyncio.create_task(one) for one in watching]
    try:
        await stop.wait()
    finally:
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)


async def wakes(checkout: Checkout, *, interval_ms: int) -> AsyncIterator[None]:
    """Yield after each change of a branch or of HEAD, and at latest every `interval_ms`. Close it to stop."""
    woken, stop = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(hints(checkout, stop, woken.set, retry_ms=interval_ms))
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), interval_ms / 1000)
            woken.clear()
            yield None
    finally:
        stop.set()
        await task


def matters(path: str, root: Path, deep: bool) -> bool:
    """Whether a changed file below a git folder can mean that a branch moved."""
    if path.endswith(".lock"):
        return False
    if not deep:
        return Path(path).name in _FILES
    name = Path(path).relative_to(root.parent).as_posix() if Path(path).is_relative_to(root.parent) else path
    return not name.startswith(_OURS)


async def _watch(root: Path, deep: bool, wake: Callable[[], None], retry_ms: int) -> None:
    """Call `wake` at each change below `root`, for ever; a folder that cannot be watched is tried again."""

    def keep(change: Change, path: str) -> bool:
        return matters(path, root, deep)

    while True:
        # Not there yet, gone for a moment (a repack), or the system's limit of watches: the interval covers for it.
        with contextlib.suppress(OSError, RuntimeError):
            async for _ in awatch(root, watch_filter=keep, recursive=deep, step=DEBOUNCE_MS, debounce=4 * DEBOUNCE_MS):
                wake()
        await asyncio.sleep(retry_ms / 1000)
