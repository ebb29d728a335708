"""The repository as the tidy tests see it: tracked files, and every product module parsed once."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DECIDING = (
    "gridops.base",
    "gridops.model",
    "gridops.trust",
    "gridops.footprint",
    "gridops.planner",
    "gridops.demand",
    "gridops.portfolio",
    "gridops.protocol",
    "gridops.controller.core",
    "gridops.gateway.core",
    "gridops_agent.core",
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file: `name` is its dotted name, or its path where it is no product module."""

    path: Path
    name: str
    text: str
    tree: ast.Module

    @property
    def shown(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def decides(self) -> bool:
        return any(self.name == room or self.name.startswith(room + ".") for room in DECIDING)

    def functions(self) -> Iterator[Function]:
        for found in ast.walk(self.tree):
            if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
                yield found


@cache
def tracked() -> tuple[Path, ...]:
    """Every file that git tracks or would track, sorted; what .gitignore names is no part of the house."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = sorted({name for name in done.stdout.decode().split("\0") if name})
    return tuple(ROOT / name for name in names if (ROOT / name).is_file())


@cache
def python_files() -> tuple[Source, ...]:
    """Every tracked Python file."""
    found = []
    for path in tracked():
        if path.suffix == ".py":
            text = path.read_text(encoding="utf-8")
            found.append(Source(path, _dotted(path), text, ast.parse(text, filename=str(path))))
    return tuple(found)


@cache
def product() -> tuple[Source, ...]:
    """The modules that are installed: `gridops` and `gridops_agent`."""
    return tuple(source for source in python_files() if source.name.split(".")[0] in ("gridops", "gridops_agent"))


def rooms_there() -> set[str]:
    """The packages directly under `gridops`."""
    return {
        source.name
        for source in product()
        if source.path.parent.parent == ROOT / "gridops" and source.path.stem == "__init__"
    }


def _dotted(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] == "agent":
        parts = parts[1:]
    elif parts[0] != "gridops":
        return "/".join(parts)
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts)


def check_none(found: list[str], rule: str) -> None:
    """Fails with every finding on a line of its own: the list is the message."""
    assert not found, "\n".join([rule, *(f"  {item}" for item in found)])
