"""Journal, ledger, keys and small files, with a disk that fails at the n-th call, for every n and in five ways.

What was acknowledged is there, groups are whole, nothing is taken for damage, and whoever fails names its file; also
when power goes and all that was not synced goes with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.driver import compiler

SOURCE = Path(__file__).with_name("disk_calls.c")
LEAST = {"journal": 60, "ledger": 40, "files": 8}
"""So many calls each work makes at least: fewer, and nothing was counted."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cc = compiler()
    assert cc is not None, "no C compiler (cc, gcc or clang)"
    made = tmp_path_factory.mktemp("library") / "disk_calls.so"
    subprocess.run([cc, "-shared", "-fPIC", "-O1", "-w", "-o", str(made), str(SOURCE), "-ldl"], check=True)
    return made


@pytest.mark.parametrize("work", LEAST)
def test_whatever_call_fails_what_was_acknowledged_is_there(work: str, library: Path, repository: Path) -> None:
    env = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": f"{repository}:{repository / 'agent'}"}
    argv = [sys.executable, "-m", "tests.crash.disk_calls", work]
    ran = subprocess.run(argv, cwd=repository, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2_000:]
    found = json.loads(ran.stdout)
    assert found["wrong"] == [], "\n".join(found["wrong"])[:5_000]
    assert set(found["done"]) == {"eio", "full", "kill", "torn", "power"}
    assert min(found["done"].values()) > LEAST[work], found["done"]
