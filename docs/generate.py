"""Writes docs/map.md and docs/reference from the code (`make docs`); a test compares both.

Each page is one function without arguments that returns Markdown. Nothing here invents text: pages repeat docstrings,
helps, schemas and code tables, so a wrong sentence is corrected where it stands.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from docs.pages_constants import constants_page  # noqa: E402 - the line above makes this importable
from docs.pages_files import files_page  # noqa: E402
from docs.pages_http import http_page  # noqa: E402
from docs.pages_readme import readme_page  # noqa: E402

NOTICE = "<!-- Written by docs/generate.py (`make docs`). Edit the code, not this page. -->"


MAP_HEAD = """\
One line per room; below, one line per module, as its own docstring says it. A room imports only from rooms above it
in the table; [the architecture](explanation/architecture.md) says why, and [where is the rule that ...?](where.md)
answers single questions."""
MAP_FOOT = """\
Beside the rooms: [examples](../examples) are whole repositories of operators, [bench](../bench/README.md) measures,
[tests/tidy](../tests/tidy) checks the house itself, and [.importlinter](../.importlinter) its floors and doors."""
CODES_HEAD = """\
Each problem in a file, each refusal and each reason of the planner has one code that never changes its meaning.
`gridops rule CODE` prints an entry."""


@dataclass(frozen=True)
class Room:
    """A row of the map. `start` is where a newcomer begins to read, `tests` where its tests are."""

    package: str
    start: str
    tests: tuple[str, ...]
    sentence: str


ROOMS = (
    Room(
        "gridops.base",
        "errors",
        ("base",),
        "Words everybody shares: errors, ids, units, canonical JSON, records, limits, codes.",
    ),
    Room("gridops.model", "plan", ("files", "planner"), "Nouns: frozen records for intent, snapshot, plan and action."),
    Room(
        "gridops.disk",
        "atomic",
        ("disk",),
        "Files that are whole or not there, secrets with the right mode, damaged files set aside.",
    ),
    Room(
        "gridops.trust",
        "envelope",
        ("trust",),
        "Who may say what: signed envelopes, keys, roots, approvals, join tokens.",
    ),
    Room(
        "gridops.footprint",
        "need",
        ("footprint",),
        "What a configuration costs in memory and whether it fits; unknown is an answer.",
    ),
    Room(
        "gridops.protocol",
        "fence",
        ("protocol",),
        "How controller and host talk, without a socket: bodies, grants, receipts, fence, outbox.",
    ),
    Room(
        "gridops.planner",
        "planner",
        ("planner", "render"),
        "The only room that chooses: intent and snapshot to a plan, its report, its next steps.",
    ),
    Room(
        "gridops.files",
        "load",
        ("files", "files_git"),
        "YAML in git to typed intent with positions; plan documents and branches.",
    ),
    Room("gridops.store", "journal", ("store",), "The controller's journal and the proof of being its only writer."),
    Room(
        "gridops.controller",
        "core",
        ("controller",),
        "The durable loop: observe, plan, propose, apply; and its HTTPS listener.",
    ),
    Room(
        "gridops.lab",
        "world",
        ("lab",),
        "Whole fleets in one thread under a virtual clock: the real cores, every fault from one seed.",
    ),
    Room("gridops.cli", "main", ("cli",), "One module per command; reads, prints and asks, decides nothing."),
    Room("gridops_agent", "core", ("agent",), "The host: its own rules, engines by proof of identity, ledger, front."),
)


def module_files(package: str) -> Iterator[tuple[str, Path]]:
    """Dotted name and file of every module of a room, sorted; packages inside a room by their `__init__`."""
    base = ROOT / "agent" if package == "gridops_agent" else ROOT
    folder = base / Path(*package.split("."))
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(base).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, path


def first_line(path: Path) -> str:
    """The first sentence line of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.splitlines()[0] if text else ""


