"""Chance, from one seed: a stream per purpose, so that a new draw in one place moves nothing in another."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
MILLION = 1_000_000


class Dice:
    """One stream of chance."""

    def __init__(self, seed: int, purpose: str) -> None:
        digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
        self._random = random.Random(int.from_bytes(digest))

    def happens(self, ppm: int) -> bool:
        """True in so many of a million cases."""
        return ppm > 0 and self._random.randrange(MILLION) < ppm

    def between(self, low: int, high: int) -> int:
        """An integer of [low, high]."""
        return self._random.randint(low, high)

    def one_of(self, things: Sequence[T]) -> T:
        return things[self._random.randrange(len(things))]

    def token(self) -> str:
        """32 hexadecimal digits, where the product takes random ones."""
        return f"{self._random.getrandbits(128):032x}"
