"""Faults of our own that the loop outlives: what was being done, its report file, and when it is tried again.

The shell asks it before a piece of work and tells it how the work ended; the views show what stands. A fault that
stays is tried less and less often, or at once when a new commit may have ended it. It must never keep what a fault's
words may spread: secrets are blotted out.
"""

from __future__ import annotations

import logging
import platform
import traceback
from dataclasses import dataclass
from pathlib import Path

from gridops import __version__
from gridops.base.errors import Failed
from gridops.base.units import render_instant
from gridops.disk.atomic import write_atomic
from gridops.files.secrets import masked

log = logging.getLogger("gridops.fault")

REPORTS = "reports"
FIRST_AGAIN_MS = 5_000
LAST_AGAIN_MS = 300_000
REPORT_CHARS = 200_000


@dataclass(frozen=True, slots=True)
class Fault:
    """One piece of work that ends by a fault of ours each time it is tried."""

    text: str
    since_ms: int
    again_mono_ms: int
    wait_ms: int
    about: object
    """What it was about, such as a commit; with something new it is tried at once."""


class Faults:
    """The faults that stand now, by what was being done. There are as many as pieces of work: a few per scope."""

    def __init__(self, state: Path) -> None:
        self._folder = state / REPORTS
        self._standing: dict[str, Fault] = {}

    def standing(self) -> tuple[tuple[str, Fault], ...]:
        return tuple(sorted(self._standing.items()))

    def waits(self, work: str, about: object, mono_ms: int) -> bool:
        """Whether this work is better left for a while."""
        found = self._standing.get(work)
        return found is not None and found.about == about and mono_ms < found.again_mono_ms

    def over(self, work: str) -> None:
        """The work was done: its fault, if it had one, is a thing of the past."""
        if self._standing.pop(work, None) is not None:
            log.info("%s works again", work)

    def met(self, work: str, error: Exception, about: object, at: tuple[int, int]) -> str:
        """Keep a fault, write its report, say it; the sentence for people. `at`: controller time, monotonic time."""
        now_ms, mono_ms = at
        before = self._standing.get(work)
        same = before is not None and before.about == about
        wait_ms = min(before.wait_ms * 2, LAST_AGAIN_MS) if before is not None and same else FIRST_AGAIN_MS
        report = self._report(work, error, now_ms)
        text = f"{work} met a fault of gridops ({type(error).__name__}); what was in force stays; {report}"
        since_ms = before.since_ms if before is not None else now_ms
        self._standing[work] = Fault(text, since_ms, mono_ms + wait_ms, wait_ms, about)
        if before is None or before.text != text:
            log.error("%s", text)
        return text

    def _report(self, work: str, error: Exception, now_ms: int) -> str:
        """One file for each piece of work, holding its newest fault: a fault that repeats fills no disk."""
        name = "".join(c if c.isalnum() else "-" for c in work)
        path = self._folder / f"fault-{name}.txt"
        trace = "".join(traceback.format_exception(error))
        text = (
            f"gridops {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
            f"{render_instant(now_ms)} {work}\n\n{masked(trace[-REPORT_CHARS:])}"
        )
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(path, text.encode("utf-8", "backslashreplace"), 0o600)
        except (OSError, Failed):
            log.error("no report could be written to %s; it follows", path, exc_info=error)
            return "no report could be written, the log has it"
        return f"report: {path}"
