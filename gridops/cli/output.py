"""Where answers go: the global flags of one call, and the two streams. stdout is the answer, stderr is talk.

Every command takes its `Context` by `context_of(ctx)` and prints through it: `emit` for the answer in the formats
asked for, `say` for everything else. Nothing here knows what is printed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from gridops.base.errors import Failed, GridopsError
from gridops.base.ids import ScopeName

FORMATS = ("text", "wide", "json", "jsonl", "yaml", "markdown", "github")
WIDTH_DEFAULT = 80
WIDTH_MIN = 40


class Usage(GridopsError):
    """The call itself is wrong: an unknown flag, a bad value, a question nobody can answer (exit 64)."""

    exit_code = 64


class ReaderGone(BaseException):
    """Whoever read our stdout went away (`| head`): the call ends quietly. No Exception, so that nobody retries."""


@dataclass(frozen=True, slots=True)
class Output:
    """One `-o FORMAT[=FILE]`; no file is stdout."""

    form: str
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """The global flags of one call. Reach it by `context_of(ctx)`."""

    directory: Path = Path()
    scopes: tuple[ScopeName, ...] = ()
    """Empty: all."""
    outputs: tuple[Output, ...] = (Output("text"),)
    color: str = "auto"
    ascii: bool = False
    no_input: bool = False
    verbosity: int = 0
    """-1 quiet, 0 normal, 1 and 2 more."""
    timeout_ms: int | None = None
    command: str = ""

    @property
    def on_stdout(self) -> str | None:
        """The format that stdout gets; None when every output goes to a file."""
        return next((o.form for o in self.outputs if o.file is None), None)

    @property
    def machine(self) -> bool:
        """Stdout is for a machine, so nothing else may stand there."""
        return self.on_stdout not in (None, "text", "wide")

    def wants(self, scope: ScopeName) -> bool:
        return not self.scopes or scope in self.scopes

    def colored(self, stream: TextIO | None = None) -> bool:
        """Whether escape codes may be written to a stream at all."""
        target = stream or sys.stdout
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return target.isatty() and os.environ.get("TERM") != "dumb"

    def utf8(self) -> bool:
        """Signs beyond ASCII only where somebody looks at a terminal that speaks them."""
        return not self.ascii and sys.stdout.isatty() and (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"

    def width(self) -> int:
        """Columns of the answer: COLUMNS, else the terminal, else 80."""
        given = os.environ.get("COLUMNS", "")
        if given.isdigit() and int(given) > 0:
            return max(WIDTH_MIN, int(given))
        if sys.stdout.isatty():
            return max(WIDTH_MIN, os.get_terminal_size(sys.stdout.fileno()).columns)
        return WIDTH_DEFAULT

    def columns(self) -> int | None:
        """Columns that a table may use: a terminal's. A pipe has no width, and nothing is dropped for it."""
        return self.width() if sys.stdout.isatty() and self.on_stdout == "text" else None

    def talk_columns(self) -> int | None:
        """Columns of talk: those of the terminal that shows it."""
        return max(WIDTH_MIN, os.get_terminal_size(sys.stderr.fileno()).columns) if sys.stderr.isatty() else None

    def say(self, *lines: str, level: int = 0) -> None:
        """Talk on stderr: progress, hints, what was not done. `level` 0 is hidden by -q, 1 is shown by -v."""
        if self.verbosity >= level and not (level == 0 and self.verbosity < 0):
            print(*lines, sep="\n", file=sys.stderr, flush=True)

    def emit(self, forms: Mapping[str, Callable[[], str]]) -> None:
        """Write the answer in every format asked for. `forms` maps the formats this command speaks to their text."""
        self.check(tuple(forms))
        for output in self.outputs:
            form = "text" if output.form == "wide" and "wide" not in forms else output.form
            text = forms[form]()
            if text and not text.endswith("\n"):
                text += "\n"
            if output.file is None:
                try:
                    sys.stdout.write(text)
                    sys.stdout.flush()
                except BrokenPipeError as error:
                    raise ReaderGone from error
            else:
                write_file(output.file, text)

    def check(self, speaks: tuple[str, ...]) -> None:
        """Refuse formats that a command does not speak, before it does any work. Raises Usage."""
        known = (*speaks, *(("wide",) if "text" in speaks else ()))
        for output in self.outputs:
            if output.form not in known:
                raise Usage(f"`{self.command}` has no output `{output.form}`", hints=(f"it has: {', '.join(known)}",))
        if sum(o.file is None for o in self.outputs) > 1:
            raise Usage("only one output can go to stdout", hints=("give the others a file: -o json=plan.json",))

    def ask(self, question: str, flag: str) -> str:
        """Ask a person at a terminal. Raises Usage, naming the flag that answers it, where nobody can be asked."""
        if self.no_input or not sys.stdin.isatty():
            raise Usage(f"{question}: nobody can be asked here", hints=(f"pass {flag}",))
        print(f"{question}:", end=" ", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if not answer:
            raise Usage(f"{question}: no answer", hints=(f"pass {flag}",))
        return answer.strip()


def context_of(ctx: Any) -> Context:
    """The context of a typer call (`typer.Context`)."""
    return ctx.obj if isinstance(ctx.obj, Context) else Context()


def dump_json(document: Any) -> str:
    """A JSON document as people can still read it: indented, keys in order of meaning, text unescaped."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def dump_line(document: Any) -> str:
    """One line of a JSON Lines stream."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n"


def write_file(path: Path, text: str) -> None:
    try:
        # As on stdout: the name of a file may hold bytes that are no text.
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise Failed(f"{path}: cannot be written: {error.strerror}") from error
