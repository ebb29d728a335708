"""Where files could be fetched ahead of demand, and what they would be worth there: all hosts of a profile at once.

Looks at hosts that could start the profile and lack its files. Where one that has them could start it at once, there
is nothing to gain. Called by `advise` after the plan is finished; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from gridops.base.ids import Digest, HostId, ProfileName
from gridops.model.profile import Profile
from gridops.planner.cache import Worth
from gridops.planner.constants import START_MAX_MS
from gridops.planner.grid import ENDLESS, MIB, Bools, Grid, Ints
from gridops.planner.openings import Opening
from gridops.planner.pressure import MILLI
from gridops.planner.seats import Seats
from gridops.planner.world import Standing


@dataclass(frozen=True, slots=True)
class Option:
    """One profile's files on one host."""

    profile: Profile
    opening: Opening
    row: int
    size_bytes: int
    fetch_ms: int
    value: int
    """Request-milliseconds saved."""
    per_gib: int
    harm: int
    short_bytes: int
    """What its disk lacks beside the reserve; not above zero where there is room."""

    @property
    def host(self) -> HostId:
        return self.opening.grid.ids[self.row]

    @property
    def key(self) -> tuple[int, int, int, ProfileName, int, int]:
        """Most worth for each byte, then most worth, then least harm; names at last (rows stand in their order)."""
        return -self.per_gib, -self.value, self.harm, self.profile.name, self.opening.position, self.row

    def missing(self) -> tuple[Digest, ...]:
        """Files that would have to come."""
        board = self.opening.grid.board.rows[self.row]
        return tuple(
            sorted({f.sha256 for f in self.opening.config.artifact.files} - board.view.cached - board.artifacts)
        )


@dataclass(frozen=True, slots=True)
class Options:
    """The best host for a profile's files, the best with room for them, and chosen ones without, best first."""

    best: Option
    roomy: Option | None
    crowded: tuple[Option, ...]


@dataclass(slots=True)
class Disks:
    """What the plan leaves free on the hosts' disks beside the reserve for guesses, less the guesses made so far."""

    seats: Seats
    room: Ints = field(init=False)
    open: Bools = field(init=False)
    """Hosts that take new work without reserve: guesses are nobody's business elsewhere."""
    _taken: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        grid, policy = self.grid, self.seats.draft.world.planning.prefetch
        grid.refresh()
        self.open = np.array([v.standing is Standing.OPEN for v in grid.views], np.bool_)
        kept = [v.host.disk.keep_free_bytes if v.host.disk is not None else 0 for v in grid.views]
        reserve = np.maximum(0, policy.keep_free_bytes - np.array(kept, np.int64))
        # A disk of which nobody knows the size has no room for guesses.
        known = np.array([v.disk_bytes is not None for v in grid.views], np.bool_)
        self.room = np.where(known, grid.disk_free - reserve, -ENDLESS)

    @property
    def grid(self) -> Grid:
        return self.seats.grid

    def take(self, option: Option) -> None:
        """The guess is made: its bytes are no room any more, and come over the link before those of the next."""
        self.room[option.row] -= option.size_bytes
        self._taken[option.row] = self._taken.get(option.row, 0) + option.size_bytes

    def options(self, profile: Profile, worth: Worth, crowded: Collection[HostId]) -> Options | None:
        """`crowded`: hosts of which those without room are wanted, too."""
        able: list[tuple[Opening, Ints]] = []
        for opening in self.seats.openings(profile):
            free = self.open[opening.rows]
            free[self._placed(opening)] = False
            lacking = opening.lacking()
            if (free & opening.fits & (lacking == 0)).any():
                return None
            if opening.config.artifact.source is not None:
                able.append((opening, np.flatnonzero(free & (lacking > 0))))
        if any(o.fits[at].any() for o, at in able):
            able = [(o, at[o.fits[at]]) for o, at in able]
        columns = [_Columns(profile, o, at, self._fetch_ms(o, at)) for o, at in able if len(at)]
        if not columns:
            return None
        cold = min(int((c.fetch_ms + c.opening.warm_ms(c.at)).min()) for c in columns)
        found = [self._pick(c, worth, cold, crowded) for c in columns]
        bests = [best for best, _, _ in found if best.per_gib > 0]
        if not bests:
            return None
        roomy = [r for _, r, _ in found if r is not None and r.per_gib > 0]
        others = sorted((o for _, _, full in found for o in full if o.per_gib > 0), key=lambda o: o.key)
        key = _key
        return Options(min(bests, key=key), min(roomy, key=key) if roomy else None, tuple(others))

    def _placed(self, opening: Opening) -> list[int]:
        """Positions of hosts that have the profile already."""
        company = self.grid.company.of(opening.profile.name)
        return [place for row in sorted(company) if (place := int(opening.place[row])) >= 0]

    def _fetch_ms(self, opening: Opening, at: Ints) -> Ints:
        """With the guesses made so far before it on the link."""
        fetch, size = opening.fetch_ms(at), opening.lacking()
        for n, row in enumerate(opening.rows[at].tolist()) if self._taken else ():
            if before := self._taken.get(row, 0):
                fetch[n] = min(START_MAX_MS, int(fetch[n]) * (int(size[at[n]]) + before) // int(size[at[n]]))
        return fetch

    def _pick(
        self, columns: _Columns, worth: Worth, cold_ms: int, crowded: Collection[HostId]
    ) -> tuple[Option, Option | None, list[Option]]:
        """The best, the best with room, and of the hosts named those without."""
        opening, at = columns.opening, columns.at
        size = opening.lacking()[at]
        # What cannot come before demand does is no gain.
        late = 0 if worth.lead_ms is None else np.maximum(0, columns.fetch_ms - worth.lead_ms)
        gain = np.maximum(0, cold_ms - opening.warm_ms(at) - late)
        value = gain * worth.waiting_mlanes // MILLI
        per_gib = (value << 10) // np.maximum(1, size >> MIB)
        short = size - np.maximum(self.room[opening.rows[at]], -ENDLESS // 2)

        def option(n: int) -> Option:
            row = int(opening.rows[at[n]])
            numbers = (int(c[n]) for c in (size, columns.fetch_ms, value, per_gib, opening.harm[at], short))
            return Option(columns.profile, opening, row, *numbers)

        order = np.lexsort((opening.rows[at], opening.harm[at], -value, -per_gib))
        fits = short[order] <= 0
        roomy = option(int(order[fits][0])) if fits.any() else None
        rows = {self.grid.row[h] for h in crowded if h in self.grid.row}
        full = [n for n in order[~fits].tolist() if int(opening.rows[at[n]]) in rows] if rows else []
        return option(int(order[0])), roomy, [option(n) for n in full]


@dataclass(frozen=True, slots=True)
class _Columns:
    """Hosts of one opening that come into question, with the time that a fetch takes there."""

    profile: Profile
    opening: Opening
    at: Ints
    fetch_ms: Ints


def _key(option: Option) -> tuple[int, int, int, ProfileName, int, int]:
    return option.key
