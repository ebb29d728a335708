"""What a host could hold: the whole contents that are worth most to it, at given prices of those who stand there.

A host's contents are one choice (Gilmore and Gomory, "A linear programming approach to the cutting-stock problem",
Operations Research 9, 1961): sizes, slots and exclusions of one host leave no gap then. Called by `dive`, which mixes
them. Memory and slots count here, and who shuns whom; RAM beside it, disks, money and failure domains do not: whoever
seats what was found asks for those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gridops.planner.constants_room import CONTENT_MOST, CONTENT_NODES
from gridops.planner.pieces import Option
from gridops.planner.puzzle import Puzzle

Content = tuple[int, ...]
"""Kinds on one host, in order; one that is there twice stands twice."""

SLOT_PRICES = 8
"""Prices of a slot that are tried, from nothing up to the most that anybody is worth."""


class Item(NamedTuple):
    """One of a kind on a host, with what it is worth there beyond its price."""

    worth: float
    size: int
    kind: int


@dataclass(frozen=True, slots=True)
class Host:
    """A host without any piece."""

    number: int
    pools: tuple[int, ...]
    """Bytes free on each pool that anybody could use."""
    slots: int
    options: Mapping[int, Option]
    """How each kind would stand here; kinds that may not are not there."""
    places: Mapping[int, tuple[int, ...]]
    """Positions in `pools` that each of them may use."""
    sizes: Mapping[int, int]
    """Bytes that one of each takes."""
    most: Mapping[int, int]
    """How many of each may be here."""
    homes: frozenset[int]
    """Kinds of whom somebody stands here now."""
    now: Content


class Columns:
    """The contents of one host after another. `real`: the kind behind each name, of which some have several."""

    def __init__(self, real: Sequence[int], foes: Sequence[frozenset[int]]) -> None:
        self.real, self.foes = real, foes
        self.nodes = 0
        """Choices that were looked at."""

    def best(self, host: Host, worth: Mapping[int, float], least: float) -> tuple[float, Content]:
        """The content that is worth most, if it is more than so much, by branch and bound within a count of choices."""
        real, foes, options, places = self.real, self.foes, host.options, host.places
        slot, items = _by_slot_price(self._items(host, worth), sum(host.pools), host.slots)
        over, sizes, last = [max(0.0, i.worth - slot) for i in items], [i.size for i in items], len(items)
        best, chosen, nodes, single = least, Content(), 0, len(host.pools) == 1

        def branch(at: int, pools: tuple[int, ...], slots: int, value: float, taken: Content) -> None:
            nonlocal best, chosen, nodes
            if value > best:
                best, chosen = value, taken
            room = pools[0] if single else sum(pools)
            while slots and nodes <= CONTENT_NODES:
                nodes += 1
                while at < last and sizes[at] > room:
                    at += 1
                if at == last or value + slot * slots + _fill(room, at, sizes, over) <= best:
                    return
                gain, size, name = items[at]
                if foes[name].isdisjoint(taken):
                    kind = real[name]
                    after = (room - size,) if single else _seated(pools, options[kind], places[kind])
                    if after is not None:
                        branch(at + 1, after, slots - 1, value + gain, (*taken, name))
                at += 1
                while at < last and items[at].kind == name:
                    at += 1  # none of it, nor a second one

        branch(0, host.pools, host.slots, 0.0, ())
        self.nodes += nodes
        return best, tuple(sorted(chosen))

    def _items(self, host: Host, worth: Mapping[int, float]) -> list[Item]:
        found, real = list[Item](), self.real
        for name, value in worth.items():
            if value > 0:
                kind = real[name]
                found += [Item(value, host.sizes[kind], name)] * (host.most[kind] if name == kind else 1)
        return found


def _fill(room: int, at: int, sizes: list[int], over: list[float]) -> float:
    """What items from this one on are worth at most in so much room, the last one in part."""
    found = 0.0
    for n in range(at, len(sizes)):
        if sizes[n] > room:
            return found + over[n] * room / sizes[n]
        found += over[n]
        room -= sizes[n]
    return found


def _by_slot_price(items: list[Item], room: int, slots: int) -> tuple[float, list[Item]]:
    """What a slot is worth where slots are scarcer than memory, and the items by what they are worth beyond it."""
    dearest, found, least = max((i.worth for i in items), default=0.0), (0.0, items), 0.0
    for part in range(SLOT_PRICES):
        slot = part * dearest / SLOT_PRICES
        order = sorted(items, key=lambda i: (-(i.worth - slot) / i.size, i.kind))
        hope, left = slot * slots, room
        for item in order:
            if item.worth <= slot or not left:
                break
            hope += (item.worth - slot) * min(item.size, left) / item.size
            left -= min(item.size, left)
        if part and hope >= least:
            break
        found, least = (slot, order), hope
    return found


def _seated(pools: tuple[int, ...], option: Option, places: tuple[int, ...]) -> tuple[int, ...] | None:
    """What is left of the pools with one more; it takes the fullest that have room for it."""
    good = sorted((pools[p], p) for p in places if pools[p] >= option.need)[: option.count]
    if len(good) < option.count:
        return None
    left = list(pools)
    for _, place in good:
        left[place] -= option.need
    return tuple(left)


def hosts_of(puzzle: Puzzle) -> list[Host]:
    """Every host that anybody may use, as it would be without any piece."""
    mark, now = len(puzzle.journal), list(puzzle.at)
    for n, spot in enumerate(now):
        if spot is not None:
            puzzle.take(n)
    many: dict[int, int] = {}
    here: list[list[int]] = [[] for _ in puzzle.on]
    options: list[dict[int, Option]] = [{} for _ in puzzle.on]
    homes: list[set[int]] = [set() for _ in puzzle.on]
    for piece, spot in zip(puzzle.pieces, now, strict=True):
        many[piece.kind] = many.get(piece.kind, 0) + 1
        if spot is not None:
            here[spot.host].append(piece.kind)
            options[spot.host].setdefault(piece.kind, spot.option)
        if piece.home is not None:
            homes[piece.home.host].add(piece.kind)
            options[piece.home.host][piece.kind] = piece.home.option
    for kind in sorted(many):
        for host in puzzle.kinds[kind].hosts:
            if (spot := puzzle.seat(kind, host)) is not None:
                options[host].setdefault(kind, spot.option)
    found = [_host(puzzle, n, options[n], many, frozenset(homes[n]), tuple(sorted(here[n]))) for n in range(len(here))]
    puzzle.undo(mark)
    return [h for h in found if h.options and h.slots > 0]


def _host(
    puzzle: Puzzle, number: int, options: dict[int, Option], many: dict[int, int], homes: frozenset[int], now: Content
) -> Host:
    columns = sorted({c for o in options.values() for c in o.columns})
    slots = min(CONTENT_MOST, puzzle.ground.slots[number])
    return Host(
        number=number,
        pools=tuple(max(0, puzzle.ground.free[number][c]) for c in columns),
        slots=slots,
        options=options,
        places={kind: tuple(columns.index(c) for c in o.columns) for kind, o in options.items()},
        sizes={kind: max(1, o.need * o.count) for kind, o in options.items()},
        most={kind: min(max(1, puzzle.kinds[kind].most_here), many[kind], max(0, slots)) for kind in options},
        homes=homes,
        now=now,
    )
