"""The placement as a puzzle of small integers: pieces (replicas) on hosts, with undo. The board of the local search.

Made by `improve` from the draft; `search` turns the pieces. Says the same as `capacity` about room, counts, company,
disk and failure domains for the desired sum, and nothing about time; what it finds is seated on the real board again.
Numbers stand for names: pieces, kinds (profiles) and hosts count from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Option:
    """One way in which a kind runs on a host."""

    config: int
    columns: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    count: int
    need: int
    """Bytes on each pool of the seat."""
    ram: int
    """Bytes on the host's RAM on top."""
    gpu: bool
    start_ms: int
    missing: int
    """Bytes to fetch."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A profile: where its pieces may stand, and what it promises."""

    weight: int
    options: dict[int, tuple[Option, ...]]
    """Per host, in the order of configs. A host that is not there is not allowed."""
    most_here: int
    domains: tuple[int, ...] | None
    """Failure domain of each host (-1: none); None where there is no rule."""
    spread: int
    shuns: frozenset[int]
    company: int
    """At most so many kinds on its host, itself included."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A seat: host, how, and on which pools."""

    host: int
    option: Option
    pools: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A replica that may be moved. `home` is where it stands now, if it does."""

    kind: int
    home: Spot | None = None
    stake: int = 0
    """How much its seat matters among pieces of equal weight (`order.stakes`)."""
    serves: bool = False
    """It runs and is ready now."""
    stays: bool = False
    """It may move, but not lose its place."""


@dataclass(slots=True)
class Ground:
    """What the hosts have left beside everything that is not a piece."""

    free: list[list[int]]
    """Open bytes per pool; may be negative."""
    slack: list[list[int]]
    """What a piece may take on top where it stood before and nobody new does: the headroom."""
    gpu: list[list[int]]
    ram: list[int]
    """Column of the RAM, -1 where there is none."""
    slots: list[int]
    disk: list[int]
    counts: list[dict[int, int]]
    """Per host: fixed residencies by kind (kinds of other plans count from -2 downwards)."""


@dataclass(slots=True)
class Puzzle:
    kinds: Sequence[Kind]
    pieces: Sequence[Piece]
    ground: Ground
    anchored: frozenset[int] = frozenset()
    """Kinds of which somebody who is no piece serves and stays."""
    at: list[Spot | None] = field(default_factory=list)
    on: list[set[int]] = field(default_factory=list)
    """Pieces on each host."""
    fresh: list[int] = field(default_factory=list)
    """Pieces on each host that do not stand at home."""
    placed: list[int] = field(default_factory=list)
    """Pieces of each kind that stand, and others of it that are no pieces."""
    domains: list[dict[int, int]] = field(default_factory=list)
    unmet: int = 0
    at_stake: int = 0
    """Of the pieces without a seat."""
    short: int = 0
    start_ms: int = 0
    moved: int = 0
    dropped: int = 0
    journal: list[tuple[int, Spot | None]] = field(default_factory=list)
    """What a piece's spot was before each change, newest last."""
    _social: bool = False

    def __post_init__(self) -> None:
        hosts = len(self.ground.slots)
        self.at = [None] * len(self.pieces)
        self.on = [set() for _ in range(hosts)]
        self.fresh = [0] * hosts
        self.placed = [0] * len(self.kinds)
        self.domains = [{} for _ in self.kinds]
        self._social = any(k.company < len(self.kinds) + 1 for k in self.kinds)
        for host, counts in enumerate(self.ground.counts):
            for kind, many in counts.items():
                if kind >= 0:
                    self._count(kind, host, many)
        for piece in self.pieces:
            self.unmet += self.kinds[piece.kind].weight
            self.at_stake += piece.stake
            self.dropped += piece.home is not None

    @property
    def value(self) -> tuple[int, int, int, int, int]:
        """The objective, smaller is better: domains short, unmet weight, its stakes, start-up, disturbed pieces."""
        return self.short, self.unmet, self.at_stake, self.start_ms, self.moved + self.dropped

    # -- changes -----------------------------------------------------------------------------------------------------

    def put(self, piece: int, spot: Spot) -> None:
        self.journal.append((piece, None))
        self._put(piece, spot)

    def take(self, piece: int) -> Spot:
        spot = self.at[piece]
        assert spot is not None, "only what stands is taken"
        self.journal.append((piece, spot))
        self._take(piece, spot)
        return spot

    def undo(self, mark: int) -> None:
        """Back to when the journal was this long."""
        while len(self.journal) > mark:
            piece, before = self.journal.pop()
            now = self.at[piece]
            if now is not None:
                self._take(piece, now)
            if before is not None:
                self._put(piece, before)

    def _put(self, n: int, spot: Spot) -> None:
        piece, host, option, ground = self.pieces[n], spot.host, spot.option, self.ground
        self._memory(spot, -1)
        ground.slots[host] -= 1
        here = ground.counts[host]
        here[piece.kind] = here.get(piece.kind, 0) + 1
        self.at[n] = spot
        self.on[host].add(n)
        self.unmet -= self.kinds[piece.kind].weight
        self.at_stake -= piece.stake
        self._count(piece.kind, host, 1)
        if piece.home is None:
            self.start_ms += option.start_ms
            self.fresh[host] += 1
            ground.disk[host] -= option.missing
        else:
            self.dropped -= 1
            if spot is not piece.home:
                self.moved += 1
                self.start_ms += option.start_ms
                self.fresh[host] += 1
                ground.disk[host] -= option.missing

    def _take(self, n: int, spot: Spot) -> None:
        piece, host, option, ground = self.pieces[n], spot.host, spot.option, self.ground
        self._memory(spot, 1)
        ground.slots[host] += 1
        here = ground.counts[host]
        here[piece.kind] -= 1
        if not here[piece.kind]:
            del here[piece.kind]
        self.at[n] = None
        self.on[host].discard(n)
        self.unmet += self.kinds[piece.kind].weight
        self.at_stake += piece.stake
        self._count(piece.kind, host, -1)
        if piece.home is None or spot is not piece.home:
            self.start_ms -= option.start_ms
            self.fresh[host] -= 1
            ground.disk[host] += option.missing
            self.moved -= piece.home is not None
        self.dropped += piece.home is not None

    def _memory(self, spot: Spot, sign: int) -> None:
        free, option, ground = self.ground.free[spot.host], spot.option, self.ground
        for column in spot.pools:
            free[column] += sign * option.need
            if option.gpu:
                ground.gpu[spot.host][column] += sign * option.need
        if option.ram:
            free[ground.ram[spot.host]] += sign * option.ram

    def _count(self, number: int, host: int, by: int) -> None:
        """Keep the number of standing pieces, of their domains, and how many domains are missing."""
        kind = self.kinds[number]
        if kind.domains is None:
            self.placed[number] += by
            return
        before = self.missing(number)
        self.placed[number] += by
        where = kind.domains[host]
        if where >= 0:
            here = self.domains[number]
            here[where] = here.get(where, 0) + by
            if not here[where]:
                del here[where]
        self.short += self.missing(number) - before

    def missing(self, number: int) -> int:
        """Failure domains that the kind lacks."""
        return max(0, min(self.kinds[number].spread, self.placed[number]) - len(self.domains[number]))

    def deadlocked(self) -> bool:
        """Do pieces wait for each other's places in a circle? Each comes up where it goes before it leaves."""
        ground = self.ground
        movers = [
            n for n, s in enumerate(self.at) if s is not None and (h := self.pieces[n].home) is not None and s is not h
        ]
        if len(movers) < 2:
            return False
        # Take back the arrivals, and let the movers stand at home as well.
        free: dict[tuple[int, int], int] = {}
        slots: dict[int, int] = {}
        waiting = [n for n, s in enumerate(self.at) if s is not None and s is not self.pieces[n].home]

        def claim(spot: Spot, sign: int) -> None:
            slots[spot.host] = slots.get(spot.host, ground.slots[spot.host]) - sign
            parts = [(c, spot.option.need) for c in spot.pools]
            parts += [(ground.ram[spot.host], spot.option.ram)] if spot.option.ram else []
            for column, amount in parts:
                key = spot.host, column
                free[key] = free.get(key, ground.free[spot.host][column]) - sign * amount

        for n in waiting:
            claim(self._spot(n), -1)
        for n in movers:
            claim(self._home(n), 1)
        while waiting:
            able = [n for n in waiting if self._comes_up(self._spot(n), free, slots)]
            if not able:
                return True
            for n in able:
                if self._comes_up(self._spot(n), free, slots):
                    claim(self._spot(n), 1)
                    waiting.remove(n)
                    if self.pieces[n].home is not None:
                        claim(self._home(n), -1)
        return False

    def _spot(self, n: int) -> Spot:
        spot = self.at[n]
        assert spot is not None, "it stands"
        return spot

    def _home(self, n: int) -> Spot:
        home = self.pieces[n].home
        assert home is not None, "it is a mover"
        return home

    def _comes_up(self, spot: Spot, free: dict[tuple[int, int], int], slots: dict[int, int]) -> bool:
        host, ground = spot.host, self.ground
        room = all(free.get((host, c), ground.free[host][c]) >= spot.option.need for c in spot.pools)
        if spot.option.ram:
            column = ground.ram[host]
            room = room and free.get((host, column), ground.free[host][column]) >= spot.option.ram
        return room and slots.get(host, ground.slots[host]) > 0

    # -- questions ---------------------------------------------------------------------------------------------------

    def fits(self, n: int, host: int) -> Spot | None:
        """A seat for the piece on the host: at home where it stood, else in the first config with room."""
        piece, ground = self.pieces[n], self.ground
        kind = self.kinds[piece.kind]
        home = piece.home
        at_home = home is not None and home.host == host
        options = kind.options.get(host)
        if (options is None and not at_home) or ground.slots[host] <= 0:
            return None
        here = ground.counts[host]
        if here:
            if here.get(piece.kind, 0) >= kind.most_here:
                return None
            if kind.shuns and not kind.shuns.isdisjoint(here):
                return None
            if self._social and not self._welcome(piece.kind, kind, here):
                return None
        if at_home and home is not None and self._home_fits(home):
            return home
        for option in options or ():
            if option.missing and option.missing > ground.disk[host]:
                continue
            pools = self._pools(host, option)
            if pools is not None:
                return Spot(host, option, pools)
        return None

    def breaks(self, number: int, host: int) -> bool:
        """Would a seat there leave the kind with fewer failure domains than it promises for so many?"""
        kind = self.kinds[number]
        if kind.domains is None:
            return False
        where, here = kind.domains[host], self.domains[number]
        after = len(here) + (where >= 0 and where not in here)
        return after < min(kind.spread, self.placed[number] + 1)

    def _welcome(self, number: int, kind: Kind, here: dict[int, int]) -> bool:
        together = len(here) + (number not in here)
        if together == 1:
            return True
        most = min((self.kinds[k].company for k in here if k >= 0), default=together)
        return together <= min(most, kind.company)

    def _home_fits(self, home: Spot) -> bool:
        ground, option, host = self.ground, home.option, home.host
        free, slack = ground.free[host], ground.slack[host]
        alone = self.fresh[host] == 0
        for column in home.pools:
            room = free[column] + (slack[column] if alone else 0)
            if room < option.need or (option.gpu and ground.gpu[host][column] < option.need):
                return False
        if option.ram:
            column = ground.ram[host]
            return free[column] + (slack[column] if alone else 0) >= option.ram
        return True

    def _pools(self, host: int, option: Option) -> tuple[int, ...] | None:
        free, need = self.ground.free[host], option.need
        gpu = self.ground.gpu[host] if option.gpu else None
        if option.ram and free[self.ground.ram[host]] < option.ram:
            return None
        if option.count == 1:
            best, least = -1, 0
            for column in option.columns:
                left = free[column]
                if left >= need and (best < 0 or left < least) and (gpu is None or gpu[column] >= need):
                    best, least = column, left
            return None if best < 0 else (best,)
        for group in option.groups:
            good = [c for c in group if free[c] >= need and (gpu is None or gpu[c] >= need)]
            if len(good) >= option.count:
                return tuple(sorted(sorted(good, key=lambda c: (free[c], c))[: option.count]))
        return None
