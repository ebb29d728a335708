"""The agent's own log. The journal bounds it under systemd; elsewhere it also goes into bounded files.

Called by `run`. The files lie in the state folder and can be read by their owner alone. A disk that is full costs log
lines and nothing else.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
from pathlib import Path

from gridops.base import limits

FORM = "%(asctime)s %(levelname)s %(message)s"
NAME = "agent.log"


def journalled() -> bool:
    """systemd takes what is written to stderr."""
    return bool(os.environ.get("JOURNAL_STREAM"))


def keep_log(folder: Path, bound: int = limits.AGENT_LOG_BYTES) -> logging.Handler | None:
    """Write the agent's log into `folder` as well; None where the journal has it, or the folder cannot be written."""
    if journalled():
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = _Quiet(folder / NAME, maxBytes=bound, backupCount=limits.AGENT_LOG_FILES, encoding="utf-8")
    except OSError:
        return None
    handler.setFormatter(logging.Formatter(FORM))
    logging.getLogger("gridops_agent").addHandler(handler)
    return handler


class _Quiet(logging.handlers.RotatingFileHandler):
    """Files of mode 0600; a line that cannot be written is lost without a word on stderr for each."""

    def _open(self):  # type: ignore[no-untyped-def]
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        return os.fdopen(handle, "a", encoding=self.encoding, errors="backslashreplace")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is the library's
        return
