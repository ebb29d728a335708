"""What a host says about itself: the inventory of a heartbeat, and the heartbeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gridops.base import limits
from gridops.base.ids import Digest
from gridops.base.record import digest_of
from gridops.model.fleet import Runtime
from gridops.model.snapshot import Ownership, Residency
from gridops.protocol.fence import open_heads
from gridops.protocol.fresh import Session
from gridops.protocol.messages import Heartbeat, Inventory
from gridops.protocol.receipts import tail
from gridops_agent.core.state import Held, Host

CACHED_SHOWN = 256
"""Digests of a heartbeat; the bound of its size leaves no room for all that a host may hold."""


@dataclass(frozen=True, slots=True)
class Readings:
    """What the shell knows and the heart does not remember."""

    runtimes: tuple[Runtime, ...] = ()
    cached: tuple[Digest, ...] = ()
    disk_free_bytes: int | None = None
    endpoint: str | None = None
    front_cert: str | None = None
    in_flight: Mapping[Digest, int] | None = None
    alarms: tuple[str, ...] = ()
    goodbye: bool = False


def inventory(host: Host, readings: Readings) -> Inventory:
    """The observable host, sorted by name."""
    devices = tuple(replace(d, generation=host.generation(d.id)) for d in sorted(host.measured, key=lambda d: d.id))
    held = sorted(host.held.values(), key=lambda h: (h.replica, h.body))
    flights = readings.in_flight or {}
    return Inventory(
        state=host.state,
        reasons=host.reasons,
        generation=host.generation(),
        devices=devices[: limits.DEVICES_PER_HOST],
        residencies=tuple(_residency(h, flights.get(h.body, 0)) for h in held)[: limits.RESIDENCIES_PER_HOST],
        runtimes=readings.runtimes,
        cached=tuple(sorted(readings.cached))[:CACHED_SHOWN],
        disk_free_bytes=readings.disk_free_bytes,
        endpoint=readings.endpoint,
        front_cert=readings.front_cert,
        goodbye=readings.goodbye,
    )


def _residency(held: Held, in_flight: int) -> Residency:
    warm = held.warm
    words = [word for word in (held.code, held.detail) if word]
    return Residency(
        profile=held.profile,
        state=held.state,
        ownership=Ownership.MANAGED,
        replica=held.replica,
        config=warm.launch.config,
        incarnation=held.body,
        identity=digest_of(warm.launch),
        devices=warm.devices,
        device_bytes=warm.device_bytes,
        host_bytes=warm.host_bytes,
        in_flight=in_flight,
        port=held.port,
        since_ms=held.since_ms,
        restarts=held.restarts,
        detail=": ".join(words)[:300] or None,
    )


def heartbeat(host: Host, session: Session, nonce: str, now_ms: int, version: str, readings: Readings) -> Heartbeat:
    """The signed word of this host. `session` is the one that `fresh.ask` returned for this nonce."""
    return Heartbeat(
        fleet=host.fence.fleet,
        host=host.fence.host,
        boot=host.boot,
        hseq=session.hseq,
        nonce=nonce,
        head=host.fence.head,
        term=host.fence.term,
        receipt_head=host.receipts.head,
        root_version=host.chain.root.version,
        clock_ms=now_ms,
        agent_version=version,
        inventory=inventory(host, readings),
        alarms=tuple(alarm[:200] for alarm in readings.alarms)[: limits.ALARMS],
        receipt_tail=tail(host.receipts),
        open=open_heads(host.fence),
        # Lets the controller tell a late heartbeat of an earlier run from one of a second agent with the same key.
        heard_ms=host.last_word.floor_ms,
    )
