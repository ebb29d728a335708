"""Find the best seat for a replica: every host in every config, compared term by term.

Knows nothing of order or of what else has to be placed; `place` does. Answers about room come from `openings`, the
terms are `rank`'s, and the seat itself is made by the board, which has the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gridops.base.ids import HostId, ProfileName
from gridops.base.units import PPM
from gridops.footprint.need import Need, need
from gridops.model.measured import Measured, revision
from gridops.model.plan import Launch
from gridops.model.profile import Profile
from gridops.planner.capacity import Ask, Offer
from gridops.planner.constants import REVIEW_PPM
from gridops.planner.draft import Draft, Item, is_same_place, may_dip
from gridops.planner.failing import bar_of
from gridops.planner.fill import filled, filled_of
from gridops.planner.fittings import Takes
from gridops.planner.grid import MIB, Grid, Ints
from gridops.planner.openings import Answers, Opening, Strands
from gridops.planner.prospects import Prospect
from gridops.planner.rank import UNKNOWN_PRICE_MICRO, Rank
from gridops.planner.rank_harm import Harms
from gridops.planner.recall import Shelf
from gridops.planner.scarce import scarcity_of
from gridops.planner.table import Column, Table, column_of
from gridops.planner.terrain import MIB_BITS

NOTHING: tuple[object, ...] = ()
"""What is believed where nothing was learned: always the same object."""

NOBODY = HostId("")
"""No host is called so."""

OPENINGS_KEPT = 1_000_000
"""Hosts times profiles up to which openings are kept for the next plan. A profile's row takes some 50 bytes."""


class Candidate(NamedTuple):
    """A host with room, and how good it is. Compares by rank, then by host."""

    rank: Rank
    host: HostId
    launch: Launch
    offer: Offer


class Found(NamedTuple):
    """The best seat, the best other host with its terms, and how many hosts have room."""

    best: Candidate
    second: tuple[Rank, HostId] | None
    hosts: int


