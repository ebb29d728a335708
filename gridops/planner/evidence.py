"""Whose memory in a plan was measured, and by which evidence. For people who ask why; decides nothing.

Called by `gridops explain` with the inputs that the plan was made from.
"""

from __future__ import annotations

from collections.abc import Mapping

from gridops.base.ids import Digest, ReplicaId
from gridops.footprint.measured import nearest
from gridops.footprint.need import identity
from gridops.model.plan import Plan
from gridops.planner.views import look
from gridops.planner.world import Inputs


def measured_by(inputs: Inputs, plan: Plan) -> Mapping[ReplicaId, Digest]:
    """The evidence of every replica that is planned with what was measured."""
    world = look(inputs)
    launches = {identity(launch): launch for launch in plan.launches}
    found: dict[ReplicaId, Digest] = {}
    for a in plan.placement:
        view, launch, profile = world.hosts.get(a.seat.host), launches.get(a.launch), world.profiles.get(a.profile)
        config = profile.config(launch.config) if profile is not None and launch is not None else None
        if view is None or launch is None or config is None or not view.measured:
            continue
        places = view.places(room for room in view.rooms if room.id in a.seat.devices)
        best = nearest(config, launch.backend, places, view.measured)
        if best is not None and best.device_bytes == a.device_bytes:
            found[a.replica] = best.evidence
    return found
