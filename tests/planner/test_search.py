"""The local search: never worse, never against the rules, never a circle, and the longer the better."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.planner import search
from gridops.planner.best_case import least_unmet
from gridops.planner.chains import Chains
from gridops.planner.circles import deadlocked
from gridops.planner.draws import Draws
from gridops.planner.grid import ENDLESS
from gridops.planner.permit import Limits, Permit
from gridops.planner.pieces import Kind, Option, Piece, Spot
from gridops.planner.puzzle import Puzzle
from gridops.planner.search import Search
from tests.planner.puzzles import one_pool, plain, puzzle, state, wrongs

SEEDS = range(60)
WIDE = Limits(rounds=40, moves=99, drops=99)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_result_is_not_worse_breaks_no_rule_and_can_be_carried_out(seed: int) -> None:
    made = puzzle(seed)
    before = made.value
    Search(made, WIDE).run()
    assert made.value <= before
    assert wrongs(made) == []
    assert not deadlocked(made)
    assert made.journal == []


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_loses_the_place_to_somebody_who_may_not_take_it(seed: int) -> None:
    made = puzzle(seed)
    Search(made, WIDE).run()
    for kind in made.gone:
        mine = [n for n, p in enumerate(made.pieces) if p.kind == kind and p.home is not None]
        serving = [n for n in mine if made.pieces[n].serves]
        assert not serving or any(made.at[n] is not None for n in serving), "the last that serves went"
        excused = 0
        for n in mine:
            home = made.pieces[n].home
            assert home is not None
            if made.at[n] is home:
                continue
            excused += any(
                made.kinds[made.pieces[m].kind].weight > made.kinds[kind].weight
                and (spot := made.at[m]) is not made.pieces[m].home
                and spot is not None
                and spot.option.firm
                and not made.pieces[m].meek
                for m in made.on[home.host]
            )
        assert excused >= made.gone[kind]


@pytest.mark.parametrize("seed", SEEDS)
def test_more_rounds_are_never_worse(seed: int) -> None:
    values = []
    for rounds in (0, 1, 3, 10, 30, 90):
        made = puzzle(seed)
        Search(made, Limits(rounds=rounds, moves=99, drops=99)).run()
        values.append(made.value)
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("seed", [9, 77, 117])
def test_a_search_that_is_cut_off_keeps_nothing_that_a_longer_one_passes_by(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # One cycle is worth 54 rounds here: it is cut off before that, in the half for the sooner start.
    monkeypatch.setattr(search, "FIRST_CYCLE", 1)
    monkeypatch.setattr(search, "SHORTEST_CYCLE", 8_000)
    values = []
    for rounds in range(28, 62, 3):
        made = puzzle(seed)
        Search(made, Limits(rounds=rounds, moves=99, drops=99)).run()
        values.append(made.value)
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize(("seed", "kinds"), [(19, 3), (3, 3), (49, 3)])
def test_letting_those_stand_where_it_costs_nothing_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, seed: int, kinds: int
) -> None:
    monkeypatch.setattr(search, "FIRST_CYCLE", 30)
    monkeypatch.setattr(search, "SHORTEST_CYCLE", 1_600)
    monkeypatch.setattr(search, "LONGEST_CYCLE", 3_200)
    made = puzzle(seed, kinds=kinds)
    looking = Search(made, Limits(rounds=20, moves=99, drops=99))
    settle, before = looking._settle, list[tuple[int, ...]]()

    def checked() -> None:
        before.append(made.value)
        settle()
        assert made.value <= before[-1]
        assert looking.permit.excused(made.gone)
        assert not deadlocked(made)

    monkeypatch.setattr(looking, "_settle", checked)
    looking.run()
    assert before


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("moves", "drops"), [(0, 0), (1, 0), (0, 1), (2, 2)])
def test_no_more_are_moved_or_dropped_than_allowed(seed: int, moves: int, drops: int) -> None:
    made = puzzle(seed)
    Search(made, Limits(rounds=40, moves=moves, drops=drops)).run()
    assert made.moved <= moves
    assert made.dropped <= max(drops, puzzle(seed).dropped)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_puzzle_has_the_same_answer(seed: int) -> None:
    one, other = puzzle(seed), puzzle(seed)
    assert Search(one, WIDE).run() == Search(other, WIDE).run()
    assert state(one) == state(other)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_ever_below_the_bound(seed: int) -> None:
    made = puzzle(seed)
    limits = Limits(rounds=60, moves=99, drops=seed % 4)
    bound = least_unmet(made, limits)
    Search(made, limits).run()
    assert made.unmet >= bound


@pytest.mark.parametrize("seed", SEEDS)
def test_chains_alone_make_nothing_worse_either(seed: int) -> None:
    made = puzzle(seed)
    before = made.value
    Chains(made, Permit(made, WIDE)).run()
    assert made.value <= before
    assert wrongs(made) == []


def test_a_search_with_nothing_to_wish_for_stops_at_once() -> None:
    made = plain([(0, 0), (1, 1)], [6, 6], 10)
    kept = state(made)
    assert Search(made, WIDE).run() == 0
    assert state(made) == kept


def ringed() -> Puzzle:
    """All three have room only if the first two exchange hosts, where neither has room before the other leaves."""
    one, two, new = (Option(0, (0,), ((0,),), 1, need, 0, False, 1, 0) for need in (5, 6, 5))
    ground = one_pool([7, 10])
    kinds = [
        Kind(1, lambda: dict.fromkeys((0, 1), (one,))),
        Kind(1, lambda: dict.fromkeys((0, 1), (two,))),
        Kind(1, lambda: {1: (new,)}),
    ]
    homes = Spot(0, one, (0,)), Spot(1, two, (0,))
    made = Puzzle(kinds, [Piece(0, homes[0]), Piece(1, homes[1]), Piece(2)], ground)
    for n, home in enumerate(homes):
        made.put(n, home)
    made.journal.clear()
    return made


def test_a_circle_is_no_result_though_all_would_have_room() -> None:
    made = ringed()
    kept = list(made.at)
    Search(made, Limits(rounds=40, moves=9, drops=0)).run()
    assert made.at == kept


def test_a_state_that_cannot_be_untied_within_the_limits_is_left_as_it_was() -> None:
    made = plain([(0, 1), (1, 0)], [6, 5], 10)
    second = made.take(1)
    made.ground.free[0][0] -= 5  # the first would find no room at home any more
    made.put(1, second)
    made.journal.clear()
    looking = Search(made, Limits(rounds=40, moves=9, drops=0))
    looking.record, before, kept = (9,) * 7, state(made), list(made.at)
    assert not looking._keep()
    assert state(made) == before
    assert made.at == kept


def test_only_as_many_as_may_move_take_the_seats_of_their_like() -> None:
    light, heavy = (Option(0, (0,), ((0,),), 1, need, 0, False, 1, 0) for need in (5, 10))
    ground = one_pool([10, 10])
    kinds = [Kind(1, lambda: dict.fromkeys((0, 1), (light,))), Kind(8, lambda: {0: (heavy,)})]
    home = Spot(0, light, (0,))
    made = Puzzle(kinds, [Piece(0, home), Piece(0, home), Piece(0), Piece(0), Piece(1)], ground)
    for n, spot in ((2, Spot(1, light, (0,))), (3, Spot(1, light, (0,))), (4, Spot(0, heavy, (0,)))):
        made.put(n, spot)
    Permit(made, Limits(rounds=0, moves=1, drops=9)).settle()
    assert (made.moved, made.dropped) == (1, 1)


@pytest.mark.parametrize(
    "comes", ["another pool of the host", "the place of its like", "another host", "for somebody new"]
)
def test_only_who_came_to_a_host_excuses_that_somebody_lost_a_place_there(comes: str) -> None:
    """Who matters more takes the other pool, or the two of its kind exchange hosts, or one moves there for nobody: that
    is on the way to a result, and is none unless somebody new is behind it."""
    option = Option(0, (0, 1), ((0, 1),), 1, 5, 0, False, 1, 0)
    ground = one_pool([9, 9])
    ground = replace(ground, free=[[9, 9], [9, 9]], slack=[[0, 0]] * 2, gpu=[[ENDLESS] * 2] * 2)
    kinds = [Kind(weight, lambda: dict.fromkeys((0, 1), (option,)), most_here=9) for weight in (1, 8)]
    homes = [Spot(0, option, (1,)), Spot(0, option, (0,)), Spot(1, option, (0,))]
    pieces = [Piece(0, homes[0]), Piece(1, homes[1]), Piece(1, homes[2]), Piece(1)]
    made = Puzzle(kinds, pieces, ground)
    moved = {
        "another pool of the host": {1: Spot(0, option, (1,)), 2: homes[2]},
        "the place of its like": {1: Spot(1, option, (0,)), 2: Spot(0, option, (1,))},
        "another host": {1: homes[1], 2: Spot(0, option, (1,))},
        "for somebody new": {1: homes[1], 2: Spot(0, option, (1,)), 3: homes[2]},
    }
    for n, spot in moved[comes].items():
        made.put(n, spot)
    assert Permit(made, WIDE).excused([0])
    assert Permit(made, WIDE).is_result() is (comes == "for somebody new")


def test_who_is_new_where_its_like_went_away_is_nobody_that_others_made_room_for() -> None:
    """One moves to the place of somebody who matters less, and a third host gets one more of another kind. In words the
    newcomer is there, and nobody came to where the first one stood."""
    option = Option(0, (0,), ((0,),), 1, 5, 0, False, 1, 0)
    kinds = [Kind(weight, lambda: dict.fromkeys((0, 1, 2), (option,)), most_here=9) for weight in (1, 8, 8)]
    homes = [Spot(0, option, (0,)), Spot(1, option, (0,)), Spot(1, option, (0,))]
    made = Puzzle(kinds, [Piece(0, homes[0]), Piece(1, homes[1]), Piece(2, homes[2]), Piece(2)], one_pool([9, 18, 9]))
    for n, spot in {1: Spot(0, option, (0,)), 2: Spot(2, option, (0,)), 3: homes[2]}.items():
        made.put(n, spot)
    assert not Permit(made, WIDE).is_result()
    other = Puzzle(kinds, [Piece(0, homes[0]), Piece(1, homes[1]), Piece(2)], one_pool([9, 9, 9]))
    for n, spot in {1: Spot(0, option, (0,)), 2: Spot(1, option, (0,))}.items():
        other.put(n, spot)
    assert Permit(other, WIDE).is_result()


def test_draws_cover_their_range_and_never_change() -> None:
    draws = Draws()
    found = [draws.below(7) for _ in range(200)]
    assert set(found) == set(range(7))
    again = Draws()
    assert found == [again.below(7) for _ in range(200)]
