"""Replicas are counted with the lanes of the configs that they really stand with: no more, no fewer, and at rest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridops.base.ids import ProfileName, ReplicaId
from gridops.footprint.need import identity
from gridops.model.fleet import Host
from gridops.model.forecast import ProfileForecast, Watermark
from gridops.model.plan import Cause, CauseKind, DecisionKind, Plan
from gridops.model.profile import Profile, Spread
from gridops.planner.draft import Draft, Item
from gridops.planner.enough import settle
from gridops.planner.explain import walk
from gridops.planner.incumbents import Incumbent, Verdict
from gridops.planner.sizing import Ask, Size
from tests.planner.fleet import Fleet, config, host, profile
from tests.planner.test_targets_forecast import entry, expect, planned, wanted
from tests.planner.worlds import make_fleet, rolled

C = ProfileName("c")
HOUR = 3_600_000
SMALL = tuple(host(f"h{n}") for n in range(6))
"""Room for the second config alone."""


def two(first: int, second: int, least: int = 0, most: int = 8, **more: object) -> Profile:
    """The preferred config needs a large card, the other one does not. Lanes of each."""
    configs = (config("large", 30, lanes=first), config("small", 18, lanes=second))
    return profile("c", least, replicas_max=most, configs=configs, **more)


def asking(slots: int, fleet: Fleet) -> ProfileForecast:
    """Demand that makes exactly so many lanes wanted (20% on top, at 70% use), and never was more: nothing is kept."""
    asked = entry(slots * 0.7 / 1.2 - 0.001)
    assert asked.offered_mlanes is not None
    peak = Watermark(at_ms=fleet.now, offered_mlanes=asked.offered_mlanes)
    return replace(asked, last_used_ms=fleet.now, watermarks=(peak,))


def plan_for(fleet: Fleet, slots: int) -> Plan:
    return planned(fleet, expect(asking(slots, fleet), made=fleet.now))


def lanes_of(made: Plan) -> list[int]:
    known = {identity(launch): launch.lanes for launch in made.launches}
    return [known[a.launch] for a in made.placement]


def at_rest(fleet: Fleet, made: Plan, slots: int) -> None:
    """The same demand has no new answer, neither at once nor when nobody is new any more."""
    for later in (60_000, HOUR, 3 * HOUR):
        again = plan_for(fleet.applied(made, later_ms=later), slots)
        assert again.to_do == (), later
        assert again.placement == made.placement


COUNTS = {
    # lanes of (large, small), slots asked, minimum, maximum -> replicas that stand on small hosts
    "wider than hoped": ((1, 4), 4, 0, 8, 1),
    "wider, and one is not enough": ((1, 4), 5, 0, 8, 2),
    "narrower than hoped": ((4, 1), 4, 0, 8, 4),
    "narrower, and the maximum holds": ((4, 1), 4, 0, 3, 3),
    "the baseline is not counted in lanes": ((1, 4), 4, 3, 8, 3),
    "as hoped": ((4, 4), 8, 0, 8, 2),
    "nothing asked beyond one": ((1, 4), 1, 0, 8, 1),
}


@pytest.mark.parametrize("name", COUNTS)
def test_seats_are_counted_with_the_lanes_of_the_config_they_got(name: str) -> None:
    (first, second), slots, least, most, expected = COUNTS[name]
    fleet = Fleet(hosts=SMALL, profiles=(two(first, second, least, most),))
    made = plan_for(fleet, slots)
    assert (len(made.placement), made.report.unplaced) == (expected, ())
    assert [a.replica for a in made.placement] == [f"c/{n}" for n in range(1, expected + 1)]
    at_rest(fleet, made, slots)


def test_the_report_says_that_fewer_suffice_and_why() -> None:
    made = plan_for(Fleet(hosts=SMALL, profiles=(two(1, 4),)), 4)
    assert made.report.notes == (
        "c: 1 replica with 4 lanes suffice, fewer than the 4 of 1 lane (large), as other configs found a seat",
    )
    assert made.decisions[0].cause.kind is CauseKind.DEMAND
    assert made.decisions[0].cause.detail.endswith("=> 1 replica with the configs that found a seat")


def test_the_report_says_that_more_are_needed_and_why() -> None:
    made = plan_for(Fleet(hosts=SMALL, profiles=(two(4, 1),)), 3)
    assert made.report.notes == (
        "c: 3 replicas with 3 lanes suffice, more than the 1 of 4 lanes (large), as other configs found a seat",
    )


def test_seats_as_hoped_say_nothing() -> None:
    large = tuple(host(f"h{n}", (48.0,)) for n in range(4))
    made = plan_for(Fleet(hosts=large, profiles=(two(1, 4),)), 3)
    assert (lanes_of(made), made.report.notes) == ([1, 1, 1], ())


def test_who_is_missing_is_counted_with_the_preferred_config() -> None:
    """One narrow seat is found; what lacks would be one replica of four lanes, not three of one."""
    fleet = Fleet(hosts=SMALL[:1], profiles=(two(4, 1),))
    made = plan_for(fleet, 4)
    assert [a.replica for a in made.placement] == ["c/1"]
    assert [u.replica for u in made.report.unplaced] == ["c/2"]
    at_rest(fleet, made, 4)


def test_a_reserve_takes_no_seat_of_somebody_who_found_none() -> None:
    """The pin of the first is full: that is no reason to seat another one elsewhere."""
    blocker = profile("b", 1, gib=20, priority=200)
    want = two(4, 1, 1)
    want = replace(want, placement=replace(want.placement, pins=(SMALL[0].id,)))
    pinned = replace(blocker, placement=replace(blocker.placement, pins=(SMALL[0].id,)))
    made = plan_for(Fleet(hosts=SMALL[:2], profiles=(pinned, want)), 4)
    assert [(a.replica, a.seat.host) for a in made.placement] == [("b/1", "h0")]
    assert [u.replica for u in made.report.unplaced] == ["c/1"]


def test_more_demand_counts_those_who_stand_as_they_stand() -> None:
    fleet = Fleet(hosts=SMALL, profiles=(two(1, 4),))
    fleet = fleet.applied(plan_for(fleet, 4), later_ms=HOUR)
    assert plan_for(fleet, 4).to_do == ()
    made = plan_for(fleet, 8)
    assert [d.replica for d in made.to_do] == ["c/2"]
    at_rest(fleet, made, 8)


def test_fewer_are_wanted_by_the_same_count() -> None:
    fleet = Fleet(hosts=SMALL, profiles=(two(1, 4),))
    fleet = fleet.applied(plan_for(fleet, 12), later_ms=3 * HOUR)
    made = plan_for(fleet, 4)
    assert [(d.kind, d.replica) for d in made.to_do] == [(DecisionKind.REMOVE, "c/2"), (DecisionKind.REMOVE, "c/3")]
    assert len(made.placement) == 1


def test_who_lost_its_host_is_not_seated_again_where_a_wider_one_suffices() -> None:
    large = tuple(host(f"g{n}", (48.0,)) for n in range(2))
    fleet = Fleet(hosts=large, profiles=(two(1, 4),))
    fleet = fleet.applied(plan_for(fleet, 2), later_ms=HOUR)
    assert fleet.parent is not None
    assert lanes_of(fleet.parent) == [1, 1]
    fleet = fleet.but(hosts=SMALL, keys=None)
    made = plan_for(fleet, 2)
    assert lanes_of(made) == [4]
    assert [(d.kind, d.replica) for d in made.to_do] == [(DecisionKind.MOVE, "c/1"), (DecisionKind.REMOVE, "c/2")]
    assert made.report.unplaced == ()
    at_rest(fleet, made, 2)


def test_who_moves_to_a_narrower_config_is_joined_by_others_in_the_same_plan() -> None:
    fleet = Fleet(hosts=(host("g", (48.0,)),), profiles=(two(4, 1),))
    fleet = fleet.applied(plan_for(fleet, 4), later_ms=HOUR).but(hosts=SMALL, keys=None)
    made = plan_for(fleet, 4)
    assert lanes_of(made) == [1, 1, 1, 1]
    at_rest(fleet, made, 4)


def test_a_pin_that_is_full_stays_named_although_others_suffice() -> None:
    blocker = profile("b", 1, gib=20, priority=200)
    blocker = replace(blocker, placement=replace(blocker.placement, pins=(SMALL[0].id,)))
    want = two(1, 4, 1)
    want = replace(want, placement=replace(want.placement, pins=(SMALL[0].id,)))
    made = plan_for(Fleet(hosts=SMALL, profiles=(blocker, want)), 4)
    assert [u.replica for u in made.report.unplaced] == ["c/1"]
    assert sum(1 for a in made.placement if a.profile == "c") == 1


@pytest.mark.parametrize(("lanes", "slots", "come"), [((4, 1), 3, 3), ((1, 4), 4, 1)])
def test_others_give_way_to_as_many_as_are_needed_with_the_lanes_they_get(
    lanes: tuple[int, int], slots: int, come: int
) -> None:
    others = profile("b", 5, gib=18, priority=50)
    fleet = Fleet(hosts=SMALL[:5], profiles=(others,))
    fleet = fleet.applied(fleet.plan(), later_ms=3 * HOUR).but(profiles=(others, two(*lanes, priority=200)))
    made = plan_for(fleet, slots)
    assert sum(1 for a in made.placement if a.profile == "c") == come
    assert sum(1 for a in made.placement if a.profile == "b") == 5 - come


def test_one_replica_is_in_no_domain_too_few() -> None:
    """The minimum is of as many replicas as are wanted with the lanes they got."""
    racks = (host("h0", rack="r1"), host("h1", rack="r2"))
    want = two(1, 4, spread=Spread(by="rack", min=2))
    made = plan_for(Fleet(hosts=racks, profiles=(want,)), 4)
    assert (len(made.placement), made.report.shortfalls) == (1, ())


def finished(slots: int) -> Draft:
    """A draft in which everybody has a seat of four lanes."""
    fleet = Fleet(hosts=SMALL, profiles=(two(1, 4),))
    return walk(replace(fleet.inputs(), forecast=expect(asking(slots, fleet)))).seats.draft


def asked_less(draft: Draft, slots: int) -> None:
    """As if a mover had come wider after newcomers were seated."""
    size = draft.sizes[C]
    draft.sizes = {C: size._replace(asks=(Ask(0, slots),))}


def test_a_newcomer_that_others_made_needless_is_let_go_the_highest_number_first() -> None:
    draft = finished(8)
    assert sorted(draft.seats) == ["c/1", "c/2"]
    asked_less(draft, 4)
    settle(draft, draft.sizes, ())
    assert (sorted(draft.seats), draft.sizes[C].replicas) == (["c/1"], 1)


def test_newcomers_close_the_gap_that_a_needless_one_left() -> None:
    draft = finished(8)
    host_of_second = draft.seats[ReplicaId("c/2")].assignment.seat.host
    draft.lift(ReplicaId("c/1"))
    asked_less(draft, 4)
    settle(draft, draft.sizes, ())
    assert {r: s.assignment.seat.host for r, s in draft.seats.items()} == {"c/1": host_of_second}
    assert list(draft.board.hosts[host_of_second].desired) == ["c/1"]


def test_who_lost_its_host_keeps_its_number_where_a_newcomer_found_the_seat() -> None:
    draft = finished(4)
    seated = draft.seats[ReplicaId("c/1")]
    gone = Cause(kind=CauseKind.HOST_LOST, detail="gone")
    was = replace(seated.assignment, replica=ReplicaId("c/3"))
    lost = Incumbent(was, seated.launch, was.replica, Verdict.RELEASE, gone)
    settled = settle(draft, draft.sizes, (Item(was.replica, draft.world.profiles[C], gone, lost),))
    assert {r: s.origin for r, s in draft.seats.items()} == {"c/3": lost}
    assert (settled.left, settled.dropped) == ((), ())


def test_explain_walks_to_the_same_end() -> None:
    for lanes in ((1, 4), (4, 1)):
        fleet = Fleet(hosts=SMALL[:2], profiles=(two(*lanes),))
        inputs = replace(fleet.inputs(), forecast=expect(asking(5, fleet)))
        made, walked = plan_for(fleet, 5), walk(inputs)
        assert sorted(walked.seats.draft.seats) == sorted(a.replica for a in made.placement)
        assert [i.replica for i in walked.left] == [u.replica for u in made.report.unplaced]


@pytest.mark.parametrize(
    ("count", "lanes", "enough"),
    [(1, 9, False), (2, 4, False), (2, 5, True), (3, 2, True), (6, 0, True)],
)
def test_any_one_ask_is_enough_and_the_maximum_is_the_end(count: int, lanes: int, enough: bool) -> None:
    size = Size(2, 2, asks=(Ask(2, 5), Ask(3, 2)), least=2, most=6)
    assert size.suffices(count, lanes) is enough


@st.composite
def hosts(draw: st.DrawFn) -> tuple[Host, ...]:
    cards = draw(st.lists(st.sampled_from((16.0, 24.0, 24.0, 48.0)), min_size=1, max_size=6))
    return tuple(host(f"h{n}", (card,)) for n, card in enumerate(cards))


@settings(max_examples=60, deadline=None)
@given(hosts(), st.tuples(*[st.sampled_from((1, 2, 4, 8))] * 2), st.integers(1, 12), st.integers(0, 2), st.data())
def test_whatever_the_lanes_what_stands_suffices_nobody_is_needless_and_it_rests(
    on: tuple[Host, ...], lanes: tuple[int, int], slots: int, least: int, data: st.DataObject
) -> None:
    most = data.draw(st.integers(max(1, least), 8))
    fleet = Fleet(hosts=on, profiles=(two(*lanes, least, most),))
    made = plan_for(fleet, slots)
    widths = lanes_of(made)
    missing = len(made.report.unplaced)
    assert sum(widths) + missing * lanes[0] >= slots or len(widths) + missing == most
    assert missing == 0 or sum(widths) + (missing - 1) * lanes[0] < slots or len(widths) + missing <= max(1, least)
    assert len(widths) <= max(1, least) or sum(widths) - max(widths) < slots
    assert wanted(made) <= most
    at_rest(fleet, made, slots)


def test_who_is_needed_since_others_were_moved_to_narrower_configs_looks_once_more() -> None:
    """Replicas of `code` had four lanes each until they made room; then one more was needed and a host was free."""
    made = make_fleet(rolled(1306568)).plan()
    assert any(n.startswith("code: 4 replicas with 7 lanes suffice, more than the 3") for n in made.report.notes)
    assert not [u.replica for u in made.report.unplaced if u.replica.startswith("code/")]


def test_who_is_more_than_was_hoped_for_stands_in_as_many_failure_domains() -> None:
    """One with many lanes was hoped for, and it takes two with few: they are two to spread, one rack being nearer."""
    narrow = two(8, 1, spread=Spread(by="rack", min=2), max_per_host=None)
    near, far = host("near", (48,), rack="r1"), host("far", rack="r2")
    fleet = Fleet(
        hosts=(near, far), profiles=(replace(narrow, configs=(config("large", 50, lanes=8), narrow.configs[1])),)
    )
    fleet = fleet.reporting("near", cached=(narrow.configs[1].artifact.files[0].sha256,))
    made = plan_for(fleet, 2)
    assert lanes_of(made) == [1, 1]
    assert sorted(a.seat.host for a in made.placement) == ["far", "near"]


def test_who_is_gone_with_its_host_and_not_needed_goes_for_that_reason() -> None:
    """Two stood on hosts that are no longer declared. One finds a seat so wide that the other is too many."""
    wide = two(1, 8)
    old = replace(wide, replicas_min=2, configs=(config("old", 10),))
    gone = Fleet(hosts=(host("x"), host("y")), profiles=(old,))
    gone = gone.applied(gone.plan(), later_ms=HOUR)
    fleet = gone.but(hosts=SMALL[:1], profiles=(wide,), reports={}, parent=gone.parent)
    made = plan_for(fleet, 3)
    assert [(d.kind, d.replica) for d in made.decisions] == [(DecisionKind.MOVE, "c/1"), (DecisionKind.REMOVE, "c/2")]
    assert made.decisions[1].cause.detail == "host y is no longer declared"


def test_who_widens_takes_nobody_away_until_it_has_stood_with_its_new_lanes() -> None:
    """Three with a lane each; the file says four lanes now. First they change, all three; then two are too many."""
    narrow = profile("c", 0, replicas_max=8, max_per_host=None, configs=(config("q", 6, lanes=1),))
    start = Fleet(hosts=SMALL[:3], profiles=(narrow,))
    start = start.applied(plan_for(start, 3), later_ms=HOUR)
    wide = start.but(profiles=(replace(narrow, configs=(config("q", 6, lanes=4),)),))
    made = plan_for(wide, 3)
    assert [d.kind for d in made.to_do] == [DecisionKind.CHANGE] * 3
    rested = wide.applied(made, later_ms=HOUR)
    assert [d.kind for d in plan_for(rested, 3).to_do] == [DecisionKind.REMOVE] * 2
