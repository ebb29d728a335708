"""Amounts of memory for people: what is needed, what there is and what is missing always add up, whatever is shown."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gridops.base.units import render_bytes, render_lack, render_need
from gridops.model.plan import HostLine, Unplaced
from gridops.planner.render_words import missing

GIB = 1 << 30
UNITS = {"B": 1, "MiB": 1 << 20, "GiB": GIB, "TiB": 1 << 40, "KiB": 1 << 10}


def amount(text: str) -> Decimal:
    number, unit = text.split()
    return Decimal(number) * UNITS[unit]


@given(have=st.integers(-(1 << 40), 1 << 43), lack=st.integers(1, 1 << 43))
@example(have=int(45.55 * GIB), lack=60 * GIB - int(45.55 * GIB))
@example(have=GIB - 1, lack=1)
def test_need_have_and_short_add_up_in_one_unit_and_err_on_the_safe_side(have: int, lack: int) -> None:
    need = max(have + lack, 1)
    shown = render_lack(need, have)
    wants, there, lacks = (amount(text) for text in shown)
    assert wants - there == lacks
    assert len({text.split()[1] for text in shown}) == 1
    assert wants >= need
    assert there <= have
    assert lacks > 0


@given(need=st.integers(1, 1 << 45))
@example(need=100 * GIB - 1)
def test_a_need_alone_is_rounded_up_and_what_there_is_down(need: int) -> None:
    assert amount(render_need(need)) >= need >= amount(render_bytes(need))


@pytest.mark.parametrize(
    ("need", "have", "shown"),
    [
        (60 * GIB, int(45.55 * GIB), ("60 GiB", "45.5 GiB", "14.5 GiB")),
        (60 * GIB, 60 * GIB - (10 << 20), ("61440 MiB", "61430 MiB", "10 MiB")),
        (20 * GIB, -GIB, ("20 GiB", "-1 GiB", "21 GiB")),
        (5, 3, ("5 B", "3 B", "2 B")),
    ],
)
def test_the_unit_is_one_in_which_what_is_missing_can_be_seen(need: int, have: int, shown: tuple[str, ...]) -> None:
    assert render_lack(need, have) == shown


def test_the_headline_says_the_same_shortfall_as_the_line_of_the_host() -> None:
    line = HostLine(host="forge", code="GO520", detail="", need=60 * GIB, have=int(45.55 * GIB), unit="bytes")
    lacking = Unplaced(
        replica="coder/1", code="GO520", detail="", hosts=(line,), nearest="forge", short_bytes=line.need - line.have
    )
    assert missing(lacking) == ", 14.5 GiB short"
