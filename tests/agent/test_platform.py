"""What the machine says: processes, memory, limits and devices, on this machine and on prepared trees."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gridops_agent.platform.base import Memory, Platform
from gridops_agent.platform.linux import Linux
from gridops_agent.platform.portable import Portable

PLATFORMS: list[Callable[[], Platform]] = [Linux, Portable]
GIB = 1 << 30


@pytest.mark.parametrize("kind", PLATFORMS)
def test_every_platform_says_the_same_of_a_living_process(kind: Callable[[], Platform]) -> None:
    platform = kind()
    child = subprocess.Popen(
        [sys.executable, "-Sc", "x = bytearray(64 << 20); print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"MARK": "here"},
        start_new_session=True,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        seen = platform.process(child.pid)
        assert seen is not None
        assert (seen.pid, seen.group, seen.session, seen.zombie) == (child.pid, child.pid, child.pid, False)
        assert seen == platform.process(child.pid), "a birth does not change"
        assert (platform.environment(child.pid) or {})["MARK"] == "here"
        assert platform.executable(child.pid) == os.path.realpath(sys.executable)
        assert 64 << 20 <= platform.own_memory_bytes(child.pid) <= 160 << 20
        assert seen in list(platform.processes())
    finally:
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    dead = platform.process(child.pid)
    assert dead is not None
    assert dead.zombie
    assert dead.birth == seen.birth
    child.communicate()
    assert platform.process(child.pid) is None
    assert platform.environment(child.pid) is None
    assert platform.executable(child.pid) is None
    assert platform.own_memory_bytes(child.pid) == 0


def test_mapped_files_are_not_counted_as_memory_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"\1" * (64 << 20))
    program = (
        "import mmap, sys\n"
        "f = open(sys.argv[1])\n"
        "m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)\n"
        "sum(m[::4096]); print(flush=True); input()"
    )
    child = subprocess.Popen(
        [sys.executable, "-Sc", program, str(tmp_path / "weights")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert psutil.Process(child.pid).memory_info().rss > 64 << 20
        assert Linux().own_memory_bytes(child.pid) < 40 << 20
    finally:
        child.kill()
        child.communicate()


def proc(tmp_path: Path, *, total_kb: int = 16 << 20, available_kb: int = 12 << 20, cgroup: str = "") -> Path:
    root = tmp_path / "proc"
    (root / "self").mkdir(parents=True)
    (root / "meminfo").write_text(f"MemTotal: {total_kb} kB\nMemFree: 1 kB\nMemAvailable: {available_kb} kB\n")
    (root / "self" / "cgroup").write_text(cgroup)
    return root


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_without_a_control_group_the_machine_is_the_limit(tmp_path: Path) -> None:
    assert Linux(proc(tmp_path), tmp_path / "none").memory() == Memory(16 * GIB, 4 * GIB)


def test_a_limit_of_an_outer_v2_group_counts_and_its_file_cache_does_not(tmp_path: Path) -> None:
    root = tmp_path / "cg"
    group(root / "a" / "b", memory__max="max", memory__current="5")
    (root / "a" / "memory.max").write_text(str(8 * GIB))
    (root / "a" / "memory.current").write_text(str(3 * GIB))
    (root / "a" / "memory.stat").write_text(f"anon 1\ninactive_file {GIB}\n")
    assert Linux(proc(tmp_path, cgroup="0::/a/b\n"), root).memory() == Memory(8 * GIB, 2 * GIB)


def test_a_v1_limit_counts_also_when_the_path_belongs_to_the_hosts_view(tmp_path: Path) -> None:
    root = tmp_path / "cg"
    group(
        root / "memory",
        memory__limit_in_bytes=str(4 * GIB),
        memory__usage_in_bytes=str(3 * GIB),
        memory__stat=f"inactive_file 7\ntotal_inactive_file {GIB}",
    )
    lines = "9:name=systemd:/x\n4:memory:/docker/abc\n0::/\n"
    assert Linux(proc(tmp_path, cgroup=lines), root).memory() == Memory(4 * GIB, 2 * GIB)


@pytest.mark.parametrize("limit", ["9223372036854771712", "max", str(64 * GIB), "rubbish"])
def test_no_limit_and_a_limit_above_the_machine_change_nothing(tmp_path: Path, limit: str) -> None:
    root = tmp_path / "cg"
    group(root / "memory", memory__limit_in_bytes=limit, memory__usage_in_bytes="1")
    group(root / "g", memory__max=limit, memory__current="1")
    assert Linux(proc(tmp_path, cgroup="4:memory:/\n0::/g\n"), root).memory() == Memory(16 * GIB, 4 * GIB)


def test_a_process_name_with_parentheses_and_blanks_is_read_right(tmp_path: Path) -> None:
    root = proc(tmp_path)
    (root / "42").mkdir()
    fields = " ".join(["S", "1", "42", "40", *["0"] * 15, "777", "0"])
    (root / "42" / "stat").write_text(f"42 (evil) S 9 9 (x) {fields}")
    seen = Linux(root).process(42)
    assert seen is not None
    assert (seen.group, seen.session, seen.birth.endswith(":777"), seen.zombie) == (42, 40, True, False)


def test_an_environment_that_is_empty_proves_nothing(tmp_path: Path) -> None:
    root = proc(tmp_path)
    (root / "42").mkdir()
    (root / "42" / "environ").write_bytes(b"")
    assert Linux(root).environment(42) is None
    (root / "42" / "environ").write_bytes(b"A=1=2\0B=\0rubbish\0")
    assert Linux(root).environment(42) == {"A": "1=2", "B": ""}
