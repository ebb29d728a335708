"""What a host says about itself: the inventory of a heartbeat, and the heartbeat.

A heartbeat that its controller would refuse for its size would make the host silent, so what is too much is left out in
a fixed order and an alarm says which count it was. A residency is left out last of all, since one that nobody sees
looks as if it were gone: the host takes none in that it could not show (`local`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gridops.base import canon, limits
from gridops.base.codes import protocol as codes
from gridops.base.ids import Digest
from gridops.base.record import known_digest, to_bytes
from gridops.base.units import counted
from gridops.model.fleet import Runtime
from gridops.model.measured import Measured
from gridops.model.snapshot import Ownership, Residency
from gridops.protocol.fence import open_heads
from gridops.protocol.fresh import Session
from gridops.protocol.messages import Ability, Heartbeat, Inventory, Transfer
from gridops.protocol.receipts import tail
from gridops.trust.release import demanded
from gridops_agent.core import guesses
from gridops_agent.core.state import Held, Host

ABILITIES = (Ability.BINDING.value, Ability.CATALOG.value, Ability.EVICT.value, Ability.PROOF.value)
DETAIL = (300, 310)
ALARM = (200, 400)
"""Characters, and bytes as JSON: a text in another script, or full of control characters, is cut earlier."""


@dataclass(frozen=True, slots=True)
class Readings:
    """What the shell knows and the heart does not remember."""

    runtimes: tuple[Runtime, ...] = ()
    cached: tuple[Digest, ...] = ()
    disk_free_bytes: int | None = None
    endpoint: str | None = None
    front_cert: str | None = None
    binding: str | None = None
    """The signed word on that certificate, where the controller has asked for it."""
    in_flight: Mapping[Digest, int] | None = None
    alarms: tuple[str, ...] = ()
    measured: tuple[Measured, ...] = ()
    goodbye: bool = False
    left: bool = False
    external: tuple[Residency, ...] = ()
    """Engines of this machine that are not ours: seen, and never touched."""
    transfers: tuple[Transfer, ...] = ()
    unread: tuple[str, ...] = ()
    """What could not be read of this machine, and why: shown on the host only."""


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
        residencies=(*(_residency(h, flights.get(h.body, 0)) for h in held), *readings.external)[
            : limits.RESIDENCIES_PER_HOST
        ],
        runtimes=readings.runtimes,
        cached=tuple(sorted(readings.cached))[: limits.CACHED_PER_HEARTBEAT],
        disk_free_bytes=readings.disk_free_bytes,
        endpoint=readings.endpoint,
        front_cert=readings.front_cert,
        binding=readings.binding,
        goodbye=readings.goodbye,
        left=readings.left or None,
        measured=readings.measured or None,
        # None where there is nothing, so that a controller of before they existed reads what it always read.
        transfers=readings.transfers[: limits.TRANSFERS] or None,
        prefetched=guesses.shown(host, readings.cached) or None,
        abilities=ABILITIES,
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
        identity=known_digest(warm.launch),
        devices=warm.devices,
        device_bytes=warm.device_bytes,
        host_bytes=warm.host_bytes,
        in_flight=in_flight,
        port=held.port,
        since_ms=held.since_ms,
        restarts=held.restarts,
        detail=_cut(": ".join(words), DETAIL) or None,
    )


def _cut(text: str, bounds: tuple[int, int]) -> str:
    chars, most = bounds
    text = text[:chars]
    while len(canon.dumps(text)) > most:
        text = text[: len(text) * 9 // 10]
    return text


def heartbeat(host: Host, session: Session, nonce: str, now_ms: int, version: str, readings: Readings) -> Heartbeat:
    """The signed word of this host. `session` is the one that `fresh.ask` returned for this nonce."""
    word = Heartbeat(
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
        receipt_tail=tail(host.receipts),
        open=open_heads(host.fence),
        # Lets the controller tell a late heartbeat of an earlier run from one of a second agent with the same key.
        heard_ms=host.last_word.floor_ms,
        catalog_version=_catalog_version(host),
    )
    word, missing = _within(word)
    missing = (*_beyond(host), *missing)
    said = tuple(f"{codes.OVER_CEILING.code}: the heartbeat leaves out {what}" for what in missing)
    alarms = tuple(_cut(alarm, ALARM) for alarm in (*said, *readings.alarms))
    return replace(word, alarms=alarms[: limits.ALARMS])


def _catalog_version(host: Host) -> int | None:
    """None where no catalog is asked for, so that a controller of before reads what it always read."""
    if demanded(host.known, host.chain) == 0:
        return None
    return host.known.catalog.version if host.known.catalog is not None else 0


def _beyond(host: Host) -> tuple[str, ...]:
    """What is more than the named counts allow to be shown."""
    counts = (
        ("devices", len(host.measured), limits.DEVICES_PER_HOST),
        ("residencies", len(host.held), limits.RESIDENCIES_PER_HOST),
    )
    return tuple(f"{have - most} of {have} {what}, {most} are shown" for what, have, most in counts if have > most)


def _within(word: Heartbeat) -> tuple[Heartbeat, tuple[str, ...]]:
    """The heartbeat at a size that is read, and what had to go for it. Its alarms have their own part of the bound."""
    seen, missing = word.inventory, []
    most = limits.HEARTBEAT_BYTES - limits.ALARMS * (ALARM[1] + 1)
    if len(to_bytes(word)) <= most:
        return word, ()
    if seen.cached:
        missing.append(f"all {len(seen.cached)} cached artifacts")
        word = replace(word, inventory=replace(seen, cached=(), prefetched=None))
    if len(to_bytes(word)) > most:
        missing.append("the details of the residencies, and all reasons of its state but the first")
        bare = tuple(replace(r, detail=None) for r in seen.residencies)
        reasons = tuple(_cut(reason, ALARM) for reason in seen.reasons[:1])
        word = replace(word, inventory=replace(word.inventory, residencies=bare, reasons=reasons))
    left = word.inventory.residencies
    while left and len(to_bytes(word)) > most:
        left = left[: len(left) * 9 // 10]
        word = replace(word, inventory=replace(word.inventory, residencies=left))
    if len(left) < len(seen.residencies):
        lacking, held = len(seen.residencies) - len(left), len(seen.residencies)
        missing.append(f"{lacking} of {counted(held, 'residency', 'residencies')}")
    return word, tuple(missing)
