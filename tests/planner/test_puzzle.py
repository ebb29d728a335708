"""The puzzle says what the board says, and forgets nothing when it is turned back."""

from __future__ import annotations

import random

import pytest

from gridops.planner.capacity import Ask, Offer
from gridops.planner.circles import deadlocked, stuck, untie
from gridops.planner.draft import begin
from gridops.planner.gather import gather
from gridops.planner.movers import gather_movers
from gridops.planner.pieces import Kind, Option, Piece, Spot
from gridops.planner.place import place
from gridops.planner.puzzle import Puzzle
from gridops.planner.seats import Seats
from gridops.planner.targets import choose
from gridops.planner.views import look
from tests.planner.puzzles import one_pool, plain, puzzle, state, wrongs
from tests.planner.worlds import change, later, make_fleet, rolled

WORLDS = range(60)


@pytest.mark.parametrize("seed", WORLDS)
def test_a_seat_in_the_puzzle_is_an_offer_of_the_board_and_the_other_way_round(seed: int) -> None:
    cook = rolled(seed)
    fleet = make_fleet(cook)
    if seed % 2:
        fleet = change(cook, later(fleet.plan(), fleet))
    world = look(fleet.inputs())
    if world.mass_stale:
        return
    draft = begin(world, choose(world, gather(world)))
    seats = Seats(draft)
    left = [i for i in place(seats) if i.origin is None and i.pin is None]
    movers = gather_movers(seats, left)
    over = world.budgets.price is not None and draft.board.price_micro > world.budgets.price.max_per_hour_micro
    for n, mover in enumerate(movers.movers):
        if mover.item is None:
            continue
        profile = world.profiles[mover.profile]
        for host, row in enumerate(movers.rows):
            offered = False
            for opening in seats.openings(profile):
                if opening.place[row] >= 0:
                    ask = Ask(mover.replica, profile, opening.way(row))
                    offered |= isinstance(draft.board.offer(seats.grid.ids[row], ask), Offer)
            fits = movers.puzzle.fits(n, host) is not None
            assert fits == offered or (over and offered), f"{mover.replica} on {seats.grid.ids[row]}"
    _looked_at(movers.puzzle)


def _looked_at(made: Puzzle) -> None:
    """Wherever one of a kind could stand, the host counts as roomy for the kind, and as roomy as is said of it."""
    for number, kind in enumerate(made.kinds):
        could = [h for h in kind.hosts if made.seat(number, h) is not None]
        assert set(could) <= set(made.roomy(0 if kind.on_ram else kind.size))
        assert not could or max(made.room) >= kind.least


@pytest.mark.parametrize("seed", range(40))
def test_undoing_restores_everything(seed: int) -> None:
    made, chance = puzzle(seed), random.Random(seed)
    for _ in range(20):
        before, mark = state(made), len(made.journal)
        for _ in range(chance.randrange(1, 8)):
            n = chance.randrange(len(made.pieces))
            if made.at[n] is not None:
                made.take(n)
            elif (spot := made.fits(n, chance.randrange(len(made.on)))) is not None:
                made.put(n, spot)
        assert wrongs(made) == []
        made.undo(mark)
        assert state(made) == before


@pytest.mark.parametrize("seed", range(20))
def test_a_restored_state_is_the_one_that_was_remembered(seed: int) -> None:
    made = puzzle(seed)
    kept, before = list(made.at), state(made)
    for n, spot in enumerate(kept):
        if spot is not None and n % 3:
            made.take(n)
    made.restore(kept)
    assert state(made) == before


def test_a_host_of_one_pool_without_a_slot_left_has_no_room() -> None:
    made = plain([(0, 0)], [4], 10)
    home = made.take(0)
    made.ground.slots[0] = 1
    assert made.roomy(0) == [0]
    made.put(0, home)
    assert made.roomy(0) == []
    made.take(0)
    assert made.roomy(0) == [0]


def test_two_that_want_each_others_places_wait_for_ever() -> None:
    assert deadlocked(plain([(0, 1), (1, 0)], [6, 6], 10))


def test_with_room_for_both_at_once_nobody_waits() -> None:
    assert not deadlocked(plain([(0, 1), (1, 0)], [5, 5], 10))


def test_a_chain_with_a_free_end_is_no_circle() -> None:
    assert not deadlocked(plain([(0, 1), (1, 2)], [6, 6], 10))


def test_a_circle_of_three_is_one() -> None:
    assert deadlocked(plain([(0, 1), (1, 2), (2, 0)], [6, 6, 6], 10))


def test_those_who_wait_in_a_circle_are_sent_home_and_the_others_stay() -> None:
    made = plain([(0, 1), (1, 0), (2, 3)], [6, 6, 6], 10)
    assert stuck(made) == [0, 1]
    kept = made.at[2]
    untie(made, stuck(made))
    assert made.at == [made.pieces[0].home, made.pieces[1].home, kept]
    assert stuck(made) == []


def test_who_has_no_home_left_to_go_to_goes_where_there_is_room() -> None:
    made = plain([(0, 1), (1, 0), (2, 2)], [6, 5, 2], 10)
    made.ground.free[0][0] -= 7
    untie(made, [0, 1])
    assert [spot.host if spot is not None else None for spot in made.at] == [2, 1, 2]


def test_on_the_share_for_gpu_work_two_of_one_replica_need_room_for_both() -> None:
    """Half of the memory may be GPU work: the new process of the same replica does not come up beside the old one."""
    for share, waits in ((10, True), (12, False)):
        wide, small = (Option(n, (0,), ((0,),), 1, need, 0, True, 1, 0) for n, need in enumerate((8, 4)))
        ground = one_pool([20])
        ground.gpu[0][0] = share
        home = Spot(0, wide, (0,))
        made = Puzzle([Kind(1, lambda o=(wide, small): {0: o})], [Piece(0, home)], ground)  # type: ignore[misc]
        made.put(0, Spot(0, small, (0,)))
        assert deadlocked(made) is waits


@pytest.mark.parametrize("copies", [2, 3])
def test_fewer_of_a_kind_in_one_domain_are_no_gain(copies: int) -> None:
    """They lack a failure domain where they stand, and lack it just as well when one of them has gone."""
    option = Option(0, (0,), ((0,),), 1, 5, 0, False, 1, 0)
    kind = Kind(1, lambda: dict.fromkeys(range(4), (option,)), domains=(0, 0, 0, 1), spread=2)
    homes = [Spot(n, option, (0,)) for n in range(copies)]
    made = Puzzle([kind], [Piece(0, home) for home in homes], one_pool([10] * 4))
    for n, home in enumerate(homes):
        made.put(n, home)
    before = made.short
    made.take(0)
    assert made.short == before
    made.put(0, Spot(3, option, (0,)))
    assert made.short == before - 1, "another domain is one"
