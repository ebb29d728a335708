"""Any part of any plan can be carried out alone: what is held back stays as it is, and leaves room for what is not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from gridops.base.ids import HostId, ProfileName
from gridops.model.fleet import Runtime
from gridops.model.plan import DecisionKind, Plan
from gridops.model.profile import Colocation, Downtime, PlacementRules, Profile, Restart
from gridops.model.snapshot import ResidencyState
from gridops.planner.check import check
from gridops.planner.restrict import restrict
from tests.planner.fleet import Fleet, config, decisions, host, profile, seats
from tests.planner.worlds import change, make_fleet, rolled

PARTS_MOST = 24
"""Of a plan with many change sets, so many parts chosen by chance."""


def parts(made: Plan, chance: random.Random) -> list[frozenset[int]]:
    """Every subset of a plan's change sets but the whole, or some of them where they are many."""
    sets = sorted({d.change_set for d in made.to_do})
    if len(sets) > 10:
        return [frozenset(n for n in sets if chance.random() < 0.5) for _ in range(PARTS_MOST)]
    found = [frozenset(some) for size in range(len(sets)) for some in combinations(sets, size)]
    return found if len(found) <= PARTS_MOST else chance.sample(found, PARTS_MOST)


def resized(profiles: Sequence[Profile], chance: random.Random) -> tuple[Profile, ...]:
    """Some profiles with other sizes than were planned with."""
    return tuple(
        replace(p, configs=tuple(_resized(c, chance) for c in p.configs)) if chance.random() < 0.5 else p
        for p in profiles
    )


def _resized(one: object, chance: random.Random) -> object:
    known = one.footprint  # type: ignore[attr-defined]
    if not known.device_bytes:
        return one
    size = int(known.device_bytes * chance.choice((0.3, 0.5, 0.8, 1.3, 2)))
    return replace(one, footprint=replace(known, device_bytes=size))  # type: ignore[type-var]


def every_part_is_clean(fleet: Fleet, chance: random.Random) -> Plan:
    made = fleet.plan()
    for keep in parts(made, chance):
        notes = check(restrict(made, fleet.parent, keep), fleet.inputs(), partial=True)
        assert notes == (), f"{sorted(keep)} of {decisions(made)}: {notes}"
    return made


@pytest.mark.parametrize("block", range(4))
def test_any_part_of_a_plan_of_a_generated_fleet_is_clean(block: int) -> None:
    for seed in range(500_000 + 40 * block, 500_040 + 40 * block):
        cook, chance = rolled(seed), random.Random(seed)
        fleet = make_fleet(cook)
        for _ in range(3):
            made = every_part_is_clean(fleet, chance)
            carried = chance.choice(parts(made, chance)) if made.to_do and chance.random() < 0.3 else None
            part = made if carried is None else restrict(made, fleet.parent, carried)
            fleet = change(cook, fleet.applied(part))
            if chance.random() < 0.7:
                fleet = fleet.but(profiles=resized(fleet.profiles, chance))


def converged(*profiles: Profile, hosts: tuple[object, ...]) -> Fleet:
    fleet = Fleet(hosts=hosts, profiles=profiles)  # type: ignore[arg-type]
    return fleet.applied(fleet.plan())


def test_who_shrank_is_small_in_a_part_that_holds_its_new_terms_back() -> None:
    """Its process goes on either way: what it takes is no decision, and a newcomer was placed beside it."""
    was = profile("c", gib=18)
    fleet = converged(was, hosts=(host("ant"),))
    now = replace(was, configs=(config("c-q4", 9),), restart=Restart(max=9))
    fleet = fleet.but(profiles=(now, profile("new", gib=12))).restarted("c/1", 9)
    made = every_part_is_clean(fleet, random.Random(0))
    assert decisions(made) == ["place new/1 -> ant", "change c/1 ant -> ant"]
    assert made.decisions[0].change_set != made.decisions[1].change_set


