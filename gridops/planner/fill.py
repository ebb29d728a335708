"""How full hosts would be, for profiles that take the emptiest: the share of a host's memory that anybody has then.

Counted over the devices that the config may use there; what others hold counts as taken, what models never get (the
reserve) does not count at all. Compared by `seats`; the devices within the host are `capacity`'s, by the same measure.
"""

from __future__ import annotations

import numpy as np

from gridops.base.units import PPM
from gridops.planner.grid import MIB, Ints
from gridops.planner.openings import Opening


def filled(opening: Opening, at: Ints, *, here: bool = False) -> Ints:
    """Parts per million for the opening's rows at these places. `here`: the seat's former self is counted already."""
    grid, rows, usable = opening.grid, opening.rows[at], opening.prospect.usable[at]
    whole = np.where(usable, grid.terrain.whole[rows], 0).sum(1)
    free = np.where(usable, grid.raw[rows] - grid.used[rows], 0).sum(1)
    taken = whole - free + (0 if here else opening.need[at] * opening.count)
    found: Ints = (taken >> MIB) * PPM // np.maximum(whole >> MIB, 1)
    return found


def filled_of(opening: Opening, place: int, *, here: bool = False) -> int:
    """The same for one place."""
    return int(filled(opening, np.array([place]), here=here)[0])
