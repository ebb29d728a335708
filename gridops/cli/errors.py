"""How errors reach people and machines: one style on stderr, one JSON document on stdout, one exit code.

Called by `cli.main` for whatever a command raises. A user never sees a traceback: an unexpected exception goes to a
report file from which values that may be secret are taken out.
"""

from __future__ import annotations

import platform
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from gridops import __version__
from gridops.base.errors import ConfigError, GridopsError, Refusal
from gridops.cli import exits
from gridops.cli.output import Context, dump_json, dump_line
from gridops.disk.reports import write_report
from gridops.files.diagnose import Problem
from gridops.files.report import diagnostic

_SECRETS = re.compile(
    r"gj1\.[A-Za-z0-9._-]+"
    r"|(?<=://)[^/@\s]+(?=@)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----"
    r"|(?i:(?<=bearer )[A-Za-z0-9._~+/=-]+)"
    r"|\bhf_[A-Za-z0-9]{8,}",
    re.DOTALL,
)
_TELLING = re.compile(r"(?i)token|secret|passphrase|password|key")


def report(error: GridopsError, context: Context) -> int:
    """Tell about an expected error; returns the exit code."""
    lines = text_lines(error, context)
    print(*lines, sep="\n", file=sys.stderr, flush=True)
    _answer(error.exit_code, document(error, context), context)
    return error.exit_code


def report_bug(fault: BaseException, args: Sequence[str], context: Context) -> int:
    """Write the report file of an unexpected exception and say where it is; returns 70."""
    text = bug_text(fault, args)
    path = write_report("gridops", text)
    where = f"a report was written: {path}" if path is not None else "no report could be written; it follows"
    lines = [f"error: gridops has a fault: {type(fault).__name__}", f"  hint: {where}"]
    print(*lines, sep="\n", file=sys.stderr, flush=True)
    if path is None:
        print(text, file=sys.stderr)
    body = _body(exits.BUG, context, f"unexpected {type(fault).__name__}")
    body["error"]["report"] = None if path is None else str(path)
    _answer(exits.BUG, body, context)
    return exits.BUG


def text_lines(error: GridopsError, context: Context) -> list[str]:
    """What is wrong, then evidence, then hints."""
    lines: list[str] = []
    if isinstance(error, ConfigError) and error.problems:
        lines += [*problem_lines(error, context), ""]
        return [*lines, f"error: {len(error.problems)} findings; nothing was done", *_hinted(error)]
    if isinstance(error, Refusal):
        lines += [f"refused[{error.code}]: {error.message}", *(f"  {line}" for line in error.evidence)]
    else:
        lines.append(f"error: {error.message}")
    return [*lines, *_hinted(error)]


def _hinted(error: GridopsError) -> list[str]:
    return [f"  hint: {hint}" for hint in error.hints]


def problem_lines(error: ConfigError, context: Context) -> list[str]:
    """The findings of a ConfigError as `validate` draws them."""
    from gridops.files.draw import COLOR, PLAIN, draw_all

    paint = COLOR if context.colored(sys.stderr) else PLAIN
    found = [problem for problem in error.problems if isinstance(problem, Problem)]
    return draw_all(found, width=context.width(), paint=paint).splitlines()


def document(error: GridopsError, context: Context) -> dict[str, Any]:
    """The JSON document of an error."""
    body = _body(error.exit_code, context, error.message, error.hints)
    if isinstance(error, Refusal):
        body["error"] |= {"code": error.code, "subject": error.subject, "evidence": list(error.evidence)}
    if isinstance(error, ConfigError):
        body["error"]["problems"] = [diagnostic(p) for p in error.problems if isinstance(p, Problem)]
    return body


def bug_text(fault: BaseException, args: Sequence[str]) -> str:
    """Versions, the call and where it broke. No local variables; what may be secret is replaced by `***`."""
    values = [v for v in secret_values(args) if len(v) >= 4]
    trace = "".join(traceback.format_exception(fault))
    for value in values:
        trace = trace.replace(value, "***")
    return "\n".join(
        [
            f"gridops {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"call: gridops {' '.join(redacted(args))}",
            "",
            _SECRETS.sub("***", trace),
        ]
    )


def redacted(args: Sequence[str]) -> list[str]:
    """The arguments with each value that may be secret replaced."""
    secret = set(secret_values(args))
    shown = []
    for arg in args:
        flag, equals, value = arg.partition("=")
        if arg in secret:
            shown.append("***")
        elif equals and value in secret:
            shown.append(f"{flag}=***")
        else:
            shown.append(_SECRETS.sub("***", arg))
    return shown


def secret_values(args: Sequence[str]) -> list[str]:
    """Values of arguments whose flag sounds like a secret."""
    found = []
    for at, arg in enumerate(args):
        flag, equals, value = arg.partition("=")
        if flag.startswith("-") and _TELLING.search(flag):
            if equals:
                found.append(value)
            elif at + 1 < len(args) and not args[at + 1].startswith("-"):
                found.append(args[at + 1])
    return [value for value in found if value]


def _body(code: int, context: Context, message: str, hints: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "schema": "gridops.error/1",
        "command": context.command,
        "exit_code": code,
        "reason": exits.name(code),
        "error": {"message": message, "hints": list(hints)},
    }


def _answer(code: int, body: dict[str, Any], context: Context) -> None:
    match context.on_stdout:
        case "json" | "yaml":
            sys.stdout.write(dump_json(body))
        case "jsonl":
            sys.stdout.write(dump_line({"type": "result", "exit_code": code, **body}))
        case "github":
            message = body["error"]["message"].replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
            sys.stdout.write(f"::error title=gridops {body['reason']}::{message}\n")
        case _:
            return
    sys.stdout.flush()