def test_nobody_counts_on_less_than_the_plan_in_force_says_of_who_leaves() -> None:
    """Held back, a removal gives the parent's word again: the newcomer that needs the difference is tied to it."""
    was = profile("c", 2, gib=11, max_per_host=None)
    fleet = converged(was, hosts=(host("ant"),))
    now = replace(was, configs=(config("c-q4", 5),), replicas_min=1, replicas_max=1)
    fleet = fleet.but(profiles=(now, profile("new", gib=12))).restarted("c/1", 5).restarted("c/2", 5)
    made = every_part_is_clean(fleet, random.Random(0))
    assert decisions(made) == ["place new/1 -> ant", "remove c/2 ant"]
    assert made.decisions[0].change_set == made.decisions[1].change_set


def test_who_would_not_share_a_host_with_an_old_name_comes_with_the_new_one() -> None:
    old = profile("old", gib=4)
    fleet = converged(old, hosts=(host("ant"),))
    renamed = replace(old, name=ProfileName("new"), renamed_from=ProfileName("old"))
    shy = profile("shy", gib=4, colocation=Colocation(exclude=(ProfileName("old"),)))
    fleet = fleet.but(profiles=(renamed, shy))
    made = every_part_is_clean(fleet, random.Random(0))
    assert [(d.kind, d.replica) for d in made.decisions] == [
        (DecisionKind.PLACE, "shy/1"),
        (DecisionKind.CHANGE, "new/1"),
    ]
    assert made.decisions[0].change_set == made.decisions[1].change_set


def test_of_two_on_one_pinned_host_the_second_goes_to_the_other_pin() -> None:
    ant, bee = HostId("ant"), HostId("bee")
    one = profile("c", 2, gib=4, max_per_host=None, placement=PlacementRules(allow_hosts=(bee,)))
    fleet = converged(one, hosts=(host("ant"), host("bee")))
    assert seats(fleet.plan()) == {"c/1": "bee", "c/2": "bee"}
    made = fleet.but(profiles=(replace(one, placement=PlacementRules(pins=(ant, bee))),)).plan()
    assert decisions(made) == ["move c/2 bee -> ant"]
    # Where the pin cannot be kept, the plan says so and nobody leaves.
    shut = fleet.but(profiles=(replace(one, placement=PlacementRules(pins=(ant, bee), deny_hosts=(ant,))),)).plan()
    assert seats(shut) == {"c/1": "bee", "c/2": "bee"}
    assert [line.detail.split(" ")[0] for line in shut.report.waiting] == ["c/2"]


def test_who_made_room_for_one_is_not_sent_back_there_for_the_next() -> None:
    """`video/1` gives its place to the pinned one and comes to cat; nobody takes that from it in the same plan."""
    ant, cat, dog = HostId("ant"), HostId("cat"), HostId("dog")
    video = profile("video", gib=16, priority=50, placement=PlacementRules(allow_hosts=(ant, cat)))
    small = profile("small", gib=6, priority=50, placement=PlacementRules(allow_hosts=(cat, dog)))
    hosts = (host("ant"), host("cat"), host("dog", (8,)))
    at = {"video": ant, "small": cat}
    pinned = (replace(p, placement=replace(p.placement, allow_hosts=(at[p.name],))) for p in (video, small))
    fleet = converged(*pinned, hosts=hosts)
    assert seats(fleet.plan()) == {"small/1": "cat", "video/1": "ant"}
    draw = profile("draw", 2, gib=18, priority=200, placement=PlacementRules(pins=(ant,), allow_hosts=(ant, cat)))
    made = fleet.but(profiles=(draw, small, video)).plan()
    assert seats(made) == {"draw/1": "ant", "small/1": "cat", "video/1": "cat"}
    assert [u.replica for u in made.report.unplaced] == ["draw/2"]


