"""The running agent's note: what only it knows, left in a file (0600) for whoever asks on its host.

Written by the shell after each turn and each word with the controller, read by `status` and by what looks at one
engine. Never a key, never a prompt. A note that cannot be written takes the old one along: none is better.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridops.base import limits
from gridops.base.errors import GridopsError
from gridops.base.record import to_data
from gridops.disk.atomic import write_atomic
from gridops_agent import readouts
from gridops_agent.core.report import Readings, inventory
from gridops_agent.core.state import Host


@dataclass(frozen=True, slots=True)
class Live:
    """What the running agent knows beyond its ledger."""

    pid: int
    at_ms: int
    heard_ms: int | None
    """When the last fresh directive came, in this host's wall time."""
    talk: str
    """`fresh`, `stale`, `pending` (not admitted yet) or why the controller does not answer."""
    readings: Readings


def write_live(path: Path, host: Host, live: Live, sensors: tuple[readouts.Row, ...] = ()) -> None:
    """Leave the live part for `status`; `sensors`: what each said last.

    A full disk must not stop the agent: then nothing is left, nor anything old.
    """
    seen = inventory(host, live.readings)
    document = {
        "pid": live.pid,
        "at_ms": live.at_ms,
        "heard_ms": live.heard_ms,
        "talk": live.talk,
        "state": seen.state.value,
        "reasons": list(seen.reasons),
        "endpoint": seen.endpoint,
        "runtimes": [{"engine": r.engine, "backend": r.backend} for r in seen.runtimes],
        "devices": [
            {
                "id": d.id,
                "kind": d.kind.value,
                "total_bytes": d.total_bytes,
                "external_bytes": d.external_bytes,
                "external_ms": d.external_ms,
            }
            for d in seen.devices
        ],
        "unread": list(live.readings.unread)[: limits.SENSOR_REASONS],
        "sensors": list(sensors),
        "in_flight": {r.incarnation: r.in_flight for r in seen.residencies if r.incarnation is not None},
        "external": [{"model": r.profile, "port": r.port, "detail": r.detail} for r in live.readings.external],
        "disk_free_bytes": seen.disk_free_bytes,
        "transfers": [to_data(t) for t in seen.transfers or ()],
        "prefetched": [to_data(p) for p in seen.prefetched or ()],
        "alarms": list(live.readings.alarms),
    }
    try:
        write_atomic(path, json.dumps(document, sort_keys=True).encode(), mode=0o600)
    except GridopsError:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def noted(path: Path) -> Mapping[str, Any]:
    """What the running agent has left for others to read; empty when there is nothing."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
