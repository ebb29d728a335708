"""Systems without procfs, macOS first: the same answers through psutil. Runs on Linux too, where tests compare it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import psutil

from gridops_agent.platform.base import Memory, Process, send_by_pid


class Portable:
    """psutil behind the platform protocol. macOS knows no control groups and no pidfd."""

    def process(self, pid: int) -> Process | None:
        try:
            seen = psutil.Process(pid)
            born, state = seen.create_time(), seen.status()
            group, session = os.getpgid(pid), os.getsid(pid)
        except (psutil.Error, OSError):
            return None
        dead = state in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return Process(pid=pid, birth=f"at:{round(born * 1000)}", group=group, session=session, zombie=dead)

    def processes(self) -> Iterator[Process]:
        for pid in sorted(psutil.pids()):
            found = self.process(pid)
            if found is not None:
                yield found

    def environment(self, pid: int) -> Mapping[str, str] | None:
        try:
            return dict(psutil.Process(pid).environ()) or None
        except (psutil.Error, OSError):
            return None

    def executable(self, pid: int) -> str | None:
        try:
            return psutil.Process(pid).exe() or None
        except (psutil.Error, OSError):
            return None

    def own_memory_bytes(self, pid: int) -> int:
        try:
            return int(psutil.Process(pid).memory_full_info().uss)
        except (psutil.Error, OSError):
            return 0

    def memory(self) -> Memory:
        seen = psutil.virtual_memory()
        return Memory(total_bytes=int(seen.total), used_bytes=int(seen.total - seen.available))

    def send(self, process: Process, number: int) -> bool:
        return send_by_pid(self.process, process, number)
