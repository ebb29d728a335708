"""Hosts that people have parted with: expunged, taken out of the files, or written off until they speak again.

Nobody waits for what such a host was asked: no apply, no end of another replica, no seat. It stays in its outbox all
the same, because a host that was written off may come back and say how it ended. Asked by whatever looks at open
commands of all hosts; memory is not counted here, `observe` and the planner do that.
"""

from __future__ import annotations

from gridops.base.ids import HostId
from gridops.controller.core.state import State


def parted(state: State, host: HostId) -> bool:
    """Whether what this host was asked counts for nothing until people, or the host itself, say otherwise."""
    book, accepted = state.hosts.get(host), state.accepted
    if book is not None and book.written_off_ms is not None:
        return True
    if accepted is None:
        return False
    key = next((k for k in accepted.desired.keys if k.host == host), None)
    return key is None or key.expunged or all(h.id != host for h in accepted.desired.hosts)
