"""What the agent needs of an operating system. Implemented by `linux` (procfs, cgroups) and `portable` (psutil)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Process:
    """A process at one moment. `pid` and `birth` together name it for ever: a reused pid has another birth."""

    pid: int
    birth: str
    group: int
    session: int
    zombie: bool


@dataclass(frozen=True, slots=True)
class Memory:
    """Host RAM: `total_bytes` is the smaller of the machine's and the control group's limit."""

    total_bytes: int
    used_bytes: int
    unified: bool = False
    """Processor and graphics share it (Apple silicon): it is the device of both."""
    graphics_bytes: int | None = None
    """How much of it graphics may take, where the system bounds that."""


class Platform(Protocol):
    """Mechanisms. Every question about a process that is gone answers None, zero or False; none raises."""

    def process(self, pid: int) -> Process | None:
        """The process that has this pid now, zombies included."""
        ...

    def processes(self) -> Iterator[Process]:
        """Every process that can be seen."""
        ...

    def environment(self, pid: int) -> Mapping[str, str] | None:
        """The environment it was started with; None when it cannot be read (which proves nothing)."""
        ...

    def executable(self, pid: int) -> str | None:
        """Absolute path of the running program."""
        ...

    def own_memory_bytes(self, pid: int) -> int:
        """Anonymous and shared memory; mapped files are not counted, since they are given back when asked for."""
        ...

    def memory(self) -> Memory:
        """Host RAM now."""
        ...

    def send(self, process: Process, number: int) -> bool:
        """Signal exactly this process (pid and birth). False when it is gone."""
        ...


def send_by_pid(seen: Callable[[int], Process | None], process: Process, number: int) -> bool:
    """A signal to a process where no handle names it: it is looked at first, so that a pid which now is another's is
    left alone. False when it is gone."""
    now = seen(process.pid)
    if now is None or now.birth != process.birth:
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True
