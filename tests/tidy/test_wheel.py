"""The wheel: what is installed from it is the product, whole, with its data and without the repository around it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.tidy.source import ROOT, check_none, tracked


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in a wheel that was built, without network, from a copy of what git tracks."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for path in tracked():
        inside = path.relative_to(ROOT)
        if inside.parts[0] in ("gridops", "agent") or inside.name in ("pyproject.toml", "README.md", "LICENSE"):
            (copy / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy / inside)
    build = "import setuptools.build_meta as b, sys; b.build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", build, str(out)], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = out.glob("gridops-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_module_and_every_skeleton_file(names: set[str]) -> None:
    missing = []
    for path in tracked():
        parts = path.relative_to(ROOT).parts
        inside = Path(*parts[1:] if parts[0] == "agent" else parts).as_posix()
        if parts[0] in ("gridops", "agent") and path.suffix in (".py", ".yaml") and inside not in names:
            missing.append(inside)
    check_none(missing, "not in the wheel")


def test_the_wheel_holds_nothing_else(names: set[str]) -> None:
    strange = [name for name in names if not name.startswith(("gridops/", "gridops_agent/", "gridops-"))]
    check_none(sorted(strange), "in the wheel by mistake")


def test_the_wheel_names_both_programs_and_the_licence(names: set[str]) -> None:
    assert any(name.endswith("entry_points.txt") for name in names)
    assert any("licenses/LICENSE" in name for name in names)
