"""A linear program of whole contents: hosts mix them so that as much weight stands as can, and nobody too often.

The revised simplex method with an explicit inverse (Dantzig and Orchard-Hays, "The product form for the inverse in the
simplex method", Math. Tables 8, 1954). All rows are "at most", so that it starts where nobody stands. Numbers are
floats, of which each goes through single operations of IEEE 754 only, never through sums in an order that a machine may
choose: it is the same on all of them. No result depends on it being exact. Called by `dive`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gridops.planner.constants_room import CONTENT_MOST

SMALL = 1e-6
"""Of numbers that are whole in the end, what counts as nothing."""

APART = 1e-7
"""By so much rows differ: otherwise many steps would go nowhere."""

BARRED = 16.0
"""So many of the best column are lost with one that may not be chosen."""

FIRST = 256
"""Columns that there is room for at first."""


class Mix:
    def __init__(self, bounds: Sequence[int]) -> None:
        rows = len(bounds)
        self.rows = rows
        self._inverse = np.eye(rows)
        self._have = np.array(bounds, np.float64) + (np.arange(rows) * 7919 % 1009) * APART
        self._basis = list(range(-rows, 0))
        """Which column each row holds; what is left over of row n is n - rows."""
        self._prices = np.zeros(rows)
        self.columns: list[list[int]] = []
        """Rows of each column; one that is there twice counts twice."""
        self._at = np.full((CONTENT_MOST + 1, FIRST), rows)
        self._worth = np.zeros(FIRST)
        self._held = np.zeros(FIRST, bool)
        self._most, self._wide = 0.0, 1
        self.steps = 0
        self.numbers = 0
        """Numbers that were changed or compared."""

    @property
    def prices(self) -> list[float]:
        """What one more of each row would be worth."""
        found: list[float] = self._prices.tolist()
        return found

    def add(self, rows: list[int], worth: float) -> int:
        number = len(self.columns)
        if number == len(self._worth):
            self._at = np.concatenate([self._at, np.full(self._at.shape, self.rows)], axis=1)
            self._worth = np.concatenate([self._worth, np.zeros(number)])
            self._held = np.concatenate([self._held, np.zeros(number, bool)])
        self._at[: len(rows), number] = rows
        self._worth[number] = worth
        self._most, self._wide = max(self._most, worth), max(self._wide, len(rows))
        self.columns.append(rows)
        return number

    def bar(self, columns: Sequence[int]) -> None:
        """These may not be chosen any more: whatever comes instead is better. Then `reprice`."""
        self._worth[columns] = -BARRED * self._most

    def reprice(self) -> None:
        """After columns were barred."""
        prices = np.zeros(self.rows)
        for row, column in enumerate(self._basis):
            if column >= 0:
                prices += self._worth[column] * self._inverse[row]
        self._prices = prices
        self.numbers += self.rows * self.rows

    def shares(self) -> list[tuple[float, int]]:
        """How much of which column is chosen."""
        return [(have, c) for have, c in zip(self._have.tolist(), self._basis, strict=True) if c >= 0 and have > SMALL]

    def solve(self, most: int) -> None:
        """Go on until nothing can be better, for so many steps at most."""
        for _ in range(most):
            if not self._step():
                return

    def _step(self) -> bool:
        count, prices = len(self.columns), np.append(self._prices, 0.0)
        gain = self._worth[:count].copy()
        for rows in self._at[: self._wide, :count]:
            gain -= prices[rows]
        gain[self._held[:count]] = -1.0
        column = int(gain.argmax()) if count else -1
        better = float(gain[column]) if count else 0.0
        row = int(self._prices.argmin())
        self.steps += 1
        self.numbers += self._wide * count + self.rows * self.rows
        if -self._prices[row] > max(better, SMALL):
            better, column = -float(self._prices[row]), row - self.rows
            return self._exchange(column, better, self._inverse[:, row].copy())
        if better <= SMALL:
            return False
        first, *others = self.columns[column]
        change = self._inverse[:, first].copy()
        for other in others:
            change += self._inverse[:, other]
        return self._exchange(column, better, change)

    def _exchange(self, column: int, better: float, change: NDArray[np.float64]) -> bool:
        """The column comes for the one that is used up first."""
        up = change > SMALL / 1000
        if not up.any():
            return False
        ratio = np.where(up, self._have / np.where(up, change, 1.0), np.inf)
        row = int(ratio.argmin())
        share, left = max(0.0, float(ratio[row])), self._basis[row]
        if left >= 0:
            self._held[left] = False
        if column >= 0:
            self._held[column] = True
        self._basis[row] = column
        new = self._inverse[row] / change[row]
        self._have -= share * change
        self._have[row] = share
        self._inverse -= change[:, None] * new[None, :]
        self._inverse[row] = new
        self._prices += better * new
        return True
