"""One opening as a replica sees it: hosts with room, their terms as columns, and the best row found term by term.

No row is made before it is asked for: the columns are compared from the left among those still equal, so that most
terms of most hosts are never looked at. Made and filled by `seats`; decides nothing but what is smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import numpy as np

from gridops.planner.eligible import Way
from gridops.planner.grid import Bools, Ints
from gridops.planner.openings import Opening
from gridops.planner.rank import Rank

Lazy: TypeAlias = tuple[Callable[[Ints], Ints], Callable[[int], int]]
"""A term whose numbers are made when somebody asks: at some places of the opening, or at one."""

Column: TypeAlias = Lazy | int
"""A number where the term is the same for all rows."""


class Table:
    """One opening as the item sees it: rows with room, and their terms as columns."""

    __slots__ = ("_alike", "_differing", "_opening", "_rest", "_reviewed", "_told", "places")

    def __init__(self, opening: Opening, places: Ints, columns: Sequence[Column], reviewed: Ints | int) -> None:
        """`places`: within the opening, in order. `reviewed`: the part of the harm that is not the opening's, by place
        where it differs."""
        self._opening, self.places, self._reviewed = opening, places, reviewed
        self._alike = [c if isinstance(c, int) else 0 for c in columns]
        """Terms that are the same for all rows, and nothing where they differ."""
        self._differing = [(n, c) for n, c in enumerate(columns) if not isinstance(c, int)]
        """The others, by their position among the terms."""
        self._told: list[tuple[Rank, int]] = []
        """The best rows so far, in order."""
        self._rest: list[tuple[tuple[int, ...], Ints, tuple[Ints, Bools] | None]] = []
        """The others: groups with the terms in which they are equal, of those that differ; the best group last. Of one
        that was split it is those that were not better, by the values of the next term."""
        if len(places):
            self._rest.append(((), places, None))

    @property
    def rows(self) -> Ints:
        """Of the hosts with room."""
        return self._opening.rows[self.places]

    def way(self, row: int) -> Way:
        """How the replica would run on the host of this row."""
        return self._opening.way(row)

    def best(self, without: Collection[int]) -> tuple[Rank, int] | None:
        """The best row that is not among these, and its terms."""
        n = 0
        while n < len(self._told) or self._tell():
            if self._told[n][1] not in without:
                return self._told[n]
            n += 1
        return None

    def _tell(self) -> bool:
        """Find the next best row: the columns are compared from the left, among those still equal."""
        if not self._rest:
            return False
        (equal, at, split), values = self._rest.pop(), None
        again = len(equal) == len(self._differing) and bool(self._told)  # no worse than the last one told
        if split is not None:
            worse = ~split[1]
            at, values = at[worse], split[0][worse]
        for _, (some, one) in self._differing[len(equal) :]:
            if len(at) == 1:
                equal = *equal, one(at.item())
                continue
            if values is None:
                values = some(at)
            best = values[values.argmin(), ...]
            least = values == best
            few = least.nonzero()[0]
            if len(few) < len(at):
                self._rest.append((equal, at, (values, least)))
                at = at[few]
            values, equal = None, (*equal, best.item())
        chosen = 0  # rows stand in the order of host names
        if len(at) > 1:
            if self._opening.mixed:
                parts = list(zip(*(p.tolist() for p in self._parts(at)), strict=True))
                chosen = parts.index(min(parts))
            self._rest.append((equal, at[1:] if not chosen else np.delete(at, chosen), None))
        place = at.item(chosen)
        row = place if self._opening.everywhere else self._opening.rows.item(place)
        same = again and self._opening.told_by_harm and isinstance(self._reviewed, int)
        self._told.append((self._told[-1][0] if same else self._rank(place, equal), row))
        return True

    def rank(self, place: int) -> Rank:
        """All terms of one row."""
        return self._rank(place, [one(place) for _, (_, one) in self._differing])

    def _rank(self, place: int, differing: Sequence[int]) -> Rank:
        reviewed = self._reviewed if isinstance(self._reviewed, int) else self._reviewed.item(place)
        terms = self._alike.copy()
        for (position, _), term in zip(self._differing, differing, strict=True):
            terms[position] = term
        return Rank._make((*terms, *self._opening.parts_of(place), reviewed))

    def _parts(self, at: Ints) -> tuple[Ints, ...]:
        reviewed = np.full(len(at), self._reviewed) if isinstance(self._reviewed, int) else self._reviewed[at]
        return (*self._opening.parts(at), reviewed)


def column_of(column: Ints) -> Lazy:
    return column.__getitem__, lambda n: int(column[n])
