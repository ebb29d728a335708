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
"""A term whose numbers are made when somebody asks: for some rows, or for one."""

Column: TypeAlias = Lazy | int
"""A number where the term is the same for all rows."""


class Table:
    """One opening as the item sees it: rows with room, and their terms as columns."""

    __slots__ = ("_alike", "_differing", "_opening", "_rest", "_reviewed", "_told", "places")

    def __init__(self, opening: Opening, places: Ints, columns: Sequence[Column], reviewed: Ints | int) -> None:
        """`places`: positions within the opening. `reviewed`: the part of the harm that is not the opening's."""
        self._opening, self.places, self._reviewed = opening, places, reviewed
        self._alike: list[int] = []
        """Terms that are the same for all rows, and nothing where they differ."""
        self._differing: list[tuple[int, Lazy]] = []
        """The others, by their position among the terms."""
        for column in columns:
            if isinstance(column, int):
                self._alike.append(column)
            else:
                self._differing.append((len(self._alike), column))
                self._alike.append(0)
        self._told: list[tuple[Rank, int]] = []
        """The best rows so far, in order."""
        size = len(places)
        self._rest: list[tuple[tuple[int, ...], Ints, Bools | None]] = []
        """The others: groups with the terms in which they are equal, of those that differ; the best group last. Of one
        that was split it is those that were not better."""
        if size:
            self._rest.append(((), opening.grid.all_rows[:size], None))

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
        equal, at, better = self._rest.pop()
        if better is not None:
            at = at[~better]
        for _, (some, one) in self._differing[len(equal) :]:
            if len(at) == 1:
                equal = *equal, one(int(at[0]))
                continue
            values = some(at)
            best = values[values.argmin()]
            least = values == best
            few = least.nonzero()[0]
            if len(few) < len(at):
                self._rest.append((equal, at, least))
                at = at[few]
            equal = *equal, int(best)
        chosen = 0  # rows stand in the order of host names
        if len(at) > 1:
            if self._opening.mixed:
                parts = list(zip(*(p.tolist() for p in self._parts(at)), strict=True))
                chosen = parts.index(min(parts))
            self._rest.append((equal, at[1:] if not chosen else np.delete(at, chosen), None))
        first = int(at[chosen])
        self._told.append((self._rank(first, equal), int(self._opening.rows[self.places[first]])))
        return True

    def rank(self, n: int) -> Rank:
        """All terms of one row."""
        return self._rank(n, [one(n) for _, (_, one) in self._differing])

    def _rank(self, n: int, differing: Sequence[int]) -> Rank:
        reviewed = self._reviewed if isinstance(self._reviewed, int) else int(self._reviewed[n])
        terms = self._alike.copy()
        for (position, _), term in zip(self._differing, differing, strict=True):
            terms[position] = term
        return Rank._make((*terms, *self._opening.parts_of(int(self.places[n])), reviewed))

    def _parts(self, at: Ints) -> tuple[Ints, ...]:
        reviewed = np.full(len(at), self._reviewed) if isinstance(self._reviewed, int) else self._reviewed[at]
        return (*self._opening.parts(self.places[at]), reviewed)


def column_of(column: Ints) -> Lazy:
    return column.__getitem__, lambda n: int(column[n])
