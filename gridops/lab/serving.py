"""Which processes really serve, and did lately: what the auditor judges a stop by. Asks nothing of the controller.

It is looked at after every step of a run, and most steps change nothing: who serves is counted anew only where a host
has another memory, a process came or went, or one that was awaited is there by now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gridops.base.ids import Digest, HostId, ProfileName, ReplicaId
from gridops.lab.gone import Gone
from gridops.lab.procs import NEVER_MS
from gridops.model.snapshot import ResidencyState

if TYPE_CHECKING:
    from gridops.lab.host import LabHost


class Serving:
    """Of each process that ever served: its profile, since when, and when it was last seen to."""

    def __init__(self, hosts: Mapping[HostId, LabHost], gone: Gone) -> None:
        self._hosts = hosts
        self._gone = gone
        self._seen: dict[HostId, tuple[object, int]] = {}
        self._due_ms = 0
        """When the next process is there that was not yet."""
        self._now_ms = 0
        self._now: dict[Digest, tuple[ProfileName, int]] = {}
        self._past: dict[Digest, tuple[ProfileName, int, int]] = {}
        self._where: dict[Digest, HostId] = {}
        self.called: dict[Digest, ReplicaId] = {}
        """Which replica each of them serves, or did, as its host calls it."""

    def look(self, now_ms: int) -> None:
        """After each step."""
        changed = now_ms >= self._due_ms
        for name, host in self._hosts.items():
            known = self._seen.get(name)
            if known is None or known[0] is not host.host or known[1] != host.processes.turns:
                self._seen[name] = host.host, host.processes.turns
                changed = True
        if changed:
            self._count(now_ms)
        self._now_ms = now_ms

    def lately(self) -> dict[Digest, tuple[ProfileName, int, int]]:
        """Everybody, in the order in which they first served."""
        found = dict(self._past)
        found.update({body: (profile, since_ms, self._now_ms) for body, (profile, since_ms) in self._now.items()})
        return found

    def forget(self, host: HostId) -> None:
        """Nobody of this host counts any more, nor did lately."""
        for known in (self._now, self._past):
            for body in [body for body in known if self._where[body] == host]:
                del known[body]
        self._seen.pop(host, None)

    def back(self, host: HostId, now_ms: int) -> None:
        """It was gone and speaks again: whoever serves there counts from now on, though nothing changed with itself."""
        self._seen.pop(host, None)
        self.look(now_ms)

    def _count(self, now_ms: int) -> None:
        self._past = self.lately()
        self._now, self._due_ms = {}, NEVER_MS
        for name, host in self._hosts.items():
            if name in self._gone:
                continue
            for process in host.processes.living.values():
                if process.listed_ms > now_ms:
                    self._due_ms = min(self._due_ms, process.listed_ms)
                    continue
                held = host.host.held.get(process.body)
                if held is not None and held.state is ResidencyState.READY:
                    self._where[process.body], self.called[process.body] = name, held.replica
                    _, since_ms, last_ms = self._past.setdefault(process.body, (held.profile, now_ms, self._now_ms))
                    self._now[process.body] = held.profile, since_ms if last_ms == self._now_ms else now_ms
