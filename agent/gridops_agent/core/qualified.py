"""Whether what was read of an engine's memory may be called measured. Pure: readings in, a refusal in words out.

A footprint that is too small starts engines where they have no room, so every doubt refuses. Called by `qualify`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gridops.base import limits
from gridops.base.units import render_bytes
from gridops.protocol.qualification import DeviceReading


def refusal(pids: Sequence[int], readings: Sequence[DeviceReading | None]) -> str | None:
    """Why these readings may not be written down. A reading of None is a device that did not tell what is ours."""
    if not pids:
        return "no process of the engine was found, so nothing was measured"
    if not readings:
        return "no device was read"
    for reading in readings:
        if reading is None:
            return "a device does not say what the engine's processes use of it"
        why = _doubt(reading)
        if why is not None:
            return f"{reading.device}: {why}"
    return None


def _doubt(reading: DeviceReading) -> str | None:
    own, total = reading.own_bytes, reading.total_bytes
    if own <= 0:
        return "no memory was attributed to the engine; that is an error, not a measured zero"
    if own < limits.MEASURED_LEAST_BYTES:
        return f"{render_bytes(own)} is less than any engine with a model uses"
    if own > total:
        return f"the engine is said to use {render_bytes(own)} of {render_bytes(total)}"
    if reading.used_bytes > total or reading.used_before_bytes > total:
        return f"more is said to be in use than the {render_bytes(total)} there are"
    return None
