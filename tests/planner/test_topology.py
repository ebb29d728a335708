"""Devices that may work together: every small topology against a plain search over all sets of devices."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import combinations

import pytest

from gridops.base.codes import placement as codes
from gridops.footprint.ledger import rooms
from gridops.model.fleet import Device, Host
from gridops.model.plan import Plan
from gridops.model.profile import DeviceNeed, Fill, PlacementRules
from gridops.planner.together import linked
from tests.planner.fleet import GIB, Fleet, codes_of, config, device, host, profile, report, with_external

FAST = 8 * 32 * 10**9
NEED = 20


@dataclass(frozen=True)
class Puzzle:
    """A host, what others hold of its cards (GiB), and what is asked."""

    host: Host
    used: dict[str, int]
    wanted: DeviceNeed
    even: bool

    def plan(self) -> Plan:
        seen = report(self.host)
        for name, gib in sorted(self.used.items()):
            seen = with_external(seen, name, gib)
        asked = profile(
            "c",
            configs=(config("p", NEED, devices=self.wanted),),
            placement=PlacementRules(fill=Fill.EVEN if self.even else None),
        )
        fleet = Fleet(hosts=(self.host,), profiles=(asked,), reports={self.host.id: seen})
        return fleet.but(policy=replace(fleet.policy, headroom=replace(fleet.policy.headroom, memory_ppm=0))).plan()

    def free(self, name: str) -> int:
        return next(d.memory_bytes // GIB for d in self.host.devices if d.id == name) - self.used.get(name, 0)

    def may(self) -> list[tuple[str, ...]]:
        """Every set of devices that holds the replica and is all of what is asked."""
        cards = [d for d in self.host.devices if d.kind.value == "gpu"]
        cut = {d.parent for d in cards}
        whole = [d for d in cards if d.id not in cut]
        return [
            tuple(str(d.id) for d in chosen)
            for chosen in combinations(whole, self.wanted.count)
            if all(self.free(d.id) >= NEED for d in chosen) and self._together(chosen)
        ]

    def _together(self, chosen: tuple[Device, ...]) -> bool:
        wanted = self.wanted
        if wanted.pcie_bps and not all(d.pcie_bps and d.pcie_bps >= wanted.pcie_bps for d in chosen):
            return False
        if len(chosen) == 1:
            return True
        if any(d.parent for d in chosen):
            return False
        if not wanted.uneven and len({(d.model, d.memory_bytes) for d in chosen}) > 1:
            return False
        if wanted.numa and (len({d.numa for d in chosen}) > 1 or chosen[0].numa is None):
            return False
        return wanted.link != "peer" or all(b.id in a.peers and a.id in b.peers for a, b in combinations(chosen, 2))


def rolled(seed: int) -> Puzzle:
    dice = random.Random(seed)
    names = [f"gpu{n}" for n in range(dice.choice((2, 3, 4, 4, 6)))]
    sizes = dice.choice(((24,), (24,), (24, 48)))
    share = dice.choice((1.0, 0.8, 0.5))
    ends = {n: {m for m in names if m != n and dice.random() < share} for n in names}
    if dice.random() < 0.7:  # as a rule both ends know of a link
        ends = {n: {m for m in names if m != n and (m in ends[n] or n in ends[m])} for n in names}
    cards = [
        device(
            n,
            dice.choice(sizes),
            model=dice.choice(("a", "a", "a", "b")),
            numa=dice.choice((0, 0, 1, 1, None)),
            pcie_bps=dice.choice((FAST, FAST, FAST // 2, None)),
            peers=tuple(sorted(ends[n])),
        )
        for n in names
    ]
    if dice.random() < 0.3:
        cards += [device(f"gpu0.{n}", 24, parent="gpu0", pcie_bps=FAST) for n in range(dice.choice((1, 2)))]
    wanted = DeviceNeed(
        count=dice.choice((1, 2, 2, 3, 4)),
        uneven=dice.random() < 0.3,
        link=dice.choice((None, None, "peer", "any")),
        numa=dice.choice((None, None, "same")),
        pcie_bps=dice.choice((None, None, FAST)),
    )
    used = {c.id: dice.choice((0, 0, 2, 3, 10)) for c in cards}
    return Puzzle(host("ant", devices=(*cards, device("cpu0", 64))), used, wanted, dice.random() < 0.3)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(120))
def test_a_seat_is_found_exactly_where_a_search_over_all_sets_finds_one(seed: int) -> None:
    puzzle = rolled(seed)
    made, able = puzzle.plan(), puzzle.may()
    if not able:
        assert made.placement == ()
        assert made.report.unplaced[0].hosts[0].code < "GO530", "a rule or a shortage, nothing that passes by itself"
        return
    (seat,) = made.placement
    taken = tuple(sorted(seat.seat.devices))
    assert taken in [tuple(sorted(one)) for one in able]
    if puzzle.even:
        left = {
            one: min((puzzle.free(d) - NEED) / (puzzle.free(d) + puzzle.used.get(d, 0)) for d in one) for one in able
        }
        mine = next(one for one in able if tuple(sorted(one)) == taken)
        assert left[mine] == pytest.approx(max(left.values())), "the fullest of them is as empty as can be"
    else:
        tight = min(min(puzzle.free(d) for d in one) for one in able)
        assert min(puzzle.free(d) for d in taken) == tight, "the tightest device that can be used is used"


def test_the_rolled_topologies_say_yes_and_no() -> None:
    found = [bool(rolled(seed).may()) for seed in range(120)]
    assert 30 <= sum(found) <= 100


def mesh(*links: tuple[int, int], size: int = 8) -> Host:
    """Cards with links between some of them."""
    near = {n: sorted({b for a, b in links if a == n} | {a for a, b in links if b == n}) for n in range(size)}
    cards = tuple(device(f"gpu{n}", 24, peers=tuple(f"gpu{m}" for m in near[n])) for n in range(size))
    return host("ant", devices=cards)


FOURS = tuple((a + n, b + n) for n in (0, 4) for a, b in combinations(range(4), 2))
CUBE = (*FOURS, *((n, n + 4) for n in range(4)))
"""Eight cards as in a hybrid cube mesh: two sets of four, and one link from each card to the other set."""


def test_four_peers_are_found_in_a_cube_of_eight_also_if_the_first_link_leads_away() -> None:
    ant = mesh((0, 1), *((a + 1, b + 1) for a, b in CUBE if max(a, b) < 7), size=9)
    four = profile("c", configs=(config("p", NEED, devices=DeviceNeed(count=4, link="peer")),))
    (seat,) = Fleet(hosts=(ant,), profiles=(four,)).plan().placement
    assert seat.seat.devices == ("gpu1", "gpu2", "gpu3", "gpu4")


def test_a_cube_of_eight_has_two_sets_of_four_and_four_pairs_between_them() -> None:
    found = [[r.id for r in group] for group in linked(rooms(mesh(*CUBE), None, 0))]
    assert sorted(map(len, found)) == [2, 2, 2, 2, 4, 4]


def test_links_beyond_any_real_machine_are_bounded() -> None:
    thirty = [(a, b) for a, b in combinations(range(30), 2) if a // 3 != b // 3]
    assert len(linked(rooms(mesh(*thirty, size=30), None, 0))) == 256


CUT = host(
    "ant",
    devices=(
        device("gpu0", 80),
        device("gpu0.0", 40, parent="gpu0"),
        device("gpu0.1", 40, parent="gpu0"),
        device("cpu0", 64),
    ),
)


def test_a_card_that_is_cut_up_is_counted_once_by_its_instances() -> None:
    made = Fleet(hosts=(CUT,), profiles=(profile("c", 3, gib=30, max_per_host=None),)).plan()
    assert sorted(a.seat.devices for a in made.placement) == [("gpu0.0",), ("gpu0.1",)]
    assert codes_of(made, "c/3") == {"ant": codes.INSUFFICIENT_DEVICE_MEMORY.code}
    assert Fleet(hosts=(CUT,), profiles=(profile("c", gib=60),)).plan().placement == ()


def test_a_card_that_its_host_has_cut_up_takes_nothing_whatever_the_file_says() -> None:
    whole = host("ant", (80,))
    seen = report(whole)
    part = replace(seen.devices[0], id="gpu0.0", total_bytes=40 * GIB, parent="gpu0")  # type: ignore[arg-type]
    for devices in ((*seen.devices, part), (part, seen.devices[-1])):
        fleet = Fleet(hosts=(whole,), profiles=(profile("c"),)).reporting("ant", devices=devices)
        assert codes_of(fleet.plan(), "c/1") == {"ant": codes.NO_DEVICES.code}


def test_who_stood_on_a_card_that_is_cut_up_moves_to_another() -> None:
    ant = host("ant", (80, 80))
    fleet = Fleet(hosts=(ant,), profiles=(profile("c", gib=60),))
    made = fleet.plan()
    assert [a.seat.devices for a in made.placement] == [("gpu0",)]
    cut = replace(ant, devices=(*ant.devices, device("gpu0.0", 40, parent="gpu0")))
    later = fleet.applied(made).but(hosts=(cut,)).plan()
    assert [a.seat.devices for a in later.placement] == [("gpu1",)]


def test_evenly_means_the_emptier_host_first_and_its_emptier_card_then() -> None:
    even = PlacementRules(fill=Fill.EVEN)
    big, small = host("big", (80, 80, 80)), host("small", (24, 24))
    both = Fleet(hosts=(big, small), profiles=(profile("c", 5, gib=20, max_per_host=None, placement=even),))
    made = both.plan()
    # Filled by share: 3 x 80 and 2 x 24 GiB. The replicas of one profile keep apart first.
    assert sorted((a.seat.host, a.seat.devices) for a in made.placement) == [
        ("big", ("gpu0",)),
        ("big", ("gpu1",)),
        ("big", ("gpu2",)),
        ("small", ("gpu0",)),
        ("small", ("gpu1",)),
    ]
    one = both.but(profiles=(profile("c", gib=4, placement=even),)).plan()
    assert one.placement[0].seat.host == "big"
    seen = {"big": with_external(report(big), "gpu0", 78)}
    busy = both.but(profiles=(profile("c", gib=4, placement=even),), reports=seen).plan()
    assert [(a.seat.host, a.seat.devices) for a in busy.placement] == [("small", ("gpu0",))], "33 % against 17 % there"
    terms = {t.name: (t.winner, t.runner_up) for t in busy.report.choices[0].terms}
    assert terms["filled_ppm"] == (4 * 1_000_000 // 48, 82 * 1_000_000 // 240)
    tight = both.but(profiles=(profile("c", gib=4),), reports=seen).plan()
    assert tight.placement[0].seat.host == "small"


def test_who_stands_on_devices_that_may_no_longer_work_together_changes_to_others_of_its_host() -> None:
    ant = mesh((2, 3), size=4)
    two = DeviceNeed(count=2)
    fleet = Fleet(hosts=(ant,), profiles=(profile("c", configs=(config("p", NEED, devices=two),)),))
    made = fleet.plan()
    assert [a.seat.devices for a in made.placement] == [("gpu0", "gpu1")]
    linked_now = profile("c", configs=(config("p", NEED, devices=replace(two, link="peer")),))
    later = fleet.applied(made).but(profiles=(linked_now,)).plan()
    assert [a.seat.devices for a in later.placement] == [("gpu2", "gpu3")]


def test_of_several_sets_the_tightest_is_taken_or_the_one_whose_fullest_device_is_emptiest() -> None:
    ant = mesh((0, 3), (1, 2), size=4)
    linked_two = DeviceNeed(count=2, link="peer")
    used = {"gpu0": 0, "gpu1": 1, "gpu2": 2, "gpu3": 4}
    for even, taken in ((False, ("gpu0", "gpu3")), (True, ("gpu1", "gpu2"))):
        (seat,) = Puzzle(ant, used, linked_two, even).plan().placement
        assert seat.seat.devices == taken
    models = replace(ant, devices=tuple(replace(d, model="ab"[n // 2]) for n, d in enumerate(ant.devices)))
    (seat,) = Puzzle(models, {"gpu2": 3, "gpu3": 3}, DeviceNeed(count=2), even=False).plan().placement
    assert seat.seat.devices == ("gpu2", "gpu3"), "whatever the model names"
