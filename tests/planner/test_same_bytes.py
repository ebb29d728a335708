"""The same inputs give the same bytes in any process: whatever the hash seed, the locale and the time zone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
from gridops.base.record import digest_of
from gridops.planner.planner import plan
from tests.planner.worlds import change, later, make_fleet, rolled

for seed in range(6):
    cook = rolled(seed)
    fleet = make_fleet(cook)
    made = plan(fleet.inputs())
    after = change(cook, later(made, fleet))
    print(digest_of(made), digest_of(plan(after.inputs())))
"""


def told(repository: Path, **environment: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(repository), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return found.stdout


@pytest.fixture(scope="module")
def usual(repository: Path) -> str:
    return told(repository, PYTHONHASHSEED="0")


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONHASHSEED": "1"},
        {"PYTHONHASHSEED": "4242"},
        {"PYTHONHASHSEED": "0", "TZ": "Asia/Kathmandu"},
        {"PYTHONHASHSEED": "0", "LC_ALL": "C"},
    ],
    ids=lambda found: " ".join(f"{k}={v}" for k, v in sorted(found.items())),
)
def test_plans_are_the_same_bytes_under(environment: dict[str, str], usual: str, repository: Path) -> None:
    assert usual.count("sha256:") == 12
    assert told(repository, **environment) == usual
