"""What the machine says: processes, memory, limits and devices, on this machine and on prepared trees."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest

from gridops.model.fleet import DeviceKind
from gridops_agent import facts
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


# --- devices --------------------------------------------------------------------------------------------------------


class Fixed:
    """A machine of 16 GiB with 6 in use, and two processes of 1 GiB each."""

    def memory(self) -> Memory:
        return Memory(16 * GIB, 6 * GIB)

    def own_memory_bytes(self, pid: int) -> int:
        return {1: GIB, 2: GIB}.get(pid, 0)


@pytest.mark.parametrize(
    ("share", "ours", "total", "external"),
    [
        (Fraction(1), (), 16 * GIB, 6 * GIB),
        (Fraction(1), (1, 2), 16 * GIB, 4 * GIB),
        (Fraction(1, 4), (), 4 * GIB, 6 * GIB // 4),
        (Fraction(1, 4), (1,), 4 * GIB, 5 * GIB // 4),
    ],
)
def test_external_use_leaves_our_own_out_and_is_scaled_by_the_share(
    share: Fraction, ours: tuple[int, ...], total: int, external: int
) -> None:
    (cpu,) = facts.devices(Fixed(), share, ours)  # type: ignore[arg-type]
    assert (cpu.id, cpu.kind, cpu.total_bytes, cpu.external_bytes) == ("cpu0", DeviceKind.CPU, total, external)


def test_what_we_are_measured_to_use_never_makes_external_use_negative() -> None:
    class Small(Fixed):
        def memory(self) -> Memory:
            return Memory(16 * GIB, GIB)

    (cpu,) = facts.devices(Small(), Fraction(1), (1, 2))  # type: ignore[arg-type]
    assert cpu.external_bytes == 0


def driver(**answers: Callable[..., object]) -> ModuleType:
    """pynvml as far as we ask it, over two cards of which one is lost."""
    module = ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def by_index(index: int) -> int:
        if index == 1:
            raise NVMLError("GPU is lost")
        return index

    def processes(handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=1, usedGpuMemory=2 * GIB), SimpleNamespace(pid=9, usedGpuMemory=None)]

    def refuse(*_: object) -> None:
        raise NVMLError("not supported")

    names = {
        "NVMLError": NVMLError,
        "NVML_DEVICE_MIG_ENABLE": 1,
        "nvmlDeviceGetMigMode": refuse,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetMemoryInfo": lambda h: SimpleNamespace(total=8 * GIB, used=3 * GIB),
        "nvmlDeviceGetUUID": lambda h: b"GPU-1",
        "nvmlDeviceGetName": lambda h: "Card",
        "nvmlDeviceGetComputeRunningProcesses": processes,
    }
    for name, value in (names | answers).items():
        setattr(module, name, value)
    return module


def test_gpus_are_reported_by_uuid_and_a_lost_one_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    _, gpu = facts.devices(Fixed(), Fraction(1, 2), (1,))  # type: ignore[arg-type]
    assert (gpu.id, gpu.kind, gpu.uuid, gpu.model) == ("gpu0", DeviceKind.GPU, "GPU-1", "Card")
    assert (gpu.total_bytes, gpu.external_bytes) == (4 * GIB, GIB // 2)


def test_a_lost_card_does_not_give_its_name_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stood on `gpu1` still does, and `gpu0` is gone."""

    def first_is_lost(index: int) -> int | None:
        return index or None

    monkeypatch.setitem(sys.modules, "pynvml", driver(nvmlDeviceGetHandleByIndex=first_is_lost))
    assert [d.id for d in facts.devices(Fixed(), Fraction(1), ())] == ["cpu0", "gpu1"]  # type: ignore[arg-type]


def test_a_card_in_mig_mode_is_reported_as_its_instances_and_not_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = driver()

    def part(handle: int, number: int) -> str:
        if number == 1:
            raise cut.NVMLError("no such instance")
        return f"mig {number}"

    answers = {
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetMigMode": lambda handle: [1, 1],
        "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 3,
        "nvmlDeviceGetMigDeviceHandleByIndex": part,
        "nvmlDeviceGetUUID": lambda handle: f"MIG-{handle}",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(
            total=(4 if isinstance(handle, str) else 80) * GIB, used=GIB
        ),
    }
    for name, value in answers.items():
        setattr(cut, name, value)
    monkeypatch.setitem(sys.modules, "pynvml", cut)
    _, *found = facts.devices(Fixed(), Fraction(1), ())  # type: ignore[arg-type]
    assert [(d.id, d.parent, d.uuid, d.total_bytes // GIB) for d in found] == [
        ("gpu0.0", "gpu0", "MIG-mig 0", 4),
        ("gpu0.2", "gpu0", "MIG-mig 2", 4),
    ]


def test_without_a_driver_there_are_quietly_no_gpus() -> None:
    assert facts.gpus() == ()


def test_free_disk_is_read_where_the_folder_will_be(tmp_path: Path) -> None:
    free = facts.disk_free_bytes(tmp_path / "not" / "yet")
    assert free is not None
    assert free > 0
