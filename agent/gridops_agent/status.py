"""What a person on this host may see: state, residencies, last word with the controller. Never a key, never a prompt.

The running agent leaves the part that only it knows in a file (0600); `gridops-agent status` adds what the ledger
says, so that it answers also when no agent runs. A ledger that cannot be written says what was, so every process is
proved at the moment of the question, and whether the state folder takes a write is tried. Signals and changes nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gridops.base.codes import host as codes
from gridops.base.ids import Digest
from gridops.base.units import render_bytes
from gridops.trust.release import demanded
from gridops_agent.clock import SystemClock
from gridops_agent.config import Config
from gridops_agent.core.state import Held, Host
from gridops_agent.keep import taken
from gridops_agent.keep.base import Proof
from gridops_agent.keep.keepers import Keepers
from gridops_agent.keep.setup import keepers_of
from gridops_agent.ledger import Ledger
from gridops_agent.life.left import has_left
from gridops_agent.live_note import noted
from gridops_agent.overrides import stands

SCHEMA = "gridops.agent-status/1"
PROBE_BYTES = 64 << 10
"""What is tried to be written: more than one step of the ledger takes, less than anybody misses for a moment."""
DOUBT_LOOKS = 10
NOT_ASKED = "not known: only a running agent asks it"
_SAID = {Proof.GONE: "gone", Proof.NOT_OURS: "not proved"}


def status(config: Config, running: bool) -> dict[str, Any]:
    """The whole answer as JSON values. Raises BadSetup or Failed when there is nothing to read."""
    ledger = Ledger.look(config.ledger)
    try:
        host = ledger.load("")
        damage = ledger.note("damage")
        repinned = ledger.note("repinned")
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
        "catalog": _catalog(host),
        "generation": host.generation(),
        "last_command": host.fence.head.seq,
        "open_commands": len(host.commands),
        "host_class": rules.host_class if (rules := host.last_word.protection) is not None else None,
        "left_ms": has_left(config),
        "repinned": repinned,
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


def _catalog(host: Host) -> dict[str, Any] | None:
    """What people signed may start here. None: nobody asks for a catalog; `version` None: one is asked for, and none
    is here that the newest root believes."""
    asked = demanded(host.known, host.chain)
    if asked == 0:
        return None
    here = host.known.catalog
    holds = here is not None and here.version >= asked
    return {"asked": asked, "version": here.version if here is not None and holds else None}


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
