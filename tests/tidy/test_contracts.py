"""Each import contract bites: one forbidden import is planted per contract in a copy of the house, and it must be seen.

A contract that nobody has seen fail may be looking at the wrong module. `PLANTS` names, per contract, a module of
the real house and the line that it must never contain.
"""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tidy.source import ROOT, rooms_there

PREFIX = "importlinter:contract:"


@dataclass(frozen=True)
class Plant:
    """Adding `line` to `module` must break `contract`."""

    contract: str
    module: str
    line: str


PLANTS = (
    Plant("floors", "gridops/base/units.py", "import gridops.model.plan"),
    Plant("floors", "gridops/store/journal.py", "import gridops.files.git"),
    Plant("floors", "gridops/planner/planner.py", "import gridops.protocol.messages"),
    Plant("pure", "gridops/planner/planner.py", "import time"),
    Plant("pure", "gridops/protocol/fence.py", "import gridops.disk.atomic"),
    Plant("pure", "gridops/controller/core/state.py", "import asyncio"),
    Plant("pure", "agent/gridops_agent/core/state.py", "import random"),
    Plant("one-door-crypto", "gridops/controller/core/state.py", "import cryptography.hazmat"),
    Plant("one-door-yaml", "gridops/planner/planner.py", "import ruamel.yaml"),
    Plant("one-door-git", "gridops/controller/__init__.py", "import git"),
    Plant("one-door-sqlite", "gridops/controller/__init__.py", "import sqlite3"),
    Plant("one-door-process", "gridops/controller/__init__.py", "import subprocess"),
    Plant("one-door-containers", "agent/gridops_agent/keep/container.py", "import docker"),
    Plant("agent-diet", "agent/gridops_agent/supervise.py", "import gridops.files.tree"),
    Plant("meeting-place", "gridops/controller/__init__.py", "import gridops_agent.supervise"),
    Plant("independent-engines", "agent/gridops_agent/engines/llama_cpp.py", "import gridops_agent.engines.xll_server"),
    Plant("checker-stands-alone", "gridops/planner/check.py", "import gridops.planner.planner"),
)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of both packages and of the contracts."""
    copy = tmp_path_factory.mktemp("house")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "gridops", copy / "gridops", ignore=ignore)
    shutil.copytree(ROOT / "agent", copy / "agent", ignore=ignore)
    shutil.copy(ROOT / ".importlinter", copy / ".importlinter")
    return copy


def lint(house: Path, contract: str) -> subprocess.CompletedProcess[str]:
    """Runs one contract over the copy."""
    return subprocess.run(
        [
            *(sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"),
            *("--no-logo", "--no-cache", "--contract", contract),
        ],
        cwd=house,
        env={**os.environ, "PYTHONPATH": f"{house}{os.pathsep}{house / 'agent'}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.contract}-{plant.module.rpartition('/')[2]}")
def test_a_planted_import_breaks_its_contract(house: Path, plant: Plant) -> None:
    target = house / plant.module
    before = target.read_text(encoding="utf-8")
    target.write_text(f"{before}\n{plant.line}\n", encoding="utf-8")
    try:
        done = lint(house, plant.contract)
    finally:
        target.write_text(before, encoding="utf-8")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout, done.stdout
    assert plant.line.removeprefix("import ").split(".")[0] in done.stdout


def contracts() -> configparser.ConfigParser:
    """The contracts as written."""
    parser = configparser.ConfigParser(comment_prefixes=(";", "#"))
    parser.read(ROOT / ".importlinter", encoding="utf-8")
    return parser


def test_every_contract_has_a_plant_and_a_sentence_for_a_name() -> None:
    names = {section.removeprefix(PREFIX) for section in contracts().sections() if section.startswith(PREFIX)}
    assert names == {plant.contract for plant in PLANTS}
    for name in names:
        assert len(contracts()[PREFIX + name]["name"].split()) >= 4, name


def test_every_room_stands_on_a_floor() -> None:
    floors = contracts()[f"{PREFIX}floors"]["layers"].replace("|", " ").replace("(", " ").replace(")", " ").split()
    assert rooms_there() - set(floors) == set(), "a room without a floor"
    assert "gridops_agent" in floors
