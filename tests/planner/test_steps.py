"""Steps of the search break no rule and leave nothing behind; prices say where room is scarce."""

from __future__ import annotations

import random

import pytest

from gridops.planner.draws import Draws
from gridops.planner.permit import Limits
from gridops.planner.pieces import Kind, Option, Piece
from gridops.planner.prices import rents
from gridops.planner.puzzle import Puzzle
from gridops.planner.ruin import Ruin
from gridops.planner.search import Search
from gridops.planner.steps import Steps
from tests.planner.puzzles import one_pool, puzzle, state, wrongs

SEEDS = range(30)


def scarce(*, large: int = 1, small: int = 1, size: int = 10, room: tuple[int, int] = (10, 10)) -> Puzzle:
    """Two hosts with room for one each: a heavy kind that may only stand on the first, a light one on both.

    `size`: what one of the heavy kind takes.
    """
    option, heavy = (Option(0, (0,), ((0,),), 1, need, 0, False, 1, 0) for need in (10, size))
    ground = one_pool(room)
    kinds = [Kind(8, lambda: {0: (heavy,)}, 1), Kind(2, lambda: {0: (option,), 1: (option,)}, 1)]
    return Puzzle(kinds, [Piece(0)] * large + [Piece(1)] * small, ground)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_breaks_no_rule_and_can_be_turned_back(seed: int) -> None:
    made, draws, chance = puzzle(seed), Draws(), random.Random(seed)
    made.charge(rents(made))
    small, large = Steps(made, draws), Ruin(made, draws)
    for number in range(80):
        before, mark = state(made), len(made.journal)
        if number % 4 == 3:
            large.step()
        else:
            small.step(bool(number % 2))
        assert wrongs(made) == []
        assert made.rent == sum(made.rents[made.pieces[n].kind][s.host] for n, s in enumerate(made.at) if s is not None)
        if chance.randrange(2):
            made.undo(mark)
            assert state(made) == before


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cheapest_seat_of_a_kind_costs_nothing(seed: int) -> None:
    made = puzzle(seed)
    for kind, prices in rents(made).items():
        allowed = [prices[h] for h in made.kinds[kind].hosts]
        assert min(allowed, default=0) == 0
        assert min(prices) >= 0


def test_room_that_a_heavier_kind_needs_is_dear_to_others() -> None:
    found = rents(scarce(small=2))
    assert found[1][0] > found[1][1] == 0
    assert found[0] == [0, 0]


def test_room_that_nobody_else_needs_costs_nothing() -> None:
    assert rents(scarce(large=0))[1] == [0, 0]


def test_room_that_is_left_over_has_no_price_below_nothing() -> None:
    assert rents(scarce(large=0, room=(10, 100)))[1] == [0, 0]


def test_who_fits_nowhere_makes_no_room_dear() -> None:
    assert rents(scarce(size=11))[1] == [0, 0]


def test_prices_are_the_same_each_time() -> None:
    assert rents(puzzle(3)) == rents(puzzle(3))


def test_emptied_hosts_are_filled_where_room_is_cheap() -> None:
    made = scarce()
    made.charge({0: [0, 0], 1: [500, 0]})
    for _ in range(20):
        mark = len(made.journal)
        if Ruin(made, Draws()).step() and made.at[1] is not None:
            assert made.at[1].host == 1
        made.undo(mark)


def test_who_sits_in_the_way_is_sent_where_it_may_stand_as_well() -> None:
    made = scarce()
    spot = made.fits(1, 0)
    assert spot is not None
    made.put(1, spot)
    made.journal.clear()
    Search(made, Limits(rounds=10, moves=9, drops=9)).run()
    assert [s.host for s in made.at if s is not None] == [0, 1]
