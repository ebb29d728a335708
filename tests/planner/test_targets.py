"""How many, which numbers, who goes first: targets, pins, scale-down, retirements and order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.codes import placement as codes
from gridops.base.ids import HostId, ProfileName
from gridops.model.fleet import Domain, Drain, Host
from gridops.model.intent import Where
from gridops.model.plan import CauseKind
from gridops.model.policy import ActionClass, Risk
from gridops.model.profile import PlacementRules, Spread
from gridops.model.snapshot import ResidencyState, Snapshot
from gridops.planner.check import check
from gridops.planner.planner import plan
from tests.planner.fleet import NOW, Fleet, codes_of, config, decisions, digest, host, laptop, profile, running, seats

HOSTS = tuple(host(name) for name in ("ant", "bee", "cat", "dog"))


def converged(*profiles: object, hosts: tuple[Host, ...] = HOSTS) -> Fleet:
    fleet = Fleet(hosts=hosts, profiles=profiles)  # type: ignore[arg-type]
    return fleet.applied(fleet.plan())


def pinned(*names: str, replicas: int = 1, name: str = "c") -> object:
    return profile(
        name, replicas, gib=18, placement=PlacementRules(pins=tuple(HostId(n) for n in names)), replicas_max=9
    )


def test_the_minimum_is_wanted_and_not_the_maximum() -> None:
    made = Fleet(hosts=HOSTS, profiles=(profile("c", 2, replicas_max=4),)).plan()
    assert sorted(seats(made)) == ["c/1", "c/2"]


def test_nothing_is_wanted_of_zero_replicas() -> None:
    made = Fleet(hosts=HOSTS, profiles=(profile("c", 0),)).plan()
    assert (made.placement, made.decisions, [t.profile for t in made.terms]) == ((), (), ["c"])


def test_each_pin_is_a_floor_on_exactly_its_host() -> None:
    made = Fleet(hosts=HOSTS, profiles=(pinned("dog", "bee", replicas=1),)).plan()
    assert sorted(seats(made).values()) == ["bee", "dog"]


def test_pins_are_seated_before_anything_of_higher_priority() -> None:
    top = profile("top", 4, gib=18, priority=900)
    made = Fleet(hosts=HOSTS, profiles=(top, pinned("ant"))).plan()
    assert seats(made)["c/1"] == "ant"
    assert len(made.report.unplaced) == 1


def test_a_pin_that_cannot_be_met_blames_its_own_host() -> None:
    big = profile("c", gib=60, placement=PlacementRules(pins=(HostId("ant"),)))
    assert codes_of(Fleet(hosts=(host("ant"), host("bee", (80,))), profiles=(big,)).plan(), "c/1") == {
        "ant": codes.INSUFFICIENT_DEVICE_MEMORY.code,
        "bee": codes.PINNED_ELSEWHERE.code,
    }


def test_a_new_pin_moves_a_replica_that_could_stay_when_no_other_is_free() -> None:
    fleet = converged(profile("c", 1, gib=18))
    assert seats(fleet.plan()) == {"c/1": "ant"}
    made = fleet.but(profiles=(pinned("dog"),)).plan()
    assert decisions(made) == ["move c/1 ant -> dog"]
    assert made.decisions[0].cause.detail == "pinned to dog"
    grown = fleet.but(profiles=(pinned("dog", replicas=2),)).plan()
    assert decisions(grown) == ["place c/2 -> dog"]


def test_numbers_are_the_lowest_free_ones() -> None:
    fleet = converged(profile("c", 3, gib=18))
    assert fleet.parent is not None
    drained = fleet.but(hosts=tuple(h for h in HOSTS if h.id != "bee"), drains=())
    fewer = drained.but(profiles=(profile("c", 2, gib=18),))
    made = fewer.plan()
    assert sorted(seats(made)) == ["c/1", "c/3"], "the one whose host is gone is the surplus"
    again = fewer.applied(made).but(profiles=(profile("c", 3, gib=18),)).plan()
    assert sorted(seats(again)) == ["c/1", "c/2", "c/3"]


SURPLUS = {
    "the highest number": (lambda f: f, "c/3"),
    "who would have to move anyway": (lambda f: f.but(drains=(Drain(host=HostId("ant"), reason="x"),)), "c/1"),
    "who does not serve yet": (
        lambda f: f.reporting(
            "bee",
            residencies=tuple(
                running(a, f.parent, ResidencyState.WARMING) for a in f.parent.placement if a.seat.host == "bee"
            ),
        ),
        "c/2",
    ),
    "nobody that holds a pin": (
        lambda f: f.but(profiles=(profile("c", 2, gib=18, placement=PlacementRules(pins=(HostId("cat"),))),)),
        "c/2",
    ),
}


@pytest.mark.parametrize("name", SURPLUS)
def test_scale_down_gives_up(name: str) -> None:
    happen, expected = SURPLUS[name]
    fleet = converged(profile("c", 3, gib=18)).but(profiles=(profile("c", 2, gib=18),))
    made = happen(fleet).plan()
    removed = [d for d in made.decisions if d.kind.value == "remove"]
    assert [d.replica for d in removed] == [expected]
    (decision,) = removed
    assert (decision.action_class, decision.risk, decision.last_replica) == (
        ActionClass.SCALE_DOWN,
        Risk.ROUTINE,
        False,
    )


def test_scale_down_keeps_failure_domains() -> None:
    racks = {"ant": "r1", "bee": "r1", "cat": "r2"}
    hosts = tuple(host(name, rack=rack) for name, rack in racks.items())
    spread = Spread(by="rack", min=2)
    fleet = converged(profile("c", 3, gib=18), hosts=hosts)
    made = fleet.but(profiles=(profile("c", 2, gib=18, spread=spread),)).plan()
    assert decisions(made) == ["remove c/2 bee"]


def test_the_last_replica_is_called_so_also_when_the_target_is_zero() -> None:
    fleet = converged(profile("c", 2))
    made = fleet.but(profiles=(profile("c", 0),)).plan()
    assert [(d.replica, d.last_replica, d.risk, d.change_set) for d in made.decisions] == [
        ("c/1", True, Risk.DESTRUCTIVE, 1),
        ("c/2", True, Risk.DESTRUCTIVE, 1),
    ]
    assert {d.action_class for d in made.decisions} == {ActionClass.SCALE_DOWN}


def test_a_removed_profile_is_retired_until_it_is_declared_again() -> None:
    fleet = converged(profile("c"), profile("d"))
    gone = fleet.but(profiles=(profile("d"),))
    made = gone.plan()
    assert decisions(made) == ["remove c/1 ant"]
    (decision,) = made.decisions
    assert (decision.action_class, decision.risk, decision.last_replica) == (ActionClass.REMOVE, Risk.DESTRUCTIVE, True)
    assert decision.cause.detail == "profile removed in 4d1c0aa"
    assert [(r.profile, r.since_ms, r.commit) for r in made.retirements] == [("c", NOW, "4d1c0aa61f1f7c0e")]
    assert "c" in {t.profile for t in made.terms}, "its drain grace is known until it is gone"
    after = gone.applied(made, later_ms=5000)
    quiet = after.plan()
    assert (quiet.to_do, [r.since_ms for r in quiet.retirements]) == ((), [NOW])
    assert "c" not in {t.profile for t in quiet.terms}
    back = after.but(parent=quiet, profiles=(profile("c"), profile("d"))).plan()
    assert back.decisions[0].cause.detail == "profile is declared again"
    assert (decisions(back), back.retirements) == (["place c/1 -> ant"], ())


def test_an_empty_profile_set_is_said_to_be_empty() -> None:
    made = converged(profile("c")).but(profiles=()).plan()
    assert made.intent.empty == ("profiles",)
    assert {(d.action_class, d.risk) for d in made.decisions} == {(ActionClass.REMOVE, Risk.DESTRUCTIVE)}
    assert "no profile is declared in this scope" in made.report.notes


def test_causes_name_the_line_that_asked() -> None:
    marks = {"profiles/c/replicas": Where("profiles.d/c.yaml", 8, 11), "profiles/c": Where("profiles.d/c.yaml", 3, 1)}
    fresh = Fleet(hosts=HOSTS, profiles=(profile("c"),), marks=marks).plan()
    assert (fresh.decisions[0].cause.detail, fresh.decisions[0].cause.at) == (
        "profile is new",
        "profiles.d/c.yaml:8:11",
    )
    grown = converged(profile("c")).but(profiles=(profile("c", 2),), marks=marks).plan()
    assert (grown.decisions[0].cause.kind, grown.decisions[0].cause.detail) == (CauseKind.INTENT, "replicas 1 => 2")
    late = Fleet(hosts=(), profiles=(profile("c"),))
    placed = late.applied(late.plan()).but(hosts=HOSTS, reports={}).plan()
    assert placed.decisions[0].cause.detail == "was not placed before"


def test_priority_decides_who_gets_the_scarce_place() -> None:
    low, top = profile("a", gib=18, priority=10), profile("z", gib=18, priority=90)
    made = Fleet(hosts=HOSTS[:1], profiles=(low, top)).plan()
    assert seats(made) == {"z/1": "ant"}


def test_equal_priorities_take_turns_one_replica_a_round() -> None:
    made = Fleet(hosts=HOSTS, profiles=(profile("a", 4, gib=18), profile("b", 4, gib=18))).plan()
    assert sorted(seats(made)) == ["a/1", "a/2", "b/1", "b/2"]


def test_the_constrained_profile_goes_first_in_its_round() -> None:
    free = profile("a", gib=18)
    bound = profile("z", gib=18, placement=PlacementRules(allow_hosts=(HostId("ant"),)))
    assert seats(Fleet(hosts=HOSTS[:2], profiles=(free, bound)).plan()) == {"a/1": "bee", "z/1": "ant"}


def test_the_larger_profile_goes_first_among_equally_constrained() -> None:
    small, large = profile("a", gib=9), profile("z", gib=18)
    made = Fleet(hosts=(host("ant", (20,)),), profiles=(small, large)).plan()
    assert seats(made) == {"z/1": "ant"}


RANKS = {
    "a new failure domain before a cached copy": (
        (host("ant", rack="r1"), host("bee", rack="r1"), host("cat", rack="r2")),
        profile("c", 2, spread=Spread(by="rack", min=2)),
        lambda f: f.reporting("bee", cached=(digest("c-q4"),)),
        {"bee", "cat"},
    ),
    "the preferred config before a cached copy of another": (
        (host("ant"), host("bee")),
        profile("c", configs=(config("one"), config("two"))),
        lambda f: f.reporting("ant", cached=(digest("two"),)),
        {"ant"},
    ),
    "a cached copy before a cold host": (
        (host("ant"), host("bee")),
        profile("c"),
        lambda f: f.reporting("bee", cached=(digest("c-q4"),)),
        {"bee"},
    ),
    "an emptier failure domain before a tighter fit": (
        (host("ant", rack="r1"), host("bee", (12,), rack="r1"), host("cat", (48,), rack="r2")),
        profile("c", 2, spread=Spread(by="rack", min=1)),
        lambda f: f,
        {"bee", "cat"},
    ),
    "a machine of ours before a person's": (
        (laptop("ana", 16), host("zeb", (48,))),
        profile("c", configs=(config("q4", 10, backends=("metal", "cuda")),)),
        lambda f: f,
        {"zeb"},
    ),
    "a cheaper host before the tightest fit": (
        (host("ant", (48,), price_per_hour_micro=0), host("bee", (12,), price_per_hour_micro=9)),
        profile("c"),
        lambda f: f,
        {"ant"},
    ),
    "the cheaper host of two equal ones": (
        (host("ant", price_per_hour_micro=2), host("bee", price_per_hour_micro=1), host("cat")),
        profile("c"),
        lambda f: f,
        {"bee"},
    ),
    "the first name at last": ((host("bee"), host("ant")), profile("c"), lambda f: f, {"ant"}),
}


@pytest.mark.parametrize("name", RANKS)
def test_among_hosts_that_fit(name: str) -> None:
    hosts, wanted, happen, expected = RANKS[name]
    made = happen(Fleet(hosts=hosts, profiles=(wanted,))).plan()
    assert set(seats(made).values()) == expected


def test_the_choice_shows_winner_and_runner_up_by_term() -> None:
    made = Fleet(hosts=(host("ant"), host("bee", (48,)), host("cat", ())), profiles=(profile("c"),)).plan()
    (choice,) = made.report.choices
    assert (choice.host, choice.runner_up, choice.fits) == ("ant", "bee", 2)
    by_name = {t.name: (t.winner, t.runner_up) for t in choice.terms}
    assert by_name["left_mib"][0] < (by_name["left_mib"][1] or 0)
    assert [(line.host, line.code) for line in choice.rejected] == [("cat", codes.NO_DEVICES.code)]


def test_a_failure_domain_minimum_that_cannot_be_met_is_reported_and_not_refused() -> None:
    hosts = (host("ant", rack="r1"), host("bee", rack="r1"))
    made = Fleet(hosts=hosts, profiles=(profile("c", 2, spread=Spread(by="rack", min=2)),)).plan()
    assert len(made.placement) == 2
    assert [(s.profile, s.code, s.want, s.have) for s in made.report.shortfalls] == [
        ("c", codes.SPREAD_SHORT.code, 2, 1)
    ]


def test_a_host_without_a_domain_is_no_new_domain() -> None:
    hosts = (host("ant"), host("bee", rack="r1"), host("cat", rack="r2"))
    made = Fleet(hosts=hosts, profiles=(profile("c", 2, spread=Spread(by="rack", min=2)),)).plan()
    assert set(seats(made).values()) == {"bee", "cat"}


def test_a_host_may_itself_be_the_domain() -> None:
    hosts = (host("ant", (24, 24)), host("bee"))
    made = Fleet(hosts=hosts, profiles=(profile("c", 2, max_per_host=2, spread=Spread(by="host", min=2)),)).plan()
    assert set(seats(made).values()) == {"ant", "bee"}


def test_persons_are_domains_too() -> None:
    two = tuple(laptop(n, domains=(Domain(level="person", value="ana"),)) for n in ("a", "b"))
    other = laptop("z", domains=(Domain(level="person", value="bob"),))
    wanted = profile("c", 2, configs=(config("q4", 10, backends=("metal",)),), spread=Spread(by="person", min=2))
    made = Fleet(hosts=(*two, other), profiles=(wanted,)).plan()
    assert set(seats(made).values()) == {"a", "z"}


def test_profiles_of_other_scopes_are_not_ours() -> None:
    made = Fleet(hosts=HOSTS, profiles=(profile("c", scope="lab"), profile("d"))).plan()
    assert sorted(seats(made)) == ["d/1"]
    assert ProfileName("c") not in {t.profile for t in made.terms}


def test_readings_do_not_overturn_a_plan_that_waits_for_people() -> None:
    """Of two equal hosts the proposal names one; what others use there changes, and the proposal stays."""
    fleet = Fleet(hosts=(host("ant"), host("bee")), profiles=(profile("c"),))
    asked = fleet.inputs()
    waiting = plan(replace(asked, snapshot=busier(asked.snapshot, "bee", 6)))
    assert set(seats(waiting).values()) == {"bee"}
    now = replace(asked, snapshot=busier(asked.snapshot, "ant", 6))
    assert set(seats(plan(now)).values()) == {"ant"}
    kept = plan(replace(now, waiting=waiting))
    assert kept.decisions_digest == waiting.decisions_digest
    assert check(kept, replace(now, waiting=waiting)) == ()


def test_a_waiting_plan_never_outweighs_what_is_truly_better() -> None:
    fleet = Fleet(hosts=(host("ant"), host("bee")), profiles=(profile("c"),))
    asked = fleet.inputs()
    waiting = plan(replace(asked, snapshot=busier(asked.snapshot, "bee", 6)))
    full = replace(asked, snapshot=busier(asked.snapshot, "bee", 20), waiting=waiting)
    assert set(seats(plan(full)).values()) == {"ant"}


def busier(snapshot: Snapshot, name: str, gib: int) -> Snapshot:
    """The same snapshot with so much more used by others on every GPU of one host."""
    hosts = [
        replace(h, devices=tuple(replace(d, external_bytes=gib << 30 if d.kind == "gpu" else 0) for d in h.devices))
        if h.host == name
        else h
        for h in snapshot.hosts
    ]
    return replace(snapshot, hosts=tuple(hosts))


def test_a_written_off_host_is_not_waited_for() -> None:
    """A laptop that is away keeps its replica for its patience, unless a person has given it up."""
    fleet = Fleet(
        hosts=(laptop("ant"), laptop("bee")), profiles=(profile("c", configs=(config(backends=("metal",)),)),)
    )
    settled = fleet.applied(fleet.plan())
    away = settled.reporting("ant", observed_ms=NOW - 200_000)
    assert decisions(away.plan()) == []
    asked = away.inputs()
    made = plan(replace(asked, written_off=frozenset({HostId("ant")})))
    assert set(seats(made).values()) == {"bee"}
    assert check(made, replace(asked, written_off=frozenset({HostId("ant")}))) == ()


def test_fewer_are_told_from_what_the_file_asked_for_not_from_what_found_a_place() -> None:
    fleet = Fleet(hosts=(host("a"), host("b")), profiles=(profile("c", 5, gib=18),))
    made = fleet.plan()
    assert len(made.placement) == 2
    fewer = fleet.applied(made).but(profiles=(profile("c", 1, gib=18),)).plan()
    assert [d.cause.detail for d in fewer.to_do] == ["replicas 5 => 1"]


def test_what_pins_ask_for_beyond_the_minimum_says_so() -> None:
    """The file names one replica and two hosts: the second replica is there for a pin, today and tomorrow."""
    pinned = profile("c", 1, gib=18, replicas_max=2, placement=PlacementRules(pins=(HostId("a"), HostId("b"))))
    fleet = Fleet(hosts=(host("a"), host("b")), profiles=(profile("c", 1, gib=18, replicas_max=2),))
    made = fleet.applied(fleet.plan()).but(profiles=(pinned,)).plan()
    assert [d.cause.detail for d in made.to_do] == ["pinned to 2 hosts"]
