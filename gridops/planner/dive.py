"""A placement to aim for, found before anybody asks how to get there: whole contents of hosts, mixed and then chosen.

Column generation (Dantzig and Wolfe, "Decomposition principle for linear programs", Operations Research 8, 1960): a
linear program mixes contents (`mix`), its prices say what each kind is worth, and each host names the content that is
worth most at those (`columns`), until hardly any has a better one. Then the most decided host is held to its content,
and so on (diving). Who stands and stays is worth a little more than who moves, so that few have to: that is what makes
the placement one that can be reached. Called by `aim`.

What a kind promises beyond its number is asked for where it was missed, and the next dive begins with that: one that
goes on standing, one in another failure domain. It has a name of its own then, beside its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import NamedTuple

from gridops.planner.columns import Columns, Content, Host, hosts_of
from gridops.planner.constants_room import (
    CONTENT_MOST,
    DIVE_ROUNDS,
    DIVE_STEPS,
    DIVE_TWICE,
    STAYS,
)
from gridops.planner.mix import Mix
from gridops.planner.permit import Permit
from gridops.planner.puzzle import Puzzle

NEARLY = 0.98
"""A share that is as good as all."""

FINE = 5
"""Parts in which staying is counted, the start-up time of who moves being one of them."""

ROUGH = 32
"""A content that is better by less than such a part of the smallest weight is not looked for."""

STEP, NUMBERS, NODES = 10, 2_000, 6
"""What counts as work: a step of the linear program is so much, and so many numbers changed in it, and so many choices
looked at, are one. They take as long as seats given or taken."""

AHEAD = 4.0
"""A promise is worth so many of the best piece."""


class Promise(NamedTuple):
    """One of the kind is to stand on one of these hosts."""

    kind: int
    hosts: frozenset[int]


class Dive:
    def __init__(self, puzzle: Puzzle, permit: Permit, stays: int = STAYS) -> None:
        self.puzzle, self.permit = puzzle, permit
        self.hosts = hosts_of(puzzle)
        self.kinds = sorted({p.kind for p in puzzle.pieces})
        self.many = dict.fromkeys(self.kinds, 0)
        for piece in puzzle.pieces:
            self.many[piece.kind] += 1
        homes = sum(1 for p in puzzle.pieces if p.home is not None)
        self.unit = FINE * (homes + 1)
        """What the smallest weight is worth: everybody's staying is worth `stays` of it."""
        self.worth = self._worth(stays)
        """By host, what a kind is worth there."""
        self.known: dict[tuple[int, Content], int] = {(n, host.now): 0 for n, host in enumerate(self.hosts)}
        """Columns by host (as numbered here) and content."""
        self.promises = self._owed()

    def _worth(self, stays: int) -> list[dict[int, float]]:
        kinds, slowest = self.puzzle.kinds, dict[int, int]()
        step = gcd(*(kinds[k].weight for k in self.kinds)) or 1
        for kind in self.kinds:
            slowest[kind] = max([1, *(o.start_ms for os in kinds[kind].options.values() for o in os)])

        def worth(host: Host, kind: int) -> float:
            weight = kinds[kind].weight * self.unit / step
            if kind in host.homes:
                return weight + stays * (FINE - 1)
            return weight - stays * host.options[kind].start_ms / slowest[kind]

        return [{kind: worth(host, kind) for kind in sorted(host.options)} for host in self.hosts]

    def _owed(self) -> list[Promise]:
        """Who stands in fewer failure domains than it should is to stand where it does, and in another one."""
        puzzle, found = self.puzzle, list[Promise]()
        for kind in self.kinds:
            domains = puzzle.kinds[kind].domains
            if domains is None or not puzzle.owed(kind) or self.many[kind] < 2:
                continue
            homes = [p.home.host for p in puzzle.pieces if p.kind == kind and p.home is not None]
            if (promise := self._missed(kind, homes)) is not None:
                here = frozenset(range(len(domains))) - promise.hosts
                found += [Promise(kind, here), promise] if here else []
        return found

    def run(self, most: int) -> dict[int, Content]:
        """Contents by host; nothing if it takes more work than that. Hosts that are not named hold nothing."""
        self._begin()
        held = self._choose(most)
        self.puzzle.work += self._spent()
        real = self.columns.real
        return {self.hosts[n].number: tuple(sorted(real[k] for k in self.what[c][1])) for n, c in sorted(held.items())}

    def _spent(self) -> int:
        return self.mix.steps * STEP + self.mix.numbers // NUMBERS + self.columns.nodes // NODES

    def _choose(self, most: int) -> dict[int, int]:
        """A column for every host that shall hold somebody."""
        every, held = list(range(len(self.hosts))), dict[int, int]()
        for _ in range(DIVE_ROUNDS):
            self.mix.solve(DIVE_STEPS)
            if self._widen(every) < self.unit / 2:
                break
            if self._spent() > most:
                return {}
        for _ in range(2 * len(every)):
            if not self._hold(held):
                break
            if self._spent() > most:
                return {}
            self.mix.reprice()
            self.mix.solve(DIVE_STEPS)
            for _ in range(DIVE_TWICE):
                if not self._widen([n for n in every if n not in held]):
                    break
                self.mix.solve(DIVE_STEPS)
        return held

    def missed(self, contents: Mapping[int, Content]) -> bool:
        """Ask from now on for what is promised and missed there. False: nothing is."""
        hosts: dict[int, list[int]] = {}
        for host, content in contents.items():
            for kind in content:
                hosts.setdefault(kind, []).append(host)
        asked, before = [p.kind for p in self.promises], len(self.promises)
        for kind in self.kinds:
            promise = self._missed(kind, hosts.get(kind, []))
            if promise is not None and promise not in self.promises and asked.count(kind) < self.many[kind]:
                self.promises.append(promise)
        return len(self.promises) > before

    def _missed(self, kind: int, here: list[int]) -> Promise | None:
        puzzle, everywhere = self.puzzle, frozenset(range(len(self.puzzle.on)))
        if not here:
            serves = self.permit.serving[kind] and kind not in puzzle.anchored
            return Promise(kind, everywhere) if serves else None
        domains = puzzle.kinds[kind].domains
        if domains is None:
            return None
        fixed = [h for h, counts in enumerate(puzzle.ground.counts) if counts.get(kind, 0) > self._pieces(kind, h)]
        used = {domains[h] for h in (*here, *fixed)} - {-1}
        if len(used) >= max(min(puzzle.kinds[kind].spread, len(here) + len(fixed)), puzzle.owed(kind)):
            return None
        return Promise(kind, frozenset(h for h in everywhere if domains[h] not in used))

    def _pieces(self, kind: int, host: int) -> int:
        return sum(self.puzzle.pieces[n].kind == kind for n in self.puzzle.on[host])

    # -- rows and columns --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """A row for each host, each kind and each promise; the columns that are known so far."""
        first, asked = len(self.puzzle.kinds), [p.kind for p in self.promises]
        names = [*self.kinds, *range(first, first + len(asked))]
        self.row = {name: len(self.hosts) + n for n, name in enumerate(names)}
        bounds = [self.many[k] - asked.count(k) for k in self.kinds]
        self.left = [1] * len(self.hosts) + bounds + [1] * len(asked)
        """Of each row, how many may still be held."""
        self.mix = Mix(self.left)
        self.columns = Columns([*range(first), *asked], self._foes(asked))
        self.value = [dict(w) for w in self.worth]
        large = AHEAD * max([0.0, *(v for w in self.worth for v in w.values())])
        for n, promise in enumerate(self.promises):
            for host, value in zip(self.hosts, self.value, strict=True):
                if host.number in promise.hosts and promise.kind in host.options:
                    value[first + n] = value[promise.kind] + large
        before, self.known = self.known, {}
        self.of: list[list[int]] = [[] for _ in self.hosts]
        """Columns of each host."""
        self.what: list[tuple[int, Content]] = []
        """Host and content of each column."""
        for n, content in before:
            if len(content) <= CONTENT_MOST:
                self._add(n, content)

    def _foes(self, asked: list[int]) -> list[frozenset[int]]:
        """Whom none of a name shares a host with: who shuns it, and its own kind by another name."""
        kinds, first = self.puzzle.kinds, len(self.puzzle.kinds)
        groups = [{k} | {first + n for n, a in enumerate(asked) if a == k} for k in range(first)]
        apart = [
            [k for k in self.kinds if k in kinds[kind].shuns or kind in kinds[k].shuns] if kind in self.many else []
            for kind in range(first)
        ]
        return [
            frozenset(groups[kind].union(*(groups[k] for k in apart[kind])) - {name})
            for name, kind in enumerate([*range(first), *asked])
        ]

    def _add(self, n: int, content: Content) -> bool:
        if not content or (n, content) in self.known:
            return False
        column = self.mix.add([n, *(self.row[k] for k in content)], sum(self.value[n][k] for k in content))
        self.known[n, content] = column
        self.of[n].append(column)
        self.what.append((n, content))
        return True

    def _widen(self, hosts: list[int]) -> float:
        """Let each of these name its best content. Returns by how much all of it could be better, 0 for nothing new."""
        prices, found = self.mix.prices, 0.0
        for n in hosts:
            worth = {k: v - prices[self.row[k]] for k, v in self.value[n].items()}
            value, content = self.columns.best(self.hosts[n], worth, prices[n] + self.unit / ROUGH)
            if self._add(n, content):
                found += value - prices[n]
        return found

    def _hold(self, held: dict[int, int]) -> bool:
        """Hold those hosts to their contents that are decided, or the one that is nearest to it. False: all are."""
        shares: dict[int, tuple[float, int]] = {}
        for share, column in self.mix.shares():
            n = self.what[column][0]
            if n not in held:
                shares[n] = max(shares.get(n, (0.0, 0)), (share, column))
        some = False
        for n, (share, column) in sorted(shares.items(), key=lambda s: (-s[1][0], s[0])):
            if some and share < NEARLY:
                break
            rows = self.mix.columns[column]
            if any(self.left[row] < rows.count(row) for row in rows):
                self.mix.bar([column])  # there would be more of somebody than are wanted
                continue
            held[n], some = column, True
            for row in rows:
                self.left[row] -= 1
            self.mix.bar([c for c in self.of[n] if c != column])
        return bool(shares)
