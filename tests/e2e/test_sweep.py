"""A sweep that finds nothing proves nothing unless it finds what is there: a secret, planted in each kind of place."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.demo.stage import Stage
from tests.e2e.sweep import Sweep

KEY = b"gk1_0123456789abcdef0123456789abcdef"


def git(stage: Stage, *words: str, stdin: bytes = b"") -> str:
    made = subprocess.run(["git", *words], cwd=stage.root / "fleet", input=stdin, capture_output=True, check=True)
    return made.stdout.decode().strip()


def in_a_dangling_object(stage: Stage) -> None:
    git(stage, "hash-object", "-w", "--stdin", stdin=b"key: " + KEY)


def in_a_log(stage: Stage) -> None:
    (stage.root / "logs/agent.log").write_bytes(b"using " + KEY.hex().encode())


def in_a_row_of_a_database(stage: Stage) -> None:
    database = sqlite3.connect(stage.root / "controller/journal.sqlite")
    database.execute("CREATE TABLE rows (value TEXT)")
    database.execute("INSERT INTO rows VALUES (?)", ("x" * 9_000 + KEY.decode() + "x" * 9_000,))
    database.commit()
    database.close()


def in_a_signed_envelope(stage: Stage) -> None:
    payload = base64.b64encode(json.dumps({"token": KEY.decode()}).encode()).decode()
    (stage.root / "fleet/plan.json").write_text(json.dumps({"payload": payload}))


def in_an_environment(stage: Stage) -> None:
    _process(stage, {"KEY": KEY.decode()})


def on_a_command_line(stage: Stage) -> None:
    _process(stage, {}, f"--api-key={KEY.decode()}")


def _process(stage: Stage, env: dict[str, str], *words: str) -> None:
    argv = [sys.executable, "-c", "input()", *words]
    told = {**os.environ, **env, "HOME": str(stage.root)}
    process = subprocess.Popen(argv, env=told, stdin=subprocess.PIPE)
    try:
        sweep.look()
    finally:
        process.communicate(b"\n")


sweep: Sweep
PLACES: tuple[Callable[[Stage], None], ...] = (
    in_a_dangling_object, in_a_log, in_a_row_of_a_database, in_a_signed_envelope, in_an_environment, on_a_command_line,
)  # fmt: skip


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(root=tmp_path / "stage", say=lambda _: None)
    for folder in ("logs", "fleet", "controller/keys"):
        (made.root / folder).mkdir(parents=True)
    git(made, "init", "-q")
    key = made.root / "controller/keys/gateway.key"
    key.write_bytes(KEY + b"\n")
    key.chmod(0o600)
    return made


@pytest.mark.parametrize("plant", PLACES, ids=lambda plant: plant.__name__)
def test_a_planted_secret_is_found(plant: Callable[[Stage], None], stage: Stage) -> None:
    global sweep  # noqa: PLW0603 - the processes are looked at while they run
    sweep = Sweep(stage)
    sweep.look()
    plant(stage)
    (found, *more) = sweep.leaks()
    assert found.startswith("controller/keys/gateway.key stands in ")
    assert len(more) <= 1, "a row also stands in its file"
    assert sweep.loose == set()


def test_a_run_that_leaves_nothing_is_clean_and_a_file_that_others_read_is_named(stage: Stage) -> None:
    found = Sweep(stage)
    assert found.leaks("all is well") == []
    assert found.leaks(f"the key is {KEY.decode()}") == ["controller/keys/gateway.key stands in answers"]
    (stage.root / "controller/keys/gateway.key").chmod(0o640)
    found.look()
    assert found.loose == {str(stage.root / "controller/keys/gateway.key")}
