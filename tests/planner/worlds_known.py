"""What may be known besides hosts and profiles in a generated world: demand, learned times, guesses on disks.

Called by `worlds`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gridops.model.advice import Prefetched
from gridops.model.forecast import Band, Evidence, Forecast, ProfileForecast, Watermark
from gridops.model.learned import FailedStarts, Learned, LearnedTime, MeasuredSpeed, TimeKind
from gridops.model.profile import Profile
from gridops.planner.learned import revision_of
from tests.planner.fleet import Fleet, report

if TYPE_CHECKING:
    from tests.planner.worlds import Cook

MINUTE = 60_000
LANES = (0, 100, 900, 3_000, 20_000)


def make_forecast(cook: Cook, fleet: Fleet) -> Forecast | None:
    """Demand for some of the profiles, of every kind of evidence; for the others it is unknown."""
    if cook.pick((True, False)):
        return None
    entries = [e for p in fleet.profiles if (e := _entry(cook, p, fleet.now)) is not None]
    made = fleet.now - cook.pick((0, 30_000, 30_000, 10 * MINUTE))
    return Forecast(made_ms=made, horizon_ms=5 * MINUTE, profiles=tuple(sorted(entries, key=lambda e: e.profile)))


def _entry(cook: Cook, profile: Profile, now: int) -> ProfileForecast | None:
    lanes = cook.pick((None, *LANES))
    if lanes is None:
        return None
    rate = lanes * 12
    return ProfileForecast(
        profile=profile.name,
        evidence=cook.pick((*Evidence, Evidence.DIRECT)),
        rate_mrpm=Band(low=rate // 2, likely=rate, high=rate * 2),
        observed_mrpm=rate,
        inferred_mrpm=cook.pick((0, 0, rate // 2)),
        offered_mlanes=cook.pick((lanes, lanes, None)),
        queue=cook.pick((0, 0, 3, 40)),
        p95_ms=cook.pick((None, 900, 20_000)),
        error_ppm=cook.pick((0, 0, 30_000)),
        confidence_ppm=cook.pick((1_000_000, 300_000)),
        trend_mrpm=cook.pick((0, 0, -2_000, 2_000)),
        last_used_ms=cook.pick((now, now - 20 * MINUTE, None)) if lanes else None,
        watermarks=cook.pick(((), (Watermark(at_ms=now - MINUTE, offered_mlanes=lanes),))),
    )


def make_learned(cook: Cook, fleet: Fleet) -> Learned | None:
    """A few times, failures and speeds of hosts and profiles that exist."""
    if not fleet.hosts or not fleet.profiles or cook.pick((True, False)):
        return None
    times, failures, speeds = list[LearnedTime](), list[FailedStarts](), list[MeasuredSpeed]()
    for _ in range(cook.pick((1, 3, 6))):
        host, profile = cook.pick(fleet.hosts).id, cook.pick(fleet.profiles)
        config = profile.configs[0]
        last = fleet.now - cook.pick((MINUTE, 600 * MINUTE))
        about: dict[str, Any] = {"host": host, "profile": profile.name, "config": config.name}
        about["revision"] = revision_of(config.artifact)
        ms, kind = cook.pick((500, 30_000, 400_000)), cook.pick(tuple(TimeKind))
        times.append(LearnedTime(**about, kind=kind, count=cook.pick((1, 9)), ewma_ms=ms, last_ms=last))
        failures.append(FailedStarts(**about, count=cook.pick((0, 1, 3)), last_ms=last))
        speeds.append(MeasuredSpeed(**about, tokens_mps=cook.pick((5_000, 50_000)), tokens_count=40, tokens_at_ms=last))
    return Learned(times=tuple(times), failures=tuple(failures), speeds=tuple(speeds))


def make_prefetched(cook: Cook, fleet: Fleet) -> Fleet:
    """Files that a host fetched on a guess and still holds."""
    if not fleet.hosts or not fleet.profiles or cook.pick((True, True, False)):
        return fleet
    host, profile = cook.pick(fleet.hosts), cook.pick(fleet.profiles)
    files = profile.configs[0].artifact.files
    seen = fleet.reports.get(host.id, report(host, at=fleet.now))
    if seen is None:
        return fleet
    names = tuple(f.sha256 for f in files)
    guess = Prefetched(
        host=host.id,
        profile=profile.name,
        files=names,
        size_bytes=sum(f.size_bytes for f in files),
        since_ms=fleet.now - cook.pick((MINUTE, 600 * MINUTE)),
    )
    fleet = fleet.reporting(host.id, cached=tuple(sorted({*seen.cached, *names})))
    return fleet.but(prefetched=(guess,))
