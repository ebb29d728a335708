"""Which of the hosts that fit is best: one tuple of integers per host, compared from the left, lower is better.

Every term has a name and a unit, and the report shows winner and runner-up by these names. No term is a sum of
unlike things, so that a reader can say why without arithmetic. The host's name is the last word. Filled by `seats`.
"""

from __future__ import annotations

from typing import NamedTuple


class Rank(NamedTuple):
    """The terms, most important first."""

    same_domain: int
    """1 where the failure-domain minimum is not met and this host's domain has a replica already."""
    config: int
    """Position of the config in the profile's order of preference."""
    waits: int
    """1 where something has to leave the host first."""
    start_ms: int
    """Time until it serves: 0 where it is ready, half the warm time while it warms, the warm time where the artifact
    is, and the time to fetch on top elsewhere (by the host's known link, else the profile's own guess)."""
    domain_replicas: int
    """Replicas of the profile that share the host's failure domain."""
    yields: int
    """2 a person's machine, 1 a throttled one, 0 neither."""
    unproposed: int
    """1 where a plan that waits for people puts the replica on another host. What is only a little better must not
    overturn what somebody is reviewing."""
    price_micro: int
    """What the host adds to the hourly price; 0 when it holds something already, or where no host states a price."""
    stranded_mib: int
    """Memory here that the declared profiles, each by its share of all wanted replicas, can use now and could not use
    afterwards (`scarce`). Keeps large gaps for those who need them."""
    left_mib: int
    """Memory left on the fullest device: tightest first."""
