"""What the doctor finds: one line for each thing that was looked at, good, doubtful or bad, with what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

SCHEMA = "gridops.agent-doctor/1"


class Level(StrEnum):
    """How good it is."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    subject: str
    words: str
    hint: str = ""


def ok(subject: str, words: str) -> Finding:
    return Finding(Level.OK, subject, words)


def warn(subject: str, words: str, hint: str = "") -> Finding:
    return Finding(Level.WARN, subject, words, hint)


def bad(subject: str, words: str, hint: str = "") -> Finding:
    return Finding(Level.BAD, subject, words, hint)


def is_bad(findings: Iterable[Finding]) -> bool:
    return any(found.level is Level.BAD for found in findings)


def document(host: str, findings: Iterable[Finding]) -> dict[str, Any]:
    """For programs. Fields are only ever added."""
    rows = list(findings)
    counts = {level.value: sum(1 for f in rows if f.level is level) for level in Level}
    checks = [{"level": f.level.value, "subject": f.subject, "words": f.words, "hint": f.hint} for f in rows]
    return {"schema": SCHEMA, "host": host, "healthy": not is_bad(rows), "counts": counts, "checks": checks}


def render(findings: Iterable[Finding]) -> str:
    """For people."""
    lines = []
    for found in findings:
        lines.append(f"{found.level.value:<5} {found.subject:<11} {found.words}")
        if found.hint:
            lines.append(f"{'':<18}{found.hint}")
    return "\n".join(lines) + "\n"
