"""A fleet that has been lived in: known links, learned times, failures, speeds, demand, guesses on disks, a proposal.

Made from a seed for `constants`: everything that a constant of the planner can act upon is there, with ages and
amounts on both sides of it. Nothing in it is measured anywhere.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from gridops.base.ids import HostId, ProfileName
from gridops.model.advice import Prefetched
from gridops.model.fleet import Device, DeviceKind, Host, HostClass, Link, Runtime
from gridops.model.forecast import Band, Evidence, Forecast, ProfileForecast, Watermark
from gridops.model.learned import FailedStarts, Lead, Learned, LearnedTime, MeasuredSpeed, TimeKind
from gridops.model.policy import PlanningPolicy, Search
from gridops.model.profile import Modality, Profile, Timing
from gridops.model.snapshot import HostReport, HostState
from gridops.planner.learned import Key, key_of
from gridops.planner.planner import Inputs, plan
from tests.planner.fleet import GIB, NOW, Fleet, config, profile, report

MINUTE, DAY = 60_000, 86_400_000
MODELS = (("Tesla T4", 16), ("NVIDIA L4", 24), ("RTX 4090", 24), ("L40S", 48), ("A100-SXM4-80GB", 80), ("Voodoo 2", 24))


@dataclass(frozen=True)
class LivedIn:
    """What a plan is made from; `waits` is the same with a proposal under review that noise has passed since."""

    inputs: Inputs
    waits: Inputs


def lived_in(seed: int, hosts: int = 20, profiles: int = 12) -> LivedIn:
    """One fleet: the same for the same seed."""
    chance = random.Random(seed)
    machines = tuple(_host(chance, n) for n in range(hosts))
    wanted = tuple(_profile(chance, n) for n in range(profiles))
    reports: dict[str, HostReport | None] = {h.id: _report(chance, h, wanted) for h in machines}
    few = PlanningPolicy(search=Search(moves=200))
    standing = Fleet(hosts=machines, profiles=wanted[::2], reports=reports, policy=few)
    settled = standing.applied(plan(standing.inputs()), later_ms=0).but(profiles=wanted)
    learned = _learned(chance, machines, wanted)
    inputs = replace(
        settled.inputs(),
        learned=learned,
        forecast=_forecast(chance, wanted),
        prefetched=_guesses(chance, settled),
    )
    jitter = tuple(replace(s, latency_ms=(s.latency_ms or 1) * chance.randint(85, 115) // 100) for s in learned.speeds)
    return LivedIn(inputs, replace(inputs, learned=replace(learned, speeds=jitter), waiting=plan(inputs)))


def _host(chance: random.Random, n: int) -> Host:
    model, gib = MODELS[chance.randrange(len(MODELS))]
    devices = (
        Device(id="gpu0", kind=DeviceKind.GPU, memory_bytes=gib * GIB, model=model),  # type: ignore[arg-type]
        Device(id="cpu0", kind=DeviceKind.CPU, memory_bytes=128 * GIB),  # type: ignore[arg-type]
    )
    rate = chance.choice((0, 200, 500, 1_000, 2_500, 10_000)) * 1_000_000
    return Host(
        id=HostId(f"h{n:03d}"),
        scope=profile("x").scope,
        host_class=HostClass.OPPORTUNISTIC if n % 5 == 4 else HostClass.DEDICATED,
        devices=devices,
        runtimes=(Runtime(engine="llama.cpp", backend="cuda"),),  # type: ignore[arg-type]
        links=(Link(name="download", rate_bps=rate),) if rate else (),
    )


def _profile(chance: random.Random, n: int) -> Profile:
    size = chance.choice((2, 4, 8, 16, 30))
    first = config(f"m{n:02d}-q4", size * 1.2, size=size, lanes=chance.choice((1, 2, 4)))
    first = replace(first, artifact=replace(first.artifact, source=f"hf://owner/m{n:02d}@1"))
    return profile(
        f"m{n:02d}",
        n % 3,
        replicas_max=4,
        configs=(first,),
        priority=100 + n % 4 * 50,
        modality=Modality.IMAGE if n % 6 == 5 else Modality.TEXT,
        timing=Timing(load_ms=chance.choice((20, 30, 60)) * 1_000, warm_ms=chance.choice((2, 5, 10)) * 1_000),
    )


def _report(chance: random.Random, machine: Host, wanted: tuple[Profile, ...]) -> HostReport:
    here = [p for p in wanted if chance.random() < 0.3]
    return report(
        machine,
        state=HostState.THROTTLED if chance.random() < 0.1 else HostState.ACCEPTING,
        cached=tuple(sorted({f.sha256 for p in here for f in p.configs[0].artifact.files})),
        disk_free_bytes=chance.choice((11, 13, 16, 24, 60)) * GIB,
    )


def _about(key: Key, host: Host) -> dict[str, object]:
    return {"host": host.id, "profile": key.profile, "config": key.config, "revision": key.revision}


def _learned(chance: random.Random, machines: tuple[Host, ...], wanted: tuple[Profile, ...]) -> Learned:
    times, failures, speeds = list[LearnedTime](), list[FailedStarts](), list[MeasuredSpeed]()
    for one in wanted:
        key = key_of(one, one.configs[0])
        for host in machines:
            about = _about(key, host)
            if chance.random() < 0.4:
                kind = chance.choice((TimeKind.FETCH, TimeKind.WARM))
                spent = chance.choice((1, 3, 8, 20, 60, 200, 1_500, 2_700, 5_400)) * (
                    1_000 if kind is TimeKind.FETCH else 300
                )
                last = NOW - chance.choice((1, 10, 20, 40, 70)) * DAY
                times.append(LearnedTime(**about, kind=kind, count=chance.randint(1, 9), ewma_ms=spent, last_ms=last))  # type: ignore[arg-type]
            if chance.random() < 0.1:
                failures.append(FailedStarts(**about, count=chance.randint(1, 9), last_ms=NOW - DAY))  # type: ignore[arg-type]
            if chance.random() < 0.3:
                at = NOW - chance.randint(0, 30) * MINUTE
                speeds.append(
                    MeasuredSpeed(
                        **about,  # type: ignore[arg-type]
                        tokens_mps=chance.randint(10, 120) * 1_000,
                        tokens_count=chance.randint(1, 16),
                        tokens_at_ms=at,
                        latency_ms=chance.choice((500, 1_000, 2_000, 8_000)),
                        latency_count=chance.randint(1, 16),
                        latency_at_ms=at,
                    )
                )
    leads = tuple(Lead(profile=p.name, lead_ms=chance.choice((5, 60, 240)) * 1_000) for p in wanted[::3])
    return Learned(times=tuple(times), failures=tuple(failures), speeds=tuple(speeds), leads=leads)


def _forecast(chance: random.Random, wanted: tuple[Profile, ...]) -> Forecast | None:
    if chance.random() < 0.4:
        return None
    entries = []
    for n, one in enumerate(wanted):
        lanes = chance.choice((0.0, 0.05, 0.3, 1.0, 3.0, 9.0, 25.0))
        rate = int(lanes * 12_000)
        entries.append(
            ProfileForecast(
                profile=one.name,
                evidence=(Evidence.DIRECT, Evidence.AUTHORISED, Evidence.CORRELATED)[n % 3],
                rate_mrpm=Band(low=rate // 2, likely=rate, high=rate * 2),
                observed_mrpm=rate // 2,
                offered_mlanes=int(lanes * 1_000),
                queue=chance.choice((0, 0, 1, 5)),
                p95_ms=chance.choice((None, 1_000, 7_000, 20_000)),
                error_ppm=chance.choice((0, 0, 8_000, 15_000, 900_000)),
                confidence_ppm=chance.choice((200_000, 450_000, 700_000, 1_000_000)),
                trend_mrpm=chance.choice((0, rate // 4)),
                last_used_ms=NOW - chance.choice((0, 5, 30)) * MINUTE if lanes else None,
                watermarks=(Watermark(at_ms=NOW - 10 * MINUTE, offered_mlanes=int(lanes * 800)),),
            )
        )
    age = chance.choice((0, 1, 4)) * MINUTE
    return Forecast(made_ms=NOW - age, horizon_ms=chance.choice((5, 10, 90)) * MINUTE, profiles=tuple(entries))


def _guesses(chance: random.Random, settled: Fleet) -> tuple[Prefetched, ...]:
    """Two in three of the files that lie about."""
    found = []
    for host in settled.hosts:
        here = settled.reports.get(host.id)
        for one in settled.profiles:
            (file,) = one.configs[0].artifact.files
            if here is not None and file.sha256 in here.cached and chance.random() < 0.67:
                age = chance.choice((5, 10, 20, 40, 300, 500, 900)) * MINUTE
                found.append(
                    Prefetched(
                        host=host.id,
                        profile=ProfileName(one.name),
                        files=(file.sha256,),
                        size_bytes=file.size_bytes,
                        since_ms=NOW - age,
                    )
                )
    return tuple(found)
