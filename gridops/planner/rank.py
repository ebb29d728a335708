"""Which of the hosts that fit is best: one tuple of integers per host, compared from the left, lower is better.

Every term has a name and a unit, and the report shows winner and runner-up by these names. No term is a sum of
unlike things, so that a reader can say why without arithmetic. The host's name is the last word.
"""

from __future__ import annotations

from typing import NamedTuple

from gridops.base.ids import Digest
from gridops.model.fleet import HostClass
from gridops.model.snapshot import ResidencyState
from gridops.planner.capacity import Offer
from gridops.planner.eligible import Way
from gridops.planner.world import HostView, Standing

UNKNOWN_PRICE_MICRO = 10**15
"""A price nobody states counts as higher than any that is stated."""

_HALF_GIB = 1 << 29

READY, STARTING, CACHED, COLD = range(4)
"""How far the model has come on a host; less is sooner."""


class Rank(NamedTuple):
    """The terms, most important first."""

    same_domain: int
    """1 where the failure-domain minimum is not met and this host's domain has a replica already."""
    config: int
    """Position of the config in the profile's order of preference."""
    waits: int
    """1 where something has to leave the host first."""
    start: int
    """READY, STARTING, CACHED or COLD."""
    domain_replicas: int
    """Replicas of the profile that share the host's failure domain."""
    yields: int
    """2 a person's machine, 1 a throttled one, 0 neither."""
    unproposed: int
    """1 where a plan that waits for people puts the replica on another host. What is only a little better must not
    overturn what somebody is reviewing."""
    left_mib: int
    """Memory left on the fullest device, in whole GiB: tightest first, so that large gaps stay large. Coarse, because
    the use by others is a reading: two hosts that are alike must not change places with every heartbeat."""
    price_micro: int
    """What the host adds to the hourly price; 0 when it holds something already."""


def start_of(view: HostView, way: Way, launch: Digest) -> int:
    """How far the host has come with exactly this launch."""
    states = {r.state for r in view.ours if r.identity == launch}
    if ResidencyState.READY in states:
        return READY
    if states & {ResidencyState.WARMING, ResidencyState.LOADING}:
        return STARTING
    return CACHED if all(f.sha256 in view.cached for f in way.launch.artifact.files) else COLD


def rank(view: HostView, offer: Offer, start: int, position: int, holds: bool) -> Rank:
    """The terms of one offer, except those that depend on the replica and on where its profile's others stand."""
    price = 0 if holds else view.host.price_per_hour_micro
    yields = 2 if view.host.host_class is HostClass.OPPORTUNISTIC else int(view.standing is Standing.THROTTLED)
    return Rank(
        same_domain=0,
        config=position,
        waits=int(offer.waits),
        start=start,
        domain_replicas=0,
        yields=yields,
        unproposed=0,
        left_mib=offer.left_bytes >> 20,
        price_micro=UNKNOWN_PRICE_MICRO if price is None else price,
    )
