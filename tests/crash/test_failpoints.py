"""Every kind of durable step of both processes, failed in one short story: nothing is lost, and nothing runs twice.

A fixed sample; `soak_failpoints.py` has every pass of every point in every way.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridops.base.errors import BadSetup, DiskFault, Failed, NoRoom
from gridops.disk import failpoint
from gridops.disk.atomic import write_atomic
from tests.builders.tiny_gguf import write_tiny_gguf
from tests.crash.lived import Case, Lives
from tests.crash.pair import AGENT, CONTROLLER
from tests.crash.zygote import Nursery

POINTS = {
    CONTROLLER: {
        *("journal.append", "journal.checkpoint", "journal.create", "journal.migrate", "journal.term"),
        *("file.write.accepted.json", "file.rename.accepted.json"),
    },
    AGENT: {
        *("ledger.commit", "secret.write.engine.key", "secret.rename.engine.key"),
        *("file.write.model", "file.rename.model", "file.write.status.json", "file.rename.status.json"),
    },
}
"""What the story passes. Points that it does not pass are failed by tests of their own rooms."""
SAMPLE = [
    Case(CONTROLLER, "journal.create", 1, "kill"),
    Case(CONTROLLER, "journal.migrate", 1, "killed"),
    Case(CONTROLLER, "journal.term", 1, "killed"),
    Case(CONTROLLER, "journal.checkpoint", 1, "eio"),
    Case(CONTROLLER, "journal.append", 1, "unknown"),
    Case(CONTROLLER, "journal.append", 3, "kill"),
    Case(CONTROLLER, "journal.append", 5, "killed"),
    Case(CONTROLLER, "journal.append", 6, "enospc"),
    Case(CONTROLLER, "journal.append", 8, "unknown"),
    Case(CONTROLLER, "journal.append", 10, "kill"),
    Case(CONTROLLER, "journal.append", 13, "eio"),
    Case(CONTROLLER, "file.rename.accepted.json", 1, "killed"),
    Case(CONTROLLER, "file.write.accepted.json", 2, "kill"),
    Case(CONTROLLER, "file.rename.accepted.json", 1, "eio"),
    Case(AGENT, "ledger.commit", 10, "eio"),
    Case(AGENT, "ledger.commit", 2, "kill"),
    Case(AGENT, "ledger.commit", 5, "unknown"),
    Case(AGENT, "ledger.commit", 8, "kill"),
    Case(AGENT, "ledger.commit", 10, "killed"),
    Case(AGENT, "ledger.commit", 12, "enospc"),
    Case(AGENT, "ledger.commit", 15, "kill"),
    Case(AGENT, "ledger.commit", 18, "unknown"),
    Case(AGENT, "ledger.commit", 20, "killed"),
    Case(AGENT, "secret.write.engine.key", 1, "kill"),
    Case(AGENT, "secret.rename.engine.key", 1, "killed"),
    Case(AGENT, "file.write.model", 1, "eio"),
    Case(AGENT, "file.rename.status.json", 2, "enospc"),
]


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    root = tmp_path_factory.mktemp("lives")
    (root / "models").mkdir()
    model = write_tiny_gguf(root / "models" / "tiny.gguf")
    with Nursery() as nursery:
        yield Lives(root, model, nursery)


def test_the_story_passes_the_points_that_are_known(lives: Lives) -> None:
    """One that is new has to be thought about: what may be on the disk when it fails?"""
    assert {name: set(found) for name, found in lives.listed().items()} == POINTS


def test_the_sample_touches_every_point_and_every_way() -> None:
    assert {(c.process, c.point.rsplit(".", 1)[0]) for c in SAMPLE} >= {
        (process, point.rsplit(".", 1)[0]) for process, points in POINTS.items() for point in points if "." in point
    } - {(AGENT, "file.rename"), (AGENT, "file.write.status")}
    assert {c.how for c in SAMPLE} == set(failpoint.HOWS)


def test_whatever_fails_the_story_ends_as_it_should_and_the_files_agree(lives: Lives) -> None:
    wrong, silent = [], []
    for case, fired, words in lives.live_all(SAMPLE):
        if words:
            wrong.append(words)
        elif not fired:
            silent.append(str(case))
    assert not wrong, "\n\n".join(wrong)
    assert not silent, f"never reached: {silent}"


# -- a failpoint itself -----------------------------------------------------------------------------------------------


@pytest.fixture
def disarmed() -> Iterator[None]:
    yield
    failpoint.arm(None)


@pytest.mark.usefixtures("disarmed")
@pytest.mark.parametrize(("how", "kind"), [("eio", DiskFault), ("enospc", NoRoom)])
def test_an_armed_point_fails_its_step_and_leaves_what_was(tmp_path: Path, how: str, kind: type[Failed]) -> None:
    file = tmp_path / "x"
    failpoint.arm(f"file.rename.x:2:{how}")
    write_atomic(file, b"first")
    with pytest.raises(kind, match="cannot write"):
        write_atomic(file, b"second")
    assert file.read_bytes() == b"first"
    write_atomic(file, b"third")
    assert [f.name for f in tmp_path.iterdir()] == ["x"]
    assert file.read_bytes() == b"third"


@pytest.mark.usefixtures("disarmed")
def test_unknown_does_the_step_and_says_it_failed(tmp_path: Path) -> None:
    failpoint.arm("file.rename.x:1:unknown")
    with pytest.raises(Failed):
        write_atomic(tmp_path / "x", b"there")
    assert (tmp_path / "x").read_bytes() == b"there"


@pytest.mark.usefixtures("disarmed")
@pytest.mark.parametrize("text", ["x", "x:0:kill", "x:1:die", "x:1", ":1:kill", "x:1:kill:now"])
def test_what_says_nothing_sensible_is_refused_by_name(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetup, match=r"GRIDOPS_FAILPOINT=.* is not `name:nth:how`"):
        failpoint.arm(text)


WRITES = "from gridops.disk.atomic import write_atomic; write_atomic('x', b'1'); write_atomic('x', b'2')"


@pytest.mark.parametrize(
    ("armed", "code", "left"),
    [
        ("file.rename.x:2:kill", -signal.SIGKILL, b"1"),
        ("file.rename.x:2:killed", -signal.SIGKILL, b"2"),
        ("file.rename.y:2:kill", 0, b"2"),
        ("", 0, b"2"),
    ],
)
def test_the_environment_arms_a_process(tmp_path: Path, armed: str, code: int, left: bytes) -> None:
    env = {**os.environ, failpoint.NAME: armed}
    done = subprocess.run([sys.executable, "-c", WRITES], cwd=tmp_path, env=env, check=False)
    assert done.returncode == code
    assert (tmp_path / "x").read_bytes() == left


def test_an_unarmed_point_is_one_and_the_same_nothing() -> None:
    failpoint.arm(None)
    assert failpoint.point("a") is failpoint.point("b", "c")
