"""Who may be disturbed for whom, and how many at once. The rules about making room, asked of whole states.

* At most so many standing pieces move, and at most so many lose their place.
* A kind that serves goes on serving: the last one that does never loses its place.
* A kind stands less often than before only where somebody new of higher weight has come to a place that it left, or to
  one that others of higher weight left for it, and only if others may give way to that one (`Piece.meek`,
  `Option.firm`).

Called by `chains`, `search` and `repack` before they keep anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gridops.planner.puzzle import Puzzle


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be tried, and how much may be disturbed."""

    rounds: int
    moves: int
    """Standing pieces that may stand elsewhere."""
    drops: int
    """Standing pieces that may lose their place."""


class Permit:
    def __init__(self, puzzle: Puzzle, limits: Limits) -> None:
        self.puzzle, self.limits = puzzle, limits
        self.homes: list[list[int]] = [[] for _ in puzzle.kinds]
        """Pieces of each kind that have a home."""
        self.serving: list[list[int]] = [[] for _ in puzzle.kinds]
        """Of these, those that are ready."""
        self.new: list[list[int]] = [[] for _ in puzzle.kinds]
        """Pieces of each kind that have none."""
        self.here: list[list[int]] = [[] for _ in puzzle.ground.slots]
        """Pieces whose home is on this host."""
        for n, piece in enumerate(puzzle.pieces):
            if piece.home is not None:
                self.homes[piece.kind].append(n)
                if piece.serves:
                    self.serving[piece.kind].append(n)
                self.here[piece.home.host].append(n)
            else:
                self.new[piece.kind].append(n)

    def allows(self, mark: int) -> bool:
        """Is the state allowed, if the one was that the journal's later entries started from?"""
        puzzle, limits = self.puzzle, self.limits
        if puzzle.moved > limits.moves or puzzle.dropped > limits.drops:
            return False
        if not puzzle.gone:
            return True
        kinds, hosts = set[int](), set[int]()
        for n, before in puzzle.journal[mark:]:
            kinds.add(puzzle.pieces[n].kind)
            if before is not None:
                hosts.add(before.host)
            if (now := puzzle.at[n]) is not None:
                hosts.add(now.host)
        for host in hosts:
            kinds.update(puzzle.pieces[n].kind for n in self.here[host])
        return self.excused(kinds)

    def excused(self, kinds: Iterable[int]) -> bool:
        """Every one of these kinds may stand as seldom as it does."""
        gone = self.puzzle.gone
        return all(self._serves_on(k) and self._pardons(k, gone[k]) for k in kinds if k in gone)

    def _serves_on(self, kind: int) -> bool:
        """Nobody of the kind serves now, or one who does goes on standing."""
        puzzle, serving = self.puzzle, self.serving[kind]
        return not serving or kind in puzzle.anchored or any(puzzle.at[n] is not None for n in serving)

    def is_result(self) -> bool:
        """Whoever is excused is so by somebody new.

        On the way to a result it is enough that somebody took another pool there, or came from another host.
        """
        return all(self._pardons(k, many, earned=True) for k, many in self.puzzle.gone.items())

    def _pardons(self, kind: int, wanted: int, *, earned: bool = False) -> bool:
        found = 0
        for n in self.homes[kind]:
            if self.puzzle.at[n] is not self.puzzle.pieces[n].home and self.pardoned(n, earned=earned):
                found += 1
                if found >= wanted:
                    return True
        return False

    def pardoned(self, n: int, *, earned: bool = False) -> bool:
        """Has somebody new who matters more come to its home, or to one that others who matter more left for it?

        Who stood elsewhere and comes without anybody new behind it has not earned it: it would be moved as a pretext.
        Nor has who is new where one of its kind went away: those two are alike, so that nobody came there at all.
        """
        puzzle, pieces = self.puzzle, self.puzzle.pieces
        home = pieces[n].home
        assert home is not None, "it has a home"
        weight = puzzle.kinds[pieces[n].kind].weight
        left: dict[int, int | None] = {home.host: None}
        """Hosts whose place may have been given up for it, and the kind that left them so."""
        queue = [home.host]
        for host in queue:
            for m in puzzle.on[host]:
                other, spot = pieces[m], puzzle.at[m]
                if (
                    puzzle.kinds[other.kind].weight > weight
                    and spot is not other.home
                    and not other.meek
                    and spot is not None
                    and spot.option.firm
                    and (not earned or other.kind == left[host] or self._more_than_before(other.kind, host))
                ):
                    if other.home is None or not earned:
                        return True
                    if other.home.host not in left:
                        left[other.home.host] = other.kind
                        queue.append(other.home.host)
        return False

    def _more_than_before(self, kind: int, host: int) -> bool:
        pieces = self.puzzle.pieces
        return sum(pieces[m].kind == kind for m in self.puzzle.on[host]) > sum(
            pieces[m].kind == kind for m in self.here[host]
        )

    def settle(self) -> None:
        """Pieces of one kind are alike: let those stand at home whose home is taken by their like, and let those be
        without a place who are excused."""
        puzzle = self.puzzle
        for kind, homes in enumerate(self.homes):
            away = [n for n in homes if puzzle.at[n] is not puzzle.pieces[n].home]
            for n in away:
                self._send_home(n)
            out = [n for n in away if puzzle.at[n] is None and not self.pardoned(n)]
            excused = [n for n in away if puzzle.at[n] not in (None, puzzle.pieces[n].home) and self.pardoned(n)]
            for lost, other in zip(out, excused, strict=False):
                puzzle.put(lost, puzzle.take(other))
            if kind in puzzle.gone:
                self._fill(kind, homes)

    def _fill(self, kind: int, homes: list[int]) -> None:
        """One that stands keeps a seat before one that is new gets it."""
        puzzle = self.puzzle
        newcomers = [n for n in self.new[kind] if puzzle.at[n] is not None]
        out = [n for n in homes if puzzle.at[n] is None]
        for lost, new in zip(out, newcomers, strict=False):
            if puzzle.moved < self.limits.moves:
                puzzle.put(lost, puzzle.take(new))

    def _send_home(self, n: int) -> None:
        puzzle, home = self.puzzle, self.puzzle.pieces[n].home
        assert home is not None, "it has a home"
        mark, theirs = len(puzzle.journal), puzzle.at[n]
        if theirs is not None:
            puzzle.take(n)
        like = None
        if theirs is None or theirs.host != home.host:
            like = next((m for m in sorted(puzzle.on[home.host]) if self._alike(m, n)), None)
            if like is None:
                puzzle.undo(mark)
                return
            puzzle.take(like)
        if puzzle.fits(n, home.host) is not home:
            puzzle.undo(mark)
            return
        puzzle.put(n, home)
        if theirs is not None and like is not None:
            puzzle.put(like, theirs)

    def _alike(self, m: int, n: int) -> bool:
        pieces = self.puzzle.pieces
        return pieces[m].kind == pieces[n].kind and self.puzzle.at[m] is not pieces[m].home
