"""`gridops init`: write a working skeleton of an operators' repository. Commits nothing, overwrites nothing unasked."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from gridops.base.errors import Failed
from gridops.base.units import counted
from gridops.cli.output import Usage, context_of, dump_json
from gridops.disk.atomic import write_atomic
from gridops.files.export import file_name, render, schemas

SCHEMAS = Path(".gridops/schemas/v1")
WORKFLOW = """\
# Shows the plan on every pull request that changes what machines shall do. Needs no secret and reaches no host.
name: gridops
on: {pull_request: {paths: ["fleet.d/**", "profiles.d/**", "policies/**"]}}
permissions: {contents: read}
jobs:
  plan:
    runs-on: ubuntu-24.04
    timeout-minutes: 10
    steps:
      - uses: actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0
        with: {fetch-depth: 0}
      - run: pipx run gridops validate -o github
      - run: pipx run gridops plan --base "origin/$GITHUB_BASE_REF" --github
"""


def register(app: typer.Typer) -> None:
    app.command("init")(init)


def init(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where; made if missing.")] = Path(),
    example: Annotated[
        str, typer.Option("--example", metavar="small|none", help="Made-up hosts and models, or none.")
    ] = "small",
    github: Annotated[bool, typer.Option("--github", help="Also a workflow that plans on pull requests.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist already.")] = False,
) -> None:
    """Write a working skeleton; commits nothing.

    The example validates and plans as it stands, in mode recommend, so that no host is ever touched by it.

    \b
    Examples:
      gridops init
      gridops init office --github
      gridops init --example none
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    if example not in ("small", "none"):
        raise Usage(f"--example {example}: expected small or none")
    base = context.directory / directory
    wanted = skeleton(example == "small") | {SCHEMAS / file_name(kind): render(kind) for kind in schemas()}
    if github:
        wanted[Path(".github/workflows/gridops.yaml")] = WORKFLOW
    taken = sorted(str(path) for path in wanted if (base / path).exists() and path.parts[0] != ".gridops")
    if taken and not force:
        raise Failed(
            f"{base / taken[0]} exists already; nothing was written",
            hints=(
                f"{counted(len(taken), 'file')} would be replaced: --force does it",
                "an empty folder: gridops init DIR",
            ),
        )
    for path, text in sorted(wanted.items()):
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(base / path, text.encode())
    shown = [str(p) for p in sorted(wanted) if p.parts[0] != ".gridops"]
    context.emit(
        {
            "text": lambda: "\n".join(_report(shown, base)),
            "json": lambda: dump_json({"schema": "gridops.init/1", "directory": str(base), "files": shown}),
        }
    )


def skeleton(whole: bool) -> dict[Path, str]:
    """The packaged example: all of it, or only the policies."""
    root = resources.files("gridops.cli") / "skeleton"
    return {path: item.read_text("utf-8") for path, item in _walk(root, Path()) if whole or path.parts[0] == "policies"}


def _walk(folder: Traversable, at: Path) -> list[tuple[Path, Traversable]]:
    found: list[tuple[Path, Traversable]] = []
    for item in sorted(folder.iterdir(), key=lambda i: i.name):
        if item.is_dir():
            found += _walk(item, at / item.name)
        elif item.name.endswith(".yaml"):
            found.append((at / item.name, item))
    return found


def _report(shown: list[str], base: Path) -> list[str]:
    where = "" if base == Path() else f"cd {base} && "
    return [
        "Wrote a working example (nothing was committed):",
        *(f"  {path}" for path in shown),
        f"  {SCHEMAS}/   completion in your editor, works offline",
        "",
        "Next",
        f"  {where}gridops validate                    check the files",
        f"  {where}gridops plan                        see what would happen; changes nothing",
        f"  {where}gridops trust init --person NAME    make the first keys",
    ]
