"""Reasons by number: the arrays say what the lines say, in every world, and the choice of a seat is what happened."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base import limits
from gridops.base.codes import placement as codes
from gridops.base.ids import ReplicaId
from gridops.model.fleet import Drain
from gridops.model.plan import ChosenBy, Plan
from gridops.planner.check import check
from gridops.planner.explain import Walk, choice_in, missing_in, told, walk
from gridops.planner.survey import Survey, tally_of
from gridops.planner.why import homeless, lines_for
from tests.planner.fleet import Fleet, config, host, profile, seats
from tests.planner.worlds import change, later, make_fleet, rolled

SEEDS = range(1000, 1030)


def worlds(seed: int) -> tuple[Fleet, Fleet]:
    """A first world, and what it is after something has happened."""
    cook = rolled(seed)
    first = make_fleet(cook)
    return first, change(cook, later(first.plan(), first))


@pytest.mark.parametrize("seed", SEEDS)
def test_counting_all_hosts_at_once_says_what_the_lines_say(seed: int) -> None:
    for fleet in worlds(seed):
        walked = walk(fleet.inputs())
        survey = Survey(walked.seats)
        for item in homeless(walked.left):
            lines = lines_for(walked.seats.draft, item)
            assert survey.tally(item.profile, item.pin) == tally_of(lines, walked.seats.draft.world.hosts), item.replica


@pytest.mark.parametrize("seed", SEEDS)
def test_a_walk_ends_where_the_plan_ends_and_looking_changes_nothing(seed: int) -> None:
    for fleet in worlds(seed):
        made, walked = fleet.plan(), walk(fleet.inputs())
        before = {r: s.assignment for r, s in walked.seats.draft.seats.items()}
        sums = {h: list(b.sums()) for h, b in walked.seats.draft.board.hosts.items()}
        assert sorted(before.values(), key=lambda a: a.replica) == sorted(made.placement, key=lambda a: a.replica)
        for missing in made.report.unplaced:
            whole = missing_in(walked, missing.replica)
            assert whole == missing, "a small plan carries what is made on demand"
            assert [line.host for line in whole.hosts] == sorted(h.id for h in fleet.hosts)
        for a in made.placement:
            choice = choice_in(walked, a.replica)
            assert choice is None or (choice.replica, choice.host) == (a.replica, a.seat.host)
        assert {r: s.assignment for r, s in walked.seats.draft.seats.items()} == before
        assert {h: list(b.sums()) for h, b in walked.seats.draft.board.hosts.items()} == sums


@pytest.mark.parametrize("seed", SEEDS)
def test_every_choice_of_a_plan_is_about_the_seat_that_it_gives(seed: int) -> None:
    for fleet in worlds(seed):
        made = fleet.plan()
        where = seats(made)
        assert [c.replica for c in made.report.choices] == sorted({c.replica for c in made.report.choices}, key=_key)
        for choice in made.report.choices:
            assert where[choice.replica] == choice.host != choice.runner_up
            if choice.runner_up is not None:
                mine = [t.winner for t in choice.terms]
                theirs = [t.runner_up for t in choice.terms]
                assert (mine, choice.host) < (theirs, choice.runner_up)


def _key(replica: str) -> tuple[str, int]:
    name, _, number = replica.rpartition("/")
    return name, int(number)


def crowded(hosts: int, wanted: int) -> Fleet:
    """More replicas than hosts have room for; three profiles of different need."""
    names = [f"h{n:03d}" for n in range(hosts)]
    return Fleet(
        hosts=tuple(host(n, (24,), rack=f"r{i % 4}") for i, n in enumerate(names)),
        profiles=(profile("big", wanted, gib=22), profile("huge", 2, gib=30), profile("mac", 2, configs=(metal(),))),
        drains=(Drain(host=names[-1], reason="fan"),),  # type: ignore[arg-type]
    )


def metal():
    return config("mac-q4", 4, backends=("metal",))


@pytest.fixture
def few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOST_LINES", 20)


@pytest.mark.usefixtures("few_lines")
def test_a_large_plan_counts_its_hosts_by_reason_and_keeps_the_headline() -> None:
    fleet = crowded(8, 9)
    made = fleet.plan()
    counted = {u.replica: u for u in made.report.unplaced}
    assert list(counted) == ["big/8", "big/9", "huge/1", "huge/2", "mac/1", "mac/2"]
    huge = counted["huge/1"]
    assert [(c.code, c.hosts) for c in huge.counts or ()] == [
        (codes.INSUFFICIENT_DEVICE_MEMORY.code, 7),
        (codes.HOST_DRAINING.code, 1),
    ]
    assert [line.host for line in huge.hosts] == [huge.nearest] == ["h000"]
    assert counted["mac/2"].hosts == (), "no memory is missing anywhere, so nothing is nearest"
    walked = walk(fleet.inputs())
    for replica, one in counted.items():
        whole = missing_in(walked, replica)
        assert whole is not None
        assert len(whole.hosts) == 8
        assert replace(whole, hosts=one.hosts, counts=one.counts) == one, "the headline is the same either way"


@pytest.mark.usefixtures("few_lines")
def test_of_several_configs_the_counts_speak_of_the_one_that_came_closest() -> None:
    wanted = profile("c", 30, configs=(config("big", 60), config("mid", 30)), max_per_host=None)
    fleet = Fleet(hosts=(host("ant"),), profiles=(wanted,))
    first = fleet.plan().report.unplaced[0]
    assert first.counts is not None
    assert [line.detail for line in first.hosts] == ["too little memory on a device for config mid"]
    assert first.short_bytes == (first.hosts[0].need or 0) - (first.hosts[0].have or 0)


def test_up_to_the_bound_a_plan_carries_every_line_and_beyond_it_none(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = crowded(8, 9)  # 6 unplaced on 8 hosts
    monkeypatch.setattr(limits, "HOST_LINES", 48)
    assert all(len(u.hosts) == 8 and u.counts is None for u in fleet.plan().report.unplaced)
    monkeypatch.setattr(limits, "HOST_LINES", 47)
    assert all(len(u.hosts) <= 1 and u.counts is not None for u in fleet.plan().report.unplaced)


def broken(made: Plan, **changes: object) -> Plan:
    """The plan with its first unplaced replica told otherwise."""
    first, *others = made.report.unplaced
    wrong = replace(first, **changes)  # type: ignore[arg-type]
    return replace(made, report=replace(made.report, unplaced=(wrong, *others)))


def test_the_checker_wants_lines_up_to_the_bound_and_counts_that_add_up_beyond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = crowded(8, 9)
    small = fleet.plan()
    monkeypatch.setattr(limits, "HOST_LINES", 20)
    large = fleet.plan()
    counts = large.report.unplaced[0].counts or ()
    without_lines = "big/8 is unplaced, and its reasons do not add up to 8 declared hosts"
    assert check(broken(large, counts=counts[1:]), fleet.inputs()) == (without_lines,)
    assert check(broken(large, counts=None), fleet.inputs()) == (without_lines,)
    empty = (*counts[:-1], replace(counts[-1], hosts=0), replace(counts[-1], code="GO999"))
    unknown = "big/8 is unplaced for GO999, which is no reason"
    assert check(broken(large, counts=empty), fleet.inputs()) == (unknown, without_lines)
    assert check(broken(large, nearest="h001"), fleet.inputs()) == (
        "big/8 is unplaced with lines of other hosts than the nearest",
    )
    monkeypatch.setattr(limits, "HOST_LINES", 4096)
    lines = small.report.unplaced[0].hosts
    note = ("big/8 is unplaced without exactly one line per declared host",)
    assert check(broken(small, hosts=lines[1:]), fleet.inputs()) == note
    assert check(broken(small, counts=counts), fleet.inputs()) == note


def test_who_stays_is_compared_with_the_best_other_host_on_demand() -> None:
    fleet = Fleet(hosts=(host("ant"), host("bee", (32,)), host("cat", (8,))), profiles=(profile("c"),))
    after = fleet.applied(fleet.plan())
    made, walked = after.plan(), walk(after.inputs())
    assert made.report.choices == (), "nobody looked for a seat"
    choice = choice_in(walked, made.placement[0].replica)
    assert choice is not None
    assert (choice.host, choice.runner_up, choice.by, choice.fits) == ("ant", "bee", ChosenBy.STAYS, 2)
    assert [(line.host, line.code) for line in choice.rejected] == [("cat", codes.INSUFFICIENT_DEVICE_MEMORY.code)]
    start = next(t for t in choice.terms if t.name == "harm_starting")
    assert start.winner == 0 < (start.runner_up or 0)


def test_hosts_that_fit_and_hosts_that_do_not_are_counted_at_one_moment() -> None:
    """Others take hosts after the choice: those fitted when it was made, and no line says that they did not."""
    hosts = tuple(host(f"h{n:02d}", (24,) if n < 15 else (8,)) for n in range(20))
    fleet = Fleet(hosts=hosts, profiles=(profile("a", gib=20), profile("b", 6, gib=20, priority=50)))
    replica = ReplicaId("a/1")
    choice = choice_in(walk(fleet.inputs(), watched=replica), replica)
    assert choice is not None
    assert choice.fits == 15
    assert [line.host for line in choice.rejected] == [f"h{n}" for n in range(15, 20)]
    alone = fleet.but(hosts=hosts[:9])
    everybody = choice_in(walk(alone.inputs(), watched=replica), replica)
    assert everybody is not None
    assert (everybody.fits, everybody.rejected) == (9, ()), "a small fleet has recorded that nobody was out"


def test_who_was_seated_together_with_others_is_told_so_and_no_old_comparison_is_shown() -> None:
    """The tight host is best for the small one, and the search gives it to others so that all of them stand."""
    made, walked, fleet = rearranged()
    moved = set(seats(made)) - {c.replica for c in made.report.choices}
    assert moved, "somebody was seated again by the search"
    for replica in moved:
        choice = choice_in(walked, replica)  # type: ignore[arg-type]
        assert choice is not None
        assert choice.host == seats(made)[replica]
        better = choice.runner_up is not None and [t.runner_up for t in choice.terms] < [t.winner for t in choice.terms]  # type: ignore[operator]
        assert choice.by is (ChosenBy.TOGETHER if better else None)
    full = told(made, walked, made.placement[0].replica)
    assert made.placement[0].replica in {c.replica for c in full.report.choices}
    assert check(full, fleet.inputs()) == ()


def rearranged() -> tuple[Plan, Walk, Fleet]:
    """A cold fleet so full that first choices have to be given up."""
    sizes, needs = (24, 32, 40, 48), (7, 9, 11, 13, 17, 19)
    fleet = Fleet(
        hosts=tuple(host(f"h{n}", (sizes[n % 4],)) for n in range(8)),
        profiles=tuple(profile(f"p{n}", 2, gib=needs[n % 6], max_per_host=2) for n in range(11)),
    )
    return fleet.plan(), walk(fleet.inputs()), fleet
