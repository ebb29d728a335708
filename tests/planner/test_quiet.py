"""Quiet: what stands goes on standing, however measurements jitter, as long as nothing has happened.

A tick of noise changes what is measured and nothing else: how much others use of a device (within the headroom), how
old heartbeats are, how long starts took, how fast hosts answer, what is in flight, and the demand to be expected.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from gridops.model.forecast import Band, Forecast, ProfileForecast, Watermark
from gridops.model.learned import FailedStarts, Learned, LearnedTime, MeasuredSpeed, TimeKind
from gridops.model.plan import Plan
from gridops.model.policy import BudgetPolicy, MoveLimits, ScopeBudgets
from gridops.model.profile import DeviceNeed, Profile, Spread, Timing
from gridops.model.snapshot import ResidencyState
from gridops.planner.learned import revision_of
from gridops.planner.planner import Recall, plan
from tests.planner.fleet import SCOPE, Fleet, config, host, laptop, profile, report
from tests.planner.worlds import later, make_fleet, rolled

TICK_MS = 10_000
CALM, LOUD = 970_000, 1_000_000
"""Measured demand, in parts of what the fleet was settled for."""


# -- noise ------------------------------------------------------------------------------------------------------------


def noisy(fleet: Fleet, calm: Fleet, chance: random.Random) -> Fleet:
    """One tick later, with everything measured anew. `calm`: what others use of devices at least."""
    fleet = fleet.but(now=fleet.now + TICK_MS)
    least = {(r.host, d.id): d.external_bytes for r in calm.snapshot().hosts for d in r.devices}
    for declared in fleet.hosts:
        seen = fleet.reports.get(declared.id, report(declared, at=fleet.now))
        if seen is None or seen.goodbye or not 0 <= fleet.now - seen.observed_ms <= 80_000:
            continue
        margin = fleet.policy.headroom.memory_ppm
        devices = tuple(
            replace(
                d,
                external_bytes=least[declared.id, d.id] + d.total_bytes * chance.randrange(margin) // 1_000_000,
            )
            for d in seen.devices
        )
        at_work = tuple(
            replace(r, in_flight=chance.randrange(6)) if r.state is ResidencyState.READY else r
            for r in seen.residencies
        )
        age = chance.randrange(60_000)
        fleet = fleet.reporting(declared.id, devices=devices, residencies=at_work, observed_ms=fleet.now - age)
    return fleet.but(learned=_learned(fleet, chance), forecast=_demand(fleet, chance))


def _learned(fleet: Fleet, chance: random.Random) -> Learned:
    times, speeds, failures = list[LearnedTime](), list[MeasuredSpeed](), list[FailedStarts]()
    for n, declared in enumerate(fleet.hosts):
        for p in fleet.profiles[n % 3 :: 3]:
            first = p.configs[0]
            about: dict[str, Any] = {"host": declared.id, "profile": p.name, "config": first.name}
            about["revision"] = revision_of(first.artifact)
            took = chance.randrange(4_000, 90_000)
            times.append(LearnedTime(**about, kind=TimeKind.WARM, count=8, ewma_ms=took, last_ms=fleet.now))
            rate = chance.randrange(10_000, 60_000)
            speeds.append(MeasuredSpeed(**about, tokens_mps=rate, tokens_count=40, tokens_at_ms=fleet.now))
            failures.append(FailedStarts(**about, count=chance.randrange(3), last_ms=fleet.now))
    return Learned(times=tuple(times), speeds=tuple(speeds), failures=tuple(failures))


def _demand(fleet: Fleet, chance: random.Random) -> Forecast | None:
    old = fleet.forecast
    if old is None:
        return None
    entries = tuple(_entry(e, fleet.now, chance) for e in old.profiles)
    return replace(old, made_ms=fleet.now, profiles=entries)


def _entry(e: ProfileForecast, now: int, chance: random.Random) -> ProfileForecast:
    """Up to 3 % less than the highest level of late, and whoever waits or suffers does so by chance.

    The highest level stays in the watermarks: it was reached within the cooldown.
    """
    high = max((w.offered_mlanes for w in e.watermarks), default=e.offered_mlanes or 0)
    lanes = high * chance.randrange(CALM, LOUD + 1) // LOUD
    rate = lanes * 12
    return replace(
        e,
        rate_mrpm=Band(low=rate // 2, likely=rate, high=rate),
        observed_mrpm=rate,
        offered_mlanes=lanes,
        p95_ms=chance.randrange(500, 4_000),
        error_ppm=chance.randrange(5_000),
        last_used_ms=now - chance.randrange(5_000) if high else e.last_used_ms,
        watermarks=(Watermark(at_ms=now - 60_000, offered_mlanes=high),),
    )


def demand(*profiles: Profile, lanes: int = 2_000) -> Forecast:
    """Everybody is asked for, some more than others."""
    entries = []
    for n, p in enumerate(sorted(profiles, key=lambda p: p.name)):
        level = lanes * (1 + n % 4)
        entries.append(ProfileForecast(profile=p.name, confidence_ppm=1_000_000, offered_mlanes=level))
    return Forecast(made_ms=0, horizon_ms=300_000, profiles=tuple(entries))


# -- fleets -----------------------------------------------------------------------------------------------------------


def sixty_four(load: int) -> Fleet:
    """64 hosts of five kinds and 24 profiles; `load`: replicas that each profile wants at least."""
    hosts = [host(f"one{n:02}", (24,), rack=f"r{n % 6}") for n in range(30)]
    hosts += [host(f"two{n:02}", (24, 24), rack=f"r{n % 6}") for n in range(16)]
    hosts += [host(f"big{n:02}", (80,), rack=f"r{n % 6}") for n in range(10)]
    hosts += [laptop(f"mac{n:02}", 32) for n in range(8)]
    return Fleet(hosts=tuple(hosts), profiles=tuple(_wanted(n, load) for n in range(24)))


def _wanted(n: int, load: int) -> Profile:
    size, pair = (6, 11, 16, 21, 40)[n % 5], n % 8 == 3
    devices = DeviceNeed(count=2, shard="tensor") if pair else DeviceNeed()
    backends = ("cuda", "metal") if n % 4 == 0 else ("cuda",)
    return profile(
        f"p{n:02}",
        load,
        replicas_max=load + 3,
        priority=(50, 100, 200)[n % 3],
        configs=(config(f"p{n:02}", 12 if pair else size, devices=devices, backends=backends),),
        spread=Spread(by="rack", min=2) if n % 5 == 0 and load > 1 else None,
        max_per_host=1 + n % 2,
        timing=Timing(min_residency_ms=0, scale_down_after_ms=900_000),
    )


def crowded(seed: int) -> Fleet:
    """More is wanted than there is room for: somebody always waits, and room is looked for at every tick."""
    chance = random.Random(seed)
    wanted = tuple(
        profile(
            f"p{n}",
            chance.randrange(1, 4),
            gib=chance.choice((4, 6, 9, 12, 18)),
            priority=chance.choice((50, 100, 200)),
            max_per_host=chance.choice((1, 2)),
            timing=Timing(min_residency_ms=0),
        )
        for n in range(8)
    )
    hosts = tuple(host(f"h{n}", chance.choice(((24,), (24, 24), (48,))), rack=f"r{n % 2}") for n in range(5))
    limits = BudgetPolicy(scopes=(ScopeBudgets(scope=SCOPE, moves=MoveLimits(per_plan=99)),))
    return Fleet(hosts=hosts, profiles=wanted, more={"budgets": limits})


def settled(fleet: Fleet) -> Fleet:
    """Planned and carried out until nothing is left to do."""
    last: Plan | None = None
    for _ in range(8):
        made = fleet.plan()
        if made.to_do == ():
            return fleet
        last, fleet = made, later(made, fleet)
    raise AssertionError(f"still at it: {last.to_do if last is not None else ()}")


def stays_quiet(fleet: Fleet, seed: int, ticks: int) -> None:
    chance, recall = random.Random(seed), Recall()
    fleet = calm = settled(fleet.but(forecast=_demand(fleet, chance)))
    stood = None
    for tick in range(ticks):
        fleet = noisy(fleet, calm, chance)
        made = plan(fleet.inputs(), recall) if tick % 10 else fleet.plan()
        assert made.to_do == (), f"tick {tick}: {[(d.kind.value, d.replica, d.cause.detail) for d in made.to_do]}"
        where = {a.replica: (a.seat, a.launch) for a in made.placement}
        assert stood in (None, where)
        stood = where


# -- tests ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lanes", "ticks"), [(700, 100), (2_000, 12)], ids=["roomy", "full"])
def test_a_hundred_ticks_of_noise_move_nothing_on_64_hosts(lanes: int, ticks: int) -> None:
    fleet = sixty_four(2)
    stays_quiet(fleet.but(forecast=demand(*fleet.profiles, lanes=lanes)), seed=1, ticks=ticks)


@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_ticks_of_noise_move_nothing_in_a_crowd(seed: int) -> None:
    fleet = crowded(seed)
    stays_quiet(fleet.but(forecast=demand(*fleet.profiles) if seed % 2 else None), seed, ticks=100)


@pytest.mark.parametrize("seed", range(16))
def test_ticks_of_noise_move_nothing_in_a_rolled_world(seed: int) -> None:
    fleet = make_fleet(rolled(1_000 + seed))
    stays_quiet(fleet.but(forecast=demand(*fleet.profiles, lanes=200)), seed, ticks=40)
