"""The tables of the lab's page: each fault has an option that is drawn, and a batch asks for each thing to be met."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from gridops.lab.options import Options, draw, draw_talk
from tests.lab.test_seeds import (
    MET_BY_FLEETS,
    MET_BY_ROBBED,
    MET_BY_TALKS,
    MET_IN_WORSE,
    REFUSED,
    REFUSED_FOR_GOOD,
    REFUSED_FOR_NUMBERS,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "lab.md").read_text(encoding="utf-8")
MET = MET_BY_FLEETS | MET_BY_TALKS | MET_BY_ROBBED | MET_IN_WORSE
OPTIONS = {f.name for f in fields(Options)}
DRAWN = [draw(seed) for seed in range(1, 301)] + [draw_talk(seed) for seed in range(1, 301)]


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    lines = PAGE.split(f"## {heading}\n", 1)[1].splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("| --- "))
    found = []
    for line in lines[first + 1 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def named(cell: str) -> list[str]:
    return cell.split("`")[1::2]


def held_here(cell: str) -> list[str]:
    """What the lab itself holds of it; a file that holds it elsewhere must be there."""
    names = named(cell)
    assert names
    for file in (name for name in names if "/" in name):
        assert (ROOT / file.partition("::")[0]).exists(), f"{file} is gone"
    return [name for name in names if "/" not in name]


FAULTS = rows("Each fault")
SOMETIMES = rows("What a batch must meet")


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row[0])
def test_each_fault_is_drawn_or_held_where_the_page_says(row: list[str]) -> None:
    for name in held_here(row[1]):
        assert name in OPTIONS, f"the lab has no option `{name}`"
        assert any(getattr(options, name) for options in DRAWN), f"`{name}` is never drawn"
    for counter in named(row[2]):
        assert counter in MET, f"no batch asks for `{counter}`"


@pytest.mark.parametrize("row", SOMETIMES, ids=lambda row: row[0])
def test_what_must_be_met_is_asked_for(row: list[str]) -> None:
    for counter in held_here(row[1]):
        assert counter in MET, f"no batch asks for `{counter}`"


def test_the_table_leaves_no_refusal_out() -> None:
    told = {counter for row in SOMETIMES for counter in named(row[1])}
    assert told >= REFUSED | REFUSED_FOR_NUMBERS | REFUSED_FOR_GOOD | {"brake"}


def test_whatever_may_go_wrong_by_an_option_stands_in_the_table() -> None:
    told = {name for row in FAULTS for name in named(row[1])}
    ways = {name for name in OPTIONS if name.endswith(("_ppm", "_every_ms"))}
    usual = {"rollouts_ppm", "commit_every_ms", "renew_every_ms", "ask_every_ms"}
    assert ways - usual <= told, ways - usual - told
