"""The placement cases with other numbers and other hosts, judged by a plain search that is none of the planner's.

Each variant of `test_cases` is changed by a few rolls of named dice: card sizes, what others hold, who stands there,
RAM, the model's size, heads. What may be answered follows from the rules of the files alone: the first config that any
set of devices can hold, on such a set; nowhere, if even moving everybody who stands there would not help.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import pytest

from gridops.base.codes import placement as codes
from gridops.model.fleet import Device, DeviceKind, Host
from gridops.model.plan import Plan
from gridops.model.profile import Config, Heads, Profile
from gridops.planner.actions import actions
from tests.builders.placement_cases import Card, Machine, Story, Variant, faults, story, variants
from tests.builders.placement_fleets import FIRST, GUEST, fleet
from tests.planner.fleet import Fleet

ROLLS = 6
ASKED = [v for v in (*variants(), *faults()) if not v.several_hosts]
PPM = 1_000_000
BACKEND_KINDS = {
    "cuda": (DeviceKind.GPU, DeviceKind.UNIFIED),
    "rocm": (DeviceKind.GPU, DeviceKind.UNIFIED),
    "metal": (DeviceKind.UNIFIED,),
    "cann": (DeviceKind.GPU,),
    "cpu": (DeviceKind.CPU, DeviceKind.UNIFIED),
}


# -- other numbers ---------------------------------------------------------------------------------------------------


def varied(variant: Variant, roll: int) -> Story:
    """The story of a variant with other numbers."""
    dice = random.Random(f"{variant.id}/{roll}")
    told = story(variant)
    machines = tuple(_machine(dice, m) for m in told.machines)
    if dice.random() < 0.3 and len(machines) > 1:
        machines = machines[::-1]
    if dice.random() < 0.3:
        machines = (*machines, replace(_machine(dice, machines[0]), name="another"))
    vram = told.vram
    if vram:
        vram = int(vram * dice.choice((0.3, 0.6, 0.9, 1.0, 1.2, 1.6)))
    heads = told.heads
    if heads != Heads():
        vocabulary = dice.choice((heads.vocabulary, 10_001, 32_000))
        kv = dice.choice((None, 8, 4, 3))
        heads = Heads(attention=dice.choice((heads.attention, 25, 28, 32, 12)), kv=kv, vocabulary=vocabulary)
    return replace(
        told,
        machines=machines,
        vram=vram,
        heads=heads,
        ram=int(told.ram * dice.choice((0.5, 1.0, 1.0, 2.0))),
        occupied=_occupied(dice, machines, told),
        even=told.even if dice.random() < 0.8 else not told.even,
        pins=tuple(p for p in told.pins if p.partition("[")[0] in {m.name for m in machines}) or told.pins,
    )


def _machine(dice: random.Random, machine: Machine) -> Machine:
    factor = dice.choice((0.5, 0.8, 1.0, 1.0, 1.25, 2.0))
    cards = []
    for card in machine.cards:
        size = int(card.mem * (factor if dice.random() < 0.85 else dice.choice((0.6, 1.4))))
        other = dice.choice((card.other, 0, 0, size // 10, size // 2))
        cards.append(Card(card.kind, size, min(other, size)))
    ram = int(machine.ram * dice.choice((0.25, 0.5, 1.0, 1.0, 2.0)))
    if machine.uma:
        ram = max(ram, *(c.mem for c in cards))
    return replace(machine, ram=ram, cards=tuple(cards))


def _occupied(dice: random.Random, machines: tuple[Machine, ...], told: Story) -> dict[str, int]:
    """Who stands there: on some cards a part of what is free, never more than there is."""
    found: dict[str, int] = {}
    pinned = {p.partition("[")[0] for p in told.pins}
    for machine in machines:
        if machine.uma or machine.name in pinned or len(found) > 2:
            continue
        for n, card in enumerate(machine.cards):
            room = card.mem - card.other - machine.reserve.get("vram", 0)
            room -= int(card.mem * (1 - (told.fraction or 1))) + 1
            if room > 0 and dice.random() < 0.2 and len(found) < 3:
                found[f"{machine.name}[{n}]"] = max(1, room * dice.choice((1, 3, 6)) // 10)
    return found


# -- what may be answered --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seat:
    config: int
    host: str
    devices: tuple[str, ...]


@dataclass
class Ground:
    """Bytes still open on each pool, and for GPU work on shared memory."""

    asked: Fleet
    free: dict[tuple[str, str], int]
    gpu: dict[tuple[str, str], int]

    @classmethod
    def of(cls, asked: Fleet) -> Ground:
        free, gpu = {}, {}
        for one in asked.hosts:
            report = asked.reports[one.id]
            assert report is not None
            used = {d.id: d.external_bytes for d in report.devices}
            for d in one.devices:
                headroom = -(-d.memory_bytes * asked.policy.headroom.memory_ppm // PPM)
                free[one.id, d.id] = d.memory_bytes - d.reserve_bytes - used[d.id] - headroom
                shared = d.kind is DeviceKind.UNIFIED
                gpu[one.id, d.id] = d.memory_bytes * d.gpu_share_ppm // PPM if shared else 1 << 62
        return cls(asked, free, gpu)

    def take(self, host: str, devices: tuple[str, ...], each: int, *, gpu: bool, sign: int = 1) -> None:
        for d in devices:
            self.free[host, d] -= sign * each
            self.gpu[host, d] -= sign * each if gpu else 0

    def seats(self, profile: Profile) -> Iterator[Seat]:
        for position, config in enumerate(profile.configs):
            for one in self.asked.hosts:
                rules = profile.placement
                named = not rules.allow_hosts or one.id in rules.allow_hosts
                if not named or not set(rules.require_tags) <= set(one.tags):
                    continue
                for devices in self.on(config, one):
                    yield Seat(position, str(one.id), devices)

    def on(self, config: Config, one: Host) -> Iterator[tuple[str, ...]]:
        """Sets of devices that hold the config now."""
        each, beside = config.footprint.device_bytes, config.footprint.host_bytes or 0
        if each is None or not _divides(config):
            return
        ram = next((str(d.id) for k in ("cpu", "unified") for d in one.devices if d.kind.value == k), None)
        for backend in config.backends:
            if not any(r.engine == config.engine and r.backend == backend for r in one.runtimes):
                continue
            kinds = [k for k in BACKEND_KINDS[backend] if sum(d.kind is k for d in one.devices) >= config.devices.count]
            if not kinds:
                continue
            for chosen in combinations([d for d in one.devices if d.kind is kinds[0]], config.devices.count):
                names = tuple(str(d.id) for d in chosen)
                need = each + (beside if ram in names else 0)
                if not _equal(chosen) or (beside and ram is None):
                    continue
                if any(self.room(one.id, n, gpu=backend != "cpu") < need for n in names):
                    continue
                if ram is None or ram in names or self.free[one.id, ram] >= beside:
                    yield names
            return

    def room(self, host: str, device: str, *, gpu: bool) -> int:
        return min(self.free[host, device], self.gpu[host, device]) if gpu else self.free[host, device]


def _equal(chosen: tuple[Device, ...]) -> bool:
    return len({(d.model, d.memory_bytes) for d in chosen}) == 1


def _divides(config: Config) -> bool:
    count, heads = config.devices.count, config.heads
    if count == 1 or config.devices.shard != "tensor":
        return True
    whole = [n % count == 0 for n in (heads.attention, heads.vision, heads.vocabulary) if n is not None]
    return all(whole) and (heads.kv is None or heads.kv % count == 0 or count % heads.kv == 0)


def standing(asked: Fleet) -> list[tuple[Profile, str, tuple[str, ...], int]]:
    """Who stands there already: profile, host, devices, bytes on each."""
    if asked.parent is None:
        return []
    by_name = {p.name: p for p in asked.profiles}
    return [
        (by_name[a.profile], str(a.seat.host), tuple(map(str, a.seat.devices)), a.device_bytes)
        for a in asked.parent.placement
    ]


def direct(asked: Fleet) -> list[Seat]:
    """Seats that the guest can have beside everybody: of the first config that has any."""
    ground = Ground.of(asked)
    for _, host, devices, each in standing(asked):
        ground.take(host, devices, each, gpu=True)
    found = list(ground.seats(guest(asked)))
    first = min((s.config for s in found), default=0)
    return [s for s in found if s.config == first]


def after_moves(asked: Fleet) -> bool:
    """Could everybody find a seat, the guest included, if those who stand there moved?"""
    ground, who = Ground.of(asked), standing(asked)

    def seated(n: int) -> bool:
        if n == len(who):
            return any(True for _ in ground.seats(guest(asked)))
        profile, _, _, each = who[n]
        for seat in list(ground.seats(profile)):
            ground.take(seat.host, seat.devices, each, gpu=True)
            fits = seated(n + 1)
            ground.take(seat.host, seat.devices, each, gpu=True, sign=-1)
            if fits:
                return True
        return False

    return seated(0)


def guest(asked: Fleet) -> Profile:
    return next(p for p in asked.profiles if p.name == GUEST)


# -- the tests -------------------------------------------------------------------------------------------------------

CASES = [pytest.param(v, n, id=f"{v.id} roll {n}") for v in ASKED for n in range(ROLLS)]


@pytest.mark.parametrize(("variant", "roll"), CASES)
def test_the_plan_is_an_answer_that_a_plain_search_finds(variant: Variant, roll: int) -> None:
    told = varied(variant, roll)
    asked = fleet(told)
    made, able = asked.plan(), direct(asked)
    seat = made.assignment(FIRST)
    if not able:
        possible = bool(standing(asked)) and after_moves(asked)
        assert (seat is not None) == possible, _words(made)
        if seat is None:
            _refused_honestly(asked, made)
        return
    assert seat is not None, _words(made)
    taken = str(seat.seat.host), tuple(map(str, seat.seat.devices))
    assert taken in [(s.host, tuple(sorted(s.devices))) for s in able]
    _best(told, asked, able, taken)


def _best(told: Story, asked: Fleet, able: list[Seat], taken: tuple[str, tuple[str, ...]]) -> None:
    """Of several seats the one that the story asks for, where its words decide."""
    if told.cached_on is not None and any(s.host == told.cached_on for s in able):
        assert taken[0] == told.cached_on, "the files are there"
        return
    pair = len(able[0].devices) > 1 and not told.even
    if standing(asked) or pair or any(m.uma for m in told.machines):
        return  # who else could use the gaps, another of the same kind included, decides first
    ground, need = Ground.of(asked), guest(asked).configs[able[0].config].footprint.device_bytes or 0
    if told.even:
        left = {(s.host, tuple(sorted(s.devices))): _filled(asked, ground, s, need) for s in able}
    else:
        left = {
            (s.host, tuple(sorted(s.devices))): min(ground.room(s.host, d, gpu=True) for d in s.devices) - need >> 20
            for s in able
        }
    assert left[taken] == min(left.values())


def _filled(asked: Fleet, ground: Ground, seat: Seat, need: int) -> int:
    """Millionths of the host's memory of that kind that anybody has afterwards."""
    one = next(h for h in asked.hosts if h.id == seat.host)
    kind = next(d.kind for d in one.devices if d.id in seat.devices)
    pools = [d for d in one.devices if d.kind is kind]
    whole = sum(d.memory_bytes - d.reserve_bytes for d in pools)
    headroom = sum(-(-d.memory_bytes * asked.policy.headroom.memory_ppm // PPM) for d in pools)
    free = sum(ground.free[one.id, d.id] for d in pools) + headroom
    return (whole - free + need * len(seat.devices) >> 20) * PPM // (whole >> 20)


def _refused_honestly(asked: Fleet, made: Plan) -> None:
    """One headline, a line for each host, and every line about memory says what is missing there."""
    (missing,) = [u for u in made.report.unplaced if u.replica == FIRST]
    assert sorted(line.host for line in missing.hosts) == sorted(h.id for h in asked.hosts)
    for line in missing.hosts:
        if line.code in (codes.INSUFFICIENT_DEVICE_MEMORY.code, codes.INSUFFICIENT_HOST_MEMORY.code):
            assert line.need is not None
            assert line.have is not None
            assert line.have < line.need
            report = asked.reports[line.host]
            others = max((d.external_bytes for d in report.devices), default=0) if report is not None else 0
            assert others or "others hold" not in line.detail


def _words(made: Plan) -> str:
    told = [u for u in made.report.unplaced if u.replica == FIRST]
    return str([(u.code, u.detail, [(x.host, x.code, x.detail, x.need, x.have) for x in u.hosts]) for u in told])


def crowded(roll: int) -> Story:
    """F07 at large: a few hosts with one or two cards, who stands there, and a model that needs most of a card."""
    dice = random.Random(f"crowded/{roll}")
    size, sizes = 24 << 30, dice.choice(((8, 10, 11), (4, 10, 14), (13, 14, 15)))
    machines = tuple(
        Machine(f"h{n}", 256 << 30, (Card("cuda", size),) * dice.choice((1, 1, 2))) for n in range(dice.choice((2, 3)))
    )
    places = [f"{m.name}[{n}]" for m in machines for n in range(len(m.cards))]
    occupied = {place: dice.choice(sizes) << 30 for place in places}
    return Story(machines, "custom", dice.choice((13, 16, 20, 23)) << 30, counts=(1,), occupied=occupied)


@pytest.mark.parametrize("roll", range(60))
def test_who_stands_in_the_way_moves_exactly_where_a_search_finds_a_place_for_everybody(roll: int) -> None:
    asked = fleet(crowded(roll))
    seat = asked.plan().assignment(FIRST)
    assert (seat is not None) == (bool(direct(asked)) or after_moves(asked))


def test_the_crowded_rolls_need_moves_and_refusals() -> None:
    found = [(bool(direct(asked)), after_moves(asked)) for asked in map(fleet, map(crowded, range(60)))]
    assert found.count((False, True)) >= 12
    assert found.count((False, False)) >= 5


@pytest.mark.parametrize("roll", range(ROLLS))
def test_the_rolls_say_yes_and_no_and_differ_from_the_cases(roll: int) -> None:
    found = [bool(direct(fleet(varied(v, roll)))) for v in ASKED]
    assert 10 <= sum(found) <= len(found) - 8
    plain = [bool(direct(fleet(story(v)))) for v in ASKED]
    assert sum(a != b for a, b in zip(found, plain, strict=True)) >= 4, "other answers are right"


@pytest.mark.parametrize("variant", [v for v in ASKED if story(v).fraction is not None], ids=lambda v: v.id)
def test_the_share_that_an_engine_is_told_is_what_was_planned_on_every_card(variant: Variant) -> None:
    for told in (story(variant), *(varied(variant, n) for n in range(ROLLS))):
        asked = fleet(told)
        made = asked.plan()
        seat = made.assignment(FIRST)
        if seat is None or not all(d.startswith("gpu") for d in seat.seat.devices):
            continue
        found = actions(made, asked.snapshot(), asked.now, desired=asked.inputs().intent.desired)
        warm = next(s.action for s in found if s.replica == FIRST and s.action.kind == "warm")
        shares = {s.device: s.ppm for s in warm.shares or ()}
        sizes = {d.id: d.memory_bytes for h in asked.hosts if h.id == seat.seat.host for d in h.devices}
        assert sorted(shares) == list(seat.seat.devices)
        for device, ppm in shares.items():
            taken = sizes[device] * ppm
            assert seat.device_bytes * PPM - sizes[device] < taken <= seat.device_bytes * PPM


MIXED = Machine("mixed", 64 << 30, (Card("rocm", 16 << 30), Card("cuda", 16 << 30), Card("cuda", 12 << 30)))


@pytest.mark.parametrize(("backend", "gib", "card"), [("rocm", 14, 0), ("cuda", 14, 1), ("cuda", 8, 2), ("rocm", 8, 0)])
def test_a_model_stands_on_a_card_that_its_backend_can_use(backend: str, gib: int, card: int) -> None:
    asked = fleet(Story((MIXED,), "custom", gib << 30, counts=(1,)))
    only = replace(guest(asked), configs=tuple(replace(c, backends=(backend,)) for c in guest(asked).configs))
    seat = asked.but(profiles=(only,)).plan().assignment(FIRST)
    assert seat is not None
    assert seat.seat.devices == (f"gpu{card}",)
