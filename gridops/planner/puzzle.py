"""The placement as a puzzle of small integers: pieces (replicas) on hosts, with undo. The board of the local search.

Made by `movers` from the draft; `chains` and `search` turn the pieces. Says the same as `capacity` about room, counts,
company, disk, price and failure domains for the desired sum, and nothing about time; what it finds is seated on the
real board again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gridops.planner.grid import ENDLESS
from gridops.planner.pieces import Ground, Kind, Option, Piece, Spot, lacking_at_home

PARTS = 1024
"""Parts of a unit of weight, in which room has its price."""


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
    loose: dict[int, set[int]] = field(default_factory=dict)
    """Pieces without a seat, by kind; kinds without any are not there."""
    gone: dict[int, int] = field(default_factory=dict)
    """Of these, how many have a home."""
    placed: list[int] = field(default_factory=list)
    """Pieces of each kind that stand, and others of it that are no pieces."""
    domains: list[dict[int, int]] = field(default_factory=list)
    unmet: int = 0
    stake: int = 0
    claim: int = 0
    short: int = 0
    """Failure domains that are missing. What a kind lacks where it stands is made good by new domains alone."""
    start_ms: int = 0
    moved: int = 0
    dropped: int = 0
    back_ms: int = 0
    rent: int = 0
    """What the seats of all who stand are worth to others, in parts of a unit of weight."""
    rents: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Of this, the price of a seat, by kind and host; nothing before somebody asked for it (`charge`)."""
    work: int = 0
    """What has been done: seats given and taken, and what the search counts besides."""
    journal: list[tuple[int, Spot | None]] = field(default_factory=list)
    """What a piece's spot was before each change, newest last."""
    room: list[int] = field(default_factory=list)
    """The most that any pool of a host has free, its RAM apart where it has others; -1 where there is no slot left."""
    _pools_of: list[tuple[int, ...]] = field(default_factory=list)
    _weights: list[int] = field(default_factory=list)
    """Of each kind, as in what follows of each piece: asked at every change."""
    _kind_of: list[int] = field(default_factory=list)
    _stakes: list[int] = field(default_factory=list)
    _claims: list[int] = field(default_factory=list)
    _homes: list[Spot | None] = field(default_factory=list)
    _at_home: list[tuple[int, int]] = field(default_factory=list)
    """Of each kind that lacks failure domains where it stands: how many it should have there, and how many it has."""
    _lacks: list[int] = field(default_factory=list)
    """Failure domains that each kind lacks now. What it lacks at home it lacks with fewer of it just as well."""
    _social: bool = False
    _apart: list[bool] = field(default_factory=list)
    """Whether each kind has failure domains to keep apart."""

    def __post_init__(self) -> None:
        hosts = len(self.ground.slots)
        self.at = [None] * len(self.pieces)
        self.on = [set() for _ in range(hosts)]
        self.fresh = [0] * hosts
        self.placed = [0] * len(self.kinds)
        self.domains = [{} for _ in self.kinds]
        self._weights = [k.weight for k in self.kinds]
        self._apart = [k.domains is not None for k in self.kinds]
        self.stake = sum(self._weights)
        self._kind_of, self._homes = [p.kind for p in self.pieces], [p.home for p in self.pieces]
        self._stakes = [self._weights[p.kind] * p.stake for p in self.pieces]
        self._claims = [self._weights[p.kind] * p.claim for p in self.pieces]
        for free, ram in zip(self.ground.free, self.ground.ram, strict=True):
            # Hosts with fewer pools than others have columns that stand for none.
            self._pools_of.append(tuple(c for c in range(len(free)) if c != ram and free[c] > -ENDLESS) or (ram,))
        self.room = [0] * hosts
        for host in range(hosts):
            self._note(host)
        self._at_home = lacking_at_home(self.kinds, self.pieces, self.ground)
        self._lacks = [max(0, owed - had) for owed, had in self._at_home]
        self._social = any(k.company <= len(self.kinds) for k in self.kinds)
        for host, counts in enumerate(self.ground.counts):
            for kind, many in counts.items():
                if kind >= 0:
                    self._count(kind, host, many)
        for n, kind in enumerate(self._kind_of):
            self._loosen(n, kind)

    @property
    def value(self) -> tuple[int, int, int, int, int, int, int]:
        """The objective, smaller is better: failure-domain shortfall, unmet weight, and what is at stake with it;
        start-up time; whose turn it was; then how many pieces are disturbed, and what it takes to undo that."""
        return self.short, self.unmet, self.stake, self.start_ms, self.claim, self.moved + self.dropped, self.back_ms

    def charge(self, rents: Mapping[int, Sequence[int]]) -> None:
        """From now on seats have these prices."""
        self.rents = rents
        self.rent = sum(rents[self.pieces[n].kind][s.host] for n, s in enumerate(self.at) if s is not None)

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
        journal, at = self.journal, self.at
        while len(journal) > mark:
            piece, before = journal.pop()
            now = at[piece]
            if now is not None:
                self._take(piece, now)
            if before is not None:
                self._put(piece, before)

    def restore(self, before: Sequence[Spot | None]) -> None:
        """Every piece where it was then."""
        changed = [n for n, spot in enumerate(self.at) if spot is not before[n]]
        for n in changed:
            if self.at[n] is not None:
                self.take(n)
        for n in changed:
            if (spot := before[n]) is not None:
                self.put(n, spot)

    def _loosen(self, n: int, kind: int) -> None:
        others = self.loose.get(kind)
        if others is None:
            self.loose[kind] = {n}
        else:
            others.add(n)
        self.unmet += self._weights[kind]
        self.stake += self._stakes[n]
        self.claim += self._claims[n]
        if self._homes[n] is not None:
            self.dropped += 1
            self.back_ms += self.pieces[n].back_ms
            self.gone[kind] = self.gone.get(kind, 0) + 1

    def _put(self, n: int, spot: Spot) -> None:
        host, option, _ = spot
        kind, home = self._kind_of[n], self._homes[n]
        self.at[n] = spot
        self.on[host].add(n)
        self._occupy(kind, spot, 1)
        others = self.loose[kind]
        if len(others) == 1:
            del self.loose[kind]
        else:
            others.discard(n)
        self.unmet -= self._weights[kind]
        self.stake -= self._stakes[n]
        self.claim -= self._claims[n]
        if home is not None:
            self.dropped -= 1
            self.back_ms -= self.pieces[n].back_ms
            self._less_gone(kind)
            if spot is home:
                return
            self.moved += 1
        self.start_ms += option.start_ms
        self.fresh[host] += 1
        if option.missing:
            self.ground.disk[host] -= option.missing

    def _take(self, n: int, spot: Spot) -> None:
        host, option, _ = spot
        kind, home = self._kind_of[n], self._homes[n]
        self.at[n] = None
        self.on[host].discard(n)
        self._occupy(kind, spot, -1)
        self._loosen(n, kind)
        if spot is not home:
            self.moved -= home is not None
            self.start_ms -= option.start_ms
            self.fresh[host] -= 1
            if option.missing:
                self.ground.disk[host] += option.missing

    def _less_gone(self, kind: int) -> None:
        if self.gone[kind] == 1:
            del self.gone[kind]
        else:
            self.gone[kind] -= 1

    def _occupy(self, kind: int, spot: Spot, by: int) -> None:
        """One of the kind more on the host, or one less: memory, slots, counts, price and rent."""
        host, option, pools = spot
        ground = self.ground
        free, need = ground.free[host], by * option.need
        self.work += 1
        if len(pools) == 1:
            free[pools[0]] -= need
        else:
            for column in pools:
                free[column] -= need
        if option.gpu:
            for column in pools:
                ground.gpu[host][column] -= need
        if option.ram:
            free[ground.ram[host]] -= by * option.ram
        ground.slots[host] = slots = ground.slots[host] - by
        before = ground.held[host]
        ground.held[host] = before + by
        if not before or not before + by:
            ground.money -= by * ground.price[host]
        here = ground.counts[host]
        if by > 0 and kind not in here:
            here[kind] = 1
        elif by < 0 and here[kind] == 1:
            del here[kind]
        else:
            here[kind] += by
        own = self._pools_of[host]
        self.room[host] = -1 if slots <= 0 else free[own[0]] if len(own) == 1 else max([free[c] for c in own])
        if self.rents:
            self.rent += by * self.rents[kind][host]
        placed = self.placed
        stand = placed[kind] + by
        if stand and stand != by:
            placed[kind] = stand
            if self._apart[kind]:
                self._spread(kind, host, by, stand)
        else:
            self._count(kind, host, by)

    def _note(self, host: int) -> None:
        free, own = self.ground.free[host], self._pools_of[host]
        self.room[host] = -1 if self.ground.slots[host] <= 0 else max(free[c] for c in own)

    def _count(self, number: int, host: int, by: int) -> None:
        """Keep the number of standing pieces, and how many failure domains they lack."""
        stand = self.placed[number]
        # A kind that stands nowhere counts once more among those who should.
        if stand == 0:
            self.stake -= self._weights[number]
        self.placed[number] = stand = stand + by
        if self._apart[number]:
            self._spread(number, host, by, stand)
        if stand == 0:
            self.stake += self._weights[number]

    def _spread(self, number: int, host: int, by: int, stand: int) -> None:
        """Keep the failure domains where the kind stands, `stand` times now, and how many are missing."""
        kind, here = self.kinds[number], self.domains[number]
        assert kind.domains is not None, "it is to stand apart"
        where = kind.domains[host]
        if where >= 0:
            many = here.get(where, 0) + by
            if many:
                here[where] = many
            else:
                del here[where]
        have, (owed, had) = len(here), self._at_home[number]
        lacks = min(kind.spread, stand) - have
        if owed:
            lacks = max(lacks, owed - max(had, have))
        if lacks < 0:
            lacks = 0
        if lacks != self._lacks[number]:
            self.short += lacks - self._lacks[number]
            self._lacks[number] = lacks

    # -- questions ---------------------------------------------------------------------------------------------------

    def missing(self, number: int) -> int:
        """Failure domains that the kind lacks."""
        return max(0, min(self.kinds[number].spread, self.placed[number]) - len(self.domains[number]))

    def owed(self, number: int) -> int:
        """Failure domains that the kind should have had where it stood, if it lacked some there."""
        return self._at_home[number][0]

    def fits(self, n: int, host: int) -> Spot | None:
        """A seat for the piece on the host: at home where it stood, else in the first config with room."""
        kind, home = self._kind_of[n], self._homes[n]
        if home is not None and home.host == host and self.welcome(kind, host) and self._home_fits(home):
            return home
        return self.seat(kind, host)

    def seat(self, number: int, host: int) -> Spot | None:
        """A seat for one of the kind on the host, in the first config with room."""
        kind = self.kinds[number]
        if self.room[host] < kind.size and not kind.on_ram:
            return None  # most are refused here: no slot, or no pool with so much room
        options = kind.options.get(host)
        return self._first(options, host) if options is not None and self.welcome(number, host) else None

    def _first(self, options: tuple[Option, ...], host: int) -> Spot | None:
        disk = self.ground.disk[host]
        for option in options:
            if option.missing > disk:
                continue
            pools = self._pools(host, option)
            if pools is not None:
                return Spot(host, option, pools)
        return None

    def roomy(self, least: int) -> list[int]:
        """Hosts with a slot and so many bytes free on a pool."""
        return [host for host, room in enumerate(self.room) if room >= least]

    def best(self, number: int, hosts: Iterable[int]) -> Spot | None:
        """The seat that starts soonest, then the one that leaves least."""
        kind, room, free = self.kinds[number], self.room, self.ground.free
        options, size, apart = kind.options, kind.size if not kind.on_ram else 0, kind.domains is not None
        best: Spot | None = None
        first = second = 0
        for host in hosts:
            here = options.get(host) if room[host] >= size else None
            if here is None or (apart and self.breaks(number, host)) or not self.welcome(number, host):
                continue
            spot = self._first(here, host)
            if spot is None:
                continue
            start, left = spot.option.start_ms, free[host][spot.pools[0]] - spot.option.need
            if best is None or start < first or (start == first and left < second):
                best, first, second = spot, start, left
        return best

    def breaks(self, number: int, host: int) -> bool:
        """Would a seat there leave the kind with fewer failure domains than it promises for so many?"""
        kind = self.kinds[number]
        if kind.domains is None:
            return False
        where, here = kind.domains[host], self.domains[number]
        after = len(here) + (where >= 0 and where not in here)
        return after < min(kind.spread, self.placed[number] + 1)

    def welcome(self, number: int, host: int) -> bool:
        """Counts, company and price admit one more of the kind."""
        ground, kind = self.ground, self.kinds[number]
        if ground.slots[host] <= 0 or (not ground.held[host] and ground.price[host] > ground.money):
            return False
        here = ground.counts[host]
        if not here:
            return True
        if here.get(number, 0) >= kind.most_here or (kind.shuns and not kind.shuns.isdisjoint(here)):
            return False
        if not self._social:
            return True
        together = len(here) + (number not in here)
        most = min((self.kinds[k].company for k in here if k >= 0), default=together)
        return together == 1 or together <= min(most, kind.company)

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
        ground, need = self.ground, option.need
        free = ground.free[host]
        gpu = ground.gpu[host] if option.gpu else None
        if option.ram and free[ground.ram[host]] < option.ram:
            return None
        if option.count == 1:
            columns = option.columns
            if gpu is None and len(columns) == 1:
                return columns if free[columns[0]] >= need else None
            best, least = -1, 0
            for column in columns:
                left = free[column]
                if left >= need and (best < 0 or left < least) and (gpu is None or gpu[column] >= need):
                    best, least = column, left
            return None if best < 0 else (best,)
        for group in option.groups:
            good = [c for c in group if free[c] >= need and (gpu is None or gpu[c] >= need)]
            if len(good) >= option.count:
                return tuple(sorted(sorted(good, key=lambda c: (free[c], c))[: option.count]))
        return None
