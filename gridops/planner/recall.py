"""What one plan remembers for the next: answers, each with everything it was made from.

An answer is given again only while all of its sources are the same objects (they are frozen records, tuples or scalars,
and held here, so that an identity stays its own), and only if the last plan asked for it. So a `Recall` makes a plan
cheaper and never other: the bytes are those of a plan without one, which a property over chains of plans holds.
Whoever plans a scope again and again makes one `Recall` and passes it on; for one thread at a time. `views` asks first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import is_
from typing import Any, Generic, TypeVar

from gridops.base.record import Digests, Pieces

T = TypeVar("T")


class Shelf(Generic[T]):
    """Answers by name, of this plan and the last one."""

    def __init__(self) -> None:
        self._before: dict[Hashable, tuple[tuple[Any, ...], T]] = {}
        self._now: dict[Hashable, tuple[tuple[Any, ...], T]] = {}

    def __len__(self) -> int:
        return len(self._before) + len(self._now)

    def get(self, name: Hashable, sources: tuple[Any, ...]) -> T | None:
        """The answer of this name, if it was made from exactly these objects."""
        entry = self._now.get(name) or self._before.get(name)
        if entry is None or len(entry[0]) != len(sources) or not all(map(is_, entry[0], sources)):
            return None
        self._now[name] = entry
        return entry[1]

    def put(self, name: Hashable, sources: tuple[Any, ...], answer: T) -> T:
        self._now[name] = sources, answer
        return answer

    def of(self, name: Hashable, sources: tuple[Any, ...], make: Callable[[], T]) -> T:
        """The answer, made where it is not known. None is no answer and is not remembered."""
        found = self.get(name, sources)
        return self.put(name, sources, make()) if found is None else found

    def last(self, name: Hashable) -> T | None:
        """The newest answer of this name, whatever it was made from: for whoever compares by himself."""
        entry = self._now.get(name) or self._before.get(name)
        return None if entry is None else entry[1]

    def turn(self) -> None:
        """A new plan begins: what the last one did not ask for is forgotten."""
        self._before, self._now = self._now, {}


class Recall:
    """Shelves by what is remembered, and digests of records already seen."""

    def __init__(self) -> None:
        self.digests = Digests()
        self.pieces = Pieces()
        self._shelves: dict[str, Shelf[Any]] = {}
        self._frame: tuple[Any, ...] | None = None
        self.again = False
        """There has been a plan before."""

    def begin(self, frame: tuple[Any, ...]) -> None:
        """A plan begins. `frame`: what all answers depend on; they are worth nothing under another one."""
        self.again = frame == self._frame
        if not self.again:
            self._shelves, self._frame = {}, frame
        for shelf in self._shelves.values():
            shelf.turn()

    def shelf(self, name: str) -> Shelf[Any]:
        found = self._shelves.get(name)
        if found is None:
            found = self._shelves[name] = Shelf()
        return found
