"""What a forecast means in lanes: the demand of one profile, how it is pressed, and where a rising trend leads.

Arithmetic only, exact until the last step and rounded up there. Called by `sizing`, which turns lanes into replicas,
and by `harm`. It looks at no replica: the same forecast presses the same whatever stands, so that adding a replica
never is a reason to add another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gridops.base.ids import ProfileName
from gridops.base.units import PPM
from gridops.model.forecast import Evidence, ProfileForecast
from gridops.model.policy import LookAhead
from gridops.model.profile import Profile
from gridops.planner.constants import (
    ERROR_NOTICED_PPM,
    ERROR_PRESSURE_PPM,
    FORECAST_VALID_MS,
    LATENCY_PRESSURE_PPM,
)
from gridops.planner.world import World, clock

MINUTE_MS = 60_000
MILLI = 1_000


@dataclass(frozen=True, slots=True)
class Pressure:
    """What presses on a profile. Factors are in ppm and never below one."""

    offered_mlanes: int
    queue: int = 0
    latency_ppm: int = PPM
    error_ppm: int = PPM

    def felt(self, profile: Profile) -> bool:
        """Something besides demand itself says that the replicas do not suffice."""
        waits = self.queue >= profile.demand.queue_per_replica
        return waits or self.latency_ppm > PPM or self.error_ppm > PPM


def known(world: World) -> Mapping[ProfileName, ProfileForecast]:
    """The entries of a forecast that is fresh enough, by the declared name of their profile; else none."""
    forecast = world.inputs.forecast
    if forecast is None or not is_recent(world, forecast.made_ms, FORECAST_VALID_MS):
        return {}
    entries = {e.profile: e for e in forecast.profiles}
    found = {}
    for name, profile in world.profiles.items():
        old = profile.renamed_from
        entry = entries.get(name)
        if entry is None and old is not None and old not in world.profiles:
            entry = entries.get(old)
        if entry is not None:
            found[name] = entry
    return found


def is_recent(world: World, at_ms: int, within_ms: int) -> bool:
    """Less than `within_ms` ago. A moment that lies further ahead than clocks may differ is no evidence of anything."""
    return -world.planning.heartbeat.future_skew_ms <= clock(world.inputs) - at_ms < within_ms


def is_used(world: World, profile: Profile, entry: ProfileForecast) -> bool:
    """Somebody used it within its cooldown."""
    last = entry.last_used_ms
    return last is not None and is_recent(world, last, profile.timing.scale_down_after_ms)


def is_asked(world: World, profile: Profile, entry: ProfileForecast) -> bool:
    """There is demand that counts: direct demand is over when the last use lies longer back than the cooldown."""
    if entry.evidence is Evidence.DIRECT and entry.last_used_ms is not None and not is_used(world, profile, entry):
        return False
    return offered(profile, entry, entry.rate_mrpm.likely) > 0 or pressure_of(profile, entry, 0).felt(profile)


def offered(profile: Profile, entry: ProfileForecast, rate_mrpm: int) -> int:
    """Offered concurrency at a rate: as measured, in proportion, or by the profile's own service time. Rounded up."""
    rate, likely = max(0, rate_mrpm), entry.rate_mrpm.likely
    if entry.offered_mlanes is None or (likely <= 0 and rate > 0):
        return ceil(rate * profile.demand.service_ms, MINUTE_MS)
    measured = max(0, entry.offered_mlanes)
    return measured if likely <= 0 else ceil(measured * rate, likely)


def observed(profile: Profile, entry: ProfileForecast) -> int:
    """Offered concurrency without the part that only a correlation suggests."""
    return offered(profile, entry, entry.rate_mrpm.likely - max(0, entry.inferred_mrpm))


def pressure_of(profile: Profile, entry: ProfileForecast, offered_mlanes: int) -> Pressure:
    """The demand with what presses on it. A mere correlation says nothing about queues, latency or errors."""
    if entry.evidence is Evidence.CORRELATED:
        return Pressure(offered_mlanes)
    late = (entry.p95_ms or 0) * PPM // profile.demand.latency_slo_ms if profile.demand.latency_slo_ms else PPM
    failing = entry.error_ppm if entry.error_ppm >= ERROR_NOTICED_PPM else 0
    return Pressure(
        offered_mlanes,
        queue=max(0, entry.queue),
        latency_ppm=min(LATENCY_PRESSURE_PPM, max(PPM, late)),
        error_ppm=PPM + min(ERROR_PRESSURE_PPM, failing),
    )


def slots(profile: Profile, pressure: Pressure, headroom_ppm: int) -> int:
    """Lanes that should stand: demand with headroom at the target utilisation, and enough for who waits.

    The queue is counted in lanes, like demand: whoever waits needs a lane, and a wide replica brings several.
    Latency multiplies the demand and not the queue: waiting shows in both, and would be counted twice.
    """
    busy = pressure.offered_mlanes * (PPM + headroom_ppm) * pressure.latency_ppm * pressure.error_ppm
    wanted = ceil(busy, MILLI * max(1, profile.demand.utilization_ppm) * PPM * PPM)
    waiting = ceil(pressure.queue * pressure.error_ppm, max(1, profile.demand.queue_per_replica) * PPM)
    return max(wanted, waiting)


def ahead(entry: ProfileForecast, reach_ms: int, rule: LookAhead) -> int:
    """The rate to which a rising trend leads within the reach, weighed by confidence and bounded, in mrpm.

    A falling trend leads nowhere: it never makes anything go sooner.
    """
    rate, trend = max(0, entry.rate_mrpm.likely), max(0, entry.trend_mrpm)
    reach = min(max(0, reach_ms), rule.max_ms)
    sure = min(PPM, max(0, entry.confidence_ppm))
    grown = rate + ceil(trend * reach * sure, MINUTE_MS * PPM)
    return min(grown, max(rate, ceil(rate * rule.growth_ppm, PPM)))


def ceil(number: int, by: int) -> int:
    """Division of integers, rounded up."""
    return -(-number // by)
