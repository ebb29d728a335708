"""How errors reach people and machines: what is wrong, evidence, hints; one exit code; never a traceback.

An unexpected exception goes to a report file (0600) that names where it broke. Nothing in it is a value that could be
secret: join tokens, keys and bearer words are struck out.
"""

from __future__ import annotations

import json
import platform
import re
import sys
import traceback
from collections.abc import Sequence

from gridops import __version__
from gridops.base.errors import GridopsError, Refusal
from gridops.disk.reports import write_report

USAGE, BUG, INTERRUPTED = 64, 70, 130
_SECRETS = re.compile(
    r"gj1\.[A-Za-z0-9._-]+|gk1_[A-Za-z0-9_-]+|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----"
    r"|(?i:(?<=bearer )[A-Za-z0-9._~+/=-]+)",
    re.DOTALL,
)


class Usage(GridopsError):
    """The call itself is wrong."""

    exit_code = USAGE


def report(error: GridopsError, as_json: bool) -> int:
    """Tell about an expected error; returns the exit code."""
    refused = isinstance(error, Refusal)
    first = f"refused[{error.code}]: {error.message}" if isinstance(error, Refusal) else f"error: {error.message}"
    evidence = error.evidence if isinstance(error, Refusal) else ()
    lines = [first, *(f"  {line}" for line in evidence), *(f"  hint: {hint}" for hint in error.hints)]
    print(struck("\n".join(lines)), file=sys.stderr, flush=True)
    if as_json:
        body = {"message": error.message, "hints": list(error.hints), "evidence": list(evidence)}
        if refused and isinstance(error, Refusal):
            body["code"] = error.code
        print(struck(json.dumps({"schema": "gridops.error/1", "exit_code": error.exit_code, "error": body})))
    return error.exit_code


def report_bug(fault: BaseException, args: Sequence[str]) -> int:
    """Write the report file of an unexpected exception and say where it is; returns 70."""
    text = "\n".join(
        (
            f"gridops-agent {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"call: gridops-agent {' '.join(args)}",
            "",
            "".join(traceback.format_exception(fault)),
        )
    )
    path = write_report("gridops-agent", struck(text))
    where = f"a report was written: {path}" if path is not None else "no report could be written"
    print(f"error: gridops-agent has a fault: {type(fault).__name__}\n  hint: {where}", file=sys.stderr, flush=True)
    return BUG


def struck(text: str) -> str:
    """The text without anything that is a secret by its form."""
    return _SECRETS.sub("***", text)