def map_page() -> str:
    """docs/map.md."""
    rows = []
    top = sorted((ROOT / "gridops").glob("*.py"))
    lists = [_module_list("gridops", {f"gridops.{path.stem}": path for path in top})]
    for room in ROOMS:
        modules = dict(module_files(room.package))
        start = modules.get(f"{room.package}.{room.start}", modules[room.package])
        tests = ", ".join(f"[tests/{name}](../tests/{name})" for name in room.tests)
        shown = start.relative_to(ROOT).as_posix()
        rows.append(f"| `{room.package}` | {room.sentence} | [{shown}](../{shown}) | {tests} |")
        lists.append(_module_list(room.package, modules))
    table = "\n".join(
        ["| room | what it decides or does | start reading at | its tests |", "| --- | --- | --- | --- |", *rows]
    )
    return (
        "\n\n".join(
            [
                "# Map of the house",
                MAP_HEAD,
                table,
                MAP_FOOT,
                "## Modules",
                *lists,
            ]
        )
        + "\n"
    )


def _module_list(title: str, modules: dict[str, Path]) -> str:
    entries = [f"* [`{name}`](../{path.relative_to(ROOT)}): {first_line(path)}" for name, path in modules.items()]
    return f"### {title}\n\n" + "\n".join(entries)


def codes_page() -> str:
    """docs/reference/codes.md: every problem, refusal and placement reason."""
    from gridops.base.codes import registry

    parts = [
        "# Codes",
        CODES_HEAD,
    ]
    codes = registry().values()
    parts.append(
        "| code | title |\n| --- | --- |\n"
        + "\n".join(f"| [{c.code}](#{c.code.lower()}) | {cell(c.title)} |" for c in codes)
    )
    parts += [f"## {c.code}\n\n**{c.title}.** {c.meaning}\n\n*What to do:* {c.remedy}" for c in codes]
    return "\n\n".join(parts) + "\n"


CLI_HEAD = """\
Every command of `gridops` and `gridops-agent`, as `--help` prints it. The global flags of `gridops` stand at its top
and are understood before and after the command. `gridops help TOPIC` explains what is no command."""


def cli_page() -> str:
    """docs/reference/cli.md: both programs, and the exit codes."""
    from docs import commands
    from gridops.cli import exits

    parts = ["# Command line", CLI_HEAD, "## Exit codes"]
    rows = [f"| {row.code} | {cell(row.name)} | {cell(row.meaning)} | {cell(row.script)} |" for row in exits.TABLE]
    parts.append("\n".join(["| code | name | meaning | what a script does |", "| --- | --- | --- | --- |", *rows]))
    order = ", ".join(str(code) for code in exits.PRECEDENCE)
    parts.append(f"When several apply, the first of these wins: {order}.")
    for name, tree in commands.programs().items():
        for path, command, ctx in commands.every(name, tree):
            depth = "##" if path == name else "###"
            parts.append(f"{depth} {path}\n\n```text\n{commands.help_text(command, ctx)}\n```")
    return "\n\n".join(parts) + "\n"


def cell(text: str) -> str:
    """Text that fits a table cell."""
    return " ".join(text.split()).replace("|", "\\|")


PAGES: dict[str, Callable[[], str]] = {
    "README.md": readme_page,
    "docs/map.md": map_page,
    "docs/reference/cli.md": cli_page,
    "docs/reference/codes.md": codes_page,
    "docs/reference/constants.md": constants_page,
    "docs/reference/files.md": files_page,
    "docs/reference/http.md": http_page,
}


def rendered(page: Callable[[], str]) -> str:
    """A page with the notice under its title. The README is written by people but for its picture."""
    if page is readme_page:
        return page()
    title, _, rest = page().partition("\n\n")
    return f"{title}\n\n{NOTICE}\n\n{rest}"


def main() -> int:
    """Writes what changed and names it."""
    for name, page in PAGES.items():
        path = ROOT / name
        text = rendered(page)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
