"""The fleets that the planner's speed is measured on, made without chance. `speed` runs them and prints the table.

Sizes are those of the yardsticks, and where the earlier allocator has a figure the fleet has the same shape: kinds of
hosts, share of what is resident, how much is wanted. Each round of a case gets fresh records where a controller would
get fresh ones (a heartbeat since the last plan), so that nothing is measured that only equal objects make cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from gridops.footprint.need import identity
from gridops.model.fleet import Host
from gridops.model.plan import Assignment, Plan
from gridops.model.profile import Profile
from gridops.model.snapshot import HostReport, Residency, ResidencyState
from gridops.planner.planner import Inputs, Recall, plan
from tests.planner.fleet import Fleet, digest, host, profile, report

RACKS = 8
KINDS: tuple[tuple[float, ...], ...] = ((24,), (24, 24), (48,), (48, 48), (80,), (80, 80))
SIZES = (5, 9, 14, 20, 30, 40)


@dataclass
class Round:
    """One plan to be made. `plan` makes it and keeps it."""

    inputs: Inputs
    recall: Recall | None
    kept: Plan | None = None

    def plan(self) -> None:
        self.kept = plan(self.inputs, self.recall)

    @property
    def made(self) -> Plan:
        assert self.kept is not None, "it has not been made"
        return self.kept


class Run:
    """The rounds of one case, with one `Recall` passed along or none."""

    def __init__(self, inputs: Callable[[int], Inputs], recall: Recall | None) -> None:
        self._inputs, self._recall, self._n = inputs, recall, 0

    def next(self) -> Round:
        self._n += 1
        return Round(self._inputs(self._n), self._recall)


@dataclass(frozen=True)
class Case:
    """One line of the table. `earlier`: CPU seconds of the earlier allocator, as text; `wanted_s`: what is asked, if
    anything is."""

    name: str
    fleet: Callable[[], Fleet]
    earlier: str = "-"
    wanted_s: float | None = None
    changed: Callable[[Fleet, int], Fleet] | None = None
    """What is different in each round; None: nothing."""
    warm: int = 2
    most_rounds: int = 99

    def begin(self, *, fresh: bool = False) -> Run:
        """`fresh`: every plan is the first one."""
        fleet, recall = self.fleet(), None if fresh else Recall()
        if self.changed is None:
            inputs = fleet.inputs()
            return Run(lambda n: inputs, recall)
        changed = self.changed
        return Run(lambda n: changed(fleet, n).inputs(), recall)


def hosts(count: int, kinds: tuple[tuple[float, ...], ...] = KINDS, **more: object) -> tuple[Host, ...]:
    return tuple(host(f"h{n:05d}", kinds[n % len(kinds)], rack=f"r{n % RACKS}", ram=256, **more) for n in range(count))


def profiles(count: int, replicas: int, **more: object) -> tuple[Profile, ...]:
    """Six sizes and three priorities."""
    return tuple(
        profile(f"p{n:04d}", replicas, gib=SIZES[n % len(SIZES)], priority=100 + n % 3 * 50, **more)
        for n in range(count)
    )


def keyed(fleet: Fleet) -> Fleet:
    """With its keys as records of their own, as they are when files are read once and not for each plan."""
    return replace(fleet, keys=fleet.inputs().intent.desired.keys)


def cold(count: int, models: int, replicas: int, kinds: tuple[tuple[float, ...], ...] = KINDS) -> Fleet:
    return keyed(Fleet(hosts=hosts(count, kinds), profiles=profiles(models, replicas)))


def applied(fleet: Fleet, made: Plan, share: int = 1) -> Fleet:
    """The world after the plan was carried out: every `share`th replica of it is ready, the others are not there."""
    kept = made.placement[::share]
    used = {a.launch for a in kept}
    launches = {identity(n): n for n in made.launches if identity(n) in used}
    standing: dict[str, list[Residency]] = {}
    cached: dict[str, set[str]] = {}
    for a in kept:
        launch = launches[a.launch]
        standing.setdefault(a.seat.host, []).append(_ready(a, launch.config))
        cached.setdefault(a.seat.host, set()).update(f.sha256 for f in launch.artifact.files)
    reports: dict[str, HostReport | None] = {
        h.id: report(
            h,
            at=fleet.now,
            residencies=tuple(standing.get(h.id, ())),
            cached=tuple(sorted(cached.get(h.id, ()))),
        )
        for h in fleet.hosts
    }
    parent = replace(made, placement=kept, launches=tuple(n for n in made.launches if identity(n) in used))
    return replace(fleet, parent=parent, reports=reports)


def _ready(a: Assignment, config: str) -> Residency:
    return Residency(
        profile=a.profile,
        state=ResidencyState.READY,
        replica=a.replica,
        config=config,  # type: ignore[arg-type]
        incarnation=digest(f"{a.replica} {a.seat.host} {a.launch}"),
        identity=a.launch,
        devices=a.seat.devices,
        device_bytes=a.device_bytes,
        host_bytes=a.host_bytes,
    )


def half_resident(count: int, models: int, replicas: int) -> Fleet:
    fleet = cold(count, models, replicas)
    return applied(fleet, plan(fleet.inputs()), share=2)


def full(count: int, models: int) -> Fleet:
    """Every host holds three of three replicas; a quarter of the models is more important and stands nowhere."""
    low = tuple(profile(f"p{n:03d}", 16, gib=12, priority=100) for n in range(models * 3 // 4))
    high = tuple(profile(f"q{n:03d}", 16, gib=12, priority=200) for n in range(models - len(low)))
    fleet = Fleet(hosts=hosts(count, ((40,),), max_replicas=3), profiles=low)
    return replace(applied(fleet, plan(fleet.inputs())), profiles=(*low, *high))


def overloaded(count: int, models: int, replicas: int) -> Fleet:
    """Empty mixed hosts, one priority, 1.4 times as much wanted as there is memory."""
    kinds = ((16,), (24,), (32,), (48,))
    have = sum(sum(kinds[n % 4]) for n in range(count)) * 95 // 100
    parts = (3, 5, 7, 9, 11, 13, 17, 21)
    scale = have * 14 / 10 / sum(parts[n % 8] * replicas for n in range(models))
    wanted = tuple(profile(f"p{n:03d}", replicas, gib=round(parts[n % 8] * scale, 1)) for n in range(models))
    return Fleet(hosts=hosts(count, kinds), profiles=wanted)


def one_changed(fleet: Fleet, n: int) -> Fleet:
    """One profile wants one replica more than before, and one host has told of itself since."""
    at = n % len(fleet.profiles)
    old = fleet.profiles[at]
    more = replace(old, replicas_min=old.replicas_min + 1, replicas_max=old.replicas_max + 1)
    spoke = fleet.hosts[n % len(fleet.hosts)].id
    heard = replace(fleet.reports[spoke] or report(fleet.host(spoke)), observed_ms=fleet.now + n)
    return replace(
        fleet,
        profiles=(*fleet.profiles[:at], more, *fleet.profiles[at + 1 :]),
        reports={**fleet.reports, spoke: heard},
        now=fleet.now + n,
    )


def converged(count: int, models: int, replicas: int, kinds: tuple[tuple[float, ...], ...] = KINDS) -> Fleet:
    fleet = cold(count, models, replicas, kinds)
    return applied(fleet, plan(fleet.inputs()))


GPUSTACK = "5.7 each"
"""What GPUStack takes on the fleet of 3,750 GPUs, for every single placement."""

POWERS = ((24.0,), (24.0, 24.0), (48.0,) * 4, (80.0,) * 8)
"""Hosts of 1, 2, 4 and 8 GPUs in equal shares: 3,750 on 1,000 hosts."""

CASES = (
    Case("4 x 4, half resident", lambda: half_resident(4, 4, 2)),
    Case("64 x 64, half resident", lambda: half_resident(64, 64, 2), "0.15", 0.010),
    Case("1,000 x 100, 1,000 replicas, half resident", lambda: half_resident(1_000, 100, 10), "8.9", 0.20),
    Case("1,000 x 100, 1,000 replicas, cold", lambda: cold(1_000, 100, 10), "8.7", 0.20),
    Case("1,000 hosts, 3,750 GPUs, 3,000 replicas, cold", lambda: cold(1_000, 300, 10, POWERS), GPUSTACK, 1.5),
    Case("the same, one profile changed", lambda: converged(1_000, 300, 10, POWERS), "-", 0.050, one_changed),
    Case("10,000 x 1,000, 20,000 replicas", lambda: cold(10_000, 1_000, 20), "-", 15.0, warm=0, most_rounds=1),
    Case("fragmented 8 x 8, 1.4 times overloaded", lambda: overloaded(8, 8, 4), "2.7", 0.050),
    Case("saturated 256 x 64, with preemption", lambda: full(256, 64), "0.87", 0.080),
)


def sized() -> dict[str, dict[str, tuple[tuple[int, Case], ...]]]:
    """By what grows and by what is planned: how much there is of it, with the case."""
    grids: dict[str, tuple[tuple[int, tuple[int, int, int]], ...]] = {
        "hosts": tuple((n, (n, 50, 10)) for n in (250, 500, 1_000, 2_000, 4_000)),
        "profiles": tuple((n, (1_000, n, 1_000 // n)) for n in (25, 50, 100, 200)),
        "replicas": tuple((n * 50, (1_000, 50, n)) for n in (5, 10, 20, 40)),
    }
    return {
        name: {
            "cold": tuple((n, Case(name, partial(cold, *size))) for n, size in sizes),
            "one profile changed": tuple(
                (n, Case(name, partial(converged, *size), changed=one_changed)) for n, size in sizes
            ),
        }
        for name, sizes in grids.items()
    }
