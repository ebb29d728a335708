"""Chance that is a counter: the same puzzle gets the same numbers everywhere.

Used by `search` and by what makes its steps.
"""

from __future__ import annotations

_MULTIPLIER, _INCREMENT, _MASK = 6_364_136_223_846_793_005, 1_442_695_040_888_963_407, (1 << 64) - 1


class Draws:
    """Numbers that look random and never change: a linear congruential generator (Knuth, TAOCP 2, 3.3.4)."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = 0x9E3779B97F4A7C15

    def below(self, bound: int) -> int:
        self._state = state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        return (state >> 33) % bound

    def some(self, count: int, bound: int) -> list[int]:
        """So many of them."""
        state, found = self._state, list[int]()
        for _ in range(count):
            state = (state * _MULTIPLIER + _INCREMENT) & _MASK
            found.append((state >> 33) % bound)
        self._state = state
        return found
