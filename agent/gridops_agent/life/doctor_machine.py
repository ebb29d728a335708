"""The doctor's look at the machine: runtimes, disks, ports, cards and sensors, and who keeps the agent running."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gridops.base.units import render_bytes
from gridops_agent import facts
from gridops_agent.clock import SystemClock
from gridops_agent.config import Config
from gridops_agent.core.state import Host
from gridops_agent.engines import engines, services
from gridops_agent.life.finding import Finding, bad, ok, warn
from gridops_agent.life.install import Machine, Way, log_of, place, standing
from gridops_agent.life.logs import NAME
from gridops_agent.life.runtime import is_current, pinned
from gridops_agent.platform import here
from gridops_agent.readouts import Readouts, minded
from gridops_agent.sensors.cards import Condition
from gridops_agent.sensors.senses import CardSense, HostSense

LOW_BYTES = 2 << 30
SHARE_S = 0.3
_READ_AS = {
    "on_battery": "battery",
    "charging": "battery",
    "thermal_throttling": "throttling",
    "memory": "ram_ppm",
}
"""Readouts whose source has another name."""
UNKNOWN = "mend what it says, or name it under `ignore` of the host's class in policies/protection.yaml"


class Examined(Protocol):
    """What these checks need to know of a host."""

    config: Config
    machine: Machine
    clock: SystemClock

    @property
    def running(self) -> bool: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def seen(self) -> Mapping[str, Any]: ...

    @property
    def remembered(self) -> Host: ...


async def runtimes(patient: Examined) -> AsyncIterator[Finding]:
    """Which engines there are, and what they lack."""
    config = patient.config
    there = 0
    for name, engine in sorted(engines(config.engine_command, config.runtime).items()):
        if name in config.ways.images:
            there += 1
            yield ok("runtime", f"{name}: as an image, {config.ways.images[name]}")
            continue
        problem = engine.problem()
        if problem is not None:
            yield bad("runtime", f"{name}: {problem}")
            continue
        found = await asyncio.to_thread(engine.runtimes)
        there += len(found)
        if found:
            yield ok("runtime", f"{name}: {', '.join(r.backend for r in found)}")
    for name, service in sorted(services(config.ways.services).items()):
        there += 1
        yield ok("runtime", f"{name}: as a service at {service.address}")
    if not there:
        yield bad("runtime", "this host has no engine", f"gridops-agent runtime --state {config.state}")
    if config.runtime.is_dir() and not is_current(config):
        hint = f"gridops-agent runtime --state {config.state}"
        yield warn("runtime", f"{config.runtime} is not {pinned()}, which this agent was made with", hint)


async def disks(patient: Examined) -> AsyncIterator[Finding]:
    """What can be read, written, and how much room there is."""
    config = patient.config
    for folder in config.artifact_folders:
        if not folder.is_dir():
            yield bad("artifacts", f"{folder} is not there", f"mount it, or change {config.file}")
        elif not os.access(folder, os.R_OK | os.X_OK):
            yield bad("artifacts", f"{folder} cannot be read by this user", f"chmod a+rX {folder}")
        else:
            yield ok("artifacts", f"{folder} can be read")
    if not os.access(config.state, os.W_OK):
        yield bad("disk", f"{config.state} cannot be written by this user")
    free = facts.disk_free_bytes(config.cache)
    if free is None:
        yield bad("disk", f"{config.cache} cannot be looked at")
    elif free < LOW_BYTES:
        hint = f"df -h {config.state}; a full disk begins nothing new"
        yield warn("disk", f"{render_bytes(free)} are free for artifacts and the ledger", hint)
    else:
        yield ok("disk", f"{render_bytes(free)} are free for artifacts and the ledger")


async def ports(patient: Examined) -> AsyncIterator[Finding]:
    """Whether engines find ports, and the front its own."""
    first, last = patient.config.ports
    ours = {held.port for held in patient.remembered.held.values() if held.handle is not None}
    taken = [port for port in range(first, last + 1) if port not in ours and not _free("127.0.0.1", port)]
    free = last - first + 1 - len(taken) - len(ours & set(range(first, last + 1)))
    words = f"{free} of {last - first + 1} loopback ports from {first} to {last} are free for engines"
    if free <= 0:
        yield bad("ports", words, f"give it other ports in {patient.config.file}")
    elif taken:
        yield warn("ports", f"{words}; others have {', '.join(str(port) for port in taken[:5])}")
    else:
        yield ok("ports", words)
    address, port = patient.config.front_address
    if port and not patient.running and not _free(address, port):
        yield bad("front", f"somebody else listens on {address}:{port}", f"ss -ltnp 'sport = :{port}'")


def _free(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


async def cards(patient: Examined) -> AsyncIterator[Finding]:
    """What drivers say of cards, and what they do not say."""
    seen = await asyncio.to_thread(CardSense().look)
    if seen.absent is not None:
        yield bad("cards", seen.absent, "restart the machine, or load the driver of the library's version")
    for card in seen.cards:
        what = f"{card.id}{' ' + card.model if card.model else ''}"
        why = f": {'; '.join(card.why)}" if card.why else ""
        if card.condition is Condition.LOST:
            yield bad("cards", f"{what} is lost{why}", "reset it, or restart the machine")
        elif card.condition is Condition.SILENT or card.why:
            yield warn("cards", f"{what} does not tell everything{why}")
        else:
            total = render_bytes(card.total_bytes) if card.total_bytes is not None else "memory not told"
            yield ok("cards", f"{what}, {total}")
    for why in seen.why:
        yield warn("cards", why)
    if not seen.cards and seen.known and seen.absent is None:
        yield ok("cards", "no driver lists a card")


async def sensors(patient: Examined) -> AsyncIterator[Finding]:
    """Which readings of protection are unknown, by name: as a running agent last had them, else looked at now."""
    found, why = await _readings(patient)
    rules = patient.remembered.last_word.protection
    rows = minded(found, rules.ignore if rules is not None else ())
    whys = {reason.partition(":")[0]: reason.partition(": ")[2] for reason in why}
    unknown = [str(row["sensor"]) for row in rows if row["value"] is None]
    for name in unknown:
        reason = whys.get(_READ_AS.get(name, name))
        words = f"{name.replace('_', ' ')} cannot be read{': ' + reason if reason else ''}"
        yield warn("sensor", words, UNKNOWN)
    if rows and not unknown:
        yield ok("sensor", f"all {len(rows)} readings of protection are known")
    elif rows:
        yield ok("sensor", f"{len(rows) - len(unknown)} of {len(rows)} readings of protection are known")


async def _readings(patient: Examined) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
    if patient.running and patient.seen.get("sensors"):
        return patient.seen["sensors"], patient.seen.get("unread", [])
    sense = HostSense(here(), CardSense(), patient.config.cache, lambda: ())
    await asyncio.to_thread(sense.read)
    await asyncio.sleep(SHARE_S)  # the share of the CPU is between two looks
    sample = await asyncio.to_thread(sense.read)
    readouts = Readouts()
    readouts.note(sample, patient.clock.wall_ms())
    return readouts.rows(), sense.why


async def service(patient: Examined) -> AsyncIterator[Finding]:
    """Who starts the agent again, and who bounds its log."""
    where = place(patient.config, patient.machine)
    if where.way is Way.NONE:
        yield warn("service", f"nobody starts the agent again: {where.why}", "start it from what this machine has")
        return
    now = await asyncio.to_thread(standing, where, patient.machine)
    if not now.installed:
        yield warn("service", f"{where.name} is not installed", "whoever starts the agent starts it after a reboot too")
    elif not now.running or not now.enabled:
        hint = f"systemctl {'--user ' if where.way is Way.USER else ''}enable --now {where.name}"
        yield bad("service", f"{where.name}: {now.words}", "" if where.way is Way.LAUNCHD else hint)
    elif patient.running and now.pid is not None and patient.pid not in (None, now.pid):
        words = f"{where.name} keeps pid {now.pid} running, and the agent of this state folder is pid {patient.pid}"
        yield bad("service", words, "end the one that was started by hand; the service starts the agent again")
    elif not patient.running:
        yield bad("service", f"{where.name} is active, and no agent has its state folder", log_of(where))
    else:
        yield ok("service", f"{where.name} is enabled and runs{f' as pid {now.pid}' if now.pid is not None else ''}")
    if now.installed and where.way is Way.USER and not patient.machine.lingers:
        hint = f"loginctl enable-linger {patient.machine.user}"
        yield warn("service", "it ends when the person logs out", hint)
    log: Path = patient.config.log / NAME
    if log.exists():
        yield ok("log", f"{log}, in files of bounded size")
