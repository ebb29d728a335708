"""`gridops validate`: every problem of every file in one run, drawn for people or written for machines.

Needs no state and no network. `--fix` writes the repairs whose meaning is certain; nothing else is ever written.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gridops.base.errors import Failed
from gridops.cli import exits
from gridops.cli.output import Context, Usage, context_of, dump_json, dump_line
from gridops.cli.standing import holds_fleet, no_fleet
from gridops.disk.atomic import write_atomic
from gridops.files import draw, report
from gridops.files.diagnose import Problem, has_errors
from gridops.files.fix import repair
from gridops.files.load import check
from gridops.files.roots import root_problems
from gridops.files.tree import WorkingTree


@dataclass(frozen=True, slots=True)
class Wish:
    """What of the findings to show, and what to do about them."""

    root: Path
    only: frozenset[str] | None
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    fix: bool
    unsafe: bool

    def shows(self, problem: Problem) -> bool:
        if self.only is not None and problem.file not in self.only:
            return False
        if self.select and not problem.code.startswith(self.select):
            return False
        # An error keeps the files from being used: hiding one would promise what `plan` then refuses.
        return not (self.ignore and problem.severity == "warning" and problem.code.startswith(self.ignore))


def register(app: typer.Typer) -> None:
    app.command("validate")(run)


def run(
    ctx: typer.Context,
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="A repository, or files of it.")
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Write the repairs marked [*].")] = False,
    unsafe: Annotated[
        bool, typer.Option("--unsafe-fixes", help="With --fix: also repairs that change meaning.")
    ] = False,
    select: Annotated[list[str] | None, typer.Option("--select", metavar="CODE", help="Only these codes.")] = None,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", metavar="CODE", help="Not these warnings.")] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Annotations for a pull request; same as -o github.")
    ] = False,
) -> int:
    """Check the files of a repository: syntax, schema, references, sense.

    Exit codes: 0 nothing keeps the files from being used, 3 something does.

    \b
    Examples:
      gridops validate
      gridops validate --fix
      gridops validate -o json fleet.d/office.yaml
    """
    context = context_of(ctx)
    context.check(("text", "json", "jsonl", "github"))
    root, only = locate(context, paths or [])
    wish = Wish(root, only, tuple(select or ()), tuple(ignore or ()), fix, unsafe)
    began = time.perf_counter()
    problems, files = _fixed(context, wish) if fix else _checked(wish)
    seconds = time.perf_counter() - began
    shown = tuple(p for p in (*root_problems(WorkingTree(root)), *problems) if wish.shows(p))
    code = exits.FINDINGS if has_errors(shown) else exits.OK
    _answer(context, shown, files, code, github=github)
    context.say(*draw.summary(shown, files, seconds))
    return code


def locate(context: Context, paths: list[Path]) -> tuple[Path, frozenset[str] | None]:
    """The repository to check and, when files were named, those files of it. Raises Failed or Usage."""
    folders = [context.directory / p for p in paths if (context.directory / p).is_dir()]
    named = [context.directory / p for p in paths if not (context.directory / p).is_dir()]
    if len(folders) > 1 or (folders and named):
        raise Usage("name one repository, or files of one")
    for path in named:
        if not path.exists():
            raise Failed(f"{path}: no such file")
    start = folders[0] if folders else named[0].parent if named else context.directory
    root = _root(start.resolve())
    if root is None:
        raise no_fleet(start)
    if not named:
        return root, None
    try:
        return root, frozenset(p.resolve().relative_to(root).as_posix() for p in named)
    except ValueError:
        raise Usage(f"the files stand in different repositories; {root} is one") from None


def _root(start: Path) -> Path | None:
    for folder in (start, *start.parents):
        if holds_fleet(folder):
            return folder
        if (folder / ".git").exists():
            return None
    return None


def _checked(wish: Wish) -> tuple[tuple[Problem, ...], int]:
    checked = check(WorkingTree(wish.root))
    return checked.problems, checked.files


def _fixed(context: Context, wish: Wish) -> tuple[tuple[Problem, ...], int]:
    fixed = repair(WorkingTree(wish.root), unsafe=wish.unsafe, only=wish.only)
    for path, content in fixed.changed.items():
        target = wish.root / path
        write_atomic(target, content, mode=target.stat().st_mode & 0o777)
        context.say(f"fixed {path}")
    if fixed.changed:
        context.say(f"repaired {fixed.repaired} in {len(fixed.changed)} file{'s' if len(fixed.changed) > 1 else ''}")
    return fixed.checked.problems, fixed.checked.files


def _answer(context: Context, shown: tuple[Problem, ...], files: int, code: int, *, github: bool) -> None:
    def text() -> str:
        if github:
            return notes()
        paint = draw.COLOR if context.colored() else draw.PLAIN
        return draw.draw_all(shown, width=context.width(), paint=paint)

    def notes() -> str:
        return "\n".join(report.annotate(shown))

    def lines() -> str:
        hello = {"schema": report.SCHEMA, "type": "hello", "command": "validate"}
        found = [{"type": "diagnostic", **report.diagnostic(p)} for p in shown]
        result = {"type": "result", "exit_code": code, "files": files}
        return "".join(dump_line(part) for part in (hello, *found, result))

    document = {**report.document(shown, files), "exit_code": code}
    context.emit({"text": text, "json": lambda: dump_json(document), "jsonl": lines, "github": notes})
