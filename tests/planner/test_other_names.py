"""A whole world under other names, told in another order, is the same world: hosts, profiles, reports, the parent.

Where names keep their order the plan is the same up to the names, to the last decision. Where they do not, names may
only decide between equals: as much weight stands, and as little is missing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import pytest

from gridops.base.ids import split_replica
from gridops.footprint.need import identity
from gridops.model.plan import Plan
from tests.planner.fleet import Fleet
from tests.planner.worlds import HOSTS, PROFILES, change, later, make_fleet, rolled, shuffled

WORLDS = range(100)
KEPT = {"detail", "subject", "text", "engine", "backend"}
"""What is said in words, and names of other things."""


def called(thing: Any, names: Mapping[str, str]) -> Any:
    """The same with every host and profile, and what is named after them, called by its other name."""
    if isinstance(thing, str):
        name, slash, number = thing.rpartition("/")
        return f"{names[name]}/{number}" if slash and name in names else names.get(thing, thing)
    if isinstance(thing, tuple):
        made = [called(t, names) for t in thing]
        return type(thing)(*made) if hasattr(thing, "_fields") else tuple(made)
    if isinstance(thing, Mapping):
        return {called(k, names): called(v, names) for k, v in thing.items()}
    if is_dataclass(thing) and not isinstance(thing, type):
        found = {f.name: getattr(thing, f.name) for f in fields(thing) if f.init and f.name not in KEPT}
        return replace(thing, **{k: called(v, names) for k, v in found.items()})
    return thing


def with_launches(names: Mapping[str, str], *plans: Plan | None) -> dict[str, str]:
    """The names, and those of launches: a launch says for which profile it is, so that its digest is another."""
    launches = [n for made in plans if made is not None for n in made.launches]
    return {**names, **{identity(n): identity(called(n, names)) for n in launches}}


def told(made: Plan) -> tuple[object, ...]:
    """What a plan decides, without its words."""
    return (
        sorted((a.replica, a.seat, a.launch, a.device_bytes, a.host_bytes) for a in made.placement),
        sorted((d.kind, d.replica, d.source, d.target, d.cause.kind, d.change_set) for d in made.decisions),
        sorted((u.replica, u.code) for u in made.report.unplaced),
        sorted((s.profile, s.code, s.want, s.have) for s in made.report.shortfalls),
        sorted((w.host, w.code) for w in made.report.waiting),
    )


@cache
def world(seed: int) -> tuple[Fleet, Plan]:
    """A generated fleet, two times out of three one that has been lived in, and what is planned for it."""
    cook = rolled(seed)
    fleet = make_fleet(cook)
    fleet = fleet if seed % 3 == 0 else change(cook, later(fleet.plan(), fleet))
    return fleet, fleet.plan()


@pytest.mark.parametrize("seed", WORLDS)
def test_other_names_in_another_order_of_files_change_nothing_but_names(seed: int) -> None:
    fleet, made = world(seed)
    names = with_launches({name: f"the-{name}" for name in (*HOSTS, *PROFILES)}, fleet.parent, made)
    other = shuffled(called(fleet, names), random.Random(seed))
    assert told(other.plan()) == told(called(made, names))


@pytest.mark.parametrize("seed", WORLDS)
def test_names_in_the_opposite_order_cost_nobody_of_weight_a_seat(seed: int) -> None:
    fleet, made = world(seed)
    turned = {**dict(zip(HOSTS, reversed(HOSTS), strict=True)), **dict(zip(PROFILES, reversed(PROFILES), strict=True))}
    names = with_launches(turned, fleet.parent, made)
    other = called(fleet, names)

    def weights(fleet: Fleet, made: Plan) -> list[tuple[bool, int]]:
        priority = {p.name: p.priority for p in fleet.profiles}
        stand = [(True, priority.get(a.profile, 0)) for a in made.placement]
        lack = [(False, priority.get(split_replica(u.replica)[0], 0)) for u in made.report.unplaced]
        return sorted(stand + lack)

    assert weights(other, other.plan()) == weights(fleet, made)
