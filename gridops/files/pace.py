"""How often so many hosts may speak: what `policies/planning.yaml` asks, stretched where the fleet is large.

One controller answers a number of heartbeats a second, not a number for each host. Where all hosts together would say
more than that, every host is asked for less, and what silence means moves with it: a host is called lost as long after
a heartbeat that did not come as the file says. Called for every commit that is read, so the controller, the planner,
the checker and the command line go by the same numbers. It never shortens what the file says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gridops.base import limits
from gridops.model.fleet import Host, HostClass
from gridops.model.policy import PlanningPolicy


def paced(planning: PlanningPolicy, hosts: Iterable[Host]) -> PlanningPolicy:
    """The policy with the heartbeat that these hosts can keep; the same object while the file's own can be kept."""
    speaking = sum(1 for host in hosts if host.host_class is not HostClass.EXTERNAL)
    beat = planning.heartbeat
    longer_ms = min(interval_ms(speaking), LONGEST_MS) - beat.every_ms
    if longer_ms <= 0:
        return planning
    stretched = replace(
        beat,
        every_ms=beat.every_ms + longer_ms,
        stale_after_ms=beat.stale_after_ms + longer_ms,
        recovery_grace_ms=beat.recovery_grace_ms + longer_ms,
    )
    return replace(planning, heartbeat=stretched)


def interval_ms(hosts: int) -> int:
    """So far apart each of so many hosts may speak, that all together stay within the rate."""
    return -(-hosts * 1_000 // limits.HEARTBEATS_PER_S)


LONGEST_MS = limits.POLL_MOST_MS * 8 // 9
"""With an eighth of spread on top, the longest wish that agents follow."""
