"""Nothing lies about unused: every module is imported by something, every code is raised by something."""

from __future__ import annotations

import ast
import re
import tomllib

from gridops.base.codes import registry
from gridops.cli.table import COMMANDS
from tests.tidy.source import ROOT, Source, check_none, product

CODE = re.compile(r"GO\d{3}")
TABLES = "gridops.base.codes"


def imports_of(source: Source, known: set[str]) -> set[str]:
    """Product modules that a module names: by an import, or as text where loading is lazy (`python -m`, typer)."""
    found: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.split(":")[0])
            if node.value.endswith(".py"):  # run as a file that lies beside this one
                found.add(f"{source.name.rpartition('.')[0]}.{node.value.removesuffix('.py')}")
    return (found & known) - {source.name}


def entries() -> set[str]:
    """Modules that something outside starts: scripts, `python -m`, and the table of lazily loaded commands."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        scripts = tomllib.load(file)["project"]["scripts"]
    found = {target.split(":")[0] for target in scripts.values()} | {row.module for row in COMMANDS.values()}
    return found | {source.name for source in product() if source.path.stem == "__main__"}


def test_every_module_is_reached_from_an_entry_point() -> None:
    by_name = {source.name: source for source in product()}
    known = set(by_name)
    check_none(sorted(entries() - known), "a script or a command names a module that is not there")
    reached: set[str] = set()
    waiting = sorted(entries() & known)
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        waiting += sorted(imports_of(by_name[name], known))
        waiting += [parent for parent in _parents(name) if parent in known]
    check_none([by_name[name].shown for name in sorted(known - reached)], "no command ever loads these")


def test_every_entry_point_is_a_function_that_exists() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        scripts = tomllib.load(file)["project"]["scripts"]
    by_name = {source.name: source for source in product()}
    for target in scripts.values():
        module, function = target.split(":")
        assert function in {found.name for found in by_name[module].functions()}, target


def test_every_code_is_used_through_its_constant() -> None:
    """Letters may stand only where a range of codes begins or ends (`code < "GO520"`)."""
    constants: dict[str, str] = {}
    literal = []
    used: set[str] = set()
    for source in product():
        if source.name.startswith(TABLES):
            constants |= _table(source)
            continue
        bounds = {
            id(side) for node in ast.walk(source.tree) if isinstance(node, ast.Compare) for side in node.comparators
        }
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute):
                used.add(node.attr)
            elif isinstance(node, ast.ImportFrom):
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Constant) and _is_code(node.value) and id(node) not in bounds:
                literal.append(f"{source.shown}:{node.lineno} {node.value}")
    check_none(literal, "use the constant's `.code`, not the letters")
    assert constants, "no codes found"
    check_none(
        sorted(f"{where} {name}" for name, where in constants.items() if name not in used), "a code nobody reports"
    )


def test_every_code_says_what_it_means_and_what_to_do() -> None:
    bad = []
    for code in registry().values():
        if not (code.title and code.meaning and code.remedy):
            bad.append(f"{code.code}: an empty field")
        if CODE.fullmatch(code.code) is None and not re.fullmatch(r"[a-z][a-z0-9_]*", code.code):
            bad.append(f"{code.code}: neither GOnnn nor a word of the wire")
    check_none(bad, "a code is four things: code, title, meaning, remedy")


def _is_code(value: object) -> bool:
    return isinstance(value, str) and CODE.fullmatch(value) is not None


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _table(source: Source) -> dict[str, str]:
    found = {}
    for node in source.tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and getattr(node.value.func, "id", "") == "Code"
        ):
            for target in node.targets:
                assert isinstance(target, ast.Name)
                assert target.id not in found, f"{target.id} is defined twice in {source.shown}"
                found[target.id] = f"{source.shown}:{node.lineno}"
    return found
