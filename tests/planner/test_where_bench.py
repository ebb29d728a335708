"""The bench that measures what constants do: it changes them everywhere, gives them back, and tells differences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import constants as bench
from bench.fleet_lived_in import lived_in
from gridops.base.record import to_bytes
from gridops.planner import constants, speed
from gridops.planner.check import check
from gridops.planner.planner import plan


def test_a_constant_has_its_other_value_in_every_room_that_reads_it_and_gets_its_own_back() -> None:
    with pytest.raises(ZeroDivisionError), bench.changed("HARDWARE_PPM", 7):
        assert (vars(speed)["HARDWARE_PPM"], constants.HARDWARE_PPM) == (7, 7)
        raise ZeroDivisionError
    assert vars(speed)["HARDWARE_PPM"] == constants.HARDWARE_PPM == 20_000


def test_a_lived_in_fleet_is_the_same_for_the_same_seed_and_its_plans_are_clean() -> None:
    one, again, other = lived_in(1, 8, 6), lived_in(1, 8, 6), lived_in(2, 8, 6)
    assert one == again != other
    for inputs in (one.inputs, one.waits):
        made = plan(inputs)
        assert check(made, inputs) == ()
        assert to_bytes(made) == to_bytes(plan(inputs))


def test_differences_are_told_and_equal_outcomes_are_dashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "fleets", lambda many: (lived_in(1, 8, 6),) * many)
    row = next(r for r in constants.TABLE if r.name == "WEAK_CONFIDENCE_PPM")
    same = bench.outcome(1, ())
    assert bench.line(row, "half", 1, same, same).split()[3:] == ["-"] * 6
    lost = ({**same.seats[0], "new/1": "h000"}, *same.seats[1:])
    told = bench.line(row, "twice", 2, same, replace(same, seats=lost, unplaced=same.unplaced + 2, unmet=-3)).split()
    assert told[2] == "twice"
    assert told[3].startswith("1/")
    assert (told[4], told[7]) == ("+2", "-3")
