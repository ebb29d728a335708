"""Who needs the scarce seat more: the urgency of a replica, and the measured harm of its profile. Integers, no names.

Called by `order` for whose turn it is, and by `movers` and `room` for who gives way. Urgency says what a replica is
wanted for; harm, only among the equally urgent, how badly requests of its profile fare now. Neither looks at hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from gridops.base.ids import ProfileName
from gridops.base.units import PPM
from gridops.model.forecast import Evidence, ProfileForecast
from gridops.model.profile import Profile
from gridops.planner.constants import HARM_LATENCY_PPM
from gridops.planner.draft import Draft
from gridops.planner.pressure import is_asked, known, observed, pressure_of, slots
from gridops.planner.sizing import replicas


class Urgency(IntEnum):
    """What a replica is wanted for, least urgent first."""

    NONE = 0
    """Nothing measured: it is kept, not asked for."""
    CORRELATED = 1
    ASKED = 2
    """Requests for the profile, or for a workload that people gave it."""
    BASELINE = 3
    """The file's minimum, or a pin."""


class Harm(NamedTuple):
    """What requests of a profile suffer, most telling first; more is worse."""

    queue: int = 0
    latency_ppm: int = 0
    """95th percentile over the objective."""
    error_ppm: int = 0
    offered_mlanes: int = 0
    observed_mrpm: int = 0

    @property
    def relief_first(self) -> tuple[int, ...]:
        """As a sort key: who suffers most comes first."""
        return -self.queue, -self.latency_ppm, -self.error_ppm, -self.offered_mlanes, -self.observed_mrpm


class Needs:
    """Urgency and harm of every profile of a draft."""

    def __init__(self, draft: Draft) -> None:
        self._world, self._draft = draft.world, draft
        self._known: Mapping[ProfileName, ProfileForecast] = known(draft.world)

    def urgency(self, profile: Profile, position: int, baseline: int) -> Urgency:
        """Of the profile's replica at a position (from 0), counted over all its replicas.

        Without a forecast nothing is wanted but the baseline.
        """
        if position < baseline or self._world.inputs.forecast is None:
            return Urgency.BASELINE
        entry = self._known.get(profile.name)
        if entry is None or not is_asked(self._world, profile, entry):
            return Urgency.NONE
        if entry.evidence is Evidence.CORRELATED:
            return Urgency.CORRELATED
        # Beyond what was observed only an inference asks.
        if entry.inferred_mrpm > 0 and position >= self._observed(profile, entry):
            return Urgency.CORRELATED
        return Urgency.ASKED

    def _observed(self, profile: Profile, entry: ProfileForecast) -> int:
        """Replicas that suffice for what was observed, by the lanes of those that have a seat, narrowest first."""
        pressure = pressure_of(profile, entry, observed(profile, entry))
        wanted = slots(profile, pressure, self._world.planning.headroom.demand_ppm)
        lanes = sorted(s.launch.lanes for s in self._draft.of(profile.name))
        return replicas(wanted, lanes, profile.lanes)

    def harm(self, profile: Profile) -> Harm:
        """Measured at the profile itself; an inference is no harm."""
        entry = self._known.get(profile.name)
        if entry is None or not is_asked(self._world, profile, entry):
            return Harm()
        arrived = max(0, entry.observed_mrpm)
        if entry.evidence is Evidence.CORRELATED:
            return Harm(observed_mrpm=arrived)
        slo = max(1, profile.demand.latency_slo_ms)
        return Harm(
            queue=max(0, entry.queue),
            latency_ppm=min(HARM_LATENCY_PPM, max(0, entry.p95_ms or 0) * PPM // slo),
            error_ppm=max(0, entry.error_ppm),
            offered_mlanes=observed(profile, entry),
            observed_mrpm=arrived,
        )
