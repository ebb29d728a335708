"""The bound on what must stay unmet: below no placement there is, and tight where room cannot be filled."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import pytest

from gridops.planner.best_case import least_unmet
from gridops.planner.constants_room import FILL_CELLS
from gridops.planner.permit import Limits
from gridops.planner.pieces import Kind, Option, Piece, Spot
from gridops.planner.puzzle import Puzzle
from gridops.planner.search import Search
from tests.planner.puzzles import one_pool

WIDE = Limits(rounds=40, moves=99, drops=99)


def made_of(
    room: Sequence[int], sizes: Sequence[int], counts: Sequence[int], slack: int = 0, most_here: int = 1
) -> Puzzle:
    """Hosts of one pool and kinds of weight 1 that may stand on all of them, nobody seated."""
    ground = one_pool(room)
    for one in ground.slack:
        one[0] = slack
    options = [Option(0, (0,), ((0,),), 1, size, 0, False, 1, 0) for size in sizes]
    kinds = [Kind(1, lambda o=o: dict.fromkeys(range(len(room)), (o,)), most_here=most_here) for o in options]  # type: ignore[misc]
    return Puzzle(kinds, [Piece(n) for n, count in enumerate(counts) for _ in range(count)], ground)


def placements(room: Sequence[int], sizes: Sequence[int], counts: Sequence[int]) -> Iterator[int]:
    """Of every way to fill the hosts with at most one of a kind on each: how many stand."""
    ways = [
        [w for w in itertools.product((0, 1), repeat=len(sizes)) if sum(map(int.__mul__, w, sizes)) <= whole]
        for whole in room
    ]
    for chosen in itertools.product(*ways):
        stand = [sum(column) for column in zip(*chosen, strict=True)]
        if all(map(int.__le__, stand, counts)):
            yield sum(stand)


@pytest.mark.parametrize("seed", range(40))
def test_no_placement_is_below_the_bound(seed: int) -> None:
    chance = random.Random(seed)
    room = [chance.randrange(5, 40) * 1_000 + chance.randrange(1_000) for _ in range(3)]
    sizes = [chance.randrange(2, 25) * 1_000 + chance.randrange(1_000) for _ in range(4)]
    if seed % 2:
        sizes[1] = sizes[0]
    counts = [chance.randrange(1, 4) for _ in sizes]
    made = made_of(room, sizes, counts)
    assert least_unmet(made, WIDE) <= sum(counts) - max(placements(room, sizes, counts))


def test_room_that_no_sum_of_sizes_fills_counts_for_nothing() -> None:
    # By memory alone all six fit; a host of 15 holds one of them, whichever it is.
    made = made_of([15_000] * 4, [10_000, 9_000], [3, 3], most_here=3)
    assert least_unmet(made, WIDE) == 2


def test_sums_have_no_more_of_a_kind_than_a_host_may_hold() -> None:
    # 5 + 7 + 7 would fill a host, and leave room for a fifth; of each kind there is one on a host, and 5 + 13 is most.
    made = made_of([19_000] * 2, [5_000, 7_000, 13_000], [2, 2, 2])
    assert least_unmet(made, WIDE) == 2


def test_two_kinds_of_one_size_fill_a_host_together() -> None:
    made = made_of([22_000] * 2, [11_000, 11_000, 12_000], [2, 2, 1])
    assert least_unmet(made, WIDE) == 1


def test_sums_are_told_apart_that_differ_by_more_than_a_cell_for_each_piece() -> None:
    room = FILL_CELLS * 1_000
    sizes = [room // 2 - 3_000, room // 2 - 2_000, room // 2 + 2_000]
    # Two of the first two fit; any with the third is too much by a thousandth of the host.
    made = made_of([room], sizes, [1, 1, 1])
    assert least_unmet(made, WIDE) == 1


def test_headroom_is_room_only_where_somebody_is_at_home() -> None:
    made = made_of([19], [10], [2], slack=1, most_here=2)
    assert least_unmet(made, WIDE) == 1
    option = made.kinds[0].options[0][0]
    home = Spot(0, option, (0,))
    at_home = Puzzle(made.kinds, [Piece(0, home), Piece(0, home)], made.ground)
    assert least_unmet(at_home, WIDE) == 0


def test_what_is_proven_the_best_is_not_searched_further() -> None:
    made = made_of([15_000] * 4, [10_000, 9_000], [3, 3], most_here=3)
    assert Search(made, Limits(rounds=100, moves=99, drops=99)).run() <= 1
    assert made.unmet == 2
