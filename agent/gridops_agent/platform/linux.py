"""Linux: procfs for processes, pidfd for signals that cannot hit a reused pid, cgroup v1 and v2 limits.

Roots are arguments so that tests can prepare trees. Nothing here decides anything about an engine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from gridops_agent.hearsay import count
from gridops_agent.platform.base import Memory, Process, send_by_pid

_DELETED = " (deleted)"
_UNLIMITED = 1 << 60
"""cgroup v1 writes a number near 2^63 for "no limit"."""


class Linux:
    """Reads /proc and /sys/fs/cgroup; signals through pidfd."""

    def __init__(self, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> None:
        self._proc = proc
        self._cgroup = cgroup
        self._boot = _first_line(proc / "sys/kernel/random/boot_id") or "boot"

    def process(self, pid: int) -> Process | None:
        try:
            text = (self._proc / str(pid) / "stat").read_bytes().decode("utf-8", "replace")
        except OSError:
            return None
        # The command name may hold blanks and parentheses: fields are counted from the last one.
        fields = text.rpartition(")")[2].split()
        if len(fields) < 20:
            return None
        return Process(
            pid=pid,
            birth=f"{self._boot}:{fields[19]}",
            group=int(fields[2]),
            session=int(fields[3]),
            # A dead leader whose other threads still end is not gone: it holds its memory, and cannot be reaped.
            zombie=fields[0] in ("Z", "X", "x") and int(fields[17]) <= 1,
        )

    def processes(self) -> Iterator[Process]:
        for name in sorted(os.listdir(self._proc)):
            pid = count(name)
            found = self.process(pid) if pid is not None else None
            if found is not None:
                yield found

    def environment(self, pid: int) -> Mapping[str, str] | None:
        try:
            raw = (self._proc / str(pid) / "environ").read_bytes()
        except OSError:
            return None
        if not raw:
            # In the middle of exec, and while a process ends, its memory holds no environment: that says nothing.
            return None
        pairs = (entry.decode("utf-8", "replace").partition("=") for entry in raw.split(b"\0") if b"=" in entry)
        return {name: value for name, _, value in pairs}

    def executable(self, pid: int) -> str | None:
        try:
            return os.readlink(self._proc / str(pid) / "exe").removesuffix(_DELETED)
        except OSError:
            return None

    def own_memory_bytes(self, pid: int) -> int:
        rollup = _table(self._proc / str(pid) / "smaps_rollup")
        if "Pss_Anon" in rollup:
            return rollup["Pss_Anon"] + rollup.get("Pss_Shmem", 0)
        status = _table(self._proc / str(pid) / "status")
        return status.get("RssAnon", 0) + status.get("RssShmem", 0)

    def memory(self) -> Memory:
        machine = _table(self._proc / "meminfo")
        total = machine.get("MemTotal", 0)
        # What an old kernel does not tell is not free: the least that certainly is, or nothing.
        used = total - machine.get("MemAvailable", machine.get("MemFree", 0))
        for folder in self._cgroup_folders():
            limit, inside = _cgroup_reading(folder)
            if limit is not None and limit < total:
                total, used = limit, inside
        return Memory(total_bytes=total, used_bytes=max(0, used))

    def send(self, process: Process, number: int) -> bool:
        try:
            handle = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return False
        except OSError:  # a kernel before 5.3: check, then signal
            return send_by_pid(self.process, process, number)
        try:
            # The descriptor holds whoever has the pid now; only then is the birth compared.
            now = self.process(process.pid)
            if now is None or now.birth != process.birth:
                return False
            signal.pidfd_send_signal(handle, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)

    def _cgroup_folders(self) -> tuple[Path, ...]:
        """Our memory control group and its ancestors, v2 or v1, innermost first."""
        found: list[Path] = []
        for line in _lines(self._proc / "self/cgroup"):
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            roots: tuple[Path, ...]
            if number == "0" and not controllers:
                roots = (self._cgroup, self._cgroup / "unified")
            elif "memory" in controllers.split(","):
                roots = (self._cgroup / "memory",)
            else:
                continue
            for root in roots:
                inner = root / path.lstrip("/")
                # Inside a container the path may name a folder of the host that is not visible: the root is ours then.
                while inner != root and root in inner.parents:
                    found.append(inner)
                    inner = inner.parent
                found.append(root)
        return tuple(found)


def _cgroup_reading(folder: Path) -> tuple[int | None, int]:
    """Limit and use of one control group; the limit is None where there is none."""
    for limit_name, use_name, stat_key in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        text = _first_line(folder / limit_name)
        limit = count(text) if text is not None else None
        if limit is None or limit >= _UNLIMITED:
            continue
        use = count(_first_line(folder / use_name) or "")
        cached = 0
        for line in _lines(folder / "memory.stat"):
            key, _, value = line.partition(" ")
            if key == stat_key:
                cached = count(value) or 0
        return limit, (use if use is not None else limit) - cached
    return None, 0


def _table(path: Path) -> dict[str, int]:
    """`Name:   123 kB` lines as bytes."""
    found: dict[str, int] = {}
    for line in _lines(path):
        name, _, rest = line.partition(":")
        words = rest.split()
        amount = count(words[0]) if len(words) == 2 and words[1] == "kB" else None
        if amount is not None:
            found[name] = amount << 10
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _first_line(path: Path) -> str | None:
    lines = _lines(path)
    return lines[0].strip() if lines else None
