"""When nothing is rearranged: room was made already, or everybody has a seat; and the one gain that moves somebody."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from gridops.model.policy import MoveLimits
from gridops.model.profile import Profile, Timing
from gridops.planner import repack, room
from tests.planner.contest import RESTED, budget, standing, wants
from tests.planner.fleet import Fleet, decisions, host, profile, seats
from tests.planner.worlds import later, shuffled


def crowded(seed: int) -> Fleet:
    """A full fleet where more is wanted than there is room for, after something else stood there."""
    chance = random.Random(seed)
    sizes = (4, 6, 9, 12, 18)

    def some(names: str) -> tuple[Profile, ...]:
        return tuple(
            profile(
                n,
                chance.randrange(1, 4),
                gib=chance.choice(sizes),
                priority=chance.choice((50, 100, 200)),
                max_per_host=chance.choice((1, 2)),
                timing=Timing(min_residency_ms=0),
            )
            for n in names
        )

    fleet = Fleet(hosts=tuple(host(f"h{n}", rack=f"r{n % 2}") for n in range(4)), profiles=some("abc"))
    stood = fleet.applied(fleet.plan(), later_ms=RESTED)
    return wants(stood, *some("defg"))


@pytest.mark.parametrize("seed", range(25))
def test_once_carried_out_a_plan_asks_for_nothing_more(seed: int) -> None:
    fleet = budget(crowded(seed), moves=MoveLimits(per_plan=99))
    last: list[str] = []
    for _ in range(6):
        made = fleet.plan()
        if made.to_do == ():
            return
        fleet, last = later(made, fleet), decisions(made)
    raise AssertionError(f"still at it: {last}")


@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_files_changes_nothing(seed: int) -> None:
    fleet = crowded(seed)
    assert seats(shuffled(fleet, random.Random(seed)).plan()) == seats(fleet.plan())


@pytest.mark.parametrize("seed", range(10))
def test_other_names_in_the_same_order_change_nothing_but_names(seed: int) -> None:
    fleet = crowded(seed)
    names = {h.id: f"node-{h.id}" for h in fleet.hosts}
    fresh = replace(fleet, parent=None, reports={})
    renamed = fresh.but(hosts=tuple(replace(h, id=names[h.id]) for h in fresh.hosts))  # type: ignore[arg-type]
    found = seats(fresh.plan())
    assert seats(renamed.plan()) == {r: names[h] for r, h in found.items()}  # type: ignore[index]


def test_where_everybody_has_a_seat_nobody_is_moved_for_a_better_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = standing(profile("one", 2, gib=10), profile("two", 2, gib=10), hosts=4)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("a complete placement is not looked at")

    monkeypatch.setattr(room, "gather_movers", never)
    assert fleet.plan().to_do == ()


# -- repacking ---------------------------------------------------------------------------------------------------------


def late_fleet(load_ms: int, *, again_ms: int = 1_000) -> Fleet:
    """`new` has its weights on h0, where `old` stands; it fits on h1 too, where it would have to fetch them."""
    old = profile("old", 1, gib=18, timing=Timing(load_ms=again_ms, warm_ms=1_000, min_residency_ms=0))
    new = profile("new", 1, gib=18, timing=Timing(load_ms=load_ms, warm_ms=1_000, min_residency_ms=0))
    fleet = Fleet(hosts=(host("h0"), host("h1")), profiles=(old,))
    stood = fleet.applied(fleet.plan(), later_ms=RESTED)
    weights = tuple(sorted(f.sha256 for f in new.configs[0].artifact.files))
    seen = stood.reports["h0"]
    assert seen is not None
    return stood.but(profiles=(old, new)).reporting("h0", cached=tuple(sorted({*seen.cached, *weights})))


def test_one_that_stands_moves_for_a_new_one_when_that_pays() -> None:
    made = late_fleet(repack.GAIN_MS * 3).plan()
    assert seats(made) == {"new/1": "h0", "old/1": "h1"}


def test_a_gain_that_is_not_worth_a_move_uses_what_is_free() -> None:
    made = late_fleet(repack.GAIN_MS // 2).plan()
    assert seats(made) == {"new/1": "h1", "old/1": "h0"}


def test_what_the_other_loses_by_its_new_start_counts_against_the_gain() -> None:
    made = late_fleet(repack.GAIN_MS * 3, again_ms=repack.GAIN_MS * 5 // 2).plan()
    assert seats(made) == {"new/1": "h1", "old/1": "h0"}
