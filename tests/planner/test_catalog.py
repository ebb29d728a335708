"""Nothing is placed that people did not sign: the planner's reasons, what it leaves alone, the checker's own word."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import ReplicaId
from gridops.base.record import to_bytes
from gridops.footprint.need import Need, need
from gridops.model.catalog import Catalog, Entry, Files, Slot
from gridops.model.plan import Cause, CauseKind, Change, DecisionKind
from gridops.model.policy import PlanningPolicy
from gridops.model.profile import EngineArg, Profile
from gridops.model.snapshot import SnapshotSource
from gridops.planner.check import check
from gridops.planner.planner import Recall, plan
from gridops.planner.world import GivenUp
from gridops.trust.catalog import content
from tests.planner.fleet import (
    FLEET,
    GIB,
    NOW,
    Fleet,
    codes_of,
    config,
    decisions,
    host,
    laptop,
    profile,
    report,
    seats,
)
from tests.planner.worlds import make_fleet, rolled

ARGS = (EngineArg(name="threads", value="8"),)
KNOWS = ("catalog", "evict")


def entries(of: Profile, **changes: Any) -> Iterable[Entry]:
    """What admits the configs of a profile as they stand, wherever they may stand."""
    for one in of.configs:
        takes = need(one, PlanningPolicy())
        assert isinstance(takes, Need)
        yield replace(
            Entry(
                name=f"{of.name}/{one.name}",
                engine=one.engine,
                backends=tuple(sorted(one.backends)),
                artifacts=(Files(name=of.name, content=content(one.artifact)),),
                context=one.context,
                lanes=one.lanes,
                devices=one.devices.count,
                device_bytes=takes.device_bytes + takes.host_bytes,
                host_bytes=takes.host_bytes,
                args=tuple(Slot(name=a.name, values=(a.value,)) for a in sorted(one.args, key=lambda a: a.name)),
            ),
            **changes,
        )


def signed(*found: Entry, version: int = 1) -> Catalog:
    return Catalog(fleet=FLEET, version=version, issued_ms=NOW, entries=tuple(sorted(found, key=lambda e: e.name)))


def under(fleet: Fleet, catalog: Catalog | None, *, able: bool = True) -> Fleet:
    """The same fleet with a catalog in force, and agents that know it."""
    reports = {h.id: fleet.reports.get(h.id) or report(h, at=fleet.now) for h in fleet.hosts}
    knowing = {name: replace(r, abilities=KNOWS if able else ("evict",)) for name, r in reports.items()}
    return fleet.but(more={**fleet.more, "catalog": catalog}, reports=knowing)


CODER = profile("coder", 1, configs=(config("q4", 10, args=ARGS),))
(ENTRY,) = entries(CODER)
TWO = Fleet(hosts=(host("ant"), host("bee")), profiles=(CODER,))


def test_what_people_signed_is_placed() -> None:
    assert seats(under(TWO, signed(ENTRY)).plan()) == seats(TWO.plan())


BEYOND: dict[str, tuple[Entry, str]] = {
    "another engine": (replace(ENTRY, engine="vllm"), "has no entry for llama.cpp at all"),  # type: ignore[arg-type]
    "another backend": (replace(ENTRY, backends=("rocm",)), "it is for rocm, not 'cuda'"),
    "other files": (replace(ENTRY, artifacts=next(iter(entries(profile("x")))).artifacts), "does not hold these files"),
    "another argument": (replace(ENTRY, args=()), "the argument 'threads' has no slot"),
    "another value": (replace(ENTRY, args=(Slot(name="threads", low=1, high=7),)), "may not be '8', only 1 to 7"),
    "one argument more": (replace(ENTRY, args=(*ENTRY.args, Slot(name="z", needed=True))), "'z' is missing"),
    "less context": (replace(ENTRY, context=4_095), "context from 1 to 4095, not 4096"),
    "less memory": (replace(ENTRY, device_bytes=10 * GIB - 1), "of a device"),
}


@pytest.mark.parametrize("name", sorted(BEYOND))
def test_what_they_did_not_sign_stands_nowhere_and_the_reason_says_what_is_missing(name: str) -> None:
    entry, words = BEYOND[name]
    made = under(TWO, signed(entry)).plan()
    assert made.placement == ()
    (missing,) = made.report.unplaced
    assert codes_of(made, "coder/1") == {"ant": codes.NOT_IN_CATALOG.code, "bee": codes.NOT_IN_CATALOG.code}
    assert all(words in line.detail for line in missing.hosts), missing.hosts


def test_the_first_config_that_people_signed_is_taken() -> None:
    both = profile("coder", configs=(config("q8", 12), config("q4", 10)))
    large, small = entries(both)
    for catalog, wanted in ((signed(large, small), "q8"), (signed(small), "q4"), (signed(large), "q8")):
        (launch,) = under(TWO.but(profiles=(both,)), catalog).plan().launches
        assert launch.config == wanted


def test_the_host_part_counts_where_the_devices_are_its_memory() -> None:
    """What a laptop's one pool holds is both parts; on a card they are apart."""
    one = profile("coder", configs=(config("q4", 10, backends=("cuda", "metal"), host_gib=2),))
    (both,) = entries(one)
    apart = replace(both, device_bytes=10 * GIB)
    mixed = Fleet(hosts=(host("ant"), laptop("lap")), profiles=(one,))
    assert codes_of(under(mixed.but(hosts=(laptop("lap"),)), signed(apart)).plan(), "coder/1") == {
        "lap": codes.NOT_IN_CATALOG.code
    }
    assert seats(under(mixed.but(hosts=(laptop("lap"),)), signed(both)).plan())
    assert seats(under(mixed, signed(apart)).plan())["coder/1"].startswith("ant")


