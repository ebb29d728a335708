"""Which of the hosts that fit is best: one tuple of integers per host, compared from the left, lower is better.

Every term has a name and a unit, and the report shows winner and runner-up by these names. Only `harm` is a sum, of
parts in one unit (`rank_harm`), and the report shows these too. The host's name is the last word. Filled by `seats`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from gridops.model.plan import Term

TERMS_KEPT = 4096
"""Terms that are kept to be said again: most are nothing on both hosts. Half or double: hardly felt."""

UNKNOWN_PRICE_MICRO = 10**15
"""A price nobody states counts as higher than any that is stated."""


class Rank(NamedTuple):
    """The terms, most important first."""

    same_domain: int
    """1 where the failure-domain minimum is not met and this host's domain has a replica already."""
    config: int
    """Position of the config in the profile's order of preference."""
    harm: int
    """Request-milliseconds lost over the horizon by choosing this host: the sum of the parts."""
    domain_replicas: int
    """Replicas of the profile that share the host's failure domain."""
    unproposed: int
    """1 where a plan that waits for people puts the replica on another host. What is only a little better must not
    overturn what somebody is reviewing."""
    price_micro: int
    """What the host adds to the hourly price; 0 when it holds something already, or where no host states a price."""
    filled_ppm: int
    """Where the profile fills evenly: the share of the host's memory, on the devices it may use, that would be taken by
    anybody. 0 where it fills tightly."""
    stranded_micro: int
    """Millionths of a wanted replica that lose their place here (`scarce`): places that kinds of replicas have now and
    would not have afterwards, each by the odds that it is needed. Keeps what is scarce for those who need it."""
    left_mib: int
    """Memory left on the fullest device: tightest first. 0 where the profile fills evenly."""

    harm_waiting: int = 0
    """Part of `harm`: until something else has left the host, by its drain grace."""
    harm_starting: int = 0
    """Until it serves: nothing where it is ready, half the warm time while it warms, the warm time where the artifact
    is, and the time to fetch on top elsewhere. Learned where it was learned, else by the link, else the profile's."""
    harm_failing: int = 0
    """Starts of this very revision that failed there: the next one may, too."""
    harm_slower: int = 0
    """Requests take longer than on the fastest of these hosts, as measured, else as its devices suggest."""
    harm_interrupted: int = 0
    """The owner comes back, or the host throttles further."""
    harm_reviewed: int = 0
    """What overturning a proposal under review has to be worth."""


def side_by_side(winner: Rank, runner_up: Rank | None) -> tuple[Term, ...]:
    """Both term by term, as a report shows them. Without a runner-up the winner alone."""
    second = (None,) * len(winner) if runner_up is None else runner_up
    return tuple(map(_term, winner._fields, winner, second))


@lru_cache(maxsize=TERMS_KEPT)
def _term(name: str, winner: int, runner_up: int | None) -> Term:
    return Term(name=name, winner=winner, runner_up=runner_up)


HARM_PARTS = tuple(name for name in Rank._fields if name.startswith("harm_"))
"""What `harm` is the sum of. They stand last: they explain, and decide only between equals."""