class Seats:
    """Finds seats on the draft's board. Remembers which hosts are open to which profile, and what each last said."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.grid = Grid(draft.world, draft.board)
        self._scarcity, self.harms = scarcity_of(self.grid), Harms(self.grid)
        self._openings: dict[ProfileName, tuple[Opening, ...]] = {}
        self._strands: dict[Takes, Strands] = {}
        """By what is taken, while nothing is kept for the next plan."""
        self._measured: list[Measured] | None = None
        """All that was measured anywhere, once somebody asked."""
        inputs, pairs = draft.world.inputs, len(self.grid.ids) * len(draft.world.profiles)
        # What is measured fades from one moment to the next, and a forecast is another each time.
        told = inputs.forecast is not None or (inputs.learned is not None and bool(inputs.learned.speeds))
        self._keeps = not told and pairs <= OPENINGS_KEPT
        """The next plan may take over what hosts say."""
        shelf = draft.world.recall.shelf
        self._prospects: Shelf[Prospect] = shelf("prospects")
        self._known: Shelf[Strands] = shelf("strands")
        self._answers: Shelf[Answers] = shelf("answers")

    def openings(self, profile: Profile) -> tuple[Opening, ...]:
        """One for each config of the profile, up to date."""
        self.grid.refresh()
        found = self.lasting(profile)
        for opening in found:
            if not opening.asked:
                self._ask(opening)
            opening.refresh()
        return found

    def lasting(self, profile: Profile) -> tuple[Opening, ...]:
        """The same for whoever asks only what does not change while a plan is made: hosts, launches, start-up."""
        found = self._openings.get(profile.name)
        if found is None:
            found = tuple(self._opening(profile, n) for n in range(len(profile.configs)))
            self._openings[profile.name] = found
        return found

    def begin(self, items: Sequence[Item]) -> None:
        """These look for a seat, and nobody has one yet: ask all hosts now, if the next plan may begin alike."""
        if self._keeps and self.draft.world.recall.again:
            for profile in {i.profile.name: i.profile for i in items}.values():
                self.openings(profile)

    def _opening(self, profile: Profile, position: int) -> Opening:
        """Its prospect is as the last plan found it, if profile and hosts are what they were."""
        name, grid = (profile.name, position), self.grid
        if not self._keeps:
            alone = Prospect(self.harms, profile, position)
            strands = self._strands.setdefault(alone.kind, Strands())
            return Opening(alone, self.harms, self._scarcity, strands)
        sources = profile, grid.terrain, self._taught(profile, position)
        prospect = self._prospects.of(name, sources, lambda: Prospect(self.harms, profile, position))
        strands = self._known.of(prospect.kind, (grid.numbers, self._scarcity), Strands)
        return Opening(prospect, self.harms, self._scarcity, strands)

    def _ask(self, opening: Opening) -> None:
        """Answers are as the last plan found them, if both begin with the same placement and profiles, too."""
        grid, shelf = self.grid, self._answers
        name, sources = (opening.profile.name, opening.position), (opening.prospect, grid.start, self._scarcity)
        last = shelf.get(name, sources) if self._keeps else None
        if last is not None:
            opening.begin(last)
            return
        opening.ask()
        if self._keeps and grid.seen == grid.began:
            shelf.put(name, sources, opening.answers())

    def _taught(self, profile: Profile, position: int) -> tuple[object, ...]:
        """What is believed of times and failures; the same object as last time where it is the same."""
        name, experience = (profile.name, position), self.harms.experience
        about = experience.about(profile, profile.configs[position])
        if about is None:
            return NOTHING
        shelf: Shelf[tuple[object, ...]] = self.draft.world.recall.shelf("taught")
        now, last = experience.believed(about), shelf.last(name)
        return shelf.put(name, (), last if last is not None and last == now else now)

    def width(self, name: ProfileName) -> tuple[int, int]:
        """How constrained and how large a profile is, for `order`."""
        openings = self.lasting(self.draft.world.profiles[name])
        return len(_union([o.rows for o in openings])), max([o.prospect.seat_bytes for o in openings], default=0)

    def least(self, profile: Profile) -> int:
        """Bytes that the profile takes at least on a pool; 0 where that is not known, or the RAM beside others will do.

        Known without looking at any host.
        """
        if any("cpu" in c.backends for c in profile.configs):
            return 0
        needs = [need(c, self.draft.world.planning) for c in profile.configs]
        known = [n.device_bytes for n in needs if isinstance(n, Need)]
        return min((*known, *self._measured_of(profile)), default=0) if known else 0

    def _measured_of(self, profile: Profile) -> list[int]:
        """What was measured anywhere of any config of it: some host may need as little."""
        if self._measured is None:
            self._measured = [m for report in self.draft.world.inputs.snapshot.hosts for m in report.measured or ()]
        rows = self._measured
        return [m.device_bytes for m in rows for c in profile.configs if m.revision == revision(c.artifact)]

    def find(self, item: Item) -> Found | None:
        """Compare every opening with room for the item."""
        openings = self.openings(item.profile)
        for opening in openings:
            self.draft.evaluated += len(opening.rows)
        tables = [self._table(item, o) for o in openings]
        own = self._own_place(item, openings)
        refused: list[int] = []
        best = own
        while (first := _first(tables, refused, self.grid)) is not None and (own is None or first[:2] < own[:2]):
            rank, host, table = first
            row = self.grid.row[host]
            way = table.way(row)
            offer = self.draft.board.offer(host, Ask(item.replica, item.profile, way, item.home))
            if isinstance(offer, Offer):
                best = Candidate(rank, host, way.launch, offer)
                break
            refused.append(row)  # the arrays were more hopeful than the board
        if best is None:
            return None
        others = _first(tables, [*refused, self.grid.row[best.host]], self.grid)
        second = (others[0], others[1]) if others is not None else None
        if own is not None and own is not best and (second is None or own[:2] < second):
            second = own.rank, own.host
        return Found(best, second, _hosts(tables) - len(refused) + int(own is not None))

    def _table(self, item: Item, opening: Opening) -> Table:
        """Rows with room for the item, with the terms of each."""
        grid = self.grid
        fits = opening.fits
        if item.pin is not None:
            fits = fits & (opening.rows == grid.row.get(item.pin, -1))
        if item.origin is not None:
            fits = fits & (opening.rows != grid.row.get(item.origin.host, -1))
        if (bar := bar_of(self.draft.world, item.cause, item.profile, opening.config)) is not None:
            barred = opening.rows if bar.everywhere else [grid.row.get(host, -1) for host in sorted(bar.failing)]
            fits = fits & ~np.isin(opening.rows, barred)
        ceiling = self.draft.world.budgets.price
        if ceiling is not None:
            price = grid.price[opening.rows]
            others = self.draft.board.price_micro - self.draft.board.price_saved(item.home, item.replica)
            too_dear = others + price > ceiling.max_per_hour_micro
            too_dear = np.where(price == UNKNOWN_PRICE_MICRO, ceiling.unknown == "refuse", too_dear)
            fits = fits & (grid.holds[opening.rows] | ~too_dear)
        places = fits.nonzero()[0]
        proposed = grid.row.get(self.draft.world.proposed.get(item.replica, NOBODY), -1)
        reviewed = self._reviewed(opening, proposed) if proposed >= 0 else 0
        # With every host a domain of its own, those that have one and may have no other are not among these.
        alone = item.profile.spread is None and item.profile.max_per_host == 1
        domains = (0, 0) if alone else self._domains(item, opening)
        return Table(opening, places, self._columns(item, opening, reviewed, domains), reviewed)

    def _reviewed(self, opening: Opening, proposed: int) -> Ints | int:
        """What a host has to be better by than the one (row) that people look at, if that one still has room."""
        place = int(opening.place[proposed])
        if place < 0 or not opening.fits[place]:
            return 0
        return np.where(opening.rows != proposed, int(opening.harm[place]) * REVIEW_PPM // PPM, 0)

    def _columns(
        self, item: Item, opening: Opening, reviewed: Ints | int, domains: tuple[Column, Column]
    ) -> tuple[Column, ...]:
        """The terms in the order of `Rank`, but for the parts of the harm, each by place in the opening."""
        grid, rows, (same, sharing) = self.grid, opening.rows, domains
        if isinstance(reviewed, int):
            harm: Column = column_of(opening.harm) if opening.level is None else opening.level
        else:
            harm = column_of(opening.harm + reviewed)
        unproposed: Column = 0
        if (proposed := self.draft.world.proposed.get(item.replica)) is not None:
            unproposed = column_of((rows != grid.row.get(proposed, -1)).astype(np.int64))
        price: Column = column_of(np.where(grid.holds[rows], 0, grid.price[rows])) if grid.priced else 0
        stranded = opening.stranded, opening.stranded_of
        if item.profile.placement.even:
            full = (lambda at: filled(opening, at)), (lambda n: filled_of(opening, n))
            return same, opening.position, harm, sharing, unproposed, price, full, stranded, 0
        left = (lambda at: opening.left[at] >> MIB_BITS), (lambda n: opening.left.item(n) >> MIB)
        return same, opening.position, harm, sharing, unproposed, price, 0, stranded, left

    def _domains(self, item: Item, opening: Opening) -> tuple[Column, Column]:
        """Whether a seat breaks the failure-domain minimum, and how many others of the profile share its domain."""
        spread, others = item.profile.spread, self.draft.of(item.profile.name)
        least = min(spread.min, self.draft.sizes[item.profile.name].replicas) if spread is not None else 0
        if not least and not others:
            return 0, 0
        numbers, names = self.grid.domains(spread.by if spread is not None else "host")
        taken = np.zeros(len(names) + 1, np.int64)  # the last one is for hosts without a domain
        for seat in others:
            row = self.grid.row.get(seat.assignment.seat.host)
            if seat.assignment.replica != item.replica and row is not None and numbers[row] >= 0:
                taken[numbers[row]] += 1
        same: Column = 0
        if spread is None and opening.everywhere:
            return same, column_of(taken)  # each host is its own
        mine = numbers[opening.rows]
        if least and np.count_nonzero(taken) < least:
            same = column_of(((mine < 0) | (taken[mine] > 0)).astype(np.int64))
        return same, ((lambda at: taken[mine[at]]), (lambda n: taken.item(mine[n])))

    def _own_place(self, item: Item, openings: Sequence[Opening]) -> Candidate | None:
        """The best seat on the host it stands on, beside or instead of its former self: it only leaves its devices."""
        if item.origin is None or not item.origin.here_again or item.pin not in (None, item.origin.host):
            return None
        if item.origin.stuck:
            return None  # nobody can vouch for its process: another beside it may be one too many
        host, found = item.origin.host, list[Candidate]()
        row = self.grid.row.get(host)
        for opening in openings:
            place = -1 if row is None else int(opening.place[row])
            if row is None or place < 0:
                continue
            way = opening.way(row)
            offer = self.draft.board.offer(host, Ask(item.replica, item.profile, way), instead=item.replica)
            if not isinstance(offer, Offer) or (offer.breaks and not may_dip(item)):
                continue
            if is_same_place(item.origin, offer.claim, way.launch):
                continue  # it is the very process that cannot stay as it is, and gives nothing back
            found.append(Candidate(self._own_rank(item, opening, place, offer), host, way.launch, offer))
        return min(found) if found else None

    def _own_rank(self, item: Item, opening: Opening, place: int, offer: Offer) -> Rank:
        """Its terms there; what fits and what has to wait is the board's word, for the arrays count its former self."""
        columns = list(self._columns(item, opening, 0, self._domains(item, opening)))
        columns[Rank._fields.index("stranded_micro")] = 0
        if item.profile.placement.even:
            columns[Rank._fields.index("filled_ppm")] = filled_of(opening, place, here=True)
        rank = Table(opening, np.array([place]), columns, 0).rank(place)
        more = opening.if_waits(offer.waits, place)
        waiting = rank.harm_waiting + more
        left = 0 if item.profile.placement.even else offer.left_bytes >> MIB
        return rank._replace(harm=rank.harm + more, harm_waiting=waiting, left_mib=left)


def _first(tables: Sequence[Table], without: Sequence[int], grid: Grid) -> tuple[Rank, HostId, Table] | None:
    """The best of all tables."""
    if len(tables) == 1:
        only = tables[0].best(without)
        return None if only is None else (only[0], grid.ids[only[1]], tables[0])
    found = [(*best, table) for table in tables if (best := table.best(without)) is not None]
    if not found:
        return None
    rank, row, table = min(found, key=lambda f: f[:2])
    return rank, grid.ids[row], table


def _hosts(tables: Sequence[Table]) -> int:
    """How many hosts have room in any config."""
    if len(tables) == 1:
        return len(tables[0].places)
    return len(_union([t.rows for t in tables]))


def _union(rows: Sequence[Ints]) -> Ints:
    if len(rows) == 1:
        return rows[0]
    return np.unique(np.concatenate(rows)) if rows else np.zeros(0, np.int64)
