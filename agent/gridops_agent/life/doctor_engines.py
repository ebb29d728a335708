"""The doctor's look at engines: whom their ports let in, routers among them, and evidence that speaks of other builds.

Part of `gridops-agent doctor`. It asks loopback what models it lists, as the agent does, and changes nothing; what the
system does not tell is said to be unknown, never to be well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Protocol

import aiohttp
import psutil

from gridops.base.ids import EngineName, short
from gridops.disk.keyring import read_secret
from gridops.protocol.qualification import Qualification
from gridops.trust.keys import MachineSigner
from gridops_agent import evidence
from gridops_agent.artifacts.find import look as look_at
from gridops_agent.config import Config
from gridops_agent.core.state import Host
from gridops_agent.engines import engines, services
from gridops_agent.keep import external, taken
from gridops_agent.keep.setup import keepers_of
from gridops_agent.ledger import Ledger
from gridops_agent.life.finding import Finding, bad, ok, warn
from gridops_agent.platform import here
from gridops_agent.qualify_setup import build_here
from gridops_agent.rekeying import former_keys

CLOSE = "let it listen on 127.0.0.1 alone (Ollama: OLLAMA_HOST=127.0.0.1, ComfyUI: --listen 127.0.0.1)"
ROUTER = "give each of its models a profile, or start it with one model (--model instead of --models-dir and the like)"
AGAIN = "gridops-agent qualify (docs/howto/qualify-an-engine.md), with the agent stopped"


class Examined(Protocol):
    """What these checks need to know of a host."""

    config: Config

    @property
    def remembered(self) -> Host: ...


async def doors(patient: Examined) -> AsyncIterator[Finding]:
    """Whether engines can be reached past the front: whoever reaches their port from outside is fenced by nothing."""
    wanted = _ports(patient)
    if not wanted:
        return
    try:
        listening = await asyncio.to_thread(psutil.net_connections, "tcp")
    except (psutil.Error, OSError) as error:
        yield warn("doors", f"who listens on engines' ports is not told: {error}", "ask as root")
        return
    found: dict[int, set[str]] = {port: set() for port in wanted}
    for one in listening:
        if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port in found:
            found[one.laddr.port].add(one.laddr.ip)
    shut = 0
    for port in sorted(found):
        beyond = sorted(ip for ip in found[port] if not is_loopback(ip))
        if beyond:
            where = ", ".join(beyond)
            yield bad("doors", f"{wanted[port]} listens on {where} port {port}: others reach it past the front", CLOSE)
        elif found[port]:
            shut += 1
        else:
            words = f"nobody listens on port {port}, where {wanted[port]} should be"
            yield warn("doors", words, f"start it, or correct {patient.config.file}")
    if shut:
        yield ok("doors", f"{shut} of {len(wanted)} engines' ports are open on loopback alone")


def _ports(patient: Examined) -> dict[int, str]:
    """Every port that an engine of this host has or should have, by whose it is."""
    config = patient.config
    held = sorted(patient.remembered.held.values(), key=lambda h: h.replica)
    found = {h.handle.port: str(h.replica) for h in held if h.handle is not None}
    found |= {one.handle.port: one.called for one in taken.read(config.hands).taken}
    found |= {unit.port: unit.name for unit in config.ways.units if unit.port in found}
    for name, service in sorted(services(config.ways.services).items()):
        found[int(service.address.rpartition(":")[2])] = f"the service {name}"
    return found


def is_loopback(ip: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        found = ip_address(ip.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


async def routers(patient: Examined) -> AsyncIterator[Finding]:
    """Servers that bring models into memory and evict them by themselves: no plan can count what they hold."""
    config = patient.config
    for name, words in sorted(config.engine_command.items()):
        if external.is_router(words):
            yield bad("router", f"the command of {name} in {config.file} starts a router", ROUTER)
    keepers = keepers_of(config)
    try:
        handles = {body: h.handle for body, h in patient.remembered.held.items() if h.handle is not None}
        ours = frozenset(await keepers.processes_of(handles))
    finally:
        await keepers.close()
    given = frozenset(one.body for one in taken.read(config.hands).given)
    async with aiohttp.ClientSession(trust_env=False) as http:
        seen = await external.look(here(), http, ours, given)
    for one in seen:
        what = f"{one.engine} pid {one.pid} port {one.port}"
        if one.router:
            loads = ", ".join(sorted(one.loaded)) or "no model"
            yield warn("router", f"{what} loads and evicts models by itself, now {loads}", ROUTER)
        else:
            yield ok("external", f"{what}, not started by this agent: {', '.join(one.lists) or 'lists nothing'}")


async def doubts(patient: Examined) -> AsyncIterator[Finding]:
    """Measurements that plans go by, and whether what they were made with is still what is here."""
    config = patient.config
    key = MachineSigner.from_seed(read_secret(config.seed)).public
    found, unread = await asyncio.to_thread(evidence.used, config.qualified, key, *former_keys(config)[0])
    for words in unread:
        yield bad("evidence", words, "take the file away, and qualify again")
    builds = await _builds(config, {made.launch.engine for _, made in found})
    good = 0
    for one, made in found:
        why = [*_another_build(made, builds.get(one.engine, "")), *_changed(config, made)]
        what = f"{one.engine} with {made.launch.artifact.files[0].path} ({short(one.evidence)})"
        for words in why:
            yield warn("evidence", f"{what}: {words}", AGAIN)
        good += not why
    if good:
        yield ok("evidence", f"{good} of {len(found)} measured configurations are of what is installed here")


async def _builds(config: Config, wanted: set[EngineName]) -> dict[EngineName, str]:
    """What is here now, of each engine that something was measured with; nothing where it does not say."""
    made: dict[EngineName, str] = {}
    for name, engine in sorted(engines(config.engine_command, config.runtime).items()):
        if name in wanted:
            made[name] = await asyncio.to_thread(build_here, config, engine)
    async with aiohttp.ClientSession(trust_env=False) as http:
        for name, service in sorted(services(config.ways.services).items()):
            if name in wanted:
                made[name] = await service.alive(http) or ""
    return made


def _another_build(made: Qualification, now: str) -> Iterator[str]:
    if made.engine_version not in ("", "unknown") and now and now != made.engine_version:
        yield f"measured with {made.engine_version}, and {now} is here now"


def _changed(config: Config, made: Qualification) -> Iterator[str]:
    """Files that were proved on this host to be these, and do not look so any more, wherever they lay."""
    ledger = Ledger.look(config.ledger)
    try:
        proofs = sorted(ledger.proofs().items())
    finally:
        ledger.close()
    for file in made.launch.artifact.files:
        places = [(Path(path), proof) for path, proof in proofs if proof.sha256 == file.sha256]
        if places and not any(look_at(path, proof.sha256) == proof for path, proof in places):
            yield f"{places[0][0]} is not the file that was hashed any more"