def test_nobody_returns_to_beside_one_that_changes_there_and_counted_on_its_place() -> None:
    """`grows/1` wants ant for itself, and starts anew there; who left for that is not sent back for others' sake."""
    ant = HostId("ant")
    grows = profile("grows", gib=5, downtime=Downtime.NEVER, placement=PlacementRules(pins=(ant,)))
    leaves = profile("leaves", gib=14, placement=PlacementRules(allow_hosts=(ant,)))
    fleet = converged(grows, leaves, hosts=(host("ant"), host("bee", (16,))))
    alone = replace(
        grows,
        priority=50,
        configs=(config("grows-q4", 5, context=2048),),
        colocation=Colocation(max=1),
    )
    two = profile("small", gib=5, priority=50), profile("large", gib=10)
    made = fleet.but(profiles=(alone, *two, replace(leaves, placement=PlacementRules()))).plan()
    assert seats(made) == {"grows/1": "ant", "leaves/1": "bee"}
    assert [u.replica for u in made.report.unplaced] == ["large/1", "small/1"]


def test_nothing_is_started_beside_a_process_of_its_own_that_nobody_can_vouch_for() -> None:
    """The card is gone, and whether its process is, nobody can say: no second one comes to the host's memory."""
    both = (config("c-q4", 6, backends=("cuda", "cpu")),)
    runtimes = tuple(Runtime(engine="llama.cpp", backend=b) for b in ("cuda", "cpu"))  # type: ignore[arg-type]
    fleet = converged(profile("c", configs=both), hosts=(host("ant", runtimes=runtimes),))
    seen = fleet.reports["ant"]
    assert seen is not None
    assert seen.residencies[0].devices == ("gpu0",)
    lost = tuple(replace(r, state=ResidencyState.UNKNOWN) for r in seen.residencies)
    made = fleet.reporting("ant", residencies=lost, devices=seen.devices[1:]).plan()
    assert decisions(made) == []
    assert [line.host for line in made.report.waiting] == ["ant"]
    # What is known to run can change its device there.
    assert decisions(fleet.reporting("ant", devices=seen.devices[1:]).plan()) == ["change c/1 ant -> ant"]


@pytest.mark.parametrize("downtime", Downtime)
def test_who_comes_back_to_its_own_host_in_another_config_says_that_it_is_down(downtime: Downtime) -> None:
    """It outgrew ant and would go to bee, which somebody needs more: then its smaller config comes to ant, after it."""
    ant, bee, cat = HostId("ant"), HostId("bee"), HostId("cat")
    both = (config("c-0", 15), config("c-1", 9))
    was = profile("c", configs=both, downtime=downtime, priority=50, placement=PlacementRules(allow_hosts=(ant,)))
    small = profile("small", gib=4, priority=50, placement=PlacementRules(allow_hosts=(bee,)))
    fleet = converged(was, small, hosts=(host("ant"), host("bee"), host("cat", (8,))))
    now = replace(was, configs=(config("c-0", 30), both[1]), placement=PlacementRules(allow_hosts=(ant, bee)))
    small = replace(small, placement=PlacementRules(allow_hosts=(bee, cat)))
    large = profile("large", gib=22, priority=200, placement=PlacementRules(allow_hosts=(bee,)))
    made = fleet.but(profiles=(now, large, small)).plan()
    found = {d.replica: (d.kind.value, d.cost.dip) for d in made.decisions}
    if downtime is Downtime.ALLOWED:
        assert found == {"large/1": ("place", 0), "c/1": ("change", 1), "small/1": ("move", 0)}
    else:
        assert found["c/1"] == ("move", 0)


def test_the_last_that_stands_goes_with_the_first_that_comes() -> None:
    """Its host is not declared any more and a new one comes: held back, that one would leave none at all."""
    was = profile("c", gib=6)
    gone, bee = converged(was, hosts=(host("ant"),)), host("bee")
    fleet = gone.but(
        hosts=(bee,), profiles=(replace(was, replicas_min=2, replicas_max=2, placement=PlacementRules(pins=(bee.id,))),)
    )
    made = every_part_is_clean(fleet, random.Random(0))
    assert len({d.change_set for d in made.to_do if d.profile == "c"}) == 1
