"""A forecast: the demand to be expected of each profile over a horizon, and how sure that is. Never an observation.

Made by the `demand` room from observed requests, read by the planner, which decides what it is worth. It holds counts
and times of requests, never their content. All numbers are integers; these are the units beside the house's own:

* `_mrpm`: milli-requests per minute. 1,500 is a request and a half a minute.
* `_mlanes`: milli-lanes. A lane is one request in service at one replica; 7,200 is what 7.2 lanes would be busy with.

An absent forecast, one that is too old, and a profile without an entry all mean *unknown*, which is not zero: nothing
grows and nothing shrinks for it. Whoever knows that nothing is asked of a profile says so with an entry of zeros.
"""

from __future__ import annotations

from enum import StrEnum

from gridops.base.ids import ProfileName
from gridops.base.record import record


class Evidence(StrEnum):
    """What demand for a profile rests on, strongest first."""

    DIRECT = "direct"
    """Requests that asked for the profile by one of its ids."""
    AUTHORISED = "authorised"
    """Requests for a workload that people allowed this profile to serve (`workloads` of the profile)."""
    CORRELATED = "correlated"
    """Only that others are in demand, after which this one has been, or with which it goes. Nobody has asked for it."""


@record
class Band:
    """What the rate will be over the horizon: the 10th, 50th and 90th percentile, low <= likely <= high, in mrpm."""

    low: int = 0
    likely: int = 0
    high: int = 0


@record
class Watermark:
    """How high demand has stood: offered concurrency at a moment. Of requests alone, never of predictions."""

    at_ms: int
    offered_mlanes: int


@record
class ProfileForecast:
    """What is expected of one profile. The strongest evidence there is names the class of the whole entry."""

    profile: ProfileName
    evidence: Evidence = Evidence.DIRECT
    """An entry from before there were classes is direct."""
    rate_mrpm: Band = Band()
    """Of all requests to come, observed and inferred ones."""
    observed_mrpm: int = 0
    """Rate of requests that did arrive for it. Never raised by an inference."""
    inferred_mrpm: int = 0
    """The part of the likely rate that only a correlation suggests. Not: what workloads offer by people's leave."""
    offered_mlanes: int | None = None
    """Offered concurrency at the likely rate (Little's law: rate times mean service time), without who waits in the
    queue. None: service times are not known, so the profile's own `demand.service` is taken."""
    queue: int = 0
    """Largest number of requests that waited at one time lately."""
    p95_ms: int | None = None
    """95th percentile of response time lately, waiting included. None: too few responses."""
    error_ppm: int = 0
    """Share of requests that failed for want of capacity or by fault of the replica."""
    confidence_ppm: int = 0
    """How far the numbers rest on enough requests over a long enough time; weighs the trend and weak evidence."""
    trend_mrpm: int = 0
    """Change of the likely rate per minute; may be negative."""
    last_used_ms: int | None = None
    """When a request for it last came or ended, in controller time. None: none is remembered."""
    watermarks: tuple[Watermark, ...] = ()
    """The highest levels lately, oldest first: at least those of the profile's `timing.scale_down_after`, so many as
    the maximum over any later part of that time needs. Empty: not known."""


@record
class Forecast:
    """What is expected of the profiles of a fleet."""

    made_ms: int
    """Controller time of the newest observation it rests on."""
    horizon_ms: int
    """How far from `made_ms` on the bands reach."""
    profiles: tuple[ProfileForecast, ...] = ()
    """Sorted by name, one entry a profile."""

    def of(self, profile: ProfileName) -> ProfileForecast | None:
        """None: nothing is known of it."""
        return next((p for p in self.profiles if p.profile == profile), None)
