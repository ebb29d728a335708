"""Disks that fill up under a running fleet: nothing is lost, nothing runs twice, and with room it goes on by itself.

The controller's state and the operators' checkout lie on small file systems of their own. They have to be mounted, so
whoever runs this is root, or may become it without being asked (`sudo -n`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.demo.scenes import HOSTS
from examples.demo.stage import Stage
from tests.e2e.office import Office, opened

BECOME = () if os.geteuid() == 0 else ("sudo", "-n")
BALLAST = "ballast"


def as_root(*argv: str) -> None:
    done = subprocess.run([*BECOME, *argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}; these tests mount two small file systems"


def mount(folder: Path, size: str) -> None:
    """A file system of its own at a folder, with what the folder held."""
    held = folder.with_name(folder.name + ".held")
    folder.mkdir(exist_ok=True)
    shutil.copytree(folder, held)
    options = f"size={size},mode=0700,uid={os.geteuid()},gid={os.getegid()}"
    as_root("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder))
    shutil.copytree(held, folder, dirs_exist_ok=True)
    shutil.rmtree(held)


def fill(folder: Path) -> None:
    """To the last byte: what was truncated or deleted meanwhile is filled again."""
    with (folder / BALLAST).open("ab", buffering=0) as ballast:
        for piece in (65_536, 4_096, 1):
            try:
                while True:
                    ballast.write(b"x" * piece)
            except OSError:
                continue


def empty(folder: Path) -> None:
    (folder / BALLAST).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    mounted: list[Path] = []

    def before(stage: Stage) -> None:
        for folder, size in ((stage.root / "controller", "4m"), (stage.fleet, "16m")):
            mount(folder, size)
            mounted.append(folder)
        (stage.fleet / ".gitignore").write_text(f"{BALLAST}\n")

    try:
        with opened(tmp_path_factory.mktemp("models"), HOSTS, before) as made:
            try:
                yield made
            finally:
                made.stage.end()
                while mounted:
                    as_root("umount", str(mounted.pop()))
    finally:
        while mounted:
            as_root("umount", "--lazy", str(mounted.pop()))


@pytest.fixture(autouse=True)
def room_afterwards(office: Office) -> Iterator[None]:
    """One test that fails leaves the next one a disk with room."""
    yield
    for folder in (office.state, office.stage.fleet):
        empty(folder)


def is_in_git(office: Office, host: str) -> bool:
    """The newest state in git knows the host."""
    return bool(office.stage.run("git", "grep", "-l", host, "gridops/state", ok=(0, 1, 128), quiet=True))


def is_back(office: Office) -> bool:
    """It answers, and it has heard its hosts."""
    answer = office.call("status", "-o", "json")
    return answer.returncode == 0 and all(h["heard"] for h in json.loads(answer.stdout)["hosts"])


def waits(office: Office) -> bool:
    log = (office.stage.root / "logs/controller.log").read_text().splitlines()
    events = [json.loads(line).get("event") for line in log if line.startswith("{")]
    told = [event for event in events if event in ("start", "full")]
    return bool(told) and told[-1] == "full"


def one_place(office: Office) -> str:
    return office.proposal("1 place")


def test_full_before_an_apply_it_says_what_is_full_and_goes_on_by_itself(office: Office) -> None:
    office.want(tiny=1)
    wanted = one_place(office)
    process = office.stage.running["controller"]
    office.stage.until("both hosts are in git", lambda: all(is_in_git(office, host) for host in HOSTS))
    fill(office.state)
    refused = office.call("apply", wanted)
    assert refused.returncode in (1, 69), refused.stderr
    office.stage.until("it waits for room", lambda: waits(office))
    answer = office.stage.until(
        "its words are heard", lambda: (a := office.call("status")).stderr.count("disk is full") and a
    )
    assert answer.returncode == 69
    assert f"the controller's disk is full: {office.state} has 0 bytes free" in answer.stderr
    assert "free at least 1 MiB there" in answer.stderr
    assert "This is the newest state in git, not what is now." in answer.stdout
    assert all(host in answer.stdout for host in HOSTS)
    assert office.story.engines() == {}
    empty(office.state)
    office.stage.until("it answers again", lambda: is_back(office))
    assert process.poll() is None, "the same process, so no service manager has anything to give up"
    assert office.story.told("command") == []
    assert office.story.scope.get("apply") is None, "what was not acknowledged was not begun"


@pytest.mark.parametrize("moment", ["load", "warm"])
def test_full_while_a_command_runs_it_is_done_once(office: Office, moment: str) -> None:
    """Filled when the command is known and its receipt is not: the host acts on, and tells it later."""
    had = len(office.story.ready())
    office.want(tiny=had + 1)
    wanted = one_place(office)
    before = len(office.story.told("command"))
    applying = subprocess.Popen(
        ["gridops", "--no-input", "apply", wanted, "--detach"],
        cwd=office.stage.fleet, env=office.stage.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    old = sorted(office.story.engines())
    office.stage.until(
        f"{moment} is commanded", lambda: any(moment in line for line in office.story.told("command")[before:])
    )
    fill(office.state)
    applying.wait(60)
    office.stage.until("it waits for room", lambda: waits(office))
    time.sleep(3.0)  # the host has long finished what it was told
    assert set(old) <= set(office.story.engines())
    empty(office.state)
    office.stage.until("it answers again", lambda: is_back(office))
    office.stage.until("the replica is ready", lambda: office.is_so(tiny=had + 1), 60)
    office.stage.until("the apply is over", lambda: (office.story.scope.get("apply") or {}).get("outcome") == "done")
    told = office.story.told("command")[before:]
    assert sorted({line.split()[0] for line in told}) == ["load", "warm"]
    assert len(told) == len(set(told)) == 2, told
    assert set(old) <= set(office.story.engines()), "no engine was restarted"


def test_started_on_a_full_disk_it_waits_and_ends_as_it_is_told(office: Office) -> None:
    engines = sorted(office.story.engines())
    assert engines
    office.stage.stop("controller", signal.SIGKILL)
    # The log of a journal is written over from its start once it is settled, and that takes no room: none is left.
    with contextlib.closing(sqlite3.connect(office.state / "journal.sqlite")) as journal:
        journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    fill(office.state)
    office.start_controller()
    office.stage.until("it waits for room", lambda: waits(office))
    assert office.stage.stop("controller") == 143
    office.start_controller()
    office.stage.until("it waits for room", lambda: waits(office))
    empty(office.state)
    office.stage.until("it answers again", lambda: is_back(office))
    assert sorted(office.story.engines()) == engines
    assert office.story.status()["controller"]["trusted"], "a full disk is no damage"


def test_a_checkout_without_room_never_blocks_a_repair(office: Office) -> None:
    office.stage.until("nothing waits", lambda: office.story.scope.get("proposal") is None)
    before = office.story.plan_documents()
    office.want(tiny=len(office.story.ready()) - 1)
    fill(office.stage.fleet)
    wanted = office.proposal("1 remove")
    done = office.call("apply", wanted, "--confirm", "tiny")
    assert done.returncode == 0, done.stderr
    text = office.stage.until(
        "status says so", lambda: (a := office.call("status")).stdout.count("plans are not written to git") and a
    ).stdout
    assert "No space left on device" in text
    assert "Needs attention" in text
    victim = min(office.story.engines())
    os.kill(victim, signal.SIGKILL)
    office.stage.until(
        "what died runs again", lambda: office.is_so(tiny=1) and victim not in office.story.engines(), 60
    )
    empty(office.stage.fleet)
    office.stage.until("what was owed is written", lambda: set(office.story.plan_documents()) > set(before), 40)
    office.stage.until("and nothing is said any more", lambda: "not written" not in office.call("status").stdout)
