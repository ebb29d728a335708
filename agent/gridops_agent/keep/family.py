"""Who listens on a port of this machine, and which processes belong to one: for engines that carry no mark of ours.

Only looks. A number that the system does not tell (another person's process, macOS without rights) is None: unknown.
"""

from __future__ import annotations

import psutil

from gridops_agent.platform.base import Platform, Process


def listener(platform: Platform, port: int) -> Process | None:
    """The process that listens on this port; None when nobody does, or the system does not say who."""
    try:
        open_ports = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return None
    pids = {c.pid for c in open_ports if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port and c.pid}
    for pid in sorted(pids):
        found = platform.process(pid)
        if found is not None and not found.zombie:
            return found
    return None


def listens(platform: Platform, process: Process, port: int) -> bool | None:
    """Whether this process or one of its family listens on the port; None when the system does not say."""
    found = listener(platform, port)
    if found is None:
        return None
    return found.pid in {p.pid for p in family(platform, process)}


def family(platform: Platform, process: Process) -> tuple[Process, ...]:
    """A process with its session or its group, if it leads one; else only itself, for the others may be anybody's."""
    if process.pid == process.session:
        others = (p for p in platform.processes() if p.session == process.session or p.group == process.pid)
    elif process.pid == process.group:
        others = (p for p in platform.processes() if p.group == process.pid)
    else:
        return (process,)
    return tuple(sorted((p for p in others if not p.zombie), key=lambda p: p.pid))