def test_profiles_with_the_same_rules_are_told_apart() -> None:
    """One is signed and its twin is not: what holds for hosts of a shape is not taken from the one to the other."""
    twins = tuple(profile(name, configs=(config("q4", 3, weights=name),)) for name in ("aaa", "bbb", "ccc"))
    catalog = signed(*(e for twin in twins[:2] for e in entries(twin)))
    made = under(TWO.but(profiles=twins), catalog).plan()
    assert sorted(a.profile for a in made.placement) == ["aaa", "bbb"]


def test_a_host_whose_agent_knows_no_catalog_takes_nothing_new_and_keeps_what_it_has() -> None:
    old = under(TWO, signed(ENTRY), able=False)
    assert codes_of(old.plan(), "coder/1") == dict.fromkeys(("ant", "bee"), codes.CATALOG_UNKNOWN.code)
    one_knows = old.reporting("bee", abilities=KNOWS)
    assert seats(one_knows.plan())["coder/1"].startswith("bee")
    stands = TWO.applied(TWO.plan())
    assert under(stands, signed(ENTRY), able=False).plan().to_do == ()


def test_what_runs_is_left_alone_by_a_catalog_that_does_not_hold_it() -> None:
    stands = TWO.applied(TWO.plan())
    assert under(stands, signed()).plan().to_do == ()


def test_what_runs_does_not_move_or_change_into_what_nobody_signed() -> None:
    stands = under(TWO.applied(TWO.plan()), signed(ENTRY))
    wider = profile("coder", configs=(config("q4", 10, args=ARGS, context=8_192),))
    made = stands.but(profiles=(wider,)).plan()
    assert [d.kind for d in made.to_do if d.kind is DecisionKind.CHANGE] == []
    home = made.placement[0].seat.host
    assert home == stands.plan().placement[0].seat.host
    both = under(stands.but(profiles=(wider,)), signed(ENTRY, *(replace(e, name="wide") for e in entries(wider))))
    assert [d.kind for d in both.plan().to_do] == [DecisionKind.CHANGE]


def test_what_was_signed_later_is_placed_then() -> None:
    empty = under(TWO, signed())
    assert empty.plan().placement == ()
    recall = Recall()
    plan(empty.inputs(), recall)
    grown = under(empty, signed(ENTRY, version=2))
    assert to_bytes(plan(grown.inputs(), recall)) == to_bytes(grown.plan())
    assert seats(grown.plan())


def test_a_plan_of_declared_hosts_asks_the_catalog_too_and_no_agent() -> None:
    dry = under(TWO, signed(), able=False).but(source=SnapshotSource.DECLARED)
    assert dry.plan().placement == ()
    assert seats(dry.but(more={"catalog": signed(ENTRY)}).plan())


def test_what_was_given_up_is_started_again_only_under_a_catalog_that_holds_it() -> None:
    stands = TWO.but(hosts=TWO.hosts[:1])
    stands = stands.applied(stands.plan()).reporting("ant", residencies=())
    cause = Cause(kind=CauseKind.UNHEALTHY, detail="failed once")
    down = GivenUp(ReplicaId("coder/1"), cause, Change(field="process", old="failed 1234", new="started again"))
    for catalog, wanted in ((signed(ENTRY), ["place coder/1 -> ant"]), (signed(), [])):
        inputs = replace(under(stands, catalog).inputs(), given_up=(down,))
        made = plan(inputs)
        assert check(made, inputs) == ()
        assert [line for line in decisions(made) if line.startswith("place")] == wanted
    free = plan(replace(under(stands, None).inputs(), given_up=(down,)))
    assert any("no entry of catalog" in note for note in check(free, inputs)), "the checker asks for a restart too"


# --- the checker's own word ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(BEYOND))
def test_the_checker_finds_what_a_planner_without_a_catalog_places(name: str) -> None:
    free, entry = under(TWO, None), BEYOND[name][0]
    notes = check(free.plan(), under(TWO, signed(entry)).inputs())
    assert any("no entry of catalog 1 admits it" in note for note in notes), notes


def test_the_checker_finds_a_host_that_knows_no_catalog() -> None:
    made = under(TWO, signed(ENTRY)).plan()
    notes = check(made, under(TWO, signed(ENTRY), able=False).inputs())
    assert any("whose agent knows no catalog" in note for note in notes), notes


def test_the_checker_leaves_alone_what_stands() -> None:
    stands = TWO.applied(TWO.plan())
    made = stands.plan()
    assert check(made, under(stands, signed()).inputs()) == ()


@pytest.mark.parametrize("seed", range(12))
def test_worlds_with_half_of_it_signed_are_planned_without_a_note(seed: int) -> None:
    cook = rolled(7_000 + seed)
    fleet = make_fleet(cook)
    some = [e for p in fleet.profiles for e in _some(p) if cook.pick((True, True, False))]
    half = under(fleet, signed(*{e.name: e for e in some}.values()))
    if cook.pick((True, False)) and half.hosts:
        half = half.reporting(half.hosts[0].id, abilities=None)
    inputs = half.inputs()
    made = plan(inputs)
    assert check(made, inputs) == ()
    recall = Recall()
    plan(fleet.inputs(), recall)
    assert to_bytes(plan(inputs, recall)) == to_bytes(made)
    free = plan(replace(inputs, intent=under(fleet, None).inputs().intent))
    assert free.placement == made.placement or check(free, inputs), "whatever the catalog forbids is noted"


def _some(of: Profile) -> Iterable[Entry]:
    known = tuple(c for c in of.configs if isinstance(need(c, PlanningPolicy()), Need))
    return entries(replace(of, configs=known))
