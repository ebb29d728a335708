"""Control groups of engines: made only where they were delegated, and the kernel's word for who belongs to an engine.

Prepared trees stand for the file system of the kernel; the keeper's processes are real.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from gridops.base.canon import digest_bytes
from gridops_agent.core.state import Handle
from gridops_agent.keep.base import Proof, Spawn
from gridops_agent.keep.child import ChildKeeper
from gridops_agent.platform import here
from gridops_agent.platform.groups import Groups
from tests.agent.site import until

BODY = digest_bytes(b"a command")
LAYOUTS = {
    "v2": ("0::/user.slice/agent.service\n", "user.slice/agent.service"),
    "hybrid": ("4:memory:/x\n0::/user.slice/agent.service\n", "unified/user.slice/agent.service"),
    "v1": ("9:name=systemd:/agent.service\n4:memory:/x\n", "systemd/agent.service"),
}


def tree(folder: Path, line: str, place: str, *, delegated: bool = True, systemd: bool = False) -> Groups:
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/cgroup").write_text(line)
    own = folder / "cgroup" / place
    own.mkdir(parents=True)
    (own / "cgroup.procs").write_text("")
    if delegated:
        os.setxattr(own, "user.delegate", b"1")
    if systemd:
        (folder / "systemd").mkdir()
    return Groups(folder / "proc", folder / "cgroup", folder / "systemd")


@pytest.mark.parametrize(("line", "place"), LAYOUTS.values(), ids=LAYOUTS)
def test_the_agents_own_group_is_found_in_every_layout(tmp_path: Path, line: str, place: str) -> None:
    groups = tree(tmp_path, line, place)
    assert groups.home() == tmp_path / "cgroup" / place
    assert groups.enter("gridops-a", 42)
    assert (tmp_path / "cgroup" / place / "gridops-a/cgroup.procs").read_text() == "42"
    assert groups.pids("gridops-a") == (42,)
    assert groups.pids("gridops-b") == ()


def test_nothing_is_made_where_systemd_did_not_hand_a_group_on(tmp_path: Path) -> None:
    line, place = LAYOUTS["v2"]
    assert tree(tmp_path / "a", line, place, delegated=False, systemd=True).home() is None
    assert tree(tmp_path / "b", line, place, delegated=True, systemd=True).home() is not None
    assert tree(tmp_path / "c", line, place, delegated=False, systemd=False).home() is not None


def test_the_root_group_is_nobodys(tmp_path: Path) -> None:
    groups = tree(tmp_path, "0::/\n", "")
    assert groups.home() is None
    assert not groups.enter("gridops-a", 42)
    assert groups.pids("gridops-a") == ()


def test_a_group_that_may_not_be_written_is_left_alone(tmp_path: Path) -> None:
    groups = tree(tmp_path, *LAYOUTS["v2"])
    home = groups.home()
    assert home is not None
    (home / "gridops-a").write_text("a file stands there")
    assert not groups.enter("gridops-a", 42)
    assert (home / "gridops-a").read_text() == "a file stands there"


async def test_who_left_its_session_and_its_environment_is_found_by_its_group(tmp_path: Path) -> None:
    """A daemon of the engine's: no cookie, another session. Only the kernel still knows whose it is."""
    groups = tree(tmp_path, *LAYOUTS["v2"])
    folder = tmp_path / "engine"
    folder.mkdir()
    keeper = ChildKeeper(here(), tmp_path, groups)
    told = folder / "pid"
    script = (
        "import os, subprocess, sys, time\n"
        "p = subprocess.Popen(['/bin/sleep', '300'], env={}, start_new_session=True)\n"
        "open(sys.argv[1], 'w').write(str(p.pid)); time.sleep(300)"
    )

    async def keep(handle: Handle) -> None:
        pass

    argv = (sys.executable, "-c", script, str(told))
    handle = await keeper.start(Spawn(BODY, argv, {}, folder, 1, folder / "k"), keep)
    await until(lambda: told.exists() and told.read_text().isdigit(), "the daemon")
    daemon = int(told.read_text())
    home = groups.home()
    assert home is not None
    (group,) = [f for f in home.iterdir() if f.is_dir()]
    assert (group / "cgroup.procs").read_text() == str(handle.pid)
    (group / "cgroup.procs").write_text(f"{handle.pid}\n{daemon}\n")  # as the kernel writes it for a child
    try:
        assert daemon in {p.pid for p in keeper.members(BODY, handle)}
        assert daemon in keeper.processes_of({BODY: handle}), "its memory counts as ours"
        assert (await keeper.stop(BODY, handle, ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)))).gone
        left = here().process(daemon)
        assert left is None or left.zombie, "what nobody reaps holds no memory"
        assert keeper.look(BODY, handle) is Proof.GONE
        other = ChildKeeper(here(), tmp_path / "another", groups)
        assert other._group(BODY) != keeper._group(BODY), "two agents on one machine never mix theirs"
    finally:
        left = here().process(daemon)
        if left is not None and not left.zombie:
            os.kill(daemon, signal.SIGKILL)
