"""What people signed may run, as the planner asks it: `trust.catalog`'s answer, asked once for each command.

Made by `views` once for a catalog and carried by every view of a host, so that `eligible` finds it where it judges;
`fittings` and `verdicts` ask it too. Decides nothing by itself: hosts hold every start against the same catalog, and a
place that they would refuse is none.
"""

from __future__ import annotations

from gridops.model.catalog import Catalog
from gridops.model.plan import Assignment, Launch
from gridops.model.profile import Config
from gridops.trust.catalog import Start, starts

KEPT = 50_000
"""Answers; a plan of 5,000 configs on three kinds of hardware asks 15,000 questions. Double: some megabytes more; half:
such a plan asks some of them twice."""
ABILITY = "catalog"
"""`protocol.messages.Ability.CATALOG`: who does not hold commands against the catalog is given none."""


class Signed:
    """One catalog with its answers."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[tuple[int, str, str, int, int], tuple[Config, str | None]] = {}

    def config(self, config: Config, launch: Launch, taken: tuple[int, int]) -> str | None:
        """Why a config may not be started as this command, taking so much of each device and of the host."""
        key = id(config), launch.profile, launch.backend, *taken
        known = self._known.get(key)
        if known is not None and known[0] is config:
            return known[1]
        answer = starts(self._catalog, Start(launch, launch.devices.count, *taken))
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[key] = config, answer  # held, so that its id stays its own
        return answer

    def seat(self, assignment: Assignment, launch: Launch) -> str | None:
        """The same for a seat that a plan holds already."""
        devices = len(assignment.seat.devices)
        return starts(self._catalog, Start(launch, devices, assignment.device_bytes, assignment.host_bytes))
