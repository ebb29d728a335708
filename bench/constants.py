"""What each constant of the planner's table does when it is doubled and when it is halved, as measured.

    python -m bench.constants                     every constant, on 8 lived-in fleets and 24 yardstick instances
    python -m bench.constants HOT_PPM --fleets 20

For the fleets (each with and without a proposal under review): replicas that get another seat or none, of all, those
that find none more or less, seconds until all serve, and advices that differ. For the yardstick: weight unmet and
seconds of start-up, as differences. `-` stands for no difference. A row of nothing but `-` is a bound that these
fleets do not reach; the test that `tests/planner` has for it says what it bounds.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import gridops.planner
from bench.fleet_lived_in import LivedIn, lived_in
from bench.optimum import names, run
from bench.yard.instance import named
from gridops.model.plan import Plan
from gridops.planner import constants, constants_room
from gridops.planner.constants import Constant
from gridops.planner.planner import plan

HEAD = (
    f"{'constant':22} {'value':>14} {'':5} {'seats':>10} {'unplaced':>8} {'start s':>8} {'advice':>7}   "
    f"{'unmet':>6} {'start s':>8}"
)


@dataclass(frozen=True)
class Outcome:
    """What came of all plans."""

    seats: tuple[dict[str, str], ...]
    unplaced: int
    start_ms: int
    advice: tuple[str, ...]
    unmet: int
    yard_ms: int


@contextmanager
def changed(name: str, value: int) -> Iterator[None]:
    """The constant has another value in every room of the planner that reads it."""
    rooms = [
        importlib.import_module(f"gridops.planner.{m.name}") for m in pkgutil.iter_modules(gridops.planner.__path__)
    ]
    read = [room for room in rooms if name in vars(room)]
    before = [getattr(room, name) for room in read]
    for room in read:
        setattr(room, name, value)
    try:
        yield
    finally:
        for room, old in zip(read, before, strict=True):
            setattr(room, name, old)


@cache
def fleets(many: int) -> tuple[LivedIn, ...]:
    return tuple(lived_in(seed) for seed in range(many))


def outcome(many: int, yard: Sequence[str]) -> Outcome:
    """All plans anew."""
    plans = [plan(i) for one in fleets(many) for i in (one.inputs, one.waits)]
    scores = [run(named(name)).score for name in yard]
    return Outcome(
        seats=tuple({a.replica: a.seat.host for a in made.placement} for made in plans),
        unplaced=sum(len(made.report.unplaced) for made in plans),
        start_ms=sum(d.cost.start_ms for made in plans for d in made.decisions),
        advice=tuple(line for n, made in enumerate(plans) for line in _advice(n, made)),
        unmet=sum(round(s.unmet) for s in scores),
        yard_ms=sum(round(1000 * s.start_s) for s in scores),
    )


def line(row: Constant, word: str, value: int, before: Outcome, after: Outcome) -> str:
    """One line of the table."""
    pairs = list(zip(before.seats, after.seats, strict=True))
    moved = sum(1 for a, b in pairs for r in {*a, *b} if a.get(r) != b.get(r))
    total = sum(len(a) for a in before.seats)
    advice = len(set(before.advice) ^ set(after.advice))
    cells = (
        f"{row.name:22} {value:14} {word:5}",
        f"{f'{moved}/{total}' if moved else '-':>10}",
        f"{_sign(after.unplaced - before.unplaced):>8}",
        f"{_sign((after.start_ms - before.start_ms) // 1000):>8}",
        f"{advice or '-':>7}  ",
        f"{_sign(after.unmet - before.unmet):>6}",
        f"{_sign((after.yard_ms - before.yard_ms) // 1000):>8}",
    )
    return " ".join(cells)


def _advice(n: int, made: Plan) -> list[str]:
    if made.report.advice is None:
        return []
    found = [f"{n} fetch {p.profile} {p.host}" for p in made.report.advice.prefetch]
    return found + [f"{n} evict {e.profile} {e.host}" for e in made.report.advice.evict]


def _sign(number: int) -> str:
    return f"{number:+}" if number else "-"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="constants; all if none is named")
    parser.add_argument("--fleets", type=int, default=8)
    parser.add_argument("--yard", default="16x8", help="size of the yardstick instances, or none")
    parser.add_argument("--seeds", type=int, default=8, help="of the yardstick instances, from 0")
    chosen = parser.parse_args(arguments)
    yard = [] if chosen.yard == "none" else names(chosen.yard, range(chosen.seeds))
    before = outcome(chosen.fleets, yard)
    print(HEAD)
    for row in (*constants.TABLE, *constants_room.TABLE):
        if chosen.names and row.name not in chosen.names:
            continue
        for word, value in (("half", row.value // 2), ("twice", row.value * 2)):
            with changed(row.name, value):
                print(line(row, word, value, before, outcome(chosen.fleets, yard)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
