"""Whatever was learned, however it is ordered and whatever hosts are called: properties of where replicas go."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.base.ids import HostId
from gridops.base.record import to_bytes
from gridops.model.advice import Prefetched
from gridops.model.fleet import Link
from gridops.model.learned import FailedStarts, Learned, LearnedTime, MeasuredSpeed, TimeKind
from gridops.planner.check import check
from gridops.planner.planner import Inputs, plan
from gridops.planner.rank import HARM_PARTS
from tests.planner.fleet import GIB, NOW, Fleet, digest, host, profile
from tests.planner.test_cache import files, inferred
from tests.planner.test_targets_forecast import entry, expect
from tests.planner.test_where import known

HOSTS = ("ant", "bee", "cat", "dog")
PROFILES = tuple(
    profile(n, least, replicas_max=2, configs=(files(n, 4, gib),))
    for n, least, gib in (("c", 1, 8), ("d", 1, 14), ("e", 0, 20))
)
BIG = 2**53
NUMBERS = st.one_of(st.integers(-5, 5), st.integers(0, 120_000), st.sampled_from((3_600_000, 3_600_001, BIG)))
COUNTS = st.integers(-1, 12)
AGES = st.one_of(st.integers(-60_000, 1_000_000), st.sampled_from((30 * 86_400_000, BIG // 8)))


@st.composite
def times(draw: st.DrawFn) -> LearnedTime:
    about = draw(st.sampled_from(HOSTS)), draw(st.sampled_from(PROFILES))
    kind, last = draw(st.sampled_from(TimeKind)), NOW - draw(AGES)
    return known(LearnedTime, *about, kind=kind, count=draw(COUNTS), ewma_ms=draw(NUMBERS), last_ms=last)


@st.composite
def failures(draw: st.DrawFn) -> FailedStarts:
    about = draw(st.sampled_from(HOSTS)), draw(st.sampled_from(PROFILES))
    return known(FailedStarts, *about, count=draw(COUNTS), last_ms=NOW - draw(AGES))


@st.composite
def speeds(draw: st.DrawFn) -> MeasuredSpeed:
    on, of = draw(st.sampled_from(HOSTS)), draw(st.sampled_from(PROFILES))
    rate: dict[str, Any] = {"tokens_mps": draw(NUMBERS), "tokens_count": draw(COUNTS), "tokens_at_ms": NOW - draw(AGES)}
    delay: dict[str, Any] = {
        "latency_ms": draw(NUMBERS),
        "latency_count": draw(COUNTS),
        "latency_at_ms": NOW - draw(AGES),
    }
    return known(MeasuredSpeed, on, of, **rate, **delay)


def some(records: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(records, max_size=5).map(tuple)


LEARNED = st.builds(Learned, times=some(times()), failures=some(failures()), speeds=some(speeds()))
"""Records of any sense and nonsense."""


@st.composite
def worlds(draw: st.DrawFn) -> Inputs:
    """Four hosts with links and files of their own."""
    hosts, fleet = [], Fleet(profiles=PROFILES)
    for name in HOSTS:
        rate = draw(st.sampled_from((0, 1, 100, 1_000, 10_000))) * 1_000_000
        hosts.append(host(name, links=(Link(name="download", rate_bps=rate),) if rate else ()))
    fleet = fleet.but(hosts=tuple(hosts))
    guesses = []
    for name in HOSTS:
        here = draw(st.sets(st.sampled_from(("c", "d", "e"))))
        free = draw(st.integers(8, 30)) * GIB
        fleet = fleet.reporting(name, cached=tuple(sorted(map(digest, here))), disk_free_bytes=free)
        for one in sorted(here):
            age = draw(st.sampled_from((60_000, 1_200_000, 30_000_000)))
            guesses.append(
                Prefetched(host=HostId(name), profile=one, files=(digest(one),), size_bytes=4 * GIB, since_ms=NOW - age)  # type: ignore[arg-type]
            )
    lanes = st.sampled_from((0.0, 0.05, 0.4, 3.0, 40.0))
    demand = expect(entry(draw(lanes), name="c"), inferred("d", draw(lanes)), inferred("e", draw(lanes)))
    forecast = draw(st.sampled_from((None, demand)))
    return replace(fleet.inputs(), learned=draw(LEARNED), forecast=forecast, prefetched=tuple(guesses))


def shuffled(inputs: Inputs, seed: int) -> Inputs:
    """The same in another order."""
    chance = random.Random(seed)

    def mix(things: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(chance.sample(things, len(things)))

    old, desired = inputs.learned or Learned(), inputs.intent.desired
    return replace(
        inputs,
        learned=Learned(times=mix(old.times), failures=mix(old.failures), speeds=mix(old.speeds)),
        prefetched=mix(inputs.prefetched),
        snapshot=replace(inputs.snapshot, hosts=mix(inputs.snapshot.hosts)),
        intent=replace(
            inputs.intent, desired=replace(desired, hosts=mix(desired.hosts), profiles=mix(desired.profiles))
        ),
    )


@settings(max_examples=30, deadline=None)
@given(worlds(), st.integers(0, 9))
def test_order_changes_nothing_and_plans_are_clean(inputs: Inputs, seed: int) -> None:
    made, other = plan(inputs), plan(shuffled(inputs, seed))
    assert check(made, inputs) == ()
    assert to_bytes(replace(made, intent=other.intent, snapshot=other.snapshot)) == to_bytes(other)


@settings(max_examples=30, deadline=None)
@given(worlds())
def test_harm_is_the_sum_of_whole_parts_and_none_is_negative(inputs: Inputs) -> None:
    for choice in plan(inputs).report.choices:
        told = {t.name: t for t in choice.terms}
        for side in ("winner", "runner_up") if choice.runner_up is not None else ("winner",):
            parts = [getattr(told[p], side) for p in HARM_PARTS]
            assert all(type(p) is int and p >= 0 for p in parts)
            assert getattr(told["harm"], side) == sum(parts)


@settings(max_examples=30, deadline=None)
@given(worlds(), LEARNED)
def test_nothing_learned_moves_what_stands(inputs: Inputs, later: Learned) -> None:
    """Whatever the records say of other hosts: who may stay stays, and only demand changes anything."""
    calm = replace(inputs, forecast=None)
    made = plan(calm)
    fleet = Fleet(hosts=calm.intent.desired.hosts, profiles=PROFILES, reports={r.host: r for r in calm.snapshot.hosts})
    settled = fleet.applied(made)
    assert plan(replace(settled.inputs(), learned=later)).to_do == ()


@settings(max_examples=30, deadline=None)
@given(worlds())
def test_advice_keeps_the_reserve_and_touches_only_guesses(inputs: Inputs) -> None:
    made = plan(inputs)
    advice = made.report.advice
    for report in inputs.snapshot.hosts:
        here = [p for p in (advice.prefetch if advice else ()) if p.host == report.host and p.replica is None]
        launches = {a.launch for a in made.placement if a.seat.host == report.host}
        loads = {
            f for n in made.launches if _id(n) in launches for f in n.artifact.files if f.sha256 not in report.cached
        }
        taken = sum(f.size_bytes for f in loads) + sum(p.size_bytes for p in here)
        assert not here or taken <= (report.disk_free_bytes or 0) - (10 << 30)
        assert not {f for p in here for f in p.files} & set(report.cached)
        gone = [e for e in (advice.evict if advice else ()) if e.host == report.host]
        used = {f.sha256 for n in made.launches if _id(n) in launches for f in n.artifact.files}
        assert not {f for e in gone for f in e.files} & used
        assert {e.files for e in gone} <= {p.files for p in inputs.prefetched if p.host == report.host}


@settings(max_examples=25, deadline=None)
@given(worlds())
def test_names_decide_only_between_equals(inputs: Inputs) -> None:
    """With the hosts' names turned round, the winner is worth the same."""
    turn = dict(zip(HOSTS, reversed(HOSTS), strict=True))
    desired = inputs.intent.desired
    one = replace(desired, profiles=desired.profiles[:1])

    def renamed(thing: Any) -> Any:
        field = "id" if hasattr(thing, "id") else "host"
        return replace(thing, **{field: HostId(turn[getattr(thing, field)])})

    old = inputs.learned or Learned()
    first = replace(inputs, forecast=None, intent=replace(inputs.intent, desired=one))
    other = replace(
        first,
        learned=Learned(
            *(),
            times=tuple(map(renamed, old.times)),
            failures=tuple(map(renamed, old.failures)),
            speeds=tuple(map(renamed, old.speeds)),
        ),
        snapshot=replace(first.snapshot, hosts=tuple(map(renamed, first.snapshot.hosts))),
        intent=replace(
            inputs.intent,
            desired=replace(one, hosts=tuple(map(renamed, one.hosts)), keys=tuple(map(renamed, one.keys))),
        ),
    )
    found = [[[(t.name, t.winner) for t in c.terms] for c in plan(i).report.choices] for i in (first, other)]
    assert found[0] == found[1]


def _id(launch: Any) -> Any:
    from gridops.footprint.need import identity

    return identity(launch)
