"""What a person on this host may see: state, residencies, last word with the controller. Never a key, never a prompt.

The running agent leaves the part that only it knows in a file (0600); `gridops-agent status` adds what the ledger
says, so that it answers also when no agent runs. A ledger that cannot be written says what was, so every process is
proved at the moment of the question, and whether the state folder takes a write is tried. Signals and changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridops.base import limits
from gridops.base.codes import host as codes
from gridops.base.errors import GridopsError
from gridops.base.ids import Digest, short
from gridops.base.record import to_data
from gridops.base.units import render_bytes, render_ms
from gridops.disk.atomic import write_atomic
from gridops_agent import readouts
from gridops_agent.clock import SystemClock
from gridops_agent.config import Config
from gridops_agent.core.report import Readings, inventory
from gridops_agent.core.state import Held, Host
from gridops_agent.keep import taken
from gridops_agent.keep.base import Proof
from gridops_agent.keep.keepers import Keepers
from gridops_agent.keep.setup import keepers_of
from gridops_agent.ledger import Ledger
from gridops_agent.life.left import has_left
from gridops_agent.overrides import stands

SCHEMA = "gridops.agent-status/1"
PROBE_BYTES = 64 << 10
"""What is tried to be written: more than one step of the ledger takes, less than anybody misses for a moment."""
DOUBT_LOOKS = 10
NOT_ASKED = "not known: only a running agent asks it"
_SAID = {Proof.GONE: "gone", Proof.NOT_OURS: "not proved"}


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


def status(config: Config, running: bool) -> dict[str, Any]:
    """The whole answer as JSON values. Raises BadSetup or Failed when there is nothing to read."""
    ledger = Ledger.look(config.ledger)
    try:
        host = ledger.load("")
        damage = ledger.note("damage")
        said = stands(config.override, ledger, SystemClock())
    finally:
        ledger.close()
    live = noted(config.status) if running else {}
    flights = live.get("in_flight", {})
    keepers = keepers_of(config)
    absent = "not told: it could leave no note in its state folder" if running else NOT_ASKED
    alarms = [*live.get("alarms", []), *_unwritable(config)]
    if damage and not any(alarm.startswith(codes.LEDGER_DAMAGED.code) for alarm in alarms):
        alarms.append(f"{codes.LEDGER_DAMAGED.code}: {damage}")
    return {
        "schema": SCHEMA,
        "host": config.host,
        "fleet": config.fleet,
        "host_key": host.fence.host_key,
        "controller": config.controller,
        "running": running,
        "pid": live.get("pid"),
        "talk": live.get("talk", absent),
        "heard_ms": live.get("heard_ms"),
        "state": live.get("state", "running" if running else "not running"),
        "reasons": live.get("reasons", []),
        "override": {"kind": said.kind.value, "reason": said.reason, "left_ms": said.left_ms} if said else None,
        "endpoint": live.get("endpoint"),
        "devices": live.get("devices", []),
        "unread": live.get("unread", []),
        "sensors": live.get("sensors", []),
        "runtimes": live.get("runtimes", []),
        "disk_free_bytes": live.get("disk_free_bytes"),
        "transfers": live.get("transfers", []),
        "prefetched": live.get("prefetched", []),
        "root_version": host.chain.root.version,
        "generation": host.generation(),
        "last_command": host.fence.head.seq,
        "open_commands": len(host.commands),
        "host_class": rules.host_class if (rules := host.last_word.protection) is not None else None,
        "left_ms": has_left(config),
        "receipts_owed": sum(1 for r in host.receipts.kept if r.rseq > host.receipts.acked),
        "state_folder": str(config.state),
        "state_free_bytes": _free_bytes(config.state),
        "alarms": alarms,
        "external": live.get("external", []),
        "handed_over": [_handed(one, keepers) for one in taken.read(config.hands).taken],
        "residencies": [
            _residency(held, keepers, flights) for held in sorted(host.held.values(), key=lambda h: (h.replica, h.body))
        ],
    }


def _standing(seen: Mapping[str, Any]) -> str:
    """The host's state; of an agent that does not run, that it is the agent that does not."""
    return str(seen["state"]) if seen["running"] else "agent not running"


def _residency(held: Held, keepers: Keepers, flights: Mapping[str, int]) -> dict[str, Any]:
    """A residency as it is now: `state` is proved, `recorded` is what the ledger says."""
    proof = _proof(held, keepers)
    return {
        "replica": held.replica,
        "incarnation": held.body,
        "state": _SAID.get(proof, held.state.value) if proof is not None else held.state.value,
        "recorded": held.state.value,
        "since_ms": held.since_ms,
        "port": held.port,
        "pid": held.handle.pid if held.handle is not None and proof is not Proof.GONE else None,
        "keeper": held.handle.keeper if held.handle is not None else None,
        "kept_as": held.handle.name if held.handle is not None else None,
        "restarts": held.restarts,
        "restarts_counted": len(held.recent_ms),
        "restarts_allowed": held.restart.max,
        "retry_at_ms": held.retry_at_ms,
        "owed": [{"device": o.device, "bytes": o.held_bytes, "pids": list(o.pids)} for o in held.owed],
        "in_flight": flights.get(held.body, 0),
        "device_bytes": held.warm.device_bytes,
        "devices": list(held.warm.devices),
        "code": held.code,
        "detail": held.detail,
    }


