"""Where a waiting proposal has lost its room, because others took memory after it was planned.

A reading is no reason to plan. This one is: what waits for people would be refused by the host, or would crowd it.
Called by `propose` at each pass; the planner decides anew what fits, nothing is decided here.
"""

from __future__ import annotations

from collections import defaultdict

from gridops.base.ids import DeviceId, HostId
from gridops.controller.core.roster import Roster
from gridops.controller.core.soft import Soft
from gridops.footprint.ledger import ram_of, rooms
from gridops.model.fleet import Host
from gridops.model.plan import Assignment, Plan


def crowded(waits: Plan, soft: Soft, roster: Roster) -> tuple[HostId, ...]:
    """Hosts that a proposal brings something to, and whose complete intended use is more than they have by now."""
    brings = {d.target.host for d in waits.to_do if d.target is not None and d.launch is not None}
    intended: dict[HostId, list[Assignment]] = defaultdict(list)
    for one in waits.placement:
        if one.seat.host in brings:
            intended[one.seat.host].append(one)
    hosts = (h for h in roster.hosts_of(waits.scope) if h.id in intended)
    return tuple(sorted(h.id for h in hosts if _over(h, intended[h.id], soft, roster)))


def _over(host: Host, intended: list[Assignment], soft: Soft, roster: Roster) -> bool:
    heard = soft.hosts.get(host.id)
    if heard is None:
        return False  # silence has words of its own
    found = rooms(host, heard.report, roster.desired.planning.headroom.memory_ppm)
    ram = ram_of(found)
    use: dict[DeviceId, int] = defaultdict(int)
    for one in intended:
        for device in one.seat.devices:
            use[device] += one.device_bytes
        if ram is not None:
            use[ram.id] += one.host_bytes
    return any(use[room.id] > room.open_bytes for room in found)
