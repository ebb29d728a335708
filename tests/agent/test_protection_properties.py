"""What holds of protection whatever is sensed and whenever: worse is never looser, and nothing flaps."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.model.policy import ClassProtection, Sensor, protection_default
from gridops.model.snapshot import HostState
from gridops_agent.core.protection import GpuFault, GpuTrouble, Guard, Override, OverrideKind, Sample, Verdict
from gridops_agent.core.verdict import Look, judge
from tests.agent.lookout import WELL

STRICT = (
    HostState.ACCEPTING,
    HostState.THROTTLED,
    HostState.DRAINING,
    HostState.PAUSED,
    HostState.UNHEALTHY,
    HostState.QUARANTINED,
)
# Each reading from well to bad, with values on both sides of every threshold and between them.
LADDERS: dict[str, tuple[Any, ...]] = {
    "idle_ms": (3_600_000, 60_000, 59_999, 0),
    "battery_ppm": (900_000, 330_000, 320_000, 300_000, 120_000, 0),
    "temperature_c": (20, 72, 75, 79, 80, 94, 95, 120),
    "gpu_temperature_c": (20, 78, 80, 87, 94, 95),
    "thermal_throttling": (False, True),
    "ram_ppm": (0, 765_000, 800_000, 850_000, 949_999, 950_000),
    "gpu_memory_ppm": (0, 828_000, 900_000, 920_000, 980_000),
    "cpu_ppm": (0, 810_000, 850_000, 900_000),
    "load_ppm": (0, 1_125_000, 1_200_000, 1_250_000),
    "disk_free_bytes": (100 << 30, 11 << 27, 1 << 30, 0),
    "network_up": (True, False),
    "gpu_faults": ((), (GpuFault(GpuTrouble.ECC, "gpu0"),)),
}
UNKNOWABLE = tuple(name for name in LADDERS if name != "battery_ppm")


@st.composite
def moments(draw: st.DrawFn) -> list[int]:
    """Times of looks: mostly a second apart, with sleeps, and a clock that goes back."""
    steps = draw(st.lists(st.sampled_from((500, 1_000, 1_000, 1_000, 5_000, 14_000, 60_000, -30_000)), max_size=60))
    at, made = 1_000_000, [1_000_000]
    for step in steps:
        at += step
        made.append(at)
    return made


@st.composite
def rules(draw: st.DrawFn) -> ClassProtection:
    base = protection_default(draw(st.sampled_from(("opportunistic", "dedicated"))))
    return replace(
        base,
        recovery_ms=draw(st.sampled_from((0, 3_000, 60_000))),
        debounce_ms=draw(st.sampled_from((0, 2_000, 5_000))),
        drain_grace_ms=draw(st.sampled_from((0, 5_000, 30_000))),
        activity=draw(st.sampled_from(("pause", "throttle"))),
        unknown_sensor=draw(st.sampled_from(("throttle", "ignore"))),
    )


def rungs(draw: st.DrawFn, few: int = 4) -> dict[str, int]:
    """Readings that are not well, by their rung on the ladder."""
    names = draw(st.lists(st.sampled_from(sorted(LADDERS)), unique=True, max_size=few))
    return {name: draw(st.integers(0, len(LADDERS[name]) - 1)) for name in names}


def sample(at: int, rung: dict[str, int], gone: frozenset[str] = frozenset()) -> Sample:
    readings = {name: LADDERS[name][n] for name, n in rung.items()} | dict.fromkeys(gone)
    return replace(WELL, mono_ms=at, on_battery=True, **readings)


def states(looks: list[Look], by: ClassProtection) -> list[Verdict]:
    guard, made = Guard(), []
    for look in looks:
        guard, verdict = judge(guard, look, by)
        made.append(verdict)
    return made


def rank(verdict: Verdict) -> int:
    return STRICT.index(verdict.state)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_worse_sample_never_gives_a_looser_state(data: st.DataObject) -> None:
    by, times = data.draw(rules()), data.draw(moments())
    better: list[Look] = []
    worse: list[Look] = []
    for at in times:
        good = rungs(data.draw)
        bad = {name: min(n + data.draw(st.integers(0, 3)), len(LADDERS[name]) - 1) for name, n in good.items()}
        busy = data.draw(st.booleans())
        better.append(Look(sample(at, good), busy=busy))
        worse.append(Look(sample(at, bad | {k: v for k, v in rungs(data.draw, 1).items() if k not in bad}), busy=busy))
    for a, b in zip(states(better, by), states(worse, by), strict=True):
        assert rank(b) >= rank(a)
        assert b.lanes_ppm <= a.lanes_ppm
        assert b.yields >= a.yields


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_well_sensor_that_is_lost_never_gives_a_looser_state(data: st.DataObject) -> None:
    by, times = data.draw(rules()), data.draw(moments())
    rows = [rungs(data.draw) for _ in times]
    whole = [Look(sample(at, row)) for at, row in zip(times, rows, strict=True)]
    lost = []
    for at, row in zip(times, rows, strict=True):
        well = sorted(n for n in UNKNOWABLE if row.get(n, 0) == 0)
        lost.append(Look(sample(at, row, frozenset(data.draw(st.lists(st.sampled_from(well), max_size=3))))))
    for a, b in zip(states(whole, by), states(lost, by), strict=True):
        assert rank(b) >= rank(a)
        assert b.yields >= a.yields


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_no_word_of_a_person_loosens_what_safety_asks_for(data: st.DataObject) -> None:
    by, times = data.draw(rules()), data.draw(moments())
    free, told = [], []
    for at in times:
        seen, busy = sample(at, rungs(data.draw)), data.draw(st.booleans())
        kind = data.draw(st.sampled_from((None, *OverrideKind)))
        free.append(Look(seen, busy=busy))
        told.append(Look(seen, busy=busy, override=Override(kind, "because") if kind is not None else None))
    least = {None: 0, OverrideKind.DRAIN: 2, OverrideKind.PAUSE: 2, OverrideKind.QUARANTINE: 5}
    for a, b, look in zip(states(free, by), states(told, by), told, strict=True):
        assert rank(b) >= rank(a)
        assert b.yields >= a.yields
        assert rank(b) >= least[look.override.kind if look.override is not None else None]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_nothing_loosens_within_the_recovery_of_what_made_it_strict(data: st.DataObject) -> None:
    by = replace(data.draw(rules()), recovery_ms=60_000, drain_grace_ms=0)
    times = [t * 1_000 for t in range(1_000, 1_000 + data.draw(st.integers(2, 200)))]
    # A reading that jumps about as it likes.
    name = data.draw(st.sampled_from(sorted(LADDERS)))
    jumps = data.draw(st.lists(st.integers(0, len(LADDERS[name]) - 1), min_size=len(times), max_size=len(times)))
    seen = states([Look(sample(at, {name: n})) for at, n in zip(times, jumps, strict=True)], by)
    stricter_at: int | None = None
    for (_, before), (at, now) in pairwise(zip(times, seen, strict=True)):
        if rank(now) > rank(before):
            stricter_at = at
        if rank(now) < rank(before) and stricter_at is not None:
            assert at - stricter_at >= 60_000


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_the_same_looks_give_the_same_verdicts_and_no_reason_is_without_a_code(data: st.DataObject) -> None:
    by, times = data.draw(rules()), data.draw(moments())
    looks = [Look(sample(at, rungs(data.draw))) for at in times]
    first = states(looks, by)
    assert first == states(looks, by)
    for verdict in first:
        assert (verdict.state is HostState.ACCEPTING) == (verdict.reasons == ())
        assert all(reason.partition(": ")[0].isidentifier() for reason in verdict.reasons)
        assert verdict.admits == (verdict.lanes_ppm > 0)
        assert not verdict.yields or not verdict.admits


def test_every_sensor_stands_on_a_ladder() -> None:
    assert len(LADDERS) == len(Sensor)
