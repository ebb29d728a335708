"""Advice for disks: what is fetched ahead of demand and where, what for, and what makes room or goes again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridops.base.ids import ConfigName, HostId, ProfileName, ReplicaId
from gridops.model.advice import Advice, EvictCause, Prefetched
from gridops.model.fleet import Disk, Link
from gridops.model.forecast import Evidence, Forecast, ProfileForecast
from gridops.model.learned import Lead, Learned
from gridops.model.plan import Plan
from gridops.model.policy import PlanningPolicy, Prefetch
from gridops.model.profile import Config, Profile
from gridops.planner import cache as room
from gridops.planner.check import check
from gridops.planner.planner import plan
from tests.planner.fleet import GIB, NOW, Fleet, config, digest, host, profile, report
from tests.planner.test_targets_forecast import entry, expect

MINUTE = 60_000
HOUR = 60 * MINUTE


def files(name: str, size: float = 4, gib: float = 10) -> Config:
    """A config whose artifact may be fetched: somebody named its source."""
    made = config(f"{name}-q4", gib, size=size, weights=name)
    return replace(made, artifact=replace(made.artifact, source=f"hf://owner/{name}@1"))


def wanted(name: str, size: float = 4, least: int = 0, **more: Any) -> Profile:
    return profile(name, least, replicas_max=2, configs=(files(name, size, more.pop("gib", 10)),), **more)


def inferred(name: str, lanes: float = 0.2, **more: Any) -> ProfileForecast:
    """Demand that nobody has shown yet: too little to place anything for, enough to fetch for."""
    more.setdefault("confidence_ppm", 900_000)
    return entry(lanes, name=name, evidence=Evidence.CORRELATED, **more)


def guess(on: str, name: str, size: float = 4, age: int = 20 * MINUTE, **more: Any) -> Prefetched:
    return Prefetched(
        host=HostId(on),
        profile=ProfileName(name),
        files=(digest(name),),
        size_bytes=int(size * GIB),
        since_ms=NOW - age,
        **more,
    )


def free(fleet: Fleet, gib: float, *cached: str, on: str = "ant") -> Fleet:
    """So much room on a host's disk, the reserve for guesses included, and what lies there."""
    old = fleet.reports.get(on) or report(fleet.host(on))
    return fleet.reporting(
        on, disk_free_bytes=int(gib * GIB), cached=tuple(sorted({*old.cached, *map(digest, cached)}))
    )


def made(fleet: Fleet, *entries: ProfileForecast, **more: Any) -> Plan:
    forecast: Forecast | None = more.pop("forecast", expect(*entries))
    asked = replace(fleet.inputs(), forecast=forecast, **more)
    found = plan(asked)
    assert check(found, asked) == ()
    return found


def advice(*args: Any, **more: Any) -> Advice:
    return made(*args, **more).report.advice or Advice()


def told(found: Advice) -> list[str]:
    """`fetch c -> ant`, `evict d ant for c`, in the order of the advice."""
    lines = [f"fetch {p.profile} -> {p.host}" for p in found.prefetch]
    return lines + [f"evict {e.profile} {e.host}" + (f" for {e.instead}" if e.instead else "") for e in found.evict]


FULL = profile("full", configs=(config("full-q4", 20),))
"""Takes the memory of one host, so that guesses find none there now."""


def ants(*more: Profile) -> Fleet:
    return Fleet(hosts=(host("ant"),), profiles=more)


def busy(*more: Profile) -> Fleet:
    """One host whose memory is taken: nothing of what is expected can be placed, only fetched."""
    fleet = ants(FULL, *more)
    return fleet.applied(fleet.but(profiles=(FULL,)).plan())


# -- what is fetched --------------------------------------------------------------------------------------------------


def test_without_a_forecast_nothing_is_guessed() -> None:
    assert made(busy(wanted("c")), forecast=None).report.advice is None


def test_expected_demand_fetches_and_places_nothing() -> None:
    found = made(busy(wanted("c")), inferred("c"))
    assert told(found.report.advice or Advice()) == ["fetch c -> ant"]
    assert not [d for d in found.to_do if d.profile == "c"]
    assert found.report.advice is not None
    (one,) = found.report.advice.prefetch
    assert (one.size_bytes, one.fetch_ms, one.files) == (4 * GIB, 30_000, (digest("c"),))
    assert one.expires_ms == NOW + 6 * HOUR
    assert one.per_gib == one.value // 4 > 0