def _handed(one: taken.Taken, keepers: Keepers) -> dict[str, Any]:
    """An engine that a person handed over, proved now; a residency of it is one of the residencies above."""
    proof = keepers.look(Digest(""), one.handle)
    return {
        "called": one.called,
        "engine": one.engine,
        "models": list(one.lists),
        "port": one.handle.port,
        "state": _SAID.get(proof, "running"),
    }


def _proof(held: Held, keepers: Keepers) -> Proof | None:
    """What can be said about its process now; None when it is recorded to have none."""
    if held.handle is None:
        return None
    proof = keepers.look(held.body, held.handle)
    for _ in range(DOUBT_LOOKS):
        if proof is not Proof.NOT_OURS:
            break
        time.sleep(0.05)  # a process shows no environment while it begins and while it ends
        proof = keepers.look(held.body, held.handle)
    return proof


def _unwritable(config: Config) -> tuple[str, ...]:
    """Whether anything can be recorded now, found out by trying; an alarm with what to do if not."""
    try:
        with tempfile.TemporaryFile(dir=config.state) as probe:
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        free = _free_bytes(config.state)
        room = f", {render_bytes(free)} are free there" if free is not None else ""
        words = (
            f"{codes.LEDGER_UNWRITABLE.code}: {config.state} cannot be written: {error.strerror}{room}. "
            "Nothing new is begun, and an engine that ends is not started again. "
            f"Free some space there (df -h {config.state}); the agent goes on by itself"
        )
        return (words,)
    return ()


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def noted(path: Path) -> Mapping[str, Any]:
    """What the running agent has left for others to read; empty when there is nothing."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def render(seen: Mapping[str, Any], now_ms: int) -> str:
    """The answer as text for people."""
    heard = seen["heard_ms"]
    ago = f", last word {render_ms(max(0, now_ms - heard))} ago" if heard is not None else ""
    lines = [f"{seen['host']}  {_standing(seen)}, controller {seen['talk']}{ago}"]
    lines += [f"  {reason}" for reason in seen["reasons"]]
    if (said := seen["override"]) is not None and not seen["running"]:
        left = f", {render_ms(said['left_ms'])} left" if said["left_ms"] is not None else ""
        lines.append(f"  {said['kind']} by a person: {said['reason']}{left}")
    if seen["left_ms"] is not None:
        lines.append("  it has left its fleet")
    if seen["endpoint"]:
        lines.append(f"front {seen['endpoint']}")
    for device in seen["devices"]:
        total, external = render_bytes(device["total_bytes"]), render_bytes(device["external_bytes"])
        at_ms = device.get("external_ms")
        when = f" at most, {render_ms(max(0, now_ms - at_ms))} ago" if at_ms is not None else ""
        lines.append(f"{device['id']}  {total}, {external} used by others{when}")
    for row in seen["residencies"]:
        lines += _shown(row, now_ms)
    if not seen["residencies"]:
        lines.append("no residency")
    for row in seen["transfers"]:
        done, size = render_bytes(row["done_bytes"]), render_bytes(row["size_bytes"])
        lines.append(f"fetching {short(row['artifact'])}  {done} of {size}  from {row['source'] or 'nowhere yet'}")
    for row in seen["prefetched"]:
        lines.append(f"fetched on a guess for {row['profile']}  {render_bytes(row['size_bytes'])}, not used yet")
    unsent = f", {seen['receipts_owed']} receipts not yet acknowledged" if seen["receipts_owed"] else ""
    lines.append(f"last command {seen['last_command']}, {seen['open_commands']} open{unsent}")
    lines += readouts.lines(seen["sensors"], now_ms)
    lines += [f"not read: {reason}" for reason in seen.get("unread", [])]
    for row in seen["external"]:
        lines.append(f"{row['model']}  external  port {row['port']}  {row['detail']}")
    for row in seen["handed_over"]:
        models = ", ".join(row["models"])
        lines.append(f"{row['called']}  handed over, {row['state']}  {row['engine']} port {row['port']}  {models}")
    lines += [f"alarm: {alarm}" for alarm in seen["alarms"]]
    return "\n".join(lines) + "\n"


def _shown(row: Mapping[str, Any], now_ms: int) -> list[str]:
    """One residency, and what keeps it from serving."""
    lines: list[str] = []
    where = f"pid {row['pid']} port {row['port']}" if row["pid"] else "no process"
    more = f"  restarted {row['restarts']} times" if row["restarts"] else ""
    more += f"  as {row['keeper']} {row['kept_as'] or ''}".rstrip() if row["keeper"] not in (None, "child") else ""
    was = f" (recorded as {row['recorded']})" if row["state"] != row["recorded"] else ""
    lines.append(f"{row['replica']}  {row['state']}{was}  {where}  {row['in_flight']} in flight{more}")
    if row["detail"] or row["code"]:
        lines.append(f"  {': '.join(w for w in (row['code'], row['detail']) if w)}")
    if row["retry_at_ms"] is not None:
        count = f"{row['restarts_counted']} of {row['restarts_allowed']} restarts used"
        lines.append(f"  starts again in {render_ms(max(0, row['retry_at_ms'] - now_ms))}, {count}")
    for owed in row["owed"]:
        amount = render_bytes(owed["bytes"]) if owed["bytes"] is not None else "an unknown amount"
        lines.append(f"  {amount} on {owed['device']} has to come back before a start there")
    return lines
