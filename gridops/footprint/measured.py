"""When a measured footprint may stand for what a config needs: same engine, files, arguments and hardware.
No more context or lanes than were measured: never upward, never across hardware. Called by the planner.

An engine that takes a share of a card fills whatever it is told, so what one was seen to use says nothing of its need.
"""

from __future__ import annotations

from collections.abc import Iterable

from gridops.footprint.need import Need
from gridops.footprint.share import takes_share
from gridops.model.fleet import DeviceKind
from gridops.model.measured import Measured, revision, settings
from gridops.model.profile import Config, FootprintSource

Place = tuple[DeviceKind, str | None]
"""Kind and reported model of a device."""


def measured_need(config: Config, backend: str, places: Iterable[Place], known: tuple[Measured, ...]) -> Need | None:
    """The need of one replica on any of these devices, by the measurement nearest to it; None where none holds."""
    best = nearest(config, backend, places, known)
    return None if best is None else Need(best.device_bytes, best.host_bytes, FootprintSource.MEASURED)


def nearest(config: Config, backend: str, places: Iterable[Place], known: tuple[Measured, ...]) -> Measured | None:
    """The measurement that speaks of this config on these devices; of several the least that covers it.

    `places` says of each device what the host reports it to be: a name in a file is a person's word for it.
    """
    if not known or takes_share(config.engine, backend):
        return None
    places = frozenset(places)
    if len(places) != 1:  # of devices that differ, nobody knows yet which will be taken
        return None
    holds = [m for m in known if covers(m, config, backend) and (m.kind, m.device) in places]
    return min(holds, key=lambda m: (m.context, m.lanes, -m.at_ms, m.evidence), default=None)


def covers(measured: Measured, config: Config, backend: str) -> bool:
    """Whether a measurement speaks of this config on this backend."""
    return (
        (measured.engine, measured.backend) == (config.engine, backend)
        and measured.context >= config.context
        and measured.lanes >= config.lanes
        and measured.revision == revision(config.artifact)
        and measured.settings == settings(config.args, config.devices)
    )
