"""The placement cases of `placement.yaml`, read: each variant a story of machines and one model that looks for a seat.

What a variant's words mean is decided here, once for all, so that no case is helped on its own. `placement_fleets`
makes planner inputs of a story, tests/planner/test_cases.py judges the plan. A variant with several hosts for one
replica is not gridops' to place (`several_hosts`); everything else is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from gridops.model.profile import Heads

FILE = Path(__file__).with_name("placement.yaml")
COUNTS = (1, 2, 4, 8)
"""Devices that a model may be split over where nobody says how many."""
RAM_FLOOR = 2 << 30
HALF = 2
_SIZE_IN_TEXT = re.compile(r"(\d+)x(\d+) (\w+)(?:, (\d+) used by others)?")


@dataclass(frozen=True)
class Variant:
    """One answer that is asked for: a case with what is given, or a fault with what is wanted."""

    id: str
    case: Mapping[str, Any]
    accept: Mapping[str, Any] = field(default_factory=dict)
    given: str = ""

    @property
    def several_hosts(self) -> bool:
        answers = self.accept.get("any_of", ())
        return self.accept.get("hosts_used", 1) > 1 or (bool(answers) and all(" + " in str(a) for a in answers))


@cache
def variants() -> tuple[Variant, ...]:
    """Every `accept` of every case, in order of the file."""
    found = []
    for case in _document()["cases"]:
        for accept in case["accept"]:
            given = str(accept.get("given", ""))
            found.append(Variant(f"{case['id']} {given}".strip(), case, accept, given))
    return tuple(found)


@cache
def faults() -> tuple[Variant, ...]:
    return tuple(Variant(fault["id"], fault) for fault in _document()["faults"])


@cache
def _document() -> Any:
    return YAML(typ="safe").load(FILE.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Card:
    """One GPU as the file states it."""

    kind: str
    mem: int
    other: int = 0


@dataclass(frozen=True)
class Machine:
    name: str
    ram: int
    cards: tuple[Card, ...]
    uma: bool = False
    os: str = "linux"
    reserve: Mapping[str, int] = field(default_factory=dict)
    slice_tag: str | None = None


@dataclass(frozen=True)
class Story:
    """A variant with everything that its words ask for decided: what the planner is given."""

    machines: tuple[Machine, ...]
    engine: str
    vram: int | None
    """None: unknown."""
    ram: int = 0
    fraction: float | None = None
    counts: tuple[int, ...] = COUNTS
    heads: Heads = Heads()
    occupied: Mapping[str, int] = field(default_factory=dict)
    pins: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    cached_on: str | None = None
    even: bool = False
    """The emptiest hosts and devices are asked for."""


def story(variant: Variant) -> Story:
    """Read the case, then what is given beside it."""
    case, given = variant.case, variant.given
    if variant.id.startswith("P35"):
        return _sliced(case["sub"][_number(given) - 1])
    if variant.id.startswith("P33"):
        return _cards_in_words(case, given)
    if variant.id.startswith("F"):
        return _fault(case)
    sub = case["sub"][_number(given) - 1] if "sub" in case else {}
    model = {"engine": "custom", **case.get("model", {})}
    need = {**model.get("need", {}), **sub.get("need", {})}
    if not need:
        need = {"ram": 4 << 30}  # the case is about files: any model that fits both hosts
    names = sub.get("hosts") or (case["subfleets"][_number(given) - 1] if "subfleets" in case else case["hosts"])
    machines = tuple(_machine(str(name)) for name in names)
    told = Story(
        machines=machines,
        engine=model["engine"],
        vram=int(need.get("vram", 0)),
        ram=_ram(model["engine"], need),
        fraction=model.get("fraction"),
        counts=_counts(case, need),
        heads=_heads(model.get("shape") or (model["shapes"][_shape(given)] if "shapes" in model else {})),
        occupied=case.get("occupied", {}),
        pins=tuple(case.get("pin", ())),
        tags=tuple(f"{k}-{v}" for k, v in sorted(case.get("selector", {}).items())),
    )
    if "gguf" in model["engine"] and "split_with_two_occupied" in need:
        split = need["split_with_two_occupied"]
        told = replace(told, vram=sum(split), counts=(int(need["gpus"]),))
    return _given(told, model, given)


def _given(told: Story, model: Mapping[str, Any], given: str) -> Story:
    """What a variant's own words change."""
    told = replace(told, even=given == "spread")
    if "other = 0" in given:
        told = replace(told, machines=tuple(_without_others(m) for m in told.machines))
    if given.startswith("fixed"):
        told = replace(told, ram=model["kv_ram"][0]["fixed"])
    if given.startswith("ratio"):
        claim = int((told.fraction or 1) * told.machines[0].cards[0].mem)
        told = replace(told, ram=int(model["kv_ram"][1]["ratio"] * claim))
    if (size := re.search(r"host RAM (\d+)", given)) is not None:
        told = replace(told, machines=tuple(replace(m, ram=int(size.group(1))) for m in told.machines))
    if (only := re.search(r"equal hosts, files only on (\w+)", given)) is not None:
        ram = next(m.ram for m in told.machines if m.name == only.group(1))
        machines = tuple(replace(m, ram=ram) for m in told.machines)
        told = replace(told, machines=machines, cached_on=only.group(1))
    return told


