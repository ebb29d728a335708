"""Small random puzzles for the tests of the local search, and the state of one as a value."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from gridops.planner.grid import ENDLESS
from gridops.planner.pieces import Ground, Kind, Option, Piece, Spot
from gridops.planner.puzzle import Puzzle


def puzzle(seed: int, *, hosts: int = 5, kinds: int = 4, pieces: int = 14) -> Puzzle:
    """Hosts of two pools and a RAM, kinds with rules; two pieces in three stand somewhere, half of those at home."""
    chance = random.Random(seed)
    free = [[chance.randrange(8, 25), chance.choice((0, 8, 24)), chance.randrange(20, 60)] for _ in range(hosts)]
    ground = Ground(
        free=free,
        slack=[[2, 2, 0] for _ in range(hosts)],
        gpu=[[ENDLESS] * 3 for _ in range(hosts)],
        ram=[2] * hosts,
        slots=[chance.choice((2, 3, ENDLESS)) for _ in range(hosts)],
        disk=[chance.choice((3, 50)) for _ in range(hosts)],
        counts=[{} for _ in range(hosts)],
        price=[chance.choice((0, 4)) for _ in range(hosts)],
        held=[0] * hosts,
        money=chance.choice((8, ENDLESS)),
    )
    enemies = {frozenset(chance.sample(range(kinds), 2))} if chance.randrange(2) else set[frozenset[int]]()
    rules = [_kind(chance, n, hosts, enemies) for n in range(kinds)]
    made = Puzzle(rules, [Piece(chance.randrange(kinds)) for _ in range(pieces)], ground)
    homes: list[Spot | None] = []
    for n in range(pieces):
        spots = [s for h in range(hosts) if (s := made.fits(n, h)) is not None and not made.breaks(_of(made, n), h)]
        spot = chance.choice(spots) if spots and chance.randrange(3) else None
        homes.append(spot)
        if spot is not None:
            made.put(n, spot)
    made.restore([None] * pieces)
    anew = [
        Piece(
            p.kind,
            home if home is not None and n % 2 else None,
            claim=1 + n % 3,
            meek=not chance.randrange(5),
            serves=bool(chance.randrange(3)) and home is not None and n % 2 == 1,
            back_ms=n,
        )
        for n, (p, home) in enumerate(zip(made.pieces, homes, strict=True))
    ]
    found = Puzzle(rules, anew, ground)
    for n, spot in enumerate(homes):
        if spot is not None:
            found.put(n, spot)
    found.journal.clear()
    return found


def one_pool(free: Sequence[int]) -> Ground:
    """Hosts with a single pool of so much room and no other bounds."""
    return Ground(
        free=[[room] for room in free],
        slack=[[0] for _ in free],
        gpu=[[ENDLESS] for _ in free],
        ram=[-1] * len(free),
        slots=[ENDLESS] * len(free),
        disk=[ENDLESS] * len(free),
        counts=[{} for _ in free],
        price=[0] * len(free),
        held=[0] * len(free),
    )


def plain(moves: list[tuple[int, int]], sizes: list[int], room: int) -> Puzzle:
    """Pieces with a home and another seat; each host has so much room."""
    hosts = 1 + max(h for pair in moves for h in pair)
    option = {n: Option(0, (0,), ((0,),), 1, size, 0, False, 1, 0) for n, size in enumerate(sizes)}
    ground = one_pool([room] * hosts)
    kinds = [Kind(1, lambda n=n: dict.fromkeys(range(hosts), (option[n],))) for n in range(len(moves))]  # type: ignore[misc]
    made = Puzzle(kinds, [Piece(n, Spot(source, option[n], (0,))) for n, (source, _) in enumerate(moves)], ground)
    for n, (source, target) in enumerate(moves):
        home = made.pieces[n].home
        assert home is not None
        made.put(n, home if source == target else Spot(target, option[n], (0,)))
    return made


def _kind(chance: random.Random, number: int, hosts: int, enemies: set[frozenset[int]]) -> Kind:
    options: dict[int, tuple[Option, ...]] = {}
    need, two = chance.randrange(2, 12), chance.randrange(4) == 0
    for host in range(hosts):
        if chance.randrange(5):
            count = 2 if two else 1
            options[host] = (
                Option(
                    config=0,
                    columns=(0, 1),
                    groups=((0, 1),),
                    count=count,
                    need=need,
                    ram=chance.choice((0, 3)),
                    gpu=False,
                    start_ms=chance.randrange(1, 9),
                    missing=chance.choice((0, 2)),
                    firm=bool(chance.randrange(6)),
                ),
            )
    spread = chance.choice((0, 0, 2))
    return Kind(
        weight=chance.choice((1, 2, 4, 8)),
        find=lambda: options,
        most_here=chance.choice((1, 2, ENDLESS)),
        domains=tuple(h % 3 for h in range(hosts)) if spread else None,
        spread=spread,
        shuns=frozenset(other for pair in enemies if number in pair for other in pair - {number}),
        company=chance.choice((2, ENDLESS, ENDLESS)),
    )


def _of(made: Puzzle, n: int) -> int:
    return made.pieces[n].kind


def state(made: Puzzle) -> tuple[Any, ...]:
    """Everything that a change could leave behind."""
    ground = made.ground
    return (
        made.value,
        made.rent,
        list(made.at),
        [sorted(on) for on in made.on],
        list(made.fresh),
        {k: sorted(v) for k, v in made.loose.items()},
        dict(made.gone),
        list(made.placed),
        [dict(d) for d in made.domains],
        list(made.room),
        [list(f) for f in ground.free],
        [list(f) for f in ground.gpu],
        list(ground.slots),
        list(ground.disk),
        [dict(c) for c in ground.counts],
        list(ground.held),
        ground.money,
    )


def wrongs(made: Puzzle) -> list[str]:
    """Hard rules that the placement breaks, from first principles."""
    found = []
    for host, on in enumerate(made.on):
        kinds = [made.pieces[n].kind for n in on]
        if made.ground.slots[host] < 0:
            found.append(f"{host} is over its slots")
        for column, free in enumerate(made.ground.free[host]):
            fresh = any(made.at[n] is not made.pieces[n].home for n in on)
            if free < (0 if fresh else -made.ground.slack[host][column]):
                found.append(f"{host} is over its memory on pool {column}")
        for kind in set(kinds):
            rules = made.kinds[kind]
            if kinds.count(kind) > rules.most_here or rules.shuns & set(kinds) - {kind}:
                found.append(f"{host} holds {kind} in bad company")
            if len(set(kinds)) > max(1, rules.company):
                found.append(f"{host} holds too many kinds for {kind}")
    return found + ([f"{made.ground.money} left to pay"] if made.ground.money < 0 else [])
