"""Exit codes of every command, in one table. `gridops help exit-codes` and the reference page are printed from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OK = 0
FAILED = 1
CHANGES = 2
FINDINGS = 3
REFUSED = 4
UNPLACED = 5
INCOMPLETE = 6
USAGE = 64
UNREACHABLE = 69
BUG = 70
BUSY = 75
BAD_SETUP = 78
INTERRUPTED = 130
TERMINATED = 143


@dataclass(frozen=True, slots=True)
class Exit:
    """One row: the number, its name in JSON, what it means and what a script does about it."""

    code: int
    name: str
    meaning: str
    script: str


TABLE: tuple[Exit, ...] = (
    Exit(OK, "ok", "done; a plan was computed, changes or not", "go on"),
    Exit(FAILED, "failed", "it could not be done for an ordinary reason (file, git)", "read stderr"),
    Exit(CHANGES, "changes", "only with --detailed-exitcode: there are decisions", "go to review"),
    Exit(FINDINGS, "findings", "your files, formatting or rules say no", "fix files"),
    Exit(REFUSED, "refused", "stale, unsigned, unapproved, mode, window or limit", "plan or approve again"),
    Exit(UNPLACED, "unplaced", "planned, but at least one replica fits nowhere", "gridops explain REPLICA"),
    Exit(INCOMPLETE, "incomplete", "an apply ended with failed or skipped steps", "gridops apply PLAN --resume"),
    Exit(USAGE, "usage", "unknown flag, bad value, missing argument", "fix the call"),
    Exit(UNREACHABLE, "unreachable", "git remote, controller or agents did not answer", "retry later"),
    Exit(BUG, "bug", "unexpected exception; a report file was written", "report it"),
    Exit(BUSY, "busy", "somebody else holds it; nothing was changed", "retry"),
    Exit(BAD_SETUP, "bad config", "a daemon cannot start with this configuration", "do not restart"),
    Exit(INTERRUPTED, "interrupted", "Ctrl-C; the state is consistent", "apply --resume"),
    Exit(TERMINATED, "terminated", "SIGTERM; the state is consistent", "apply --resume"),
)
PRECEDENCE = (USAGE, BUG, UNREACHABLE, REFUSED, FINDINGS, INCOMPLETE, UNPLACED, CHANGES, OK)
"""When several apply, the first of these wins. 1 and 2 never stand for a wrong call."""


def worst(codes: Iterable[int]) -> int:
    """The one exit code of a run that met several. Codes outside the order (signals, busy, 1) beat what follows 69."""
    given = set(codes)
    if not given:
        return OK
    early = next((code for code in PRECEDENCE[:3] if code in given), None)
    if early is not None:
        return early
    others = sorted(given - set(PRECEDENCE))
    return others[0] if others else next(code for code in PRECEDENCE if code in given)


def name(code: int) -> str:
    """The name of a code in JSON documents."""
    return next((row.name for row in TABLE if row.code == code), "failed")
