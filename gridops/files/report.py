"""Problems for machines: one JSON document, or annotations of a pull request. Called by `gridops validate`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gridops.base.codes import registry
from gridops.base.limits import ANNOTATIONS, SNIPPET_CHARS
from gridops.files.diagnose import Fix, Place, Problem

SCHEMA = "gridops.validate/1"


def document(problems: Iterable[Problem], files: int) -> dict[str, Any]:
    """All findings as one JSON value; within version 1 only additions."""
    every = tuple(problems)
    errors = sum(p.severity == "error" for p in every)
    return {
        "schema": SCHEMA,
        "valid": errors == 0,
        "files": files,
        "error_count": errors,
        "warning_count": len(every) - errors,
        "diagnostics": [diagnostic(p) for p in every],
    }


def diagnostic(problem: Problem) -> dict[str, Any]:
    """One finding."""
    return {
        "code": problem.code,
        "severity": problem.severity,
        "message": problem.message,
        "hint": problem.hint,
        "notes": list(problem.notes),
        **_place(problem.place),
        "related": [{"message": r.label, **_place(r.place)} for r in problem.related],
        "fix": _fix(problem.fix),
        "remedy": registry()[problem.code].remedy,
        "help": f"gridops rule {problem.code}",
    }


def _place(place: Place) -> dict[str, Any]:
    return {
        "file": place.file,
        "range": {
            "start": {"line": place.line, "column": place.column},
            "end": {"line": place.line, "column": place.column + place.length},
        },
        "snippet": [{"line": line.number, "text": line.text[:SNIPPET_CHARS]} for line in place.lines],
    }


def _fix(fix: Fix | None) -> dict[str, Any] | None:
    if fix is None:
        return None
    edits = [
        {
            "start": {"line": e.line, "column": e.column},
            "end": {"line": e.end_line, "column": e.end_column},
            "text": e.text,
        }
        for e in fix.edits
    ]
    return {"title": fix.title, "safe": fix.safe, "edits": edits}


def annotate(problems: Iterable[Problem]) -> list[str]:
    """Workflow commands that put findings on the lines of a pull request; errors first, then a count of the rest."""
    every = sorted(problems, key=lambda p: p.severity != "error")
    lines = [_annotation(p) for p in every[:ANNOTATIONS]]
    if len(every) > ANNOTATIONS:
        lines.append(f"::notice title=gridops::{len(every) - ANNOTATIONS} more findings in the log")
    return lines


def _annotation(problem: Problem) -> str:
    general = () if problem.hint or problem.fix is not None else (registry()[problem.code].remedy,)
    parts = (problem.message, problem.hint, *problem.notes, *general)
    text = "\n".join(part for part in parts if part)
    where = f"file={_property(problem.file)},line={problem.line},col={problem.column}"
    return f"::{problem.severity} {where},title={problem.code}::{_text(text)}"


def _text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _text(text).replace(":", "%3A").replace(",", "%2C")
