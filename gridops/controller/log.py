"""How `watch` talks: short lines on a terminal, JSON lines otherwise. Never a secret, never a trace on a terminal.

Everything goes to stderr, because stdout is for answers.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import TextIO

from gridops.base.units import render_instant

ROOT = "gridops"


class Text(logging.Formatter):
    """`09:31:13  plan c08e11d4 default: 2 change; waits for people`."""

    def format(self, record: logging.LogRecord) -> str:
        clock = render_instant(int(record.created) * 1000)[11:19]
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return f"{clock}  {mark}{_line(record.getMessage())}"


class Lines(logging.Formatter):
    """One JSON object per line; with the stack of a fault of ours, since a log is where it belongs."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": render_instant(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name.rpartition(".")[2]),
            "text": record.getMessage(),
        }
        if record.exc_info:
            entry["fault"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def begin(stream: TextIO | None = None, verbosity: int = 0, plain: bool | None = None) -> logging.Logger:
    """Set the loggers of this process up; `plain` chooses text or JSON, else the terminal does."""
    out = sys.stderr if stream is None else stream
    text = out.isatty() if plain is None else plain
    handler = logging.StreamHandler(out)
    handler.setFormatter(Text() if text else Lines())
    log = logging.getLogger(ROOT)
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel({-1: logging.WARNING, 0: logging.INFO}.get(verbosity, logging.DEBUG))
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        other = logging.getLogger(name)
        other.handlers[:] = [handler]
        other.propagate = False
        other.setLevel(logging.WARNING)
    return log


def _line(text: str) -> str:
    """Names come from files and hosts: nothing of them may move the cursor."""
    return "".join(c if c.isprintable() else " " for c in text)