SILENT = {
    "nobody asks": (busy(wanted("c")), (entry(0, name="c"),)),
    "nobody named a source": (busy(profile("c", 0, replicas_max=2)), (inferred("c"),)),
    "it is there already": (free(busy(wanted("c")), 400, "c").but(profiles=(wanted("c"),)), (inferred("c"),)),
    "no confidence": (busy(wanted("c")), (inferred("c", confidence_ppm=0),)),
    "only the reserve is free": (free(busy(wanted("c")), 13.9), (inferred("c"),)),
    "nobody knows the disk": (busy(wanted("c")).reporting("ant", disk_free_bytes=None), (inferred("c"),)),
    "the policy forbids": (
        busy(wanted("c")).but(policy=PlanningPolicy(prefetch=Prefetch(per_plan=0))),
        (inferred("c"),),
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_fetched_when(name: str) -> None:
    fleet, entries = SILENT[name]
    assert advice(fleet, *entries).prefetch == ()


def test_where_a_host_could_start_it_at_once_nothing_is_gained() -> None:
    fleet = Fleet(hosts=(host("ant"), host("bee")), profiles=(wanted("c"),))
    assert told(advice(fleet, inferred("c"))) == ["fetch c -> bee"], "the first stands on ant, a second would be cold"
    both = free(free(fleet, 400, "c", on="bee"), 400, "c", on="ant").but(hosts=(*fleet.hosts, host("cat")))
    assert told(advice(both, inferred("c"))) == []


def test_the_reserve_is_kept_and_demanded_loads_come_first() -> None:
    assert told(advice(free(busy(wanted("c")), 14), inferred("c"))) == ["fetch c -> ant"]
    fleet = ants(wanted("c"), wanted("d", 8, 1, gib=20))
    assert told(advice(free(fleet, 22), inferred("c"))) == ["fetch c -> ant"]
    assert advice(free(fleet, 21.9), inferred("c")).prefetch == (), "8 GiB of it are for d, which is placed now"


def test_what_a_host_keeps_free_itself_counts_towards_the_reserve() -> None:
    fleet = busy(wanted("c"))
    kept = replace(host("ant"), disk=Disk(artifacts_bytes=900 * GIB, keep_free_bytes=8 * GIB))
    assert told(advice(free(fleet.but(hosts=(kept,)), 14), inferred("c"))) == ["fetch c -> ant"]


def test_worth_for_each_byte_decides_and_each_choice_counts_before_the_next() -> None:
    fleet = busy(wanted("large", 16), wanted("small", 4), wanted("third", 4))
    entries = (inferred("large"), inferred("small"), inferred("third", 0.1))
    assert told(advice(fleet, *entries)) == ["fetch small -> ant"]
    two = fleet.but(policy=PlanningPolicy(prefetch=Prefetch(per_plan=2)))
    assert told(advice(two, *entries)) == ["fetch small -> ant", "fetch third -> ant"]
    assert told(advice(free(two, 17), *entries)) == ["fetch small -> ant"], "3 GiB are left for the other 4"


def test_a_deadline_counts_only_what_can_come_in_time() -> None:
    """A small file that comes in time beats a large one that does not, however much that one would save."""
    slow = replace(host("ant"), links=(Link(name="download", rate_bps=1_000_000_000),))
    fleet = busy(wanted("large", 40), wanted("small", 1)).but(hosts=(slow,))
    entries = (inferred("large", 8), inferred("small", 0.2))
    assert told(advice(fleet, *entries)) == ["fetch large -> ant"]
    lead = Learned(leads=(Lead(profile=ProfileName("large"), lead_ms=5_000),))
    found = advice(fleet, inferred("large", 0.8), inferred("small", 0.2), learned=lead)
    assert told(found) == ["fetch small -> ant"]
    soon = Learned(leads=(Lead(profile=ProfileName("small"), lead_ms=20_000),))
    assert advice(fleet, inferred("small"), learned=soon).prefetch[0].deadline_ms == NOW + 20_000


def test_among_hosts_the_one_that_could_start_it_and_fetches_fastest() -> None:
    hosts = tuple(
        replace(host(n), links=(Link(name="download", rate_bps=r * 10**9),)) for n, r in (("ant", 1), ("bee", 2))
    )
    lead = Learned(leads=(Lead(profile=ProfileName("c"), lead_ms=1_000),))
    both = Fleet(hosts=hosts, profiles=(FULL, replace(FULL, name=ProfileName("more")), wanted("c")))
    full = both.applied(both.but(profiles=both.profiles[:2]).plan())
    assert told(advice(full, inferred("c"), learned=lead)) == ["fetch c -> bee"]


def test_names_do_not_decide_and_order_does_not_matter() -> None:
    fleet = busy(wanted("c"), wanted("d"))
    entries = (inferred("c", 0.2), inferred("d", 0.3))
    assert told(advice(fleet, *entries)) == ["fetch d -> ant"]
    turned = fleet.but(profiles=tuple(reversed(fleet.profiles)))
    assert advice(turned, *reversed(entries)) == advice(fleet, *entries)


# -- for whom others leave --------------------------------------------------------------------------------------------


def test_a_beneficiary_is_fetched_before_the_drain_and_the_cause_names_who_leaves() -> None:
    high = profile("high", 1, priority=500, configs=(files("high", gib=20),))
    low = profile("low", 2, priority=10, configs=(config("low-q4", 20),))
    fleet = Fleet(hosts=(host("ant"), host("bee")), profiles=(low,))
    later = fleet.applied(fleet.plan(), later_ms=HOUR).but(profiles=(low, high))
    found = made(later, forecast=None)
    assert [d.replica for d in found.to_do if d.profile == "high"] == ["high/1"]
    assert found.report.advice is not None
    (one,) = found.report.advice.prefetch
    gone = next(d for d in found.to_do if d.profile == "low")
    assert gone.source is not None
    assert (one.host, one.replica, one.expires_ms) == (gone.source.host, ReplicaId("high/1"), None)
    assert one.detail == f"high/1 stands here once {gone.replica} has left: fetched before the drain"
    ready = free(later, 400, "high", on=one.host)
    assert made(ready, forecast=None).report.advice is None, "what is there is not fetched again"


# -- what goes again --------------------------------------------------------------------------------------------------


def idle(name: str) -> ProfileForecast:
    return entry(0, name=name)


def test_a_guess_expires_when_nobody_asks_and_nobody_used_it() -> None:
    fleet = free(busy(wanted("c")), 400, "c")
    old = guess("ant", "c", age=6 * HOUR)
    assert told(advice(fleet, idle("c"), prefetched=(old,))) == ["evict c ant"]
    found = advice(fleet, idle("c"), prefetched=(old,)).evict[0]
    assert (found.files, found.cause, found.size_bytes) == ((digest("c"),), EvictCause.EXPIRED, 4 * GIB)


KEPT: dict[str, tuple[Fleet, ProfileForecast, dict[str, Any]]] = {
    "a younger one": (free(busy(wanted("c")), 400, "c"), idle("c"), {"age": 6 * HOUR - 1}),
    "a used one": (free(busy(wanted("c")), 400, "c"), idle("c"), {"used": True}),
    "one that is asked for": (free(busy(wanted("c")), 400, "c"), inferred("c"), {}),
    "one of which nothing is known": (free(busy(wanted("c")), 400, "c"), idle("other"), {}),
    "one that is no longer there": (busy(wanted("c")), idle("c"), {}),
    "one on a host that says nothing": (
        free(busy(wanted("c")), 400, "c").reporting("ant", observed_ms=NOW - HOUR),
        idle("c"),
        {},
    ),
    "one pinned": (
        free(busy(wanted("c", placement=replace(wanted("c").placement, pins=(HostId("ant"),)))), 400, "c"),
        idle("c"),
        {},
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_stays(name: str) -> None:
    fleet, known, more = KEPT[name]
    one = guess("ant", "c", **{"age": 7 * HOUR, **more})
    assert advice(fleet, known, prefetched=(one,)).evict == ()


def test_files_that_a_replica_uses_stay_whoever_they_were_fetched_for() -> None:
    shares = profile("full", configs=(replace(files("c", gib=20), name=ConfigName("full-q4")),))
    fleet = ants(shares, wanted("c"))
    fleet = fleet.applied(fleet.but(profiles=(shares,)).plan())
    assert advice(fleet, idle("c"), prefetched=(guess("ant", "c", age=7 * HOUR),)).evict == ()


def test_one_goes_at_a_time_the_oldest_first() -> None:
    fleet = free(busy(wanted("c"), wanted("d")), 400, "c", "d")
    old = (guess("ant", "c", age=7 * HOUR), guess("ant", "d", age=8 * HOUR))
    assert told(advice(fleet, idle("c"), idle("d"), prefetched=old)) == ["evict d ant"]


# -- making room for something better ---------------------------------------------------------------------------------


def crowded(room_gib: float, new: float = 8, weak: float = 0.1, **sizes: float) -> tuple[Fleet, dict[str, Any]]:
    """A disk with weaker guesses of these sizes, and too little room for `new`."""
    profiles = [wanted("new", new), *(wanted(n, size) for n, size in sorted(sizes.items()))]
    fleet = free(busy(*profiles), 10 + room_gib, *sizes)
    entries = expect(inferred("new", 1.0), *(inferred(n, weak) for n in sorted(sizes)))
    return fleet, {"forecast": entries, "prefetched": tuple(guess("ant", n, s) for n, s in sorted(sizes.items()))}


def test_a_weaker_guess_makes_way_first_and_the_fetch_waits_for_the_room() -> None:
    fleet, more = crowded(4, a=4)
    found = advice(fleet, **more)
    assert told(found) == ["evict a ant for new"]
    assert found.evict[0].cause is EvictCause.REPLACED
    # The host still reports the old room although the files are gone: nothing is fetched on a hope.
    gone = free(busy(wanted("new", 8), wanted("a", 4)), 14)
    assert "fetch new -> ant" not in told(advice(gone, forecast=more["forecast"]))
    reported = free(busy(wanted("new", 8), wanted("a", 4)), 18)
    assert told(advice(reported, forecast=more["forecast"])) == ["fetch new -> ant"]


def test_a_group_goes_only_when_all_of_it_makes_the_room() -> None:
    fleet, more = crowded(0, 8, a=3, b=3, c=3)
    assert sorted(told(advice(fleet, **more))) == [f"evict {n} ant for new" for n in "abc"]
    fleet, more = crowded(0, 8, a=2, b=2, c=2, d=2)
    assert advice(fleet, **more).evict == (), "four would have to go, three at most may"
    fleet, more = crowded(0, 8, a=3, b=3, c=3, d=9)
    assert told(advice(fleet, **more)) == ["evict d ant for new"], "of equal worth in sum, the fewest"


def test_the_newcomer_has_to_be_worth_twice_for_each_byte_and_no_less_in_all() -> None:
    fleet, more = crowded(0, 4, 0.5, a=4)
    assert told(advice(fleet, **more)) == ["evict a ant for new"]
    fleet, more = crowded(0, 4, 0.51, a=4)
    assert advice(fleet, **more).evict == ()
    small, more = crowded(0, 1, 1.01, a=4)
    assert advice(small, **more).evict == (), "four times for each byte, and less in all"


SPARED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "young": ({"age": 15 * MINUTE - 1}, {}),
    "used": ({"used": True}, {}),
    "asked for": ({}, {"evidence": Evidence.DIRECT}),
    "waited for": ({}, {"queue": 1}),
}


@pytest.mark.parametrize("name", SPARED)
def test_no_victim(name: str) -> None:
    about, demand = SPARED[name]
    fleet, _ = crowded(4, a=4)
    weak = replace(inferred("a", 0.1), **demand)
    fleet = fleet.but(profiles=tuple(replace(p, replicas_max=0) if p.name == "a" else p for p in fleet.profiles))
    asked = {"forecast": expect(inferred("new", 1.0), weak), "prefetched": (guess("ant", "a", **about),)}
    assert advice(fleet, **asked).evict == ()
    plain = {"forecast": expect(inferred("new", 1.0), inferred("a", 0.1)), "prefetched": (guess("ant", "a"),)}
    assert told(advice(fleet, **plain)) == ["evict a ant for new"]


def test_only_so_many_guesses_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty small ones and a large one that is worth more: found among the largest, if any is looked at."""
    sizes = {f"g{n:02d}": 1.0 + n % 2 for n in range(20)} | {"huge": 30.0}
    fleet, more = crowded(0, 20, **sizes)
    entries = expect(inferred("new", 1.0), *(inferred(n, 0.2 if n == "huge" else 0.1) for n in sorted(sizes)))
    for most, expected in ((16, ["evict huge ant for new"]), (2, ["evict huge ant for new"]), (1, [])):
        monkeypatch.setattr(room, "VICTIM_CANDIDATES", most)
        assert told(advice(fleet, **{**more, "forecast": entries})) == expected
