"""One opening as a replica sees it: hosts with room, their terms as columns, and the best row found term by term.

No row is made before it is asked for: the columns are compared from the left among those still equal, so that most
terms of most hosts are never looked at. Made and filled by `seats`; decides nothing but what is smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from gridops.planner.grid import Bools, Ints
from gridops.planner.openings import Opening
from gridops.planner.rank import Rank


class Lazy(NamedTuple):
    """A term whose numbers are made when somebody asks: for some rows, or for one."""

    some: Callable[[Ints], Ints]
    one: Callable[[int], int]


Column: TypeAlias = Lazy | int
"""A number where the term is the same for all rows."""


@dataclass(slots=True)
class Table:
    """One opening as the item sees it: rows with room, and their terms as columns."""

    opening: Opening
    places: Ints
    """Positions within the opening."""
    columns: list[Column]
    reviewed: Ints | int
    """Part of the harm that is not the opening's."""
    _told: list[tuple[Rank, int]] = field(default_factory=list)
    """The best rows so far, in order."""
    _rest: list[tuple[tuple[int, ...], Ints, Bools | None]] | None = None
    """The others: groups with the terms in which they are equal, the best group last. Of one that was split it is those
    that were not better."""

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
        if self._rest is None:
            size = len(self.places)
            self._rest = [((), self.opening.grid.all_rows[:size], None)] if size else []
        if not self._rest:
            return False
        equal, at, better = self._rest.pop()
        if better is not None:
            at = at[~better]
        for term in self.columns[len(equal) :]:
            if isinstance(term, int):
                equal = *equal, term
            elif len(at) == 1:
                equal = *equal, term.one(int(at[0]))
            else:
                values = term.some(at)
                best = values[values.argmin()]
                least = values == best
                few = least.nonzero()[0]
                if len(few) < len(at):
                    self._rest.append((equal, at, least))
                    at = at[few]
                equal = *equal, int(best)
        chosen = 0  # rows stand in the order of host names
        if len(at) > 1 and self.opening.mixed:
            parts = list(zip(*(p.tolist() for p in self.parts(at)), strict=True))
            chosen = parts.index(min(parts))
        if len(at) > 1:
            self._rest.append((equal, at[1:] if not chosen else np.delete(at, chosen), None))
        first = int(at[chosen])
        self._told.append((self._rank(first, equal), int(self.opening.rows[self.places[first]])))
        return True

    def rank(self, n: int) -> Rank:
        """All terms of one row."""
        return self._rank(n, tuple(c if isinstance(c, int) else c.one(n) for c in self.columns))

    def _rank(self, n: int, terms: tuple[int, ...]) -> Rank:
        reviewed = self.reviewed if isinstance(self.reviewed, int) else int(self.reviewed[n])
        return Rank._make((*terms, *self.opening.parts_of(int(self.places[n])), reviewed))

    def parts(self, at: Ints) -> tuple[Ints, ...]:
        reviewed = np.full(len(at), self.reviewed) if isinstance(self.reviewed, int) else self.reviewed[at]
        return (*self.opening.parts(self.places[at]), reviewed)


def column_of(column: Ints) -> Lazy:
    return Lazy(column.__getitem__, lambda n: int(column[n]))