def _sliced(sub: Mapping[str, Any]) -> Story:
    """P35: half cards are devices of their own; a profile is a tag of the host that has the partition."""
    words, cut = sub["hosts"], str(sub["slice"])
    tags: tuple[str, ...] = ()
    card = _machine("a80x2_1")
    if isinstance(words, list):
        machines = tuple(_machine(str(name)) for name in words)
    elif "nothing left" in words:
        machines = (replace(card, name="partitioned", cards=(), slice_tag=_tag(cut)),)
    else:
        part = Card("cuda", 40 << 30)
        machines = (
            replace(card, name="partitioned", cards=(part, part), slice_tag=_tag(cut)),
            replace(card, name="whole"),
        )
    if cut == "50 %":
        machines = tuple(
            replace(m, cards=tuple(replace(c, mem=c.mem // HALF) for c in m.cards for _ in range(HALF)))
            for m in machines
        )
    if cut.startswith("profile"):
        tags = (_tag(cut),)
    claim = card.cards[0].mem if cut == "whole card" else int(sub["need"])
    return Story(machines=machines, engine="custom", vram=claim, counts=(1,), tags=tags)


def _cards_in_words(case: Mapping[str, Any], given: str) -> Story:
    """P33 states its fleet in a sentence: three hosts with one card, one of them partly taken, and one without."""
    sizes = [int(n) for n in re.findall(r"\d{6,}", case["fleet"])]
    with_card = tuple(Machine(f"host{n}", 256 << 30, (Card("cann", sizes[0]),)) for n in (1, 2, 3))
    model = case["model"]
    return Story(
        machines=(*with_card, Machine("host4", 256 << 30, ())),
        engine=model["engine"],
        vram=int(model["need"]["vram"]),
        fraction=model["fraction"],
        counts=(4,) if given == "tp4" else COUNTS,
        occupied={"host2[0]": sizes[1]},
        pins=("host9[0]",) if given.startswith("pin on missing") else (),
    )


def _fault(case: Mapping[str, Any]) -> Story:
    need = dict(case["need"])
    vram = None if need.get("vram") == "unknown" else int(need["vram"])
    counts: tuple[int, ...] = COUNTS
    machines: list[Machine] = []
    for word in case["hosts"]:
        if (alone := _SIZE_IN_TEXT.fullmatch(str(word))) is not None:
            count, mem, kind, other = alone.groups()
            machines.append(Machine("only", 64 << 30, (Card(kind, int(mem), int(other or 0)),) * int(count)))
        elif str(word).startswith("1 host:"):
            sizes = [int(n) << 30 for n in re.findall(r"(\d+) GiB", word)]
            machines.append(Machine("only", 256 << 30, tuple(Card("cuda", s) for s in sizes)))
            counts = (len(sizes),)
        else:
            machines.append(_machine(str(word)))
    return Story(
        machines=tuple(machines),
        engine=need.get("engine", "custom"),
        vram=vram,
        fraction=need.get("fraction"),
        counts=counts,
        occupied=case.get("occupied", {}),
    )


def _number(given: str) -> int:
    return int(given.rpartition(" ")[2])


def _shape(given: str) -> int:
    return 0 if "heads" in given else 1


def _tag(cut: str) -> str:
    return "slice-" + cut.rpartition(" ")[2]


def _heads(shape: Mapping[str, int]) -> Heads:
    return Heads(attention=shape.get("heads"), vocabulary=shape.get("vocab"))


def _counts(case: Mapping[str, Any], need: Mapping[str, Any]) -> tuple[int, ...]:
    if "gpus_per_replica" in case:
        return (int(case["gpus_per_replica"]),)
    return (1,) if case.get("model", {}).get("engine") == "gguf" or "sub" in case else COUNTS


def _ram(engine: str, need: Mapping[str, Any]) -> int:
    """A container that states no RAM needs a tenth of its video memory, at least 2 GiB (rule of P31)."""
    floor = max(int(need.get("vram", 0)) // 10, RAM_FLOOR) if engine == "custom" else 0
    return int(need.get("ram", floor))


@cache
def _machine(words: str) -> Machine:
    name, _, copy = words.partition(" ")
    said = _document()["hosts"][name]
    cards = tuple(
        Card(gpu["type"], gpu["mem"], gpu.get("other", 0)) for gpu in said["gpus"] for _ in range(gpu.get("n", 1))
    )
    return Machine(
        name=name + ("-" + copy if copy else ""),
        ram=said["ram"],
        cards=cards,
        uma=said.get("uma", False),
        os=said["os"],
        reserve=said.get("reserve", {}),
    )


def _without_others(machine: Machine) -> Machine:
    return replace(machine, cards=tuple(replace(c, other=0) for c in machine.cards))
