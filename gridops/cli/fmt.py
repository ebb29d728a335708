"""`gridops fmt`: lay files out the one canonical way. Comments stay; a file whose text is not YAML is not touched.

With `--check` or `--diff` nothing is written. `-` reads standard input and writes standard output.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gridops.base.errors import Failed
from gridops.base.limits import YAML_FILE_BYTES
from gridops.cli import exits
from gridops.cli.output import Context, Usage, context_of, dump_json
from gridops.cli.validate import locate
from gridops.disk.atomic import write_atomic
from gridops.files import draw
from gridops.files.diagnose import Problem
from gridops.files.fmt import Formatted, format_text
from gridops.files.tree import WorkingTree

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Done:
    """One file: what it was, what it becomes."""

    path: str
    before: str
    made: Formatted

    @property
    def changed(self) -> bool:
        return self.before != self.made.text and not self.made.problems

    @property
    def lines(self) -> int:
        """How many lines of the new text are new."""
        old, new = self.before.splitlines(), self.made.text.splitlines()
        opcodes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in opcodes if tag != "equal")


def register(app: typer.Typer) -> None:
    app.command("fmt")(run)


def run(
    ctx: typer.Context,
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH]...", help="A repository, files, or -.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 3 when a file needs formatting.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing; show what would change.")] = False,
    upgrade: Annotated[bool, typer.Option("--upgrade", help="Also carry files to the newest apiVersion.")] = False,
) -> int:
    """Lay files out the one canonical way; comments are kept.

    Exit codes: 0 done, 3 a file needs formatting (with --check or --diff) or cannot be read as YAML.

    \b
    Examples:
      gridops fmt
      gridops fmt --check
      gridops fmt - < draft.yaml
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    given = paths or []
    if STDIN in given:
        if len(given) > 1:
            raise Usage("`-` stands alone")
        return _stdin(context, check=check, diff=diff)
    root, only = locate(context, [Path(p) for p in given])
    files = [Done(path, before, made) for path, before, made in _read(root, only)]
    if not (check or diff):
        for done in files:
            if done.changed:
                target = root / done.path
                write_atomic(target, done.made.text.encode(), mode=target.stat().st_mode & 0o777)
    code = _code(files, dry=check or diff)
    _answer(context, files, code, check=check, diff=diff)
    if upgrade:
        context.say("gridops/v1 is the newest apiVersion: nothing to upgrade")
    return code


def _stdin(context: Context, *, check: bool, diff: bool) -> int:
    raw = sys.stdin.buffer.read(YAML_FILE_BYTES + 1)
    done = Done("<stdin>", raw.decode("utf-8", errors="replace"), format_text("<stdin>", raw))
    if done.made.problems:
        context.say(_drawn(context, done.made.problems).rstrip("\n"))
        return exits.FINDINGS
    if diff:
        context.emit({"text": lambda: "".join(_diff(done))})
    elif not check:
        context.emit({"text": lambda: done.made.text})
    return exits.FINDINGS if done.changed and (check or diff) else exits.OK


def _read(root: Path, only: frozenset[str] | None) -> Iterator[tuple[str, str, Formatted]]:
    tree = WorkingTree(root)
    known = [p for p in tree.paths() if p.endswith(".yaml") and not p.startswith("policies/trust/")]
    for path in sorted(only) if only is not None else known:
        try:
            raw = tree.read(path)
        except OSError as failure:
            raise Failed(f"{path}: cannot be read: {failure.strerror or failure}") from failure
        yield path, raw.decode("utf-8", errors="replace"), format_text(path, raw)


def _code(files: list[Done], *, dry: bool) -> int:
    unread = any(done.made.problems for done in files)
    return exits.FINDINGS if unread or (dry and any(done.changed for done in files)) else exits.OK


def _answer(context: Context, files: list[Done], code: int, *, check: bool, diff: bool) -> None:
    changed = [done for done in files if done.changed]
    unread = [problem for done in files for problem in done.made.problems]
    verb = "would reformat" if check or diff else "reformatted"

    def text() -> str:
        if diff:
            return "".join(line for done in changed for line in _diff(done))
        return "".join(f"{verb} {done.path} ({_count(done.lines, 'line')})\n" for done in changed)

    document: dict[str, Any] = {
        "schema": "gridops.fmt/1",
        "exit_code": code,
        "files": len(files),
        "written": not (check or diff),
        "changed": [{"file": done.path, "lines": done.lines} for done in changed],
        "kept": [{"file": done.path, "why": done.made.kept} for done in files if done.made.kept],
        "unread": [str(problem) for problem in unread],
    }
    context.emit({"text": text, "json": lambda: dump_json(document)})
    if unread:
        context.say(_drawn(context, tuple(unread)).rstrip("\n"))
    for done in files:
        if done.made.kept:
            context.say(f"{done.path}: layout kept: {done.made.kept}")
    context.say(_summary(len(changed), len(files), dry=check or diff))


def _summary(changed: int, files: int, *, dry: bool) -> str:
    fine = files - changed
    one = fine == 1
    if dry and changed:
        needs = "needs" if changed == 1 else "need"
        return f"{_count(changed, 'file')} {needs} formatting, {fine} {'is' if one else 'are'} fine.   Run: gridops fmt"
    if changed:
        return f"{_count(changed, 'file')} reformatted, {fine} {'was' if one else 'were'} fine."
    return f"{_count(files, 'file')}, all in canonical layout."


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _drawn(context: Context, problems: tuple[Problem, ...]) -> str:
    paint = draw.COLOR if context.colored(sys.stderr) else draw.PLAIN
    return draw.draw_all(problems, width=context.width(), paint=paint)


def _diff(done: Done) -> Iterator[str]:
    """Hunks headed by the place in the file, as a person would cite it."""
    old, new = done.before.splitlines(), done.made.text.splitlines()
    for line in difflib.unified_diff(old, new, n=1, lineterm=""):
        if line.startswith("@@"):
            first = line.split()[1].lstrip("-").split(",")[0]
            yield f"@@ {done.path}:{first} @@\n"
        elif not line.startswith(("---", "+++")):
            yield f"{line}\n"
